"""What goes into an export: its table, its rows as they stream, and its label.

Source: issue 6, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from django.conf import settings
from django.db.models import QuerySet

from budgets.amounts import COLUMNS
from budgets.charging import ChargeRow
from budgets.exports import About, Row, Table
from budgets.exports.datasets import LABEL, charge_cells, job_cells, table_of
from budgets.exports.focus import Version, focus_rows
from budgets.models import BillingPeriod, BillingTerms, Export, UsageRecord, User
from budgets.models.exports import DATASETS
from budgets.selectors.billing import charge_lines, portal_currency
from budgets.selectors.billing.jobs import job_charge_lines
from budgets.selectors.clock import utc_now
from budgets.selectors.exports.focus_source import focus_inputs, focus_names
from budgets.selectors.fleet.places import facts_in, job_names
from budgets.selectors.roles import visible_workspaces
from budgets.selectors.usage.labels import kept_labels, values_by
from budgets.selectors.usage.scope import source_of
from budgets.selectors.usage.table import freshness
from budgets.units import HOUR, currency_digits

CHUNK = 5_000
NAMES_AT_ONCE = 1_000
TITLES = dict(DATASETS)
NOTES = {
    "usage": ("Quantities are whole GPU-seconds.",),
    "charges": ("The amounts of a statement's rows add up to the payable amount.",),
    "jobs": (
        "The amounts of a statement's rows add up to the payable amount, and those of a line to "
        "the line.",
        "Rows without a job are what no job used: the rest of the committed GPUs, credits and the "
        "like.",
    ),
    "focus": (
        "Corrections of closed months are rows of the open month with ChargeClass Correction.",
        "InvoiceId is provisional until the statement is issued.",
    ),
}


@dataclass(slots=True)
class ExportRows:
    """An export as it is read.

    Attributes:
        table: All columns.
        rows: Read once.
        about: The label; rows and rate cards are known at the end.
        total: Hour facts that will be read, for the progress.
        rate_cards: Filled while the rows are read.
    """

    table: Table
    rows: Iterator[Row]
    about: About
    total: int
    rate_cards: set[int] = field(default_factory=set)


def dataset_table(dataset: str, *, digits: int = 2) -> Table:
    """All columns of a data set, those of the labels of jobs that are kept among them.

    Raises:
        KeyError: There is no such data set.
    """
    return table_of(dataset, digits=digits, labels=kept_labels() if dataset == "jobs" else ())


def export_rows(
    user: User,
    export: Export,
    period: BillingPeriod,
    *,
    advance: Callable[[int], None],
    now: datetime | None = None,
) -> ExportRows:
    """Return what an export holds, as far as the user may see it.

    Args:
        user: Whose eyes decide about the rows.
        export: Data set and filter.
        period: Its month.
        advance: Told after each hour fact how many were read.
        now: Clock of the label.
    """
    instant = now or utc_now()
    fresh = freshness(now=instant)
    about = About(
        title=TITLES[export.dataset],
        made_at=instant,
        filter={
            "period": export.period,
            "account": export.account or "all visible",
            "workspace": export.workspace or "all visible",
            "columns": ", ".join(export.columns) or "all",
            "seen by": user.get_username(),
        },
        time_zone=export.zone,
        complete_until=fresh.complete_until,
        late_clusters=fresh.late_clusters,
        currency="" if export.dataset == "usage" else portal_currency(),
        notes=NOTES[export.dataset.partition("-")[0]],
    )
    facts = _facts(user, export, period)
    table = dataset_table(export.dataset, digits=_digits())
    found = ExportRows(table, iter(()), about, facts.count())
    if export.dataset == "usage":
        found.rows = _usage(facts, period, advance)
        return found
    if export.dataset == "jobs":
        by_job = _wanted(export, job_charge_lines(user, period=period))
        labels = [name.removeprefix(LABEL) for name in table.names if name.startswith(LABEL)]
        found.rows = _named_jobs(by_job, labels, found.total, advance)
        return found
    charges = _charges(user, export, period, found.rate_cards, advance)
    if export.dataset == "charges":
        found.rows = charge_cells(charges)
        return found
    version = Version(export.dataset.partition("-")[2])
    names = focus_names(period, provider=settings.PORTAL_PROVIDER_NAME)
    source = focus_inputs(charges, period, complete_until=fresh.complete_until)
    found.rows = focus_rows(source, names, version)
    return found


def _facts(user: User, export: Export, period: BillingPeriod) -> QuerySet[UsageRecord]:
    workspaces = visible_workspaces(user, include_archived=True)
    if export.account:
        workspaces = workspaces.filter(account__slug=export.account)
    if export.workspace:
        workspaces = workspaces.filter(namespace=export.workspace)
    facts = UsageRecord.objects.filter(workspace__in=workspaces.order_by().values("pk"))
    return facts_in(facts, period)


def _usage(
    facts: QuerySet[UsageRecord], period: BillingPeriod, advance: Callable[[int], None]
) -> Iterator[Row]:
    rows = facts.order_by("workspace__namespace", "flavor__slug", "hour", "start").values_list(
        "workspace__account__slug",
        "workspace__namespace",
        "flavor__slug",
        "hour",
        "start",
        *(source_of(column) for column in COLUMNS),
    )
    for number, (account, namespace, flavor, hour, start, *amounts) in enumerate(
        rows.iterator(chunk_size=CHUNK), 1
    ):
        advance(number)
        yield (account, namespace, flavor, start, min(hour + HOUR, period.end), *amounts)


def _charges(
    user: User,
    export: Export,
    period: BillingPeriod,
    rate_cards: set[int],
    advance: Callable[[int], None],
) -> Iterator[ChargeRow]:
    """The charge rows of the filter; several rows come from one hour fact."""
    place: tuple[str, str, datetime] | None = None
    facts = 0
    for row in _wanted(export, charge_lines(user, period=period)):
        if row.gpu_seconds and place != (row.workspace, row.flavor, row.start):
            place = (row.workspace, row.flavor, row.start)
            facts += 1
            advance(facts)
        if row.rate_card:
            rate_cards.add(row.rate_card)
        yield row


def _wanted(export: Export, rows: Iterable[ChargeRow]) -> Iterator[ChargeRow]:
    """Rows of the account and the workspace that are asked for."""
    for row in rows:
        if export.account in ("", row.account) and export.workspace in ("", row.workspace):
            yield row


def _named_jobs(
    rows: Iterator[ChargeRow], labels: Sequence[str], facts: int, advance: Callable[[int], None]
) -> Iterator[Row]:
    """Rows by job with the names of the jobs; hour facts are read when the first row is there."""
    while batch := list(islice(rows, NAMES_AT_ONCE)):
        advance(facts)
        places = {(row.cluster, row.uid) for row in batch if row.uid}
        said = values_by(labels, places)
        yield from job_cells(batch, job_names(places), said, labels)


def _digits() -> int:
    """The most digits of the currencies in use: so no amount loses any in a spreadsheet."""
    used = {portal_currency(), *BillingTerms.objects.values_list("currency", flat=True)}
    return max((currency_digits(currency) for currency in used if currency), default=2)
