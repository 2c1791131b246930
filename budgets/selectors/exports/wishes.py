"""What a file of one month shall hold, what is wrong with such a wish, and its first rows.

Source: issue 6, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from budgets.errors import Fault, Rejected, reject_any
from budgets.exports import FORMATS, pick
from budgets.exports.writers.csv_file import shown_row
from budgets.models import BillingPeriod, Export, User
from budgets.models.exports import DATASETS
from budgets.selectors.billing import month_of
from budgets.selectors.clock import utc_now
from budgets.selectors.exports.rows import dataset_table, export_rows
from budgets.selectors.roles import visible_accounts, visible_workspaces

PREVIEWED = 10


@dataclass(frozen=True, slots=True)
class ExportWish:
    """What a file of one month shall hold.

    Attributes:
        dataset: ``usage``, ``charges``, ``jobs``, ``focus-1.2`` or ``focus-1.4``.
        format: ``csv``, ``xlsx``, ``parquet`` or ``jsonl``.
        period: Month, such as ``2026-10``.
        zone: Zone of the month.
        account: Slug; empty for all that the asker sees.
        workspace: Namespace; empty for all that the asker sees.
        columns: Names in the wanted order; empty for all.
    """

    dataset: str
    format: str
    period: str
    zone: str = "UTC"
    account: str = ""
    workspace: str = ""
    columns: Sequence[str] = ()

    def as_export(self, actor: User) -> Export:
        """An unsaved row that wishes the same."""
        return Export(requested_by=actor, **(asdict(self) | {"columns": list(self.columns)}))


def faults_of_wish(actor: User, wish: ExportWish) -> list[Fault]:
    """Everything that is wrong with what somebody wants to see in a file."""
    return [
        *_unknown("dataset", wish.dataset, dict(DATASETS)),
        *_unknown("format", wish.format, FORMATS),
        *_period_faults(wish.period, wish.zone),
        *_scope_faults(actor, wish.account, wish.workspace),
        *_column_faults(wish.dataset, wish.columns),
    ]


@dataclass(frozen=True, slots=True)
class Preview:
    """The first rows of a file as texts; ``facts``: hour facts that it would be made of."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    facts: int


def preview(user: User, **wanted: Any) -> Preview:
    """The first rows of what an export would hold for a user.

    Args:
        user: Whose eyes decide about the rows.
        **wanted: The fields of :class:`ExportWish`.

    Raises:
        Rejected: Everything that is wrong with the wish, at once.
    """
    wish = ExportWish(**wanted)
    reject_any(faults_of_wish(user, wish))
    found = export_rows(
        user, wish.as_export(user), month_of(wish.period, wish.zone), advance=lambda _: None
    )
    table, cut = pick(found.table, wish.columns)
    rows = tuple(shown_row(table, cut(row)) for row in islice(found.rows, PREVIEWED))
    return Preview(table.names, rows, found.total)


def _unknown(field: str, value: str, known: Mapping[str, object]) -> list[Fault]:
    if value in known:
        return []
    return [Fault(field, "unknown", f"{value[:80]!r} is not one of {', '.join(known)}.")]


def _period_faults(period: str, zone: str) -> list[Fault]:
    try:
        found = month_of(period, zone)
    except BillingPeriod.DoesNotExist:
        message = f"{period[:20]!r} of {zone[:64]!r} is not a month; write it like 2026-10."
        return [Fault("period", "invalid", message)]
    if found.start > utc_now():
        return [Fault("period", "future", f"{period} has not begun. Choose an earlier month.")]
    return []


def _scope_faults(actor: User, account: str, workspace: str) -> list[Fault]:
    faults = []
    accounts = visible_accounts(actor, include_archived=True)
    if account and not accounts.filter(slug=account).exists():
        faults.append(Fault("account", "unknown", f"There is no account {account[:80]!r}."))
    found = visible_workspaces(actor, include_archived=True)
    if workspace:
        found = found.filter(namespace=workspace)
        if account and not faults:
            found = found.filter(account__slug=account)
    if not found.exists():
        message = (
            f"There is no workspace {workspace[:80]!r} here."
            if workspace
            else ("You see no workspace, so there is nothing to export. Ask an owner for a role.")
        )
        faults.append(Fault("workspace", "unknown", message))
    return faults


def _column_faults(dataset: str, columns: Sequence[str]) -> tuple[Fault, ...]:
    with suppress(KeyError):  # the fault of the data set says it
        try:
            pick(dataset_table(dataset), columns)
        except Rejected as rejected:
            return rejected.faults
    return ()
