"""Whether promises fit: capacity at every instant of a window, and an account's envelope.

A check compares with what stood before: a change that makes nothing worse is never refused, so
that a budget can be lowered while nodes are broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from budgets.errors import Fault
from budgets.plan.drafts import name_of
from budgets.plan.timeline import (
    EnvelopeLimits,
    FleetTimeline,
    amounts_at,
    capacity_at,
    edges,
    in_force_at,
)


@dataclass(frozen=True, slots=True)
class FleetLevel:
    """Promises against capacity of one flavor at one instant, whole GPUs.

    Attributes:
        instant: UTC; holds until the next edge.
        flavor: Flavor slug.
        committed: Sum of committed over all workspaces.
        account_pools: Sum of the accounts' own pools.
        platform_pools: Sum of platform pools.
        capacity: Over all clusters.
        limit: capacity times the oversubscription factor, rounded down.
    """

    instant: datetime
    flavor: str
    committed: int
    account_pools: int
    platform_pools: int
    capacity: int
    limit: int

    @property
    def promised(self) -> int:
        """Everything that may have to be served at once."""
        return self.committed + self.account_pools + self.platform_pools

    @property
    def excess(self) -> int:
        """GPUs promised beyond the limit, at least 0."""
        return max(0, self.promised - self.limit)


def levels_at(timeline: FleetTimeline, instant: datetime) -> tuple[FleetLevel, ...]:
    """Promises against capacity of every known flavor at one instant."""
    committed, own, platform, capacity = (Counter[str]() for _ in range(4))
    for span in in_force_at(timeline.revisions, instant).values():
        for line in span.lines:
            committed[line.flavor] += line.committed
    for (pool, flavor), gpus in amounts_at(timeline.pool_amounts, instant).items():
        (platform if timeline.pool_accounts.get(pool) is None else own)[flavor] += gpus
    for (_, flavor), gpus in capacity_at(timeline, instant).items():
        capacity[flavor] += gpus
    return tuple(
        FleetLevel(
            instant=instant,
            flavor=slug,
            committed=committed[slug],
            account_pools=own[slug],
            platform_pools=platform[slug],
            capacity=capacity[slug],
            limit=int(capacity[slug] * terms.factor),
        )
        for slug, terms in timeline.flavors.items()
    )


def check_fleet(
    timeline: FleetTimeline,
    *,
    start: datetime,
    end: datetime | None,
    before: FleetTimeline | None = None,
    fields: Mapping[str, str] | None = None,
) -> tuple[Fault, ...]:
    """Check committed + account pools + platform pools <= capacity x factor at every instant.

    Args:
        timeline: With the change in it.
        start: First instant, inclusive.
        end: Last instant, exclusive; None for ever.
        before: Without the change; an excess that was as large already is no fault of it.
        fields: flavor -> input that its fault belongs to.

    Returns:
        At most one fault per flavor, for the instant of its largest excess, the first of equals.
    """
    worst: dict[str, FleetLevel] = {}
    sides = (timeline,) if before is None else (timeline, before)
    for instant in edges(*sides, start=start, end=end):
        stood = (
            {level.flavor: level.excess for level in levels_at(before, instant)} if before else {}
        )
        for level in levels_at(timeline, instant):
            is_worse = level.excess > stood.get(level.flavor, 0)
            if is_worse and (
                level.flavor not in worst or level.excess > worst[level.flavor].excess
            ):
                worst[level.flavor] = level
    return tuple(
        Fault(
            (fields or {}).get(level.flavor, f"flavors.{level.flavor}"),
            "exceeds_capacity",
            _over_capacity(level, name_of(level.flavor, timeline.flavors), start),
        )
        for level in worst.values()
    )


def _over_capacity(level: FleetLevel, name: str, start: datetime) -> str:
    when = "" if level.instant == start else f" from {level.instant:%Y-%m-%d %H:%M} UTC on"
    return (
        f"This is {level.excess} {name} more than the fleet can promise{when}. Ask for "
        f"{level.excess} fewer, or ask an admin to add capacity."
    )


def check_envelope(
    timeline: FleetTimeline,
    *,
    account: str,
    start: datetime,
    end: datetime | None,
    before: FleetTimeline,
    fields: Mapping[str, str] | None = None,
) -> tuple[Fault, ...]:
    """Find why a change goes beyond an account's envelope; such a revision waits as a request.

    At every instant the sum of committed stays within the envelope's committed, and each
    workspace's ceiling within its ceiling. Only what the change makes worse is named.

    Args:
        timeline: With the change in it.
        account: Account slug.
        start: First instant, inclusive.
        end: Last instant, exclusive; None for ever.
        before: Without the change.
        fields: flavor -> prefix of the input, such as ``lines.0``.

    Returns:
        At most one reason per flavor and kind; empty means live.
    """
    found: dict[tuple[str, str], Fault] = {}
    for instant in edges(timeline, before, start=start, end=end):
        stood = _account_sums(before, account, instant)
        for key, gpus in _account_sums(timeline, account, instant).items():
            kind, flavor, _ = key
            limits = timeline.envelopes.get((account, flavor), EnvelopeLimits())
            limit = limits.committed if kind == "committed" else limits.ceiling
            if gpus <= limit or gpus <= stood[key] or (kind, flavor) in found:
                continue
            prefix = (fields or {}).get(flavor, f"flavors.{flavor}")
            words = _over_envelope(kind, name_of(flavor, timeline.flavors), gpus, limit)
            found[kind, flavor] = Fault(f"{prefix}.{kind}", "exceeds_envelope", words)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Room:
    """How much of one limit a workspace takes, before and after a change; whole GPUs.

    Attributes:
        kind: ``envelope`` (what the account may promise) or ``fleet`` (what there is for all).
        flavor: Flavor slug.
        limit: Most that may be promised.
        others: Promised to everybody else under the same limit.
        before: Committed to the workspace without the change.
        after: Committed to it with the change.
    """

    kind: str
    flavor: str
    limit: int
    others: int
    before: int
    after: int

    @property
    def excess(self) -> int:
        """GPUs beyond the limit after the change, at least 0."""
        return max(0, self.others + self.after - self.limit)


def rooms(
    before: FleetTimeline,
    after: FleetTimeline,
    *,
    account: str,
    namespace: str,
    flavors: Iterable[str],
    instant: datetime,
) -> tuple[Room, ...]:
    """What a change takes of the account's envelope and of the fleet, flavor by flavor.

    Args:
        before: Without the change.
        after: With it.
        account: Slug of the workspace's account.
        namespace: Of the workspace.
        flavors: Slugs to tell about, in order.
        instant: UTC; from when on the change holds.
    """
    sums = _account_sums(after, account, instant)
    levels = {level.flavor: level for level in levels_at(after, instant)}
    own_before, own_after = (_own_committed(side, namespace, instant) for side in (before, after))
    found = []
    for flavor in flavors:
        own = {"before": own_before.get(flavor, 0), "after": own_after.get(flavor, 0)}
        terms = after.envelopes.get((account, flavor), EnvelopeLimits())
        others = sums["committed", flavor, ""] - own["after"]
        found.append(Room("envelope", flavor, terms.committed, others, **own))
        level = levels.get(flavor)
        if level is not None:
            others = level.promised - own["after"]
            found.append(Room("fleet", flavor, level.limit, others, **own))
    return tuple(found)


def _own_committed(timeline: FleetTimeline, namespace: str, instant: datetime) -> dict[str, int]:
    span = in_force_at(timeline.revisions, instant).get(namespace)
    return {line.flavor: line.committed for line in span.lines} if span is not None else {}


def check_pool_envelope(
    timeline: FleetTimeline, *, account: str, flavor: str, gpus: int, field: str
) -> tuple[Fault, ...]:
    """Check that an account's own pool stays within its envelope."""
    limit = timeline.envelopes.get((account, flavor), EnvelopeLimits()).pool
    if gpus <= limit:
        return ()
    return (
        Fault(
            field,
            "exceeds_envelope",
            f"{gpus} {name_of(flavor, timeline.flavors)} in the account's pool are more than its "
            f"envelope of {limit} allows. Raise the envelope first, or lower the amount.",
        ),
    )


def _account_sums(
    timeline: FleetTimeline, account: str, instant: datetime
) -> Counter[tuple[str, str, str]]:
    """(kind, flavor, namespace) -> GPUs; the committed sum has no namespace."""
    sums = Counter[tuple[str, str, str]]()
    for span in in_force_at(timeline.revisions, instant).values():
        if span.account != account:
            continue
        for line in span.lines:
            sums["committed", line.flavor, ""] += line.committed
            sums["ceiling", line.flavor, span.namespace] = line.ceiling
    return sums


def _over_envelope(kind: str, name: str, gpus: int, limit: int) -> str:
    if kind == "committed":
        return (
            f"The account would have {gpus} {name} committed, and its envelope allows {limit}. An "
            "admin has to accept this."
        )
    return (
        f"The burst limit would be {gpus} {name}, and a workspace of this account may have "
        f"{limit}. An admin has to accept this."
    )
