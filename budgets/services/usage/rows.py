"""Make derived rows of a window what they should be, and touch none that already are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any

from django.db import IntegrityError, connection, models, transaction
from django.db.models import F, Lookup, Q, QuerySet
from msgspec.json import encode

from budgets.models.reading import read_rows

BATCH = 1000
COPIED = 200
"""From so many new rows on PostgreSQL takes them as a stream."""

BETWEEN = "\x1f"
"""The unit separator, which no name or UID has in it."""
NULL = "\\N"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def rewrite_rows(
    rows: QuerySet[Any],
    *,
    key: Sequence[str],
    amounts: Sequence[str],
    wanted: Mapping[tuple[Any, ...], tuple[int, ...]],
) -> tuple[int, int]:
    """Insert, change and delete until the rows are what is wanted.

    Args:
        rows: The stored rows of the window.
        key: Columns that tell a row from every other one, by attribute name.
        amounts: Columns that may change.
        wanted: Values of ``key`` → values of ``amounts``.

    Returns:
        Rows written, rows deleted.
    """
    model: type[models.Model] = rows.model
    stored = {
        tuple(row[1 : 1 + len(key)]): (row[0], tuple(row[1 + len(key) :]))
        for row in read_rows(rows.order_by().values_list("pk", *key, *amounts))
    }
    gone = [pk for place, (pk, _) in stored.items() if place not in wanted]
    for at in range(0, len(gone), BATCH):
        model._default_manager.filter(pk__in=gone[at : at + BATCH]).delete()
    fresh = [place + values for place, values in wanted.items() if place not in stored]
    changed = [
        place + values
        for place, values in wanted.items()
        if place in stored and stored[place][1] != values
    ]
    names = (*key, *amounts)
    write_rows(model, names, fresh, update=amounts, is_new=True)
    write_rows(model, names, changed, update=amounts)
    return len(fresh) + len(changed), len(gone)


@cache
def _natural_key(model: type[models.Model]) -> tuple[str, ...]:
    """Fields of a table's unique constraint, or the one field that is unique by itself."""
    for constraint in model._meta.constraints:
        if isinstance(constraint, models.UniqueConstraint):
            return tuple(constraint.fields)
    fields = model._meta.concrete_fields
    return tuple(field.name for field in fields if field.unique and not field.primary_key)


def upsert(rows: Iterable[models.Model]) -> None:
    """Insert rows; of one that is there already everything but its natural key is updated."""
    found = list(rows)
    if found:
        key = _natural_key(type(found[0]))
        names = [field.name for field in found[0]._meta.concrete_fields if not field.primary_key]
        type(found[0])._default_manager.bulk_create(
            found,
            batch_size=BATCH,
            update_conflicts=True,
            unique_fields=key,
            update_fields=[name for name in names if name not in key],
        )


def write_rows(
    model: type[models.Model],
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    update: Sequence[str] = (),
    is_new: bool = False,
) -> None:
    """Insert rows; one that is there already is updated, or left as it is.

    Args:
        model: The table; what is not in ``names`` has a default of the database.
        names: Columns by attribute name.
        rows: Their values, each row a place of its own.
        update: Columns to update; none leaves a row that is there as it is.
        is_new: Nobody else can have put one of them there.
    """
    if len(rows) >= COPIED and connection.vendor == "postgresql":
        if is_new:
            copy_rows(model, names, rows)
        elif update or not could_copy(model, names, rows):
            _merge_rows(model, names, rows, update=update)
        return
    fields = {field.attname: field.name for field in model._meta.concrete_fields}
    model._default_manager.bulk_create(
        [model(**dict(zip(names, row, strict=True))) for row in rows],
        batch_size=BATCH,
        ignore_conflicts=not update,
        update_conflicts=bool(update),
        unique_fields=_natural_key(model) if update else None,
        update_fields=[fields[name] for name in update] if update else None,
    )


def could_copy(
    model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> bool:
    """Insert rows of which mostly none is there, on PostgreSQL, in their order.

    Args:
        model: The table; what is not in ``names`` has a default of the database.
        names: Columns by attribute name.
        rows: Their values.

    Returns:
        False when one of them is there, or stands here twice: then none was inserted.
    """
    try:
        with transaction.atomic():
            copy_rows(model, names, rows)
    except IntegrityError:
        return False
    return True


def _merge_rows(
    model: type[models.Model],
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    update: Sequence[str],
) -> None:
    """Stream rows into a table beside, and from there into their own with one statement."""
    columns = _columns(model)
    quote = connection.ops.quote_name
    table, beside = quote(model._meta.db_table), quote(f"new_{model._meta.db_table}"[:63])
    listed = ", ".join(quote(columns[name]) for name in names)
    fields = {field.name: str(field.column) for field in model._meta.concrete_fields}
    keys = ", ".join(quote(fields[name]) for name in _natural_key(model))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TEMPORARY TABLE {beside} ON COMMIT DROP AS "  # noqa: S608  the model's names
            f"SELECT {listed} FROM {table} WITH NO DATA"
        )
        _copy_into(beside, model, names, rows)
        # In the order of their keys, so that two writers never wait for each other's rows.
        source = f"SELECT {listed} FROM {beside} ORDER BY {keys}"  # noqa: S608  the model's names
        changes = [f"{quote(columns[name])} = EXCLUDED.{quote(columns[name])}" for name in update]
        cursor.execute(
            f"INSERT INTO {table} ({listed}) {source} ON CONFLICT ({keys}) "
            f"{'DO UPDATE SET ' + ', '.join(changes) if changes else 'DO NOTHING'}"
        )
        cursor.execute(f"DROP TABLE {beside}")


