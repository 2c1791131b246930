"""What turns up about a closed period: differences, recorded where they are still billed.

Source: spec money, sections 1.5 and 2.1 (CorrectionHandling).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from django.db.models import Q, QuerySet, Sum

from budgets.models import Account, BillingPeriod, Correction, Flavor, Workspace
from budgets.selectors.billing.months import closed_edges, open_month
from budgets.selectors.clock import utc_now
from budgets.services.billing.guards import stored_month
from budgets.services.usage.rows import rewrite_rows
from budgets.units import Period

logger = structlog.stdlib.get_logger(__name__)

Place = tuple[Any, ...]
Amounts = tuple[int, ...]
TABLES: Mapping[str, str] = {
    "UsageRecord": Correction.Table.USAGE,
    "AccountUsage": Correction.Table.ACCOUNT,
    "WorkloadUsage": Correction.Table.WORKLOAD,
}
# What names the fact that a correction is about.
NAMES = ("account_id", "workspace_id", "flavor", "cluster", "uid", "hour", "start")
START = NAMES.index("start")
BATCH = 1000


class FactWriter:
    """Writes the facts of one window: open ones as they should be, closed ones as corrections."""

    def __init__(self, window: Period) -> None:
        self.window = window
        self.edges = {
            account: edge for account, edge in closed_edges().items() if edge > window.start
        }
        self._accounts: dict[int, int] = {}
        self._flavors: dict[int, str] = {}
        if self.edges:
            self._accounts = dict(Workspace.objects.values_list("pk", "account_id"))
            self._flavors = dict(Flavor.objects.values_list("pk", "slug"))

    def rewrite(
        self,
        rows: QuerySet[Any],
        *,
        key: Sequence[str],
        amounts: Sequence[str],
        wanted: Mapping[Place, Amounts],
    ) -> tuple[int, int]:
        """Make facts what is wanted, as :func:`rewrite_rows` does, but for closed ones.

        Returns:
            Rows written, corrections included, and rows deleted.
        """
        if not self.edges:
            return rewrite_rows(rows, key=key, amounts=amounts, wanted=wanted)
        closed = self._closed(rows)
        stored = {
            tuple(row[: len(key)]): tuple(row[len(key) :])
            for row in rows.filter(closed).order_by().values_list(*key, *amounts)
        }
        still_open: dict[Place, Amounts] = {}
        late: dict[Place, Amounts] = {}
        for place, values in wanted.items():
            name = self._name(key, place)
            edge = self.edges.get(name[0])
            is_closed = edge is not None and name[START] < edge
            (late if is_closed else still_open)[place] = values
        corrected = self._correct(
            TABLES[rows.model.__name__],
            amounts,
            stored={self._name(key, place): values for place, values in stored.items()},
            wanted={self._name(key, place): values for place, values in late.items()},
        )
        written, removed = rewrite_rows(
            rows.exclude(closed), key=key, amounts=amounts, wanted=still_open
        )
        return written + corrected, removed

    def _closed(self, rows: QuerySet[Any]) -> Q:
        """The condition of closed facts: a part for every edge there is."""
        owner = "account" if hasattr(rows.model, "account") else "workspace__account"
        found = Q(pk__in=())
        for edge in sorted(set(self.edges.values())):
            accounts = [key for key, until in self.edges.items() if until == edge]
            # A sub-query, so that thousands of accounts are no parameters.
            of_edge = Account.objects.filter(pk__in=accounts).order_by().values("pk")
            found |= Q(**{f"{owner}__in": of_edge}, start__lt=edge)
        return found

    def _name(self, key: Sequence[str], place: Place) -> Place:
        part = dict(zip(key, place, strict=True))
        workspace = part.get("workspace_id")
        return (
            part["account_id"] if workspace is None else self._accounts[workspace],
            workspace,
            part["flavor"] if "flavor" in part else self._flavors[part["flavor_id"]],
            part.get("cluster", ""),
            part.get("uid", ""),
            part["hour"],
            part["start"],
        )

    def _correct(
        self,
        table: str,
        amounts: Sequence[str],
        *,
        stored: Mapping[Place, Amounts],
        wanted: Mapping[Place, Amounts],
    ) -> int:
        """Record wanted − stored − what is recorded already; the same again records nothing."""
        rows = Correction.objects.filter(
            table=table, hour__gte=self.window.start, hour__lt=self.window.end
        )
        sums = rows.order_by().values_list(*NAMES).annotate(*(Sum(name) for name in amounts))
        known = {tuple(row[: len(NAMES)]): tuple(row[len(NAMES) :]) for row in sums}
        nothing = (0,) * len(amounts)
        months: dict[int, BillingPeriod] = {}
        found: list[Correction] = []
        for name in sorted({*stored, *wanted, *known}, key=lambda name: [*map(str, name)]):
            delta = tuple(
                want - had - booked
                for want, had, booked in zip(
                    wanted.get(name, nothing),
                    stored.get(name, nothing),
                    known.get(name, nothing),
                    strict=True,
                )
            )
            if any(delta):
                found.append(
                    Correction(
                        table=table,
                        booked_in=self._month(name[0], months),
                        **dict(zip(NAMES, name, strict=True)),
                        **dict(zip(amounts, delta, strict=True)),
                    )
                )
        Correction.objects.bulk_create(found, batch_size=BATCH)
        if found:
            logger.info("period.corrected", table=str(table), rows=len(found))
        return len(found)

    def _month(self, account: int, months: dict[int, BillingPeriod]) -> BillingPeriod:
        """The account's open month of now, or its first open one."""
        if account not in months:
            month = open_month(account, utc_now())
            months[account] = stored_month(month.name, month.zone)
        return months[account]
