"""Rows that the database refuses: each is its own key's fault, not that of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import DatabaseError, DataError, IntegrityError

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