def rewrite_from(
    rows: QuerySet[Any], sums: QuerySet[Any], *, key: Mapping[str, str], amounts: Mapping[str, str]
) -> tuple[int, int]:
    """Insert, change and delete until the rows are what a query says; nothing leaves the database.

    Args:
        rows: The stored rows of a window; it has a condition.
        sums: A query of just the values of ``key`` and then of ``amounts``; no order, no nulls.
        key: Column of the unique constraint, by attribute name → its name in ``sums``.
        amounts: Column that may change → its name in ``sums``.

    Returns:
        Rows written, rows deleted. Rows that are right already are not touched.
    """
    model: type[models.Model] = rows.model
    columns, quote = _columns(model), connection.ops.quote_name
    table, own = quote(model._meta.db_table), quote(columns[str(model._meta.pk.attname)])
    keys = [quote(columns[name]) for name in key]
    values = [quote(columns[name]) for name in amounts]
    wanted, wanted_params = _compiled(sums)
    window, window_params = _compiled(rows.order_by().values("pk"))
    places = ", ".join(map(quote, key.values()))
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in values)
    differs = " OR ".join(f"{table}.{name} <> EXCLUDED.{name}" for name in values)
    with transaction.atomic(), connection.cursor() as cursor:
        # First, while what is about to be written is not there: of a new window there are none.
        cursor.execute(
            f"DELETE FROM {table} WHERE {own} IN ({window} AND "  # noqa: S608  the models' names
            f"({', '.join(f'{table}.{name}' for name in keys)}) NOT IN "
            f"(SELECT {places} FROM ({wanted}) AS wanted))",
            [*window_params, *wanted_params],
        )
        removed = cursor.rowcount
        cursor.execute(
            f"INSERT INTO {table} ({', '.join([*keys, *values])}) {wanted} "
            f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes} WHERE {differs}",
            wanted_params,
        )
        return cursor.rowcount, removed


def _compiled(query: QuerySet[Any]) -> tuple[str, Sequence[Any]]:
    sql, params = query.query.get_compiler(connection=connection).as_sql()
    return sql, params


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
            columns_here = zip(*rows[at : at + BATCH], strict=True)
            parts = [write(column) for write, column in zip(writers, columns_here, strict=True)]
            copy.write("".join(["\t".join(row) + "\n" for row in zip(*parts, strict=True)]))


def _columns(model: type[models.Model]) -> dict[str, str]:
    return {field.attname: str(field.column) for field in model._meta.concrete_fields}


def _writer(field: Any) -> Callable[[Sequence[Any]], Iterable[str]]:
    """How a column's values are written in PostgreSQL's text format of COPY."""
    if isinstance(field, models.JSONField):
        write = partial(json.dumps, cls=field.encoder) if field.encoder else _json
        return lambda column: [_text(write(value)) for value in column]
    if isinstance(field, models.CharField | models.TextField):
        return _texts
    if isinstance(field, models.DateTimeField):
        return partial(map, _moment)
    if field.null:
        return lambda column: [NULL if value is None else str(value) for value in column]
    return partial(map, str)


def _json(value: Any) -> str:
    return encode(value).decode()


def _texts(column: Sequence[str | None]) -> Iterable[str]:
    """Most columns have no null and nothing that needs an escape: one look at all of it."""
    plain = [value for value in column if value is not None]
    together = "".join(plain)
    if len(plain) == len(column) and together.isprintable() and "\\" not in together:
        return plain
    return map(_text, column)


def _text(value: str | None) -> str:
    return NULL if value is None else value.translate(ESCAPES)


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
        values: list[Any] = self.rhs
        if len(values) > 1 and all(isinstance(value, str) for value in values):
            together = BETWEEN.join(values)
            if together.count(BETWEEN) == len(values) - 1:
                # The driver quotes a list item by item; the database takes one text apart at once.
                parts = f"{lhs} = ANY(string_to_array(%s, %s))"
                return parts, [*parameters, together, BETWEEN]
        return f"{lhs} = ANY(%s)", [*parameters, values]
