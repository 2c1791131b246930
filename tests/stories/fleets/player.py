"""Plays a story on one column's stage, and compares every look with what a real Kueue wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient, Propagation, WriteOptions
from tests.resources import ALL
from tests.stories.differences import Difference, differences, unexplained
from tests.stories.fleets.expectations import unmet
from tests.stories.fleets.form import (
    ALIASES,
    MANAGER,
    WORKERS,
    FleetStep,
    FleetStory,
    common_deviations,
)
from tests.stories.fleets.objects import made, namespace_of, story_objects
from tests.stories.fleets.observer import Judge, has_origin
from tests.stories.fleets.snapshot import Snapshot, objects_of, snapshot
from tests.stories.fleets.stage import Stage
from tests.stories.player import written
from tests.stories.story import Deviation, read_yaml

Document = dict[str, Any]
STILL_FOR_S = 2.5
_KINDS = {resource.kind: resource for resource in ALL}
_BACKGROUND = DeleteOptions(propagation=Propagation.BACKGROUND)
_CLUSTER_SCOPED = (r.CLUSTER_QUEUE, r.COHORT, r.ADMISSION_CHECK, r.MULTIKUEUE_CONFIG)


@dataclass(slots=True)
class FleetPlayer:
    """One play of one story.

    Attributes:
        records: Write down what is seen instead of comparing it.
    """

    story: FleetStory
    stage: Stage
    records: bool = False
    recorded: dict[str, Any] = field(default_factory=dict)
    _met: list[Deviation] = field(default_factory=list)
    _alias: dict[str, str] = field(default_factory=dict)

    def play(self) -> None:
        """Play it to its end, judge its history, and take everything away again.

        Raises:
            AssertionError: a look is not what was recorded, a deviation does not occur, an
                invariant was broken, or something was left behind on a worker.
        """
        if self.story.recording.exists():
            self.recorded = read_yaml(self.story.recording) or {}
        try:
            self._set_up()
            for step in self.story.steps:
                self._take(step)
            self._heal()
            left = self._left_behind()
            self._judge(left)
        finally:
            self._heal()
            self._tidy_up()
        if self.records:
            self._save()
        elif not self.stage.is_kueue:
            missing = [each.at for each in self.story.deviations if each not in self._met]
            assert not missing, f"deviations that do not occur (any more): {missing}"

    # Beginning and end

    def _set_up(self) -> None:
        for cluster in self.story.namespaces:
            self.stage.clients[cluster].create(r.NAMESPACE, namespace_of(self.story))
        for cluster, document in story_objects(self.story, self.stage.origin):
            self._create(self.stage.clients[cluster], document)
        connected = {"active": dict.fromkeys(self.story.workers, True)}
        self._until(connected)

    def _heal(self) -> None:
        for worker in WORKERS:
            self.stage.restore(worker)

    def _left_behind(self) -> list[str]:
        """Deletes the manager's Jobs; what then stays on workers of what dispatch made."""
        manager = self._client(MANAGER)
        for name in objects_of(manager, self.story.namespace)["jobs"]:
            self._delete(manager, r.JOB, name)
        left: list[str] = []

        def is_clean() -> bool:
            left[:] = [*self._made_by_dispatch(), *self._still_on_manager()]
            return not left

        try:
            self.stage.until(is_clean, why=lambda: f"left behind: {left}")
        except AssertionError:
            if not left:
                raise
        return list(left)

    def _still_on_manager(self) -> list[str]:
        found = objects_of(self._client(MANAGER), self.story.namespace)["workloads"]
        return [f"{MANAGER}: Workload of {name}" for name in found]

    def _made_by_dispatch(self) -> list[str]:
        return [
            f"{worker}: {kind} of {name}"
            for worker in WORKERS
            for kind, items in objects_of(self._client(worker), self.story.namespace).items()
            for name, each in items.items()
            if has_origin(dict(each), self.stage.origin)
        ]

    def _judge(self, left: list[str]) -> None:
        judge = Judge(self.stage.history_of(self.story.namespace), origin=self.stage.origin)
        broken = judge.broken() | ({"orphans": left} if left else {})
        forgiven = self.story.breaks if self.stage.is_kueue else {}
        unforgiven = {rule: faults for rule, faults in broken.items() if rule not in forgiven}
        assert not unforgiven, f"{self.story.name}: broken: {unforgiven}"

    def _tidy_up(self) -> None:
        namespace = self.story.namespace
        for client in self.stage.clients.values():
            for resource in (r.JOB, r.WORKLOAD, r.LOCAL_QUEUE):
                for name in _names(client, resource, namespace):
                    self._delete(client, resource, name)
            for resource in _CLUSTER_SCOPED:
                for name in _names(client, resource):
                    if name == namespace or name.startswith(f"{namespace}-"):
                        self._delete(client, resource, name)

    # Steps

    def _take(self, step: FleetStep) -> None:
        given = step.given
        match step.action:
            case "create":
                for entry in given if isinstance(given, list) else [given]:
                    for document in made(self.story, entry, on=step.on, origin=self.stage.origin):
                        self._create(self._client(step.on), document)
            case "patch":
                self._patch(self._client(step.on), given)
            case "delete":
                self._delete_named(self._client(step.on), given)
            case "pods":
                self._pods(self._client(step.on), given)
            case "check":
                self._check(given)
            case "winner":
                self._bind(given)
            case "cut" | "restore" | "restart":
                getattr(self.stage, step.action)(self._cluster(given))
            case "wait":
                self.stage.wait(float(given))
            case "until":
                self._until(step.expected)
            case "look":
                self._look(step)

    def _cluster(self, name: str) -> str:
        return self._alias.get(name, name)

    def _client(self, name: str) -> KubeClient:
        return self.stage.clients[self._cluster(name)]

    def _create(self, client: KubeClient, document: Document) -> None:
        resource, status = _KINDS[document["kind"]], document.pop("status", None)
        created = client.create(resource, document)
        if status is not None:
            metadata = created["metadata"]
            client.patch(
                resource, metadata["name"], {"status": status},
                namespace=metadata.get("namespace"), options=WriteOptions(subresource="status"),
            )  # fmt: skip

    def _patch(self, client: KubeClient, given: Mapping[str, Any]) -> None:
        resource, name = self._object(client, given)
        client.patch(
            resource, name, given["body"], namespace=self._namespace(resource),
            options=WriteOptions(subresource=given.get("subresource", "")),
        )  # fmt: skip

    def _delete_named(self, client: KubeClient, given: Mapping[str, Any]) -> None:
        self._delete(client, *self._object(client, given))

    def _object(self, client: KubeClient, given: Mapping[str, Any]) -> tuple[r.Resource, str]:
        resource, name = _KINDS[given["kind"]], str(given["name"])
        if resource == r.WORKLOAD:
            found = self.stage.until(
                lambda: objects_of(client, self.story.namespace)["workloads"].get(name),
                why=f"{name} has no Workload",
            )
            return resource, str(found["metadata"]["name"])
        if resource in _CLUSTER_SCOPED:
            is_queue = resource == r.CLUSTER_QUEUE and name == "team"
            name = self.story.namespace if is_queue else f"{self.story.namespace}-{name}"
        return resource, name

    def _delete(self, client: KubeClient, resource: r.Resource, name: str) -> None:
        try:
            client.delete(resource, name, namespace=self._namespace(resource), options=_BACKGROUND)
        except NotFound:
            return

    def _namespace(self, resource: r.Resource) -> str | None:
        return self.story.namespace if resource.namespaced else None

    def _pods(self, client: KubeClient, given: Mapping[str, Any]) -> None:
        place, pods = (client, self.story.namespace, given["job"]), self.stage.pods
        if "ready" in given:
            pods.ready(*place, given["ready"])
        for word, well in (("succeeded", True), ("failed", False)):
            if word in given:
                pods.ended(*place, given[word], well=well)

    def _check(self, given: Mapping[str, Any]) -> None:
        """Answer for the controller of an AdmissionCheck."""
        name, client = f"{self.story.namespace}-{given['check']}", self._client(MANAGER)

        def is_answered() -> bool:
            found = objects_of(client, self.story.namespace)["workloads"].get(given["job"])
            checks = ((found or {}).get("status") or {}).get("admissionChecks") or []
            entry = next((each for each in checks if each["name"] == name), None)
            if found is None or entry is None:
                return False
            entry |= {"state": given["state"], "message": given.get("message", "")}
            entry["lastTransitionTime"] = self.stage.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            return written(client, dict(found), {"admissionChecks": checks})

        self.stage.until(is_answered, why=f"{given['job']} does not list {given['check']}")

    def _bind(self, job: str) -> None:
        found: list[str] = []

        def is_chosen() -> bool:
            workload = objects_of(self._client(MANAGER), self.story.namespace)["workloads"].get(job)
            found[:] = [((workload or {}).get("status") or {}).get("clusterName") or ""]
            return bool(found[0])

        self.stage.until(is_chosen, why=f"no worker is chosen for {job}")
        other = next(each for each in WORKERS if each != found[0])
        self._alias = dict(zip(ALIASES, (found[0], other), strict=True))

    # Looks

    def _until(self, expected: Mapping[str, Mapping[str, Any]]) -> None:
        self.stage.until(
            lambda: not unmet(self._client, self.story, expected, self._cluster),
            why=lambda: self._told(expected),
        )

    def _told(self, expected: Mapping[str, Mapping[str, Any]]) -> str:
        wrong = unmet(self._client, self.story, expected, self._cluster)
        return f"{self.story.name}: {wrong}\n{yaml.safe_dump(self._seen())}"

    def _look(self, step: FleetStep) -> None:
        is_other = bool(step.portal) and not self.stage.is_kueue
        name = f"{step.given} (portal)" if is_other else str(step.given)
        expected = dict(step.expected)
        if is_other:
            expected |= {key: value for key, value in step.portal.items() if key != "why"}
        if self.records and (self.stage.is_kueue or is_other):
            self.recorded[name] = self._still(expected)
            return
        rest: list[Difference] = []

        def is_as_recorded() -> bool:
            rest[:] = self._compared(name)
            return not rest

        self._until(expected)
        self.stage.until(is_as_recorded, why=lambda: self._unlike(name, rest))

    def _unlike(self, name: str, rest: list[Difference]) -> str:
        lines = "\n".join(str(each) for each in rest)
        return f"{self.story.name}: {name}: not as recorded\n{lines}"

    def _compared(self, name: str) -> list[Difference]:
        found = differences(self.recorded[name], self._seen(), path=name)
        if self.stage.is_kueue or name.endswith(" (portal)"):
            return list(found)
        own = self.story.deviations
        rest, met = unexplained(found, own)
        self._met += met
        return unexplained(rest, common_deviations())[0]

    def _seen(self) -> Snapshot:
        names = {cluster: alias for alias, cluster in self._alias.items()}
        return snapshot(self.stage.clients, self.story.namespace, names)

    def _still(self, expected: Mapping[str, Mapping[str, Any]]) -> Snapshot:
        """What is seen once it is as expected and nothing has changed for a while."""
        kept: list[Any] = [None, 0.0]

        def is_still() -> bool:
            seen, now = self._seen(), self.stage.monotonic()
            if seen != kept[0] or unmet(self._client, self.story, expected, self._cluster):
                kept[:] = [seen, now]
            return bool(now - kept[1] >= STILL_FOR_S)

        self.stage.until(is_still, why=lambda: self._told(expected))
        found: Snapshot = kept[0]
        return found

    def _save(self) -> None:
        looks = [str(step.given) for step in self.story.steps if step.action == "look"]
        known = {*looks, *(f"{name} (portal)" for name in looks)}
        kept = {key: value for key, value in self.recorded.items() if key in known}
        self.story.recording.parent.mkdir(exist_ok=True)
        self.story.recording.write_text(yaml.safe_dump(kept, sort_keys=True, width=100))


def _names(client: KubeClient, resource: r.Resource, namespace: str = "") -> list[str]:
    try:
        items = client.list(resource).items
    except NotFound:
        return []
    return [
        str(each["metadata"]["name"])
        for each in items
        if not namespace or each["metadata"].get("namespace") == namespace
    ]
