"""Nodes and pods as placement sees them, and whether a node takes the pods of a pod set.

Source: Kueue pkg/cache/scheduler/{tas_nodes_cache,tas_non_tas_pod_cache,
scheduling_simulator_default}.go, pkg/controller/tas, v0.19.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, key_of
from clusters.kueue.amounts import count_of, wholes
from clusters.kueue.configuration import Configuration
from clusters.kueue.workload.matching import (
    NodeRules,
    NodeTerm,
    Taint,
    Toleration,
    parse_taints,
    untolerated_taint,
)
from clusters.kueue.workload.requests import PodSurroundings, pod_requests

Amounts: TypeAlias = Mapping[str, int]

PODS: Final = "pods"
_PREFIX: Final = "kueue.x-k8s.io/"
PLACED_BY_KUEUE: Final = tuple(
    f"{_PREFIX}{name}"
    for name in (
        "podset-preferred-topology",
        "podset-required-topology",
        "podset-unconstrained-topology",
        "podset-slice-required-topology",
        "podset-slice-required-topology-constraints",
    )
)
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_AS_IS: Final = PodSurroundings(Configuration())


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node, reduced to what placement reads.

    Attributes:
        allocatable: amounts by resource.
        is_usable: Ready, and not cordoned.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Amounts
    is_usable: bool


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod that no placement put there takes from its node, itself included."""

    key: str
    node: str
    amounts: Amounts


def parse_topology(document: Document) -> tuple[str, tuple[str, ...]]:
    """Name of a Topology, and its levels from coarse to fine."""
    levels = (document.get("spec") or {}).get("levels") or ()
    return document["metadata"]["name"], tuple(item["nodeLabel"] for item in levels)


def parse_node(document: Document) -> NodeSpec:
    """Read a Node.

    Raises:
        KeyError: it has no name.
        ValueError: a quantity is malformed.
    """
    metadata, spec = document["metadata"], document.get("spec") or {}
    allocatable = (document.get("status") or {}).get("allocatable") or {}
    return NodeSpec(
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        taints=parse_taints(spec.get("taints")),
        allocatable={name: count_of(str(text), name) for name, text in allocatable.items()},
        is_usable=not spec.get("unschedulable") and is_true(document, "Ready"),
    )


def parse_pod(document: Document) -> PodUse:
    """Read a Pod; one that takes nothing, or that a placement put there, has no node.

    Raises:
        KeyError: it has no name.
        ValueError: a quantity is malformed.
    """
    metadata, spec = document["metadata"], document.get("spec") or {}
    node = spec.get("nodeName") or ""
    annotations = metadata.get("annotations") or {}
    has_ended = (document.get("status") or {}).get("phase") in _ENDED
    if has_ended or any(name in annotations for name in PLACED_BY_KUEUE):
        node = ""
    amounts = dict(wholes(pod_requests(spec, surroundings=_AS_IS, path="").of_pod)) if node else {}
    amounts[PODS] = amounts.get(PODS, 0) + 1
    return PodUse(key=key_of(document), node=node, amounts=amounts)


def is_member(
    node_labels: Mapping[str, str], *, flavor: Mapping[str, str], levels: Sequence[str]
) -> bool:
    """Whether a node with these labels belongs to a flavor and has a value for every level."""
    return all(node_labels.get(name) == value for name, value in flavor.items()) and all(
        level in node_labels for level in levels
    )


@dataclass(slots=True)
class Exclusions:
    """Why nodes, or other domains of the lowest level, were left out."""

    total: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def text(self) -> str:
        """The end of a message, empty when nothing was left out."""
        if not self.reasons:
            return ""
        listed = ", ".join(sorted(f"{name}: {count}" for name, count in self.reasons.items()))
        return f". Total nodes: {self.total}; excluded: {listed}"


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What the pods of a pod set need of a node.

    Attributes:
        selector: labels that the node must have.
        terms: required affinity, ``None`` for none.
        preferences: weights of preferred affinity, empty when that is ignored.
        tolerations: of the pods, of the flavor, and of admission checks.
    """

    selector: tuple[tuple[str, str], ...]
    terms: tuple[NodeTerm, ...] | None
    preferences: tuple[tuple[int, NodeTerm], ...]
    tolerations: tuple[Toleration, ...]

    @classmethod
    def of(
        cls,
        rules: NodeRules,
        *,
        tolerations: Iterable[Toleration],
        selector: Mapping[str, str],
        prefers: bool,
    ) -> PodNeeds:
        """Needs by a pod set's rules and what its flavor and its checks add to them."""
        return cls(
            selector=(*rules.node_selector, *sorted(selector.items())),
            terms=rules.affinity_terms,
            preferences=rules.preferences if prefers else (),
            tolerations=(*rules.tolerations, *tolerations),
        )

    def refusal(self, node: NodeSpec) -> str:
        """The reason, as messages count it, why pods may not run on a node; empty if they may."""
        taint = untolerated_taint(node.taints, tolerations=self.tolerations)
        if taint is not None:
            return f'taint "{taint.short}"'
        if any(node.labels.get(name) != value for name, value in self.selector):
            return "nodeSelector"
        if self.terms is not None and not any(
            term.matches(node.labels, name=node.name) for term in self.terms
        ):
            return "affinity"
        return ""

    def score(self, node: NodeSpec) -> int:
        """Sum of the weights of the preferences that a node meets."""
        return sum(
            weight for weight, term in self.preferences if term.matches(node.labels, name=node.name)
        )
