"""Rows that the database refuses: each is its own key's fault, not that of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from django.db import DataError, IntegrityError

T = TypeVar("T")
REFUSED: Final = (DataError, IntegrityError)


def store_apart(
    rows: Sequence[T],
    store: Callable[[Sequence[T]], None],
    refused: Callable[[T, Exception], None],
) -> None:
    """Store rows together; what the database refuses for one of them is stored one by one.

    Args:
        rows: What to store.
        store: In a transaction of its own.
        refused: Told of each row that the database does not take by itself either.
    """
    try:
        store(rows)
    except REFUSED as error:
        if len(rows) == 1:
            refused(rows[0], error)
            return
        for row in rows:
            store_apart([row], store, refused)
