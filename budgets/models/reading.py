"""Plain rows: many at once with the driver's own reader of times, and few that are asked for often.

Django reads every time of PostgreSQL in Python and puts the time zone of the connection into it.
Where both are UTC the driver's compiled reader gives the very same values, many times as quick;
the ledger reads times by the million.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet

TYPE = "timestamptz"
Written = tuple[str, tuple[Any, ...]]
"""A query as the database reads it, with its values."""


def written(rows: QuerySet[Any, Any]) -> Written:
    """The query of a ``values_list``, for :func:`ask`.

    Writing a query takes Django longer than the database needs to answer a small one, so what is
    asked several times a second is written once and kept.
    """
    return rows.query.sql_with_params()


def ask(query: Written) -> list[tuple[Any, ...]]:
    """All rows of a written query, as the driver reads them."""
    with connection.cursor() as cursor:
        cursor.execute(*query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def read_rows(rows: QuerySet[Any, Any]) -> Iterable[tuple[Any, ...]]:
    """Read all rows of a ``values_list``, as going through it would.

    Args:
        rows: Of fields and expressions in its order, and not flat: what is selected is given.
    """
    if connection.vendor != "postgresql" or connection.timezone is not UTC:
        return rows.iterator()
    import psycopg
    from psycopg.pq import Format

    compiler = rows.query.get_compiler(connection=connection)
    try:
        sql, params = compiler.as_sql()
    except EmptyResultSet:
        return []
    with connection.cursor() as cursor:
        driver = cursor.cursor
        if driver.connection.info.parameter_status("TimeZone") == "UTC":
            oid = psycopg.adapters.types[TYPE].oid
            quick = psycopg.adapters.get_loader(oid, Format.TEXT)
            driver.adapters.register_loader(TYPE, quick)
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    converters = compiler.get_converters([column for column, _, _ in compiler.select])
    return map(tuple, compiler.apply_converters(found, converters)) if converters else found
