"""What is promised and what there is, over time: the input of every fleet check."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, TypeVar

from budgets.plan.drafts import FlavorTerms
from budgets.plan.words import Line, Spill


@dataclass(frozen=True, slots=True)
class DatedGpus:
    """GPUs of one flavor that a cluster has, or a pool holds, in ``[valid_from, valid_until)``.

    Attributes:
        holder: Cluster or pool slug.
        flavor: Flavor slug.
        gpus: Whole GPUs.
        valid_from: UTC.
        valid_until: UTC, exclusive; None means until something newer begins.
        order: Breaks ties of ``valid_from``; the higher is newer.
    """

    holder: str
    flavor: str
    gpus: int
    valid_from: datetime
    valid_until: datetime | None = None
    order: int = 0


@dataclass(frozen=True, slots=True)
class RevisionSpan:
    """A live revision of one workspace with its window."""

    namespace: str
    account: str
    number: int
    valid_from: datetime
    valid_until: datetime | None
    lines: tuple[Line, ...]
    preference: tuple[str, ...] = ()
    spill: Spill = Spill.NEXT_FLAVOR_FIRST


@dataclass(frozen=True, slots=True)
class EnvelopeLimits:
    """What an account may promise itself of one flavor without asking."""

    committed: int = 0
    ceiling: int = 0
    pool: int = 0


@dataclass(frozen=True, slots=True)
class FleetTimeline:
    """Everything that can be in force, with its windows.

    Attributes:
        flavors: slug -> terms.
        capacities: What admins state; of the rows in force the newest wins over the measured.
        measured: (cluster, flavor) -> ready GPUs, taken to hold at every instant.
        pool_amounts: Amounts of account pools and platform pools.
        pool_accounts: pool slug -> account slug; None for a platform pool.
        revisions: Live revisions of all workspaces.
        envelopes: (account, flavor) -> limits; absent means that everything has to be asked for.
    """

    flavors: Mapping[str, FlavorTerms]
    capacities: tuple[DatedGpus, ...] = ()
    measured: Mapping[tuple[str, str], int] = field(default_factory=dict)
    pool_amounts: tuple[DatedGpus, ...] = ()
    pool_accounts: Mapping[str, str | None] = field(default_factory=dict)
    revisions: tuple[RevisionSpan, ...] = ()
    envelopes: Mapping[tuple[str, str], EnvelopeLimits] = field(default_factory=dict)


S = TypeVar("S", DatedGpus, RevisionSpan)
P = TypeVar("P", bound=Hashable)
FROM: Final = "valid_from"


def window_holds(*, valid_from: datetime, valid_until: datetime | None, instant: datetime) -> bool:
    """Whether ``instant`` lies in ``[valid_from, valid_until)``."""
    return valid_from <= instant and (valid_until is None or instant < valid_until)


def edges(*timelines: FleetTimeline, start: datetime, end: datetime | None) -> tuple[datetime, ...]:
    """Instants of ``[start, end)`` at which something may change, ``start`` first, sorted."""
    dated: list[DatedGpus | RevisionSpan] = []
    for known in timelines:
        dated += [*known.capacities, *known.pool_amounts, *known.revisions]
    found = {
        instant
        for span in dated
        for instant in (span.valid_from, span.valid_until)
        if instant is not None and start < instant and (end is None or instant < end)
    }
    return (start, *sorted(found))


def amounts_at(spans: Iterable[DatedGpus], instant: datetime) -> dict[tuple[str, str], int]:
    """(holder, flavor) -> GPUs in force: the latest ``valid_from`` wins, then the higher order."""
    places = _newest(spans, instant, attrgetter("holder", "flavor"), attrgetter(FROM, "order"))
    return {place: span.gpus for place, span in places.items()}


def capacity_at(timeline: FleetTimeline, instant: datetime) -> dict[tuple[str, str], int]:
    """(cluster, flavor) -> GPUs: what an admin states, else what is measured."""
    return {**timeline.measured, **amounts_at(timeline.capacities, instant)}


def in_force_at(revisions: Sequence[RevisionSpan], instant: datetime) -> dict[str, RevisionSpan]:
    """Namespace -> the revision in force: latest ``valid_from``, then higher number."""
    return _newest(revisions, instant, attrgetter("namespace"), attrgetter(FROM, "number"))


def _newest(
    spans: Iterable[S], instant: datetime, place: Callable[[S], P], order: Callable[[S], Any]
) -> dict[P, S]:
    newest: dict[P, S] = {}
    for span in spans:
        if not window_holds(
            valid_from=span.valid_from, valid_until=span.valid_until, instant=instant
        ):
            continue
        if order(newest.setdefault(place(span), span)) < order(span):
            newest[place(span)] = span
    return newest
