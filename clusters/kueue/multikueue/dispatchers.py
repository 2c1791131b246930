"""Who nominates: all at once, incremental, cheapest fit, or somebody outside. Pure.

A dispatcher looks at a group and says which workers shall be nominated now, why each of them is or
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
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from clusters.kueue.multikueue.group import Group, Round
from clusters.kueue.multikueue.offers import UNKNOWN_OFFER, Fit
from clusters.kueue.multikueue.settings import (
    ALL_AT_ONCE,
    CHEAPEST_FIT,
    INCREMENTAL,
    DispatchSettings,
)


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


SOON: Final = timedelta(milliseconds=200)
Dispatcher: TypeAlias = Callable[[Group], Nomination]


def all_at_once(group: Group) -> Nomination:
    """Nominate every connected worker that nothing speaks against."""
    wanted = tuple(sorted(group.usable))
    known = {name for item in group.rounds for name in item.nominated}
    opened = None
    if wanted and not known.issuperset(wanted):
        new = tuple(name for name in wanted if name not in known)
        opened = Round(len(group.rounds) + 1, group.now, new, group.passed_over())
    return Nomination(wanted, opened)


def external(group: Group) -> Nomination:
    """Somebody outside writes the nominations; they are only read."""
    return Nomination(_stored(group), is_undecided=True)


def not_yet(group: Group) -> Nomination:
    """What a decision hangs on is still being read; what was nominated stays."""
    return Nomination(_stored(group), look_again=group.now + SOON, is_undecided=True)


def in_rounds(settings: DispatchSettings, order: Callable[[Group], _Order]) -> Dispatcher:
    """A dispatcher that adds the next workers of an order in every round."""

    def nominate(group: Group) -> Nomination:
        known = set(_nominated(group))
        standing = tuple(name for name in group.order_or_names() if name in known & group.usable)
        last = group.rounds[-1] if group.rounds else None
        if last is None and standing:
            # Nominated under a memory that was lost: the round begins now, nobody is added.
            opened = Round(1, group.now, standing, group.passed_over())
            return Nomination(standing, opened, group.now + settings.round_length)
        ends = last.started_at + settings.round_length if last is not None else group.now
        if standing and ends > group.now:
            return Nomination(standing, look_again=ends)
        if group.opening - group.blocked.keys():
            return not_yet(group)  # the best of all may be connected within the second
        found = order(group)
        added = tuple(name for name in found.names if name not in known)[: settings.step]
        if not added:
            return Nomination(standing, look_again=group.now + settings.round_length)
        why = {**found.why, **group.passed_over()}
        opened = Round(len(group.rounds) + 1, group.now, added, why)
        return Nomination((*standing, *added), opened, group.now + settings.round_length)

    return nominate


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


def dispatcher_for(settings: DispatchSettings) -> Dispatcher:
    """The dispatcher that a Configuration names."""
    if settings.dispatcher == ALL_AT_ONCE:
        return all_at_once
    if settings.dispatcher == INCREMENTAL:
        return in_rounds(settings, by_configuration)
    if settings.dispatcher == CHEAPEST_FIT:
        return in_rounds(settings, by_cheapest_fit)
    return external


def _nominated(group: Group) -> Sequence[str]:
    return [*_stored(group), *(name for item in group.rounds for name in item.nominated)]


def _stored(group: Group) -> tuple[str, ...]:
    status = (group.local or {}).get("status") or {}
    return tuple(status.get("nominatedClusterNames") or ())
