"""Plays a story on clusters, and compares every look with what a real Kueue wrote there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from clusters.errors import Conflict, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection, WriteOptions
from clusters.reconcile.warm_engine import LIMIT_RANGE, RUNTIME_CLASS
from tests.resources import ALL
from tests.stories.differences import Difference, differences, unexplained
from tests.stories.documents import NAMESPACE, documents_of
from tests.stories.pods import STATUS, Pods
from tests.stories.statuses import Snapshot, job_name, snapshot, state_of
from tests.stories.story import Deviation, Step, Story, read_yaml

Document = dict[str, Any]
LOOK_WITHIN_S = 60.0
# Kueue writes the statuses of queues at most once a second.
STILL_FOR_S = 2.5
_POLL_S = 0.1
_KINDS = {resource.kind: resource for resource in (*ALL, LIMIT_RANGE, RUNTIME_CLASS)}


@dataclass(slots=True)
class Stage:
    """Clusters that a story is played on.

    Attributes:
        clients: Administrators' clients by cluster name.
        pods: How pods are played.
        is_kueue: A real Kueue decides here.
        shows_events: Events are written and kept here.
    """

    clients: Mapping[str, KubeClient]
    pods: Pods
    is_kueue: bool = False
    shows_events: bool = True


@dataclass(slots=True)
class Player:
    """One play of one story.

    Attributes:
        records: Write down what is seen instead of comparing it.
    """

    story: Story
    stage: Stage
    records: bool = False
    recorded: dict[str, Any] = field(default_factory=dict)
    _met: list[Deviation] = field(default_factory=list)
    _looked_at: str = ""

    def play(self) -> None:
        """Play it to its end.

        Raises:
            AssertionError: a look is not what was recorded, or a deviation does not occur.
        """
        if not self.records:
            self.recorded = read_yaml(self.story.recording)
        for entry in self.story.objects:
            self._create(self._client(self.story.clusters[0]), entry)
        for step in self.story.steps:
            self._take(step)
        if self.records:
            self._save()
        elif not self.stage.is_kueue:
            unmet = [
                each.at
                for each in self.story.deviations
                if each not in self._met and (self.stage.shows_events or "/events/" not in each.at)
            ]
            assert not unmet, f"deviations that do not occur (any more): {unmet}"

    def _take(self, step: Step) -> None:
        client, given = self._client(step.on), step.given
        match step.action:
            case "create":
                self._until_after_the_look()
                for entry in given if isinstance(given, list) else [given]:
                    self._create(client, entry)
            case "patch":
                self._patch(client, given)
            case "delete":
                resource = _KINDS[given["kind"]]
                client.delete(resource, given["name"], namespace=_namespace(resource, given))
            case "pods":
                self._pods(client, given)
            case "check":
                self._check(client, given)
            case "wait":
                time.sleep(float(given))
            case "look":
                self._look(step)
                self._looked_at = _second()

    def _client(self, name: str) -> KubeClient:
        return self.stage.clients[name]

    def _until_after_the_look(self) -> None:
        """What was looked at is older by a second: those of one second go by their uids."""
        while _second() == self._looked_at:
            time.sleep(_POLL_S)

    def _create(self, client: KubeClient, entry: Mapping[str, Any]) -> None:
        for document in documents_of(entry):
            resource = _KINDS[document["kind"]]
            status = document.pop("status", None)
            made = client.create(resource, document)
            if status is not None:
                metadata = made["metadata"]
                client.patch(
                    resource, metadata["name"], {"status": status},
                    namespace=metadata.get("namespace"), options=STATUS,
                )  # fmt: skip

    def _patch(self, client: KubeClient, given: Mapping[str, Any]) -> None:
        resource = _KINDS[given["kind"]]
        name = given["name"]
        if resource == r.WORKLOAD:
            name = self._workload(client, name)["metadata"]["name"]
        options = WriteOptions(subresource=given.get("subresource", ""))
        made = client.patch(
            resource, name, given["body"], namespace=_namespace(resource, given), options=options
        )
        if resource == r.CLUSTER_QUEUE and not options.subresource:
            self._until_seen(client, made)

    def _until_seen(self, client: KubeClient, queue: Document) -> None:
        """Until the scheduler knows a changed queue: watches of other kinds may be ahead of it."""
        name, generation = queue["metadata"]["name"], queue["metadata"]["generation"]
        ends = time.monotonic() + LOOK_WITHIN_S
        while True:
            status = client.get(r.CLUSTER_QUEUE, name).get("status") or {}
            seen = [row.get("observedGeneration", 0) for row in status.get("conditions") or []]
            if max(seen, default=0) >= generation:
                return
            assert time.monotonic() < ends, f"nobody has seen the change of ClusterQueue {name}"
            time.sleep(0.05)

    def _pods(self, client: KubeClient, given: Mapping[str, Any]) -> None:
        place = given.get("namespace", NAMESPACE), given["job"]
        pods = self.stage.pods
        if "ready" in given:
            pods.ready(client, *place, given["ready"])
        if "not_ready" in given:
            pods.not_ready(client, *place, given["not_ready"])
        for word, well in (("succeeded", True), ("failed", False)):
            if word in given:
                pods.ended(client, *place, given[word], well=well)

    def _check(self, client: KubeClient, given: Mapping[str, Any]) -> None:
        """Answer for the controller of an AdmissionCheck."""
        ends = time.monotonic() + LOOK_WITHIN_S
        while True:
            workload = self._workload(client, given["job"])
            checks = (workload.get("status") or {}).get("admissionChecks") or []
            entry = next((each for each in checks if each["name"] == given["check"]), None)
            if entry is not None:
                entry |= {"state": given["state"], "message": given.get("message", "")}
                entry["lastTransitionTime"] = _second()
                for key in ("requeueAfterSeconds", "podSetUpdates"):
                    if key in given:
                        entry[key] = given[key]
                if written(client, workload, {"admissionChecks": checks}):
                    return
            assert time.monotonic() < ends, f"{given['job']} does not list {given['check']}"
            time.sleep(_POLL_S)

    def _workload(self, client: KubeClient, job: str) -> Document:
        ends = time.monotonic() + LOOK_WITHIN_S
        while True:
            for workload in client.list(r.WORKLOAD, Selection(namespace=NAMESPACE)).items:
                if job_name(workload) == job:
                    return workload
            assert time.monotonic() < ends, f"{job} has no Workload"
            time.sleep(_POLL_S)

    # Looks

    def _look(self, step: Step) -> None:
        name = str(step.given)
        with_events = name == self.story.looks[-1]
        if self.records:
            seen = self._still(step, with_events=with_events)
            wrong = _wrong_states(step, seen)
            assert not wrong, f"{name}: {wrong}\n{yaml.safe_dump(seen)}"
            self.recorded[name] = seen
            return
        ends = time.monotonic() + LOOK_WITHIN_S
        while True:
            rest, met = self._compared(step, with_events=with_events)
            if not rest:
                self._met += met
                return
            if time.monotonic() > ends:
                lines = "\n".join(str(each) for each in rest)
                raise AssertionError(f"{self.story.name}: {name}: not as recorded\n{lines}")
            time.sleep(_POLL_S)

    def _compared(
        self, step: Step, *, with_events: bool
    ) -> tuple[list[Difference], list[Deviation]]:
        name = str(step.given)
        seen, recorded = self._seen(with_events=with_events), dict(self.recorded[name])
        if not (with_events and self.stage.shows_events):
            for one in (seen, recorded):
                for cluster in one.values():
                    cluster.pop("events", None)
        found = list(differences(recorded, seen, path=name))
        if len(self.story.clusters) == 1:
            found = [_within_the_only(each, self.story.clusters[0]) for each in found]
        return unexplained(found, () if self.stage.is_kueue else self.story.deviations)

    def _seen(self, *, with_events: bool) -> dict[str, Snapshot]:
        events = with_events and self.stage.shows_events
        return {
            name: snapshot(self._client(name), with_events=events) for name in self.story.clusters
        }

    def _still(self, step: Step, *, with_events: bool) -> dict[str, Snapshot]:
        """What is seen once nothing has changed for a while."""
        ends = time.monotonic() + LOOK_WITHIN_S
        seen, since = self._seen(with_events=with_events), time.monotonic()
        while time.monotonic() - since < STILL_FOR_S or (
            _wrong_states(step, seen) and time.monotonic() < ends
        ):
            time.sleep(_POLL_S)
            again = self._seen(with_events=with_events)
            if again != seen:
                seen, since = again, time.monotonic()
        return seen

    def _save(self) -> None:
        self.story.recording.parent.mkdir(exist_ok=True)
        text = yaml.safe_dump(self.recorded, sort_keys=True, width=100)
        self.story.recording.write_text(text)


def _second() -> str:
    """Now, as the API server writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _wrong_states(step: Step, seen: Mapping[str, Snapshot]) -> dict[str, str]:
    """Jobs whose workload has not come as far as the look says, with how far it has."""
    workloads = seen[step.on]["workloads"]
    states = {job: state_of(workloads.get(job)) for job in step.workloads}
    return {job: state for job, state in states.items() if state != step.workloads[job]}


def _within_the_only(difference: Difference, cluster: str) -> Difference:
    """Paths of a story with one cluster do not name it."""
    path = difference.path.replace(f"/{cluster}/", "/", 1)
    return Difference(path, difference.recorded, difference.seen)


def _namespace(resource: r.Resource, given: Mapping[str, Any]) -> str | None:
    return str(given.get("namespace", NAMESPACE)) if resource.namespaced else None


def written(client: KubeClient, document: Document, status: Document) -> bool:
    metadata = document["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
    try:
        client.patch(
            r.WORKLOAD, metadata["name"], body, namespace=metadata["namespace"], options=STATUS
        )
    except (Conflict, NotFound):
        return False
    return True
