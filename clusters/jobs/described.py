"""Kinds of jobs that a few paths describe: where their pod sets stand, what stops, ends, counts.

What a start marks (selectors, tolerations, labels) goes into each pod set's template and comes off
again. A copy is metadata and spec, its status is taken over as a whole. Pure.

Source: Kueue pkg/controller/jobs/{jobset,kubeflow,rayjob}, .../externalframeworks, pkg/podset,
v0.19.2; spec admission 5, dispatch 2.9, 4.
Deviation from Kueue: fields by which an object removes itself are not sent (2.10).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import prod
from typing import Any, Final

from clusters.documents.conditions import conditions_of, is_true
from clusters.documents.keys import Document, status_of
from clusters.documents.resources import Resource
from clusters.jobs import counting, remote, workloads
from clusters.jobs.kind import JobKind, JobOutcome
from clusters.jobs.marking import Marks, marks_for
from clusters.jobs.paths import drop, entries, put, values, zero

_GOOD: Final = ("ready", "succeeded")
_ENDS: Final[Mapping[str, str]] = {
    "Complete": "Succeeded",
    "Completed": "Succeeded",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
}


@dataclass(frozen=True, slots=True)
class PodSetsAt:
    """Where pod sets stand in ``spec``.

    Attributes:
        at: Path of each; ``*`` for every entry of a list or map.
        template: Pod template below it.
        counts: Factors of the number of pods, each the least of what stands at its paths, 1 where
            nothing does.
        name: Fixed name; empty where ``name_field`` or the key in a map is it.
        name_field: Field below it that names it.
        part_index: Label that numbers its replicas, which number their pods each by themselves.
    """

    at: str
    template: str = "template"
    counts: tuple[tuple[str, ...], ...] = (("replicas",),)
    name: str = ""
    name_field: str = ""
    part_index: str = ""

    def name_of(self, key: str, entry: Document) -> str:
        """Name of one pod set, which stands under a key."""
        return self.name or str(entry.get(self.name_field) if self.name_field else key).lower()

    def count_of(self, entry: Document) -> int:
        """Number of its pods."""
        return prod(
            min((counting.count(n) for path in factor for n in values(entry, path)), default=1)
            for factor in self.counts
        )


@dataclass(frozen=True, eq=False)
class Described(JobKind):
    """One kind, in paths below ``spec`` and ``status``.

    Attributes, besides those of every kind:
        managed_by: Field of ``spec`` that says who runs it.
        suspend: Field of ``spec`` that stops it; empty for a kind without one.
        not_sent: Fields of ``spec`` that a copy must not have.
        active: Fields of ``status`` that count running pods.
        idle: Field of ``status`` and its values while no pod runs; empty where ``active`` says it.
        pod_sets_at: Where its pod sets stand; empty where its owner makes its Workloads.
        order: Names that go first, in this order.
        result: Field of ``status`` with the end, and what its values mean; else conditions tell.
        ready: Condition that says that all pods run; empty where ``ready_at`` tells.
        ready_at: Field of ``status`` and its value once all pods run.
        ready_counts: List in ``status`` whose entries, by name, count replicas that are ready or
            done.
        unclear: Field of ``spec``, values of it, another field: with such a value and without the
            other field its pod sets cannot be told.
        added: Fields of ``spec`` that are containers which its controller adds to pods.
    """

    resource: Resource
    integration: str = ""
    words: str = "the portal"
    is_adopted: bool = True
    is_queued_here: bool = True
    is_silent: bool = False
    tells_end: bool = True
    managed_by: str = "managedBy"
    suspend: str = ""
    not_sent: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    idle: tuple[str, tuple[str, ...]] = ("", ())
    pod_sets_at: tuple[PodSetsAt, ...] = ()
    order: tuple[str, ...] = ()
    result: tuple[str, Mapping[str, str]] = ("", {})
    ready: str = ""
    ready_at: tuple[str, str] = ("", "")
    ready_counts: str = ""
    unclear: tuple[str, tuple[str, ...], str] = ("", (), "")
    added: tuple[str, ...] = ()
    is_placed: bool = False
    pod_index: str = ""

    def ranks(self, job: Document, pod_set: str) -> dict[str, Any]:
        """With parts that number their pods each by themselves, as ``part_index`` says."""
        found = super().ranks(job, pod_set)
        for place in self.pod_sets_at if found else ():
            for key, entry in entries(job["spec"], place.at) if place.part_index else ():
                if place.name_of(key, entry) == pod_set:
                    parts = counting.count(entry.get("replicas"))
                    found |= {"subGroupIndexLabel": place.part_index, "subGroupCount": parts}
        return found

    def counts(self, job: Document) -> Iterator[tuple[str, Any]]:
        yield from super().counts(job)
        for place in self.pod_sets_at:
            for key, entry in entries(job.get("spec") or {}, place.at):
                for path in (path for factor in place.counts for path in factor):
                    for number in values(entry, path):
                        yield f"{path} of {place.name_of(key, entry)}", number
                yield f"number of pods of {place.name_of(key, entry)}", place.count_of(entry)

    def is_clear(self, job: Document) -> bool:
        """Not where pods are made up by somebody else; then its Workload is theirs to make."""
        if not self.is_queued_here:
            return False
        field, words, other = self.unclear
        spec = job["spec"]
        return not field or (
            next(values(spec, field), "") not in words
            or next(values(spec, other), None) is not None
        )

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        found = [
            {"name": name, "count": count, "template": workloads.clean_template(template)}
            for name, count, template in self._found(job["spec"])
        ]
        rank = {name: place for place, name in enumerate(self.order)}
        return sorted(found, key=lambda item: rank.get(str(item["name"]), len(rank)))

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """The same pod sets, containers and counts."""
        if not self.is_clear(job):
            return True
        wanted, found = self.pod_sets(job), workload["spec"].get("podSets") or []
        return [_compared(item) for item in wanted] == [_compared(item) for item in found]

    def is_suspended(self, job: Document) -> bool:
        return bool(next(values(job["spec"], self.suspend), False))

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        assigned = {item["name"]: item for item in workloads.assignments_of(workload)}
        wanted = {}
        for item in workload["spec"]["podSets"]:
            original = item["template"]
            assignment = assigned.get(item["name"], {"name": item["name"]})
            marks = marks_for(
                job, workload, assignment,
                original=original, flavors=flavors, is_placed=self.is_placed,
            )  # fmt: skip
            wanted[item["name"]] = _marked(original, marks)
        spec = self._with_templates(job["spec"], wanted)
        put(spec, self.suspend, False)
        return remote.guarded(job, remote.replacing(job["spec"], spec))

    def suspend_patch(self, job: Document) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        put(spec, self.suspend, True)
        return remote.guarded(job, spec)

    def restore_patch(self, job: Document, workload: Document) -> dict[str, Any] | None:
        if not self.is_clear(job):
            return None
        wanted = {item["name"]: item["template"] for item in workload["spec"]["podSets"]}
        live = {item["name"]: item["template"] for item in self.pod_sets(job)}
        if live == wanted:
            return None
        spec = self._with_templates(job["spec"], wanted)
        return remote.guarded(job, remote.replacing(job["spec"], spec))

    def are_pods_ready(self, job: Document) -> bool:
        status = status_of(job)
        if self.ready:
            return is_true(job, self.ready)
        field, value = self.ready_at
        if field:
            return bool(next(values(status, field), "") == value)
        seen = {item.get("name"): item for item in status.get(self.ready_counts) or ()}
        return all(
            sum(counting.count(seen.get(entry.get("name"), {}).get(word), 0) for word in _GOOD)
            >= counting.count(entry.get("replicas"))
            for place in self.pod_sets_at
            for _, entry in entries(job["spec"], place.at)
        )

    def outcome_of(self, job: Document) -> JobOutcome | None:
        status = status_of(job)
        field, words = self.result
        if field:
            text = str(next(values(status, field), ""))
            reason = words.get(text)
            return JobOutcome(reason, str(status.get("message") or text)) if reason else None
        for entry in conditions_of(job):
            reason = _ENDS.get(str(entry.get("type")))
            if reason and entry.get("status") == "True":
                return JobOutcome(reason, str(entry.get("message") or f"{job['kind']} {reason}"))
        return None

    def is_active(self, job: Document) -> bool:
        status = status_of(job)
        if any(found for path in self.active for found in values(status, path)):
            return True
        field, words = self.idle
        if field:
            return next(values(status, field), "") not in words
        return self.is_silent

    def copy_of(
        self, job: Document, workload: Document, *, marks: remote.CopyMarks
    ) -> dict[str, Any]:
        spec = copy.deepcopy(dict(job.get("spec") or {}))
        if self.is_clear(job):
            # A start on the manager may have marked them with the manager's own flavors.
            wanted = {item["name"]: item["template"] for item in workload["spec"]["podSets"]}
            spec = self._with_templates(spec, wanted)
        for path in (self.managed_by, *self.not_sent):
            drop(spec, path)
        if self.suspend:
            put(spec, self.suspend, True)
        return {"metadata": remote.copy_metadata(job, workload, marks=marks), "spec": spec}

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        wanted = status_of(copied)
        # A copy that has not begun says nothing yet; what the manager shows stays.
        if not wanted or wanted == status_of(local):
            return None
        return remote.status_patch(local, wanted)

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        if self.is_silent:
            return None
        status = copy.deepcopy(dict(status_of(local)))
        for path in self.active:
            zero(status, path)
        field, words = self.idle
        if field:
            put(status, field, words[0])
        return remote.status_patch(local, status)

    def _found(self, spec: Document) -> Iterator[tuple[str, int, Document]]:
        for place in self.pod_sets_at:
            for key, entry in entries(spec, place.at):
                template = next(values(entry, place.template), None)
                if template is not None:
                    yield place.name_of(key, entry), place.count_of(entry), template

    def _with_templates(self, spec: Document, templates: Mapping[str, Document]) -> dict[str, Any]:
        changed = copy.deepcopy(dict(spec))
        for place in self.pod_sets_at:
            for key, entry in entries(changed, place.at):
                template = templates.get(place.name_of(key, entry))
                if template is not None and next(values(entry, place.template), None) is not None:
                    put(entry, place.template, copy.deepcopy(dict(template)))
        return changed


def named(resource: Resource) -> Described:
    """A kind that an admin names: ``spec.managedBy`` and no more is known of it."""
    return Described(
        resource, words="the owner of the kind", is_adopted=False, is_queued_here=False,
        is_silent=True, tells_end=False,
    )  # fmt: skip


def _compared(pod_set: Mapping[str, Any]) -> tuple[Any, ...]:
    name, count = str(pod_set.get("name", "")), int(pod_set.get("count", 1))
    return name, count, workloads.containers_of(pod_set["template"])


def _marked(template: Document, marks: Marks) -> dict[str, Any]:
    found = copy.deepcopy(dict(template))
    for part, field, value in marks.fields():
        node = found.setdefault(part, {})
        if value:
            node[field] = value
    return found
