"""A placement, and the compact form of it in ``status.admission``.

Source: Kueue pkg/util/tas/tas_assignment.go, KEP-2724, v0.19.2.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

from clusters.documents.labels import HOSTNAME

Document: TypeAlias = Mapping[str, Any]

_MOST_DOMAINS: Final = 100_000
_MOST_SLICES: Final = 1000


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """Pods in one domain, named by the values of the levels that a placement writes."""

    values: tuple[str, ...]
    count: int

    @property
    def domain(self) -> str:
        """Name of the domain."""
        return domain_name(self.values)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pods of one pod set run.

    Attributes:
        levels: labels that ``values`` belong to; only the hostname where that is the lowest level.
        domains: in order of the values of all levels.
    """

    levels: tuple[str, ...]
    domains: tuple[PlacedPods, ...]

    @property
    def count(self) -> int:
        """Pods that are placed."""
        return sum(item.count for item in self.domains)


def domain_name(values: Sequence[str]) -> str:
    """Name of a domain by its values, the coarsest first."""
    return ",".join(values)


def parse_placement(document: Document | None) -> Placement | None:
    """Read a ``topologyAssignment``; ``None`` for a missing one.

    Raises:
        KeyError, IndexError: the document is incomplete.
        ValueError: it names more domains than any cluster has.
    """
    if document is None:
        return None
    slices = document.get("slices") or ()
    # A few bytes can say that a hundred million domains are all alike.
    if sum(max(0, section["domainCount"]) for section in slices) > _MOST_DOMAINS:
        raise ValueError(f"a placement on more than {_MOST_DOMAINS} domains")
    return Placement(
        tuple(document.get("levels") or ()),
        tuple(item for section in slices for item in _expanded(section)),
    )


def _expanded(section: Document) -> Iterator[PlacedPods]:
    counts = section["podCounts"]
    for index in range(section["domainCount"]):
        values = tuple(_value(level, index) for level in section["valuesPerLevel"])
        universal = counts.get("universal")
        yield PlacedPods(values, counts["individual"][index] if universal is None else universal)


def _value(level: Document, index: int) -> str:
    universal = level.get("universal")
    if universal is not None:
        return str(universal)
    parts = level["individual"]
    return f"{parts.get('prefix') or ''}{parts['roots'][index]}{parts.get('suffix') or ''}"


def placement_document(placement: Placement, *, splits_by_prefix: bool) -> dict[str, Any]:
    """The ``topologyAssignment`` document of a placement, in the shorter of its two forms.

    With ``splits_by_prefix``, hostnames with a common prefix may form a slice of their own.
    """
    whole = _document(placement, [placement.domains] if placement.domains else [])
    if not splits_by_prefix:
        return whole
    runs = _chunked(_runs(placement))
    if len(runs) <= 1:
        return whole
    split = _document(placement, runs)
    if len(placement.domains) > _MOST_DOMAINS:
        return split
    return whole if _size(whole) < _size(split) else split


def _size(document: Document) -> int:
    return len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())


def _document(placement: Placement, runs: Sequence[Sequence[PlacedPods]]) -> dict[str, Any]:
    return {
        "levels": list(placement.levels),
        "slices": [_slice(len(placement.levels), run) for run in runs],
    }


def _slice(depth: int, domains: Sequence[PlacedPods]) -> dict[str, Any]:
    counts = [item.count for item in domains]
    has_one_count = len(set(counts)) == 1
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [
            _values([item.values[level] for item in domains]) for level in range(depth)
        ],
        "podCounts": {"universal": counts[0]} if has_one_count else {"individual": counts},
    }


def _values(texts: Sequence[str]) -> dict[str, Any]:
    """One value for all, or what differs between a common beginning and a common end."""
    prefix = _common_start(texts)
    if all(text == prefix for text in texts):
        return {"universal": prefix}
    suffix = _common_start([text[::-1] for text in texts])[::-1]
    # The two must not overlap on the shortest value, as in "ababa" and "aba".
    prefix = prefix[: min(len(prefix), min(map(len, texts)) - len(suffix))]
    end = len(suffix)
    individual: dict[str, Any] = {
        "roots": [text[len(prefix) : len(text) - end] for text in texts],
    }
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_start(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    least, most = min(texts), max(texts)
    end = next(
        (at for at, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1]), None
    )
    return least[:end]


def _runs(placement: Placement) -> list[Sequence[PlacedPods]]:
    """Neighbours whose hostnames share the longest prefix that occurs at least twice."""
    domains = placement.domains
    if len(domains) < 2 or not placement.levels or placement.levels[-1] != HOSTNAME:
        return [domains] if domains else []
    prefixes = [_prefixes(item.values[-1]) for item in domains]
    occurs = Counter(prefix for item in prefixes for prefix in item)
    for depth in range(max(map(len, prefixes)), 0, -1):
        keys = [
            next((text for text in reversed(item[:depth]) if occurs[text] > 1), "")
            for item in prefixes
        ]
        grouped = groupby(zip(keys, domains, strict=True), key=lambda pair: pair[0])
        runs: list[Sequence[PlacedPods]] = [[item for _, item in run] for _, run in grouped]
        if len(_chunked(runs)) <= _MOST_SLICES:
            return runs
    return [domains]


def _prefixes(hostname: str) -> list[str]:
    """Beginnings that end with a hyphen, the shortest first, without the whole name."""
    return [
        hostname[: index + 1] for index, character in enumerate(hostname[:-1]) if character == "-"
    ]


def _chunked(runs: Sequence[Sequence[PlacedPods]]) -> list[Sequence[PlacedPods]]:
    return [
        run[start : start + _MOST_DOMAINS]
        for run in runs
        for start in range(0, len(run), _MOST_DOMAINS)
    ]
