"""What the pods of an admitted pod set have to carry: what a start puts on, and a stop takes off.

Source: Kueue pkg/podset, v0.19.2; spec admission 5.5. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document, status_of
from clusters.jobs.workloads import queue_of


class StartRefused(Exception):
    """The job cannot take what its admission demands, whatever is tried: finish the Workload."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Everything of a pod template that a start may change."""

    selector: dict[str, str]
    labels: dict[str, str]
    annotations: dict[str, str]
    tolerations: list[Document]
    gates: list[Document]

    @classmethod
    def of(cls, template: Document) -> Marks:
        """Those of a template, in maps and lists of their own."""
        metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
        return cls(
            selector=dict(pod.get("nodeSelector") or {}),
            labels=dict(metadata.get("labels") or {}),
            annotations=dict(metadata.get("annotations") or {}),
            tolerations=list(pod.get("tolerations") or []),
            gates=list(pod.get("schedulingGates") or []),
        )

    def add(self, update: Document) -> None:
        """Adds what a flavor or a check demands; raises StartRefused on a contradiction."""
        _merge(self.selector, update.get("nodeSelector") or {}, "nodeSelector")
        _merge(self.labels, update.get("labels") or {}, "labels")
        _merge(self.annotations, update.get("annotations") or {}, "annotations")
        more = update.get("tolerations") or ()
        self.tolerations.extend(item for item in more if item not in self.tolerations)

    def fields(self) -> tuple[tuple[str, str, Any], ...]:
        """Each with where it stands in a template."""
        return (
            ("metadata", "labels", self.labels),
            ("metadata", "annotations", self.annotations),
            ("spec", "nodeSelector", self.selector),
            ("spec", "tolerations", self.tolerations),
            ("spec", "schedulingGates", self.gates),
        )


def marks_for(
    job: Document,
    workload: Document,
    assignment: Document,
    *,
    original: Document,
    flavors: Mapping[str, Document],
    is_placed: bool = False,
) -> Marks:
    """What the pods of one admitted pod set have to carry, by its template as its owner wrote it.

    Raises:
        StartRefused: the template and the admission contradict each other, or pods are to be
            placed by topology that are not ``is_placed``.
    """
    wanted = flavored(workload, assignment, original=original, flavors=flavors)
    wanted.labels.update(_labels(job, workload, assignment))
    if assignment.get("topologyAssignment"):
        if not is_placed:
            raise StartRefused(
                f"pods of a {job.get('kind', 'Job')} are not placed by topology here, and the "
                "admission places them"
            )
        wanted.add({"annotations": _placing(workload, assignment)})
        gate = {"name": labels.TOPOLOGY_GATE}
        wanted.gates.extend([] if gate in wanted.gates else [gate])
    return wanted


def flavored(
    workload: Document,
    assignment: Document,
    *,
    original: Document,
    flavors: Mapping[str, Document],
) -> Marks:
    """What a template, its flavors and the checks demand of the pods of one pod set.

    Raises:
        StartRefused: they contradict each other.
    """
    wanted = Marks.of(original)
    for name in dict.fromkeys((assignment.get("flavors") or {}).values()):
        spec = (flavors.get(name) or {}).get("spec") or {}
        wanted.add({"nodeSelector": spec.get("nodeLabels"), "tolerations": spec.get("tolerations")})
    for update in _updates(workload, assignment.get("name", "")):
        wanted.add(update)
    return wanted


def _placing(workload: Document, assignment: Document) -> dict[str, str]:
    """What tells whoever takes the gate off which Workload says where pods run."""
    found = {labels.WORKLOAD: str(workload["metadata"]["name"])}
    request: Mapping[str, Any] = next(
        (
            item.get("topologyRequest") or {}
            for item in workload["spec"]["podSets"]
            if item["name"] == assignment.get("name")
        ),
        {},
    )
    if all(request.get(name) is None for name in ("required", "preferred", "unconstrained")):
        found[labels.UNCONSTRAINED] = "true"
    return found


def _labels(job: Document, workload: Document, assignment: Document) -> dict[str, str]:
    admission = status_of(workload).get("admission") or {}
    found = {labels.POD_SET: str(assignment.get("name", "main"))}
    # Only names that fit a label value are told there.
    for label, value in (
        (labels.CLUSTER_QUEUE_NAME, str(admission.get("clusterQueue", ""))),
        (labels.LOCAL_QUEUE_NAME, queue_of(job)),
    ):
        if 0 < len(value) <= 63:
            found[label] = value
    return found


def _updates(workload: Document, name: str) -> Sequence[Document]:
    checks = status_of(workload).get("admissionChecks") or ()
    return [
        update
        for check in checks
        for update in check.get("podSetUpdates") or ()
        if update.get("name") == name
    ]


def _merge(target: dict[str, Any], more: Mapping[str, Any], what: str) -> None:
    for key, value in more.items():
        if target.get(key, value) != value:
            raise StartRefused(
                f"{what} {key} is {target[key]} already, the admission wants {value}"
            )
        target[key] = value
