"""Which table answers a question about use: the smallest that knows what is asked for.

Whole accounts and the whole platform are read from totals, single workspaces from hour facts.
Both hold the same GPU-seconds (:mod:`budgets.services.usage.hour_facts`), so an answer never
depends on the table that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, reduce
from operator import add
from typing import Any

from django.db.models import F, QuerySet, Sum
from django.db.models.expressions import Combinable

from budgets.amounts import HELD, STORED, Amount
from budgets.models import (
    AccountHour,
    ClusterHour,
    PlatformHour,
    UsageRecord,
    User,
    WorkloadUsage,
    Workspace,
)
from budgets.models.base import Row
from budgets.selectors.roles import RoleSet, roles_of, workspaces_of


def sums_of(names: Iterable[str]) -> dict[str, Sum]:
    """What a query adds up of some amounts, by other names than theirs; see :func:`amounts_of`."""
    return {f"sum_{name}": Sum(name) for name in names}


SUMS: Mapping[str, Sum] = sums_of(STORED)
"""What a query of hour facts or totals adds up."""
HELD_SUMS: Mapping[str, Sum] = sums_of(HELD)
USED: Combinable = reduce(add, map(F, HELD))
"""All that was used, committed or burst."""
STEPS = ("hour", "day")
SPLITS = ("none", "account", "workspace", "flavor", "cluster")


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """What of the usage is asked for.

    Attributes:
        start: UTC, inclusive; facts of the hours that begin at or after it.
        end: UTC, exclusive.
        workspaces: Namespaces; empty for all visible ones. Invisible ones have no usage.
        flavors: Flavor slugs; empty for all.
        step: ``hour`` or ``day``.
        split_by: ``none``, ``account``, ``workspace``, ``flavor`` or ``cluster``.
        zone: Whose days a step of a day means.
    """

    start: datetime
    end: datetime
    workspaces: tuple[str, ...] = ()
    flavors: tuple[str, ...] = ()
    step: str = "hour"
    split_by: str = "none"
    zone: tzinfo = UTC

    def __post_init__(self) -> None:
        if self.step not in STEPS or self.split_by not in SPLITS:
            raise ValueError(f"no such step or split: {self.step!r}, {self.split_by!r}")


class UsageScope:
    """One viewer's question, and the rows that may answer it. Asks for the roles once."""

    def __init__(self, user: User, chosen: UsageFilter) -> None:
        self.user = user
        self.chosen = chosen

    @cached_property
    def roles(self) -> RoleSet:
        """The viewer's."""
        return roles_of(self.user)

    @property
    def is_platform(self) -> bool:
        """Whether everything of the platform is asked for, and visible."""
        return self.roles.sees_everything and not self.chosen.workspaces

    @property
    def accounts(self) -> frozenset[int] | None:
        """Accounts that are asked for as a whole; None when single workspaces are."""
        roles = self.roles
        if self.chosen.workspaces or roles.sees_everything or roles.workspaces:
            return None
        return roles.accounts

    @property
    def workspaces(self) -> QuerySet[Workspace]:
        """Visible workspaces that are asked for, archived ones too; in no order."""
        found = workspaces_of(self.roles).order_by()
        names = self.chosen.workspaces
        return found.filter(namespace__in=names) if names else found

    def hours(self, *, by_account: bool = False) -> QuerySet[Any]:
        """Rows with ``hour``, ``flavor`` and all amounts; of facts or totals.

        Args:
            by_account: The rows have to know their account, see :meth:`account_field`.
        """
        found: QuerySet[Any]
        if self.is_platform:
            found = (AccountHour if by_account else PlatformHour).objects.all()
        elif self.accounts is not None:
            found = AccountHour.objects.filter(account__in=self.accounts)
        else:
            return self.facts()
        return self.cut(found)

    @property
    def account_field(self) -> str:
        """What leads from the rows of :meth:`hours` to the account."""
        is_total = self.is_platform or self.accounts is not None
        return "account" if is_total else "workspace__account"

    def split(self) -> tuple[QuerySet[Any], tuple[str, ...], Mapping[str, Sum]]:
        """What answers the filter's split: rows, the columns of key and name, and the sums."""
        split_by = self.chosen.split_by
        if split_by == "cluster":
            return self.on_clusters(), ("cluster",), HELD_SUMS
        if split_by == "workspace":
            return self.facts(), ("workspace__namespace", "workspace__name"), SUMS
        if split_by == "none":
            return self.hours(), (), SUMS
        field = self.account_field if split_by == "account" else "flavor"
        rows = self.hours(by_account=split_by == "account")
        return rows, (f"{field}__slug", f"{field}__name"), SUMS

    def facts(self) -> QuerySet[UsageRecord]:
        """Hour facts of the workspaces."""
        return self.cut(self._of_workspaces(UsageRecord.objects.all()))

    def on_clusters(self) -> QuerySet[Any]:
        """Rows with ``hour``, ``cluster``, ``flavor`` (slug) and what was held there."""
        if self.is_platform:
            return self.cut(ClusterHour.objects.all(), flavor="flavor")
        if self.accounts is not None:
            return self.cut(ClusterHour.objects.filter(account__in=self.accounts), flavor="flavor")
        return self.of_workloads()

    def of_workloads(self) -> QuerySet[WorkloadUsage]:
        """Facts of single workloads."""
        return self.cut(self._of_workspaces(WorkloadUsage.objects.all()), flavor="flavor")

    def cut(self, rows: QuerySet[Row], *, flavor: str = "flavor__slug") -> QuerySet[Row]:
        """Rows with ``hour`` of the range and the flavors that are asked for, in no order.

        Args:
            rows: Of facts or totals.
            flavor: What leads from them to the flavor's slug.
        """
        found = rows.order_by().filter(hour__gte=self.chosen.start, hour__lt=self.chosen.end)
        flavors = self.chosen.flavors
        return found.filter(**{f"{flavor}__in": flavors}) if flavors else found

    def _of_workspaces(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        """No workspace need be looked up where all of them are asked for."""
        return rows if self.is_platform else rows.filter(workspace__in=self.workspaces.values("pk"))


Span = tuple[datetime, datetime]


def cut_at_days(start: datetime, end: datetime) -> tuple[Span | None, list[Span]]:
    """Cut [start, end), UTC, into the whole UTC days, if there are any, and the hours around."""
    floor = start.replace(hour=0, minute=0, second=0, microsecond=0)
    first = floor if floor == start else floor + timedelta(days=1)
    last = end.replace(hour=0, minute=0, second=0, microsecond=0)
    if first >= last:
        return None, [(start, end)]
    return (first, last), [edge for edge in ((start, first), (last, end)) if edge[0] < edge[1]]


def source_of(amount: Amount) -> str | Combinable:
    """Where a query of hour facts or totals finds an amount: its column, or a sum of columns."""
    return reduce(add, map(F, amount.of)) if amount.of else amount.name


def amounts_of(row: Mapping[str, Any], names: Iterable[str] = STORED) -> dict[str, int]:
    """The summed amounts of one row of a query, by their own names; 0 where there are no rows."""
    return {name: int(row[f"sum_{name}"] or 0) for name in names if f"sum_{name}" in row}
