"""The tables of usage and charges: their columns, and charge rows as rows of them.

Pure. The tables of FOCUS are in :mod:`budgets.exports.focus`. Source: issue 6, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from budgets.amounts import COLUMNS
from budgets.charging.rows import ChargeRow
from budgets.exports.focus import Version, focus_table
from budgets.exports.table import Cell, CellKind, Column, Table

LABEL = "label:"
"""Before the key of a label, in the name of its column."""

USAGE = Table(
    "usage",
    (
        Column("account", CellKind.TEXT, "Account."),
        Column("workspace", CellKind.TEXT, "Namespace of the workspace."),
        Column("flavor", CellKind.TEXT, "GPU flavor."),
        Column(
            "start", CellKind.TIME, "Start of the hour, or of its part in the month; inclusive."
        ),
        Column("end", CellKind.TIME, "Its end; exclusive."),
        *(Column(amount.name, CellKind.INTEGER, amount.help, "GPU-seconds") for amount in COLUMNS),
    ),
)


CHARGES = (
    Column("account", CellKind.TEXT, "Account; empty on the platform's own statement."),
    Column("workspace", CellKind.TEXT, "Namespace; empty where it is the whole account's."),
    Column("flavor", CellKind.TEXT, "GPU flavor, where the charge is about one."),
    Column("kind", CellKind.TEXT, "floor, burst, lending_credit, adjustment and so on."),
    Column("class_of", CellKind.TEXT, "Of a correction: the kind that it corrects."),
    Column("start", CellKind.TIME, "Inclusive; of a correction the original hour."),
    Column("end", CellKind.TIME, "Exclusive."),
    Column("gpu_seconds", CellKind.INTEGER, "Quantity."),
    Column("unit_price", CellKind.DECIMAL, "Per GPU-hour; negative for a credit."),
    Column("amount", CellKind.AMOUNT, "To the cent; adds up to the statement."),
    Column("exact_amount", CellKind.TEXT, "Exact, as a fraction."),
    Column("currency", CellKind.TEXT, "ISO 4217."),
    Column("rate_card", CellKind.TEXT, "Version of the rate card."),
    Column("period", CellKind.TEXT, "Billing period."),
    Column("statement", CellKind.TEXT, "Number, once it is issued."),
    Column("cluster", CellKind.TEXT, "Cluster, where the charge belongs to one."),
    Column("region", CellKind.TEXT, "Its region, where that is known."),
)

_SAME = {column.name: column for column in CHARGES}

JOBS = (
    *(_SAME[name] for name in ("account", "workspace")),
    Column("job", CellKind.TEXT, "Name of the job; empty for what no job used."),
    Column("job_kind", CellKind.TEXT, "Such as Job or RayJob."),
    Column("cluster", CellKind.TEXT, "Cluster that it ran on."),
    Column("uid", CellKind.TEXT, "UID of its Workload there."),
    Column("workload", CellKind.TEXT, "Name of its Workload."),
    *(_SAME[name] for name in ("flavor", "kind", "class_of")),
    Column("start", CellKind.TIME, "First hour of the job's use; inclusive."),
    Column("end", CellKind.TIME, "End of the last one; exclusive."),
    _SAME["gpu_seconds"],
    Column("amount", CellKind.AMOUNT, "To the cent; the rows of a line add up to it."),
    *(_SAME[name] for name in ("exact_amount", "currency", "period", "statement")),
)
"""Each label of jobs has a column after these."""


def label_column(key: str) -> Column:
    """The column of a label of jobs that an admin named."""
    words = f"What the job says by its label {key}, as it was first seen."
    return Column(f"{LABEL}{key}", CellKind.TEXT, words)


def table_of(dataset: str, *, digits: int = 2, labels: Iterable[str] = ()) -> Table:
    """Return the table of a data set.

    Args:
        dataset: ``usage``, ``charges``, ``jobs``, ``focus-1.2`` or ``focus-1.4``.
        digits: Of the currency, for spreadsheets.
        labels: Of jobs, for the data set that has them.

    Raises:
        KeyError: There is no such data set.
    """
    if dataset == "usage":
        return USAGE
    if dataset == "charges":
        return Table("charges", CHARGES, digits)
    if dataset == "jobs":
        return Table("jobs", (*JOBS, *map(label_column, labels)), digits)
    name, _, version = dataset.partition("-")
    if name != "focus" or version not in set(Version):
        raise KeyError(dataset)
    return focus_table(Version(version), digits=digits)


_READ: Mapping[str, Callable[[ChargeRow], Cell]] = {
    "account": lambda row: row.account,
    "workspace": lambda row: row.workspace or None,
    "flavor": lambda row: row.flavor or None,
    "kind": lambda row: row.kind.value,
    "class_of": lambda row: row.class_of.value if row.class_of else None,
    "start": lambda row: row.start,
    "end": lambda row: row.end,
    "gpu_seconds": lambda row: row.gpu_seconds,
    "unit_price": lambda row: row.unit_price,
    "amount": lambda row: row.amount,
    "exact_amount": lambda row: str(row.exact),
    "currency": lambda row: row.currency,
    "rate_card": lambda row: str(row.rate_card) if row.rate_card else None,
    "period": lambda row: row.period,
    "statement": lambda row: row.statement or None,
    "cluster": lambda row: row.cluster or None,
    "region": lambda row: row.region or None,
    "uid": lambda row: row.uid or None,
}


def charge_cells(rows: Iterable[ChargeRow]) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of :data:`CHARGES`."""
    readers = [_READ[column.name] for column in CHARGES]
    return (tuple(read(row) for read in readers) for row in rows)


def job_cells(
    rows: Iterable[ChargeRow],
    names: Mapping[tuple[str, str], tuple[str, str, str]],
    said: Mapping[tuple[str, str], Mapping[str, str]],
    labels: Sequence[str],
) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of :data:`JOBS`, with what each job says by some labels.

    Args:
        rows: By job; some of them have none.
        names: Cluster and UID → kind and name of the job, name of its Workload.
        said: Cluster and UID → key of a label → what the job says by it.
        labels: Those of the table, in its order.
    """
    for row in rows:
        key = (row.cluster, row.uid)
        kind, job, workload = names.get(key, ("", "", ""))
        own: dict[str, Cell] = {
            "job": job or workload or row.uid or None,
            "job_kind": kind or None,
            "workload": workload or None,
        }
        told = said.get(key, {})
        yield (
            *(own[x.name] if x.name in own else _READ[x.name](row) for x in JOBS),
            *(told.get(label) for label in labels),
        )
