"""Rows that the database refuses: each is its own key's fault, not that of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db import DatabaseError, DataError, IntegrityError
from django.db.models import QuerySet

T = TypeVar("T")


def is_refusal(error: BaseException) -> bool:
    """Whether the database does not take a row as it is."""
    return isinstance(error, DataError | IntegrityError)


def is_away(error: BaseException) -> bool:
    """Whether the database does not answer, which is no row's fault."""
    return isinstance(error, DatabaseError) and not is_refusal(error)


def store_apart(
    rows: Sequence[T],
    store: Callable[[Sequence[T]], None],
    refused: Callable[[T, Exception], None],
) -> None:
    """Store rows together; what cannot be stored for one of them is stored one by one.

    Args:
        rows: What to store.
        store: In a transaction of its own.
        refused: Told of each row that cannot be stored by itself either.

    Raises:
        DatabaseError: the database does not answer.
    """
    try:
        store(rows)
    except Exception as error:
        if is_away(error):
            raise
        if len(rows) == 1:
            refused(rows[0], error)
            return
        for row in rows:
            store_apart([row], store, refused)


def prune_ended(rows: QuerySet[Any], *, before: datetime, most: int) -> int:
    """Remove rows that ended before a time, and the oldest beyond a number.

    Returns:
        How many rows went.
    """
    gone, _ = rows.filter(ended_at__lt=before).delete()
    last = rows.order_by("-pk").values_list("pk", flat=True)[most : most + 1].first()
    more, _ = rows.filter(pk__lte=last).delete() if last is not None else (0, {})
    return gone + more
