"""Who lent committed GPUs to whom, and what covered an account's burst.

Accounts never lend to each other; across them there is only the platform pool. Within an hour
what was lent is matched with what was borrowed in proportion, so a pair is a share of the hour,
carries no price, and the pairs of an account, flavor and hour add up to what was lent.

Source: spec money, sections 1.4 (5) and 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from budgets.amounts import COVER
from budgets.models import AccountUsage, UsageRecord, User, Workspace
from budgets.selectors.usage.keys import sums_by_workspace
from budgets.selectors.usage.scope import UsageFilter, UsageScope, amounts_of, sums_of
from budgets.units import apportion

MOST_FACTS = 5_000
MOST_PAIRS = 50_000


@dataclass(frozen=True, slots=True)
class LendingRow:
    """GPU-seconds of one workspace; of the rest of them when ``namespace`` is empty."""

    namespace: str
    account: str
    lent: int
    borrowed: int
    burst: int


@dataclass(frozen=True, slots=True)
class PairRow:
    """GPU-seconds that one workspace lent to another of its account.

    A workspace that the viewer may not see has no name: ``lender`` or ``borrower`` is empty.
    """

    account: str
    lender: str
    borrower: str
    flavor: str
    lent: int


@dataclass(frozen=True, slots=True)
class CoverRow:
    """What covered an account's burst; burst is the sum of the other four."""

    account: str
    burst: int
    from_pool: int
    lent: int
    from_platform: int
    uncovered: int


@dataclass(frozen=True, slots=True)
class Lending:
    """Borrowed and lent over a range; every list ends with its own total.

    Attributes:
        rows: Workspaces that lent or borrowed, those that moved most first.
        others: What is in no row; None when all are shown.
        total: Sum of both.
        pairs: The largest first; None when there are too many to match, see :data:`MOST_FACTS`
            and :data:`MOST_PAIRS`.
        pairs_total: GPU-seconds of all pairs.
        covers: Accounts that are visible as a whole and had burst.
        covers_total: Sum of them.
    """

    rows: tuple[LendingRow, ...]
    others: LendingRow | None
    total: LendingRow
    pairs: tuple[PairRow, ...] | None
    pairs_total: int
    covers: tuple[CoverRow, ...]
    covers_total: CoverRow


def lending(user: User, chosen: UsageFilter, *, limit: int = 50) -> Lending:
    """What the visible workspaces lent and borrowed, at most so many rows of workspaces.

    Step and split of the filter are ignored.
    """
    scope = UsageScope(user, chosen)
    rows, others, total = _by_workspace(scope, limit)
    pairs = _pairs(scope)
    covers = tuple(_covers(scope))
    return Lending(
        rows=rows,
        others=others,
        total=total,
        pairs=pairs,
        pairs_total=sum(pair.lent for pair in pairs or ()),
        covers=covers,
        covers_total=CoverRow(
            "", **{name: sum(getattr(row, name) for row in covers) for name in COVER}
        ),
    )


def _by_workspace(
    scope: UsageScope, limit: int
) -> tuple[tuple[LendingRow, ...], LendingRow | None, LendingRow]:
    found = {
        key[0]: amounts
        for key, amounts in sums_by_workspace(scope, "workspace_id").items()
        if amounts["lent"] or amounts["borrowed"]
    }
    order = sorted(found, key=lambda pk: (-(found[pk]["lent"] + found[pk]["borrowed"]), pk))
    names = _names(order[:limit])

    def row(pks: Iterable[int], namespace: str, account: str) -> LendingRow:
        sums = {name: sum(found[pk][name] for pk in pks) for name in ("lent", "borrowed", "burst")}
        return LendingRow(namespace, account, **sums)

    rest = order[limit:]
    return (
        tuple(row([pk], *names[pk]) for pk in order[:limit]),
        row(rest, "", "") if rest else None,
        row(order, "", ""),
    )


def _names(pks: Iterable[int]) -> dict[int, tuple[str, str]]:
    rows = Workspace.objects.filter(pk__in=set(pks))
    return {
        pk: (namespace, account)
        for pk, namespace, account in rows.values_list("pk", "namespace", "account__slug")
    }


