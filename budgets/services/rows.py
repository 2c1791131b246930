"""Make derived rows of a window what they should be, and touch none that already are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import connection, models
from django.db.models import QuerySet

BATCH = 1000
COPIED = 500
"""From so many new rows on PostgreSQL takes them as a stream."""


def rewrite_rows(
    rows: QuerySet[Any],
    *,
    key: Sequence[str],
    amounts: Sequence[str],
    wanted: Mapping[tuple[Any, ...], tuple[int, ...]],
    natural: Sequence[str] | None = None,
) -> tuple[int, int]:
    """Insert, change and delete until the rows are what is wanted.

    Args:
        rows: The stored rows of the window.
        key: Columns that tell a row from every other one, by attribute name.
        amounts: Columns that may change.
        wanted: Values of ``key`` → values of ``amounts``.
        natural: Fields of the unique constraint; those of ``key`` when it is None.

    Returns:
        Rows written, rows deleted.
    """
    model: type[models.Model] = rows.model
    stored = {
        tuple(row[1 : 1 + len(key)]): (row[0], tuple(row[1 + len(key) :]))
        for row in rows.order_by().values_list("pk", *key, *amounts)
    }
    gone = [pk for place, (pk, _) in stored.items() if place not in wanted]
    for batch in _batches(gone):
        model._default_manager.filter(pk__in=batch).delete()
    fresh = [(*place, *values) for place, values in wanted.items() if place not in stored]
    is_copied = len(fresh) >= COPIED and connection.vendor == "postgresql"
    if is_copied:
        copy_rows(model, [*key, *amounts], fresh)
    changed = [
        (*place, *values)
        for place, values in wanted.items()
        if place in stored and stored[place][1] != tuple(values)
    ]
    names = (*key, *amounts)
    written = len(fresh) + len(changed)
    model._default_manager.bulk_create(
        [
            model(**dict(zip(names, row, strict=True)))
            for row in (*(() if is_copied else fresh), *changed)
        ],
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=[name.removesuffix("_id") for name in natural or key],
        update_fields=list(amounts),
    )
    return written, len(gone)


def copy_rows(
    model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows that are not there yet, on PostgreSQL; many times as quick as statements.

    Args:
        model: The table; what is not in ``names`` has a default of the database.
        names: Columns by attribute name.
        rows: Their values.
    """
    columns = {field.attname: str(field.column) for field in model._meta.concrete_fields}
    quote = connection.ops.quote_name
    listed = ", ".join(quote(columns[name]) for name in names)
    into = f"COPY {quote(model._meta.db_table)} ({listed}) FROM STDIN"
    # The stream itself knows errors of the driver only.
    errors = connection.wrap_database_errors
    with errors, connection.cursor() as cursor, cursor.copy(into) as copy:
        for row in rows:
            copy.write_row(row)


def _batches(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(keys), BATCH):
        yield keys[at : at + BATCH]
