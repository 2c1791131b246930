"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.devcluster.problems import bad_request
from clusters.devcluster.registry import ServedKind

Document = Mapping[str, Any]
Test = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_EQUALITY = re.compile(r"^([^\s=!]+)\s*(==|=|!=)\s*([^\s=!]*)$")
_KEY = re.compile(r"^!?\s*[A-Za-z0-9][-A-Za-z0-9_./]*$")
_FIELDS = ("metadata.name", "metadata.namespace")
_MORE_FIELDS = {
    "kueue.x-k8s.io/workloads": ("status.admission.clusterQueue",),
    "/pods": ("spec.nodeName", "status.phase"),
    "/secrets": ("type",),
    "/events": ("involvedObject.kind", "involvedObject.name", "involvedObject.namespace"),
    "batch/jobs": ("status.successful",),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which objects of a kind a request is about."""

    namespace: str = ""
    labels: tuple[Test, ...] = ()
    fields: tuple[tuple[str, str, bool], ...] = ()

    def accepts(self, document: Document) -> bool:
        metadata = document["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        if not all(test(labels) for test in self.labels):
            return False
        return all((_value(document, path) == want) is equal for path, want, equal in self.fields)


def parse_filter(kind: ServedKind, *, namespace: str, labels: str, fields: str) -> Filter:
    """Reads the selectors of a request's query.

    Raises:
        Failure: 400 for what is not a selector or not a selectable field.
    """
    return Filter(
        namespace,
        tuple(_label_test(part) for part in _split(labels)),
        tuple(_field_test(kind, part) for part in _split(fields)),
    )


def _split(selector: str) -> Sequence[str]:
    """Splits at the commas that are not inside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _label_test(part: str) -> Test:
    if match := _SET.match(part):
        key, is_in = match[1], match[2] == "in"
        listed = frozenset(entry.strip() for entry in match[3].split(","))
        return lambda labels: (labels.get(key) in listed) is is_in
    if match := _EQUALITY.match(part):
        key, value, is_equal = match[1], match[3], match[2] != "!="
        return lambda labels: (labels.get(key) == value) is is_equal
    if not _KEY.match(part):
        raise bad_request(f"unable to parse requirement: {part}")
    key, is_there = part.lstrip("! "), not part.startswith("!")
    return lambda labels: (key in labels) is is_there


def _field_test(kind: ServedKind, part: str) -> tuple[str, str, bool]:
    match = _EQUALITY.match(part)
    if not match:
        raise bad_request(f"invalid field selector: {part}")
    if match[1] not in (*_FIELDS, *_MORE_FIELDS.get(kind.key, ())):
        raise bad_request(f"field label not supported: {match[1]}")
    return match[1], match[3], match[2] != "!="


def _value(document: Any, path: str) -> str:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return "" if document is None else str(document)