def _pairs(scope: UsageScope) -> tuple[PairRow, ...] | None:
    """Match lenders with borrowers, hour by hour; of pairs that the viewer has a part in."""
    moved = Q(lent__gt=0) | Q(borrowed__gt=0)
    facts = scope.cut(UsageRecord.objects.filter(moved))
    seen: set[int] | None = None
    if not scope.is_platform:
        # The other side of a loan is in the same account, visible or not.
        accounts = scope.workspaces.values("account")
        facts = facts.filter(workspace__account__in=accounts)
        seen = set(scope.workspaces.values_list("pk", flat=True))
    if facts[: MOST_FACTS + 1].count() > MOST_FACTS:
        return None
    sums = _match(
        facts.values_list(
            "workspace__account_id", "flavor__slug", "start", "workspace_id", "lent", "borrowed"
        ),
        seen,
    )
    return None if sums is None else _named_pairs(scope, sums)


def _match(
    rows: Iterable[tuple[Any, ...]], seen: set[int] | None
) -> dict[tuple[int, int, str], int] | None:
    """Facts → (lender, borrower, flavor) → GPU-seconds; None when it would take too long.

    What each lender lent in an hour is split by what was borrowed. Of pairs in which only the
    borrower is ``seen`` (None: all are), what it borrowed is split by what was lent.
    """
    hours: dict[tuple[Any, ...], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for account, flavor, start, workspace, lent, borrowed in rows:
        lenders, borrowers = hours.setdefault((account, flavor, start), ([], []))
        if lent:
            lenders.append((workspace, lent))
        if borrowed:
            borrowers.append((workspace, borrowed))
    if sum(len(lenders) * len(borrowers) for lenders, borrowers in hours.values()) > MOST_PAIRS:
        return None
    sums: dict[tuple[int, int, str], int] = {}
    for (_, flavor, _), (lenders, borrowers) in hours.items():
        for lender, lent in lenders:
            if borrowers and (seen is None or lender in seen):
                for borrower, part in _split(lent, borrowers):
                    key = (lender, borrower, flavor)
                    sums[key] = sums.get(key, 0) + part
        for borrower, borrowed in borrowers:
            if lenders and seen is not None and borrower in seen:
                for lender, part in _split(borrowed, lenders):
                    if lender not in seen:
                        key = (lender, borrower, flavor)
                        sums[key] = sums.get(key, 0) + part
    return sums


def _split(total: int, sides: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    parts = apportion(total, weights=[weight for _, weight in sides])
    return zip((workspace for workspace, _ in sides), parts, strict=True)


def _named_pairs(scope: UsageScope, sums: dict[tuple[int, int, str], int]) -> tuple[PairRow, ...]:
    """Names in the place of ids; those that the viewer may not see become one nameless side."""
    names = _names({pk for lender, borrower, _ in sums for pk in (lender, borrower)})
    visible = None if scope.roles.sees_everything else _visible(scope, names)
    found: dict[tuple[str, str, str, str], int] = {}
    for (lender, borrower, flavor), lent in sums.items():
        sides = [
            names[pk][0] if visible is None or pk in visible else "" for pk in (lender, borrower)
        ]
        key = (names[lender][1], sides[0], sides[1], flavor)
        found[key] = found.get(key, 0) + lent
    order = sorted(found, key=lambda key: (-found[key], key))
    return tuple(PairRow(*key, lent=found[key]) for key in order if found[key])


def _visible(scope: UsageScope, names: dict[int, tuple[str, str]]) -> set[int]:
    everything = UsageScope(scope.user, UsageFilter(start=scope.chosen.start, end=scope.chosen.end))
    return set(everything.workspaces.filter(pk__in=names).values_list("pk", flat=True))


def _covers(scope: UsageScope) -> Iterable[CoverRow]:
    """Accounts as a whole: the platform's for platform roles, else a person's own accounts."""
    if scope.chosen.workspaces:
        return
    rows = scope.cut(AccountUsage.objects.filter(burst__gt=0))
    if not scope.is_platform:
        rows = rows.filter(account__in=scope.roles.accounts)
    sums: Any = rows.values("account__slug").annotate(**sums_of(COVER))
    for row in sums.order_by("-sum_burst", "account__slug"):
        yield CoverRow(row["account__slug"], **amounts_of(row, COVER))
