"""Make derived rows of a window what they should be, and touch none that already are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import connection, models, transaction
from django.db.models import F, Lookup, Q, QuerySet

BATCH = 1000
COPIED = 200
"""From so many new rows on PostgreSQL takes them as a stream."""

NULL = "\\N"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


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
    if stored:
        fresh = [place + values for place, values in wanted.items() if place not in stored]
        changed = [
            place + values
            for place, values in wanted.items()
            if place in stored and stored[place][1] != values
        ]
    else:
        fresh, changed = [place + values for place, values in wanted.items()], []
    names = (*key, *amounts)
    write_rows(model, names, fresh, unique=natural or key, update=amounts, is_new=True)
    write_rows(model, names, changed, unique=natural or key, update=amounts)
    return len(fresh) + len(changed), len(gone)


def write_rows(
    model: type[models.Model],
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    unique: Sequence[str],
    update: Sequence[str] = (),
    is_new: bool = False,
) -> None:
    """Insert rows; one that is there already is updated, or left as it is.

    Args:
        model: The table; what is not in ``names`` has a default of the database.
        names: Columns by attribute name.
        rows: Their values, each row a place of its own.
        unique: Columns of the unique constraint.
        update: Columns to update; none leaves a row that is there as it is.
        is_new: Nobody else can have put one of them there.
    """
    if len(rows) >= COPIED and connection.vendor == "postgresql":
        if is_new:
            copy_rows(model, names, rows)
        else:
            _merge_rows(model, names, rows, unique=unique, update=update)
        return
    fields = {field.attname: field.name for field in model._meta.concrete_fields}
    model._default_manager.bulk_create(
        [model(**dict(zip(names, row, strict=True))) for row in rows],
        batch_size=BATCH,
        ignore_conflicts=not update,
        update_conflicts=bool(update),
        unique_fields=[fields[name] for name in unique] if update else None,
        update_fields=[fields[name] for name in update] if update else None,
    )


def _merge_rows(
    model: type[models.Model],
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    unique: Sequence[str],
    update: Sequence[str],
) -> None:
    """Stream rows into a table beside, and from there into their own with one statement."""
    columns = _columns(model)
    quote = connection.ops.quote_name
    table, beside = quote(model._meta.db_table), quote(f"new_{model._meta.db_table}"[:63])
    listed = ", ".join(quote(columns[name]) for name in names)
    keys = ", ".join(quote(columns[name]) for name in unique)
    # In the order of their keys, so that two writers never wait for each other's rows.
    changes = ", ".join(f"{quote(columns[n])} = EXCLUDED.{quote(columns[n])}" for n in update)
    action = f"DO UPDATE SET {changes}" if update else "DO NOTHING"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TEMPORARY TABLE {beside} ON COMMIT DROP AS "  # noqa: S608  the model's names
            f"SELECT {listed} FROM {table} WITH NO DATA"
        )
        _copy_into(beside, model, names, rows)
        cursor.execute(
            f"INSERT INTO {table} ({listed}) "  # noqa: S608  the model's own names
            f"SELECT {listed} FROM {beside} ORDER BY {keys} "
            f"ON CONFLICT ({keys}) {action}"
        )
        cursor.execute(f"DROP TABLE {beside}")


def copy_rows(
    model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows that are not there yet, on PostgreSQL; many times as quick as statements.

    Args:
        model: The table; what is not in ``names`` has a default of the database.
        names: Columns by attribute name.
        rows: Their values.
    """
    _copy_into(connection.ops.quote_name(model._meta.db_table), model, names, rows)


def _copy_into(
    table: str, model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    columns = _columns(model)
    listed = ", ".join(connection.ops.quote_name(columns[name]) for name in names)
    writers = [_writer(model._meta.get_field(name)) for name in names]
    # The stream itself knows errors of the driver only.
    errors = connection.wrap_database_errors
    with (
        errors,
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({listed}) FROM STDIN") as copy,
    ):
        for at in range(0, len(rows), BATCH):
            # Column by column, for each has one way to be written.
            parts = [
                map(write, column)
                for write, column in zip(
                    writers, zip(*rows[at : at + BATCH], strict=True), strict=True
                )
            ]
            copy.write("".join(["\t".join(row) + "\n" for row in zip(*parts, strict=True)]))


def _columns(model: type[models.Model]) -> dict[str, str]:
    return {field.attname: str(field.column) for field in model._meta.concrete_fields}


def _writer(field: Any) -> Callable[[Any], str]:
    """How a column's values are written in PostgreSQL's text format of COPY."""
    if isinstance(field, models.JSONField):
        return lambda value: _text(json.dumps(value, cls=field.encoder))
    if isinstance(field, models.CharField | models.TextField):
        return _text
    if isinstance(field, models.DateTimeField):
        return _moment
    if field.null:
        return lambda value: NULL if value is None else str(value)
    return str


def _text(value: str | None) -> str:
    if value is None:
        return NULL
    if value.isprintable() and "\\" not in value:
        return value
    return value.translate(ESCAPES)


@lru_cache(maxsize=65_536)
def _moment(value: datetime | None) -> str:
    return NULL if value is None else value.isoformat()


def among(column: str, values: Collection[Any]) -> Q | Lookup[Any]:
    """The condition that a column has one of many values, in one parameter where that works."""
    if connection.vendor == "postgresql":
        return _Among(F(column), list(values))
    return Q(**{f"{column}__in": values})


class _Among(Lookup):
    """PostgreSQL's ``column = ANY(values)``: thousands of values are no text of their own."""

    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        lhs, parameters = self.process_lhs(compiler, connection)
        return f"{lhs} = ANY(%s)", [*parameters, self.rhs]


def _batches(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(keys), BATCH):
        yield keys[at : at + BATCH]
