"""Who nominates: the table of dispatchers, or somebody outside. Pure.

A new dispatcher is one row of :data:`DISPATCHERS`; what else knows of dispatchers asks its row. A
dispatcher looks at a group and says which workers shall be nominated now, why each of them is or
is not, and whether that opens a round. The set only grows while the workload waits; a worker that
is blocked leaves it. Asked again within a round, it gives the same answer.

Source: Kueue pkg/controller/workloaddispatcher, v0.19.2; spec dispatch 3.1-3.3.
Deviations of the incremental one: rounds survive a restart; workers that are not connected are
passed over instead of nominated, but no round opens while the first try to connect to one is under
way; a round none of whose workers can take anything ends at once; it waits for the other checks;
when nobody is left it rests instead of failing for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from clusters.kueue.multikueue.group import Group, Round
from clusters.kueue.multikueue.offers import UNKNOWN_OFFER, Fit
from clusters.kueue.workload.parser import parse_time

ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
CHEAPEST_FIT: Final = "gpu-budget-portal.dev/cheapest-fit"
SOON: Final = timedelta(milliseconds=200)
LATEST: Final = 10
"""So many times its length a round may wait for a worker that has not been sent its copy."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a dispatcher goes on from round to round.

    Attributes:
        step: Workers that one round adds.
        round_length: How long a round waits before the next one adds workers.
    """

    step: int = 3
    round_length: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Nomination:
    """Who shall be nominated.

    Attributes:
        clusters: All of them, those of earlier rounds included.
        opened: The round that begins with it; None while an earlier one goes on.
        look_again: When time alone changes the answer.
        is_undecided: Somebody has still to speak, so an empty answer means nothing.
    """

    clusters: tuple[str, ...]
    opened: Round | None = None
    look_again: datetime | None = None
    is_undecided: bool = False


@dataclass(frozen=True, slots=True)
class _Order:
    """Workers that were not nominated yet, best first, and why each stands where it stands."""

    names: tuple[str, ...]
    why: Mapping[str, str] = field(default_factory=dict)


InForce: TypeAlias = Callable[[Group], Nomination]
Chooser: TypeAlias = Callable[[Group, Pace], Nomination]


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One way to choose the workers to nominate.

    Attributes:
        words: As people call it.
        choose: Who shall be nominated now.
        pace: Of its rounds, unless a Configuration says otherwise; None where it has no rounds.
        is_ours: No Kueue knows it, so under a live one the portal nominates.
        asks_offers: It compares what the workers could give.
    """

    words: str
    choose: Chooser
    pace: Pace | None = None
    is_ours: bool = False
    asks_offers: bool = False


def all_at_once(group: Group, pace: Pace | None = None) -> Nomination:
    """Nominate every connected worker that nothing speaks against."""
    wanted = tuple(sorted(group.usable))
    known = {name for item in group.rounds for name in item.nominated}
    opened = None
    if wanted and not known.issuperset(wanted):
        new = tuple(name for name in wanted if name not in known)
        opened = Round(len(group.rounds) + 1, group.now, new, group.passed_over())
    return Nomination(wanted, opened)


def as_stored(group: Group, pace: Pace | None = None) -> Nomination:
    """Somebody outside writes the nominations; they are only read."""
    return Nomination(_stored(group), is_undecided=True)


def not_yet(group: Group) -> Nomination:
    """What a decision hangs on is still being read; what was nominated stays."""
    return Nomination(_stored(group), look_again=group.now + SOON, is_undecided=True)


def _since_nominated(last: Round, group: Group, length: timedelta) -> datetime:
    """When a round ends whose workers have their time from the nomination on, as Kueue's."""
    return last.started_at + length


def _since_sent(last: Round, group: Group, length: timedelta) -> datetime:
    """When a round ends whose workers have their time from when they have the copy.

    Until then they cannot have answered: in a rush of jobs copies are made minutes later, and
    looking for further workers would hold them up even more.
    """
    latest, begun = last.started_at + LATEST * length, last.started_at
    for name in group.usable.intersection(last.nominated):
        sent = group.copies[name].workload
        if sent is None:
            return latest
        # A worker that tells no time that can be read keeps the job from no other.
        with suppress(TypeError, ValueError):
            begun = max(begun, parse_time(sent["metadata"].get("creationTimestamp")) or begun)
    return min(begun + length, latest)


def in_rounds(
    order: Callable[[Group], _Order],
    *,
    end_of: Callable[[Round, Group, timedelta], datetime] = _since_nominated,
) -> Chooser:
    """Adds the next workers of an order in every round."""

    def choose(group: Group, pace: Pace) -> Nomination:
        known = set(_nominated(group))
        standing = tuple(name for name in group.order_or_names() if name in known & group.usable)
        last = group.rounds[-1] if group.rounds else None
        if last is None and standing:
            # Nominated under a memory that was lost: the round begins now, nobody is added.
            opened = Round(1, group.now, standing, group.passed_over())
            return Nomination(standing, opened, group.now + pace.round_length)
        ends = end_of(last, group, pace.round_length) if last is not None else group.now
        if standing and ends > group.now:
            return Nomination(standing, look_again=ends)
        if group.opening - group.blocked.keys():
            return not_yet(group)  # the best of all may be connected within the second
        found = order(group)
        added = tuple(name for name in found.names if name not in known)[: pace.step]
        if not added:
            return Nomination(standing, look_again=group.now + pace.round_length)
        why = {**found.why, **group.passed_over()}
        opened = Round(len(group.rounds) + 1, group.now, added, why)
        return Nomination((*standing, *added), opened, group.now + pace.round_length)

    return choose


def by_configuration(group: Group) -> _Order:
    """The order in which the MultiKueueConfig lists the workers."""
    return _Order(tuple(name for name in group.order_or_names() if name in group.usable))


def by_cheapest_fit(group: Group) -> _Order:
    """Free floor first, then price, free quota, locality and recent failures.

    Workers that can never run it are left out; why, stands in the reasons.
    """
    offers = {name: group.offers.get(name, UNKNOWN_OFFER) for name in group.usable}
    ranked = sorted(offers, key=lambda name: offers[name].rank(name))
    return _Order(
        names=tuple(name for name in ranked if offers[name].fit is not Fit.NEVER),
        why={name: f"{place}. {offers[name].words()}" for place, name in enumerate(ranked, 1)},
    )


DISPATCHERS: Final[Mapping[str, Dispatcher]] = {
    ALL_AT_ONCE: Dispatcher("all at once", all_at_once),
    INCREMENTAL: Dispatcher("incremental", in_rounds(by_configuration), Pace()),
    CHEAPEST_FIT: Dispatcher(
        "cheapest fit",
        in_rounds(by_cheapest_fit, end_of=_since_sent),
        Pace(step=1, round_length=timedelta(seconds=30)),
        is_ours=True,
        asks_offers=True,
    ),
}
"""By ``multiKueue.dispatcherName``; who is not in it nominates from outside."""


def dispatcher_named(name: str) -> Dispatcher:
    """The dispatcher of a name; for one that nobody here serves, somebody outside."""
    return DISPATCHERS.get(name) or Dispatcher(f"external ({name})", as_stored)


def _nominated(group: Group) -> Sequence[str]:
    return [*_stored(group), *(name for item in group.rounds for name in item.nominated)]


def _stored(group: Group) -> tuple[str, ...]:
    status = (group.local or {}).get("status") or {}
    return tuple(status.get("nominatedClusterNames") or ())
