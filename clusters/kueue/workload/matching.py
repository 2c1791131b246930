"""Label selectors, taints and node affinity: may this pod set run on that flavor?

Source: Kueue pkg/scheduler/flavorassigner/flavorassigner.go (flavor selection), Kubernetes label
selector, toleration and node affinity rules.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Labels = Mapping[str, str]

_NODE_NAME: Final = "metadata.name"
_SCHEDULING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_COMPARISONS: Final = {"Gt": operator.gt, "Lt": operator.lt}


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on one label key."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether the labels meet the requirement; an unknown operator is met by nothing."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        if value is None or len(self.values) != 1:
            return False
        return _compares(value, self.operator, self.values[0])


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that all have to hold; ``None`` as ``requirements`` matches nothing."""

    requirements: tuple[Expression, ...] | None

    def matches(self, labels: Labels) -> bool:
        """Whether the labels meet every requirement."""
        if self.requirements is None:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a flavor's nodes."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{{{self.key} {self.value} {self.effect} <nil>}}"

    @property
    def short(self) -> str:
        """``key=value:effect``, as placement counts it; parts that are empty are left out."""
        value = f"={self.value}" if self.value else ""
        has_end = bool(self.effect or self.value)
        return f"{self.key}{value}:{self.effect}" if has_end else self.key


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod set or of a flavor; empty key or effect stand for any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint is tolerated."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        if self.operator in _COMPARISONS:
            return _compares(taint.value, self.operator, self.value)
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements of a node affinity term, on labels and on the node's name."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()

    def matches(self, labels: Labels, *, name: str) -> bool:
        """Whether a node meets all of them; a term without any is met by no node."""
        if not self.expressions and not self.fields:
            return False
        fields = {_NODE_NAME: name}
        return all(item.matches(labels) for item in self.expressions) and all(
            item.matches(fields) for item in self.fields
        )


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What a pod set asks of its nodes.

    Attributes:
        node_selector: labels that the nodes must carry, sorted.
        affinity_terms: required node affinity, terms are alternatives; ``None`` when there is none.
        tolerations: of the pods.
        preferences: weight and term of preferred node affinity.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferences: tuple[tuple[int, NodeTerm], ...] = ()


def parse_selector(document: Mapping[str, Any] | None) -> LabelSelector:
    """Label selector of an API document; a missing one matches nothing, an empty one everything."""
    if document is None:
        return LabelSelector(None)
    exact = (
        Expression(key, "In", (value,))
        for key, value in sorted((document.get("matchLabels") or {}).items())
    )
    listed = _expressions(document.get("matchExpressions"))
    return LabelSelector((*exact, *listed))


def parse_tolerations(documents: Iterable[Mapping[str, Any]] | None) -> tuple[Toleration, ...]:
    """Tolerations of an API document."""
    return tuple(
        Toleration(
            key=item.get("key", ""),
            operator=item.get("operator") or "Equal",
            value=item.get("value", ""),
            effect=item.get("effect", ""),
        )
        for item in documents or ()
    )


def parse_taints(documents: Iterable[Mapping[str, Any]] | None) -> tuple[Taint, ...]:
    """Taints of a ResourceFlavor document."""
    return tuple(
        Taint(item.get("key", ""), item.get("value", ""), item.get("effect", ""))
        for item in documents or ()
    )


def parse_node_rules(pod_spec: Mapping[str, Any]) -> NodeRules:
    """Node selector, required node affinity and tolerations of a pod spec."""
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None
    if required is not None:
        terms = tuple(_term(item) for item in required.get("nodeSelectorTerms") or ())
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return NodeRules(
        node_selector=tuple(sorted((pod_spec.get("nodeSelector") or {}).items())),
        affinity_terms=terms,
        tolerations=parse_tolerations(pod_spec.get("tolerations")),
        preferences=tuple(
            (int(item.get("weight") or 0), _term(item.get("preference") or {}))
            for item in preferred
        ),
    )


def untolerated_taint(
    taints: Sequence[Taint], *, tolerations: Sequence[Toleration]
) -> Taint | None:
    """First taint that keeps pods away and is not tolerated."""
    for taint in taints:
        if taint.effect in _SCHEDULING_EFFECTS and not any(
            toleration.tolerates(taint) for toleration in tolerations
        ):
            return taint
    return None


def matches_nodes(rules: NodeRules, *, node_labels: Labels) -> bool:
    """Whether selector and affinity, reduced to the keys that the flavor labels, accept it.

    Requirements on other keys are unknown here and count as met; a term that has none left accepts
    anything.
    """
    for key, value in rules.node_selector:
        if node_labels.get(key, value) != value:
            return False
    if rules.affinity_terms is None:
        return True
    reduced = [
        [expression for expression in term.expressions if expression.key in node_labels]
        for term in rules.affinity_terms
    ]
    if not all(reduced):
        return True
    return any(all(item.matches(node_labels) for item in term) for term in reduced)


def _term(document: Mapping[str, Any]) -> NodeTerm:
    return NodeTerm(
        _expressions(document.get("matchExpressions")), _expressions(document.get("matchFields"))
    )


def _compares(value: str, comparison: str, bound: str) -> bool:
    """Whether two whole numbers compare; an unknown comparison is met by nothing."""
    try:
        return bool(_COMPARISONS[comparison](int(value), int(bound)))
    except (KeyError, ValueError):
        return False


def _expressions(documents: Iterable[Mapping[str, Any]] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(item["key"], item["operator"], tuple(item.get("values") or ()))
        for item in documents or ()
    )
