"""Make derived rows of a window what they should be, and touch none that already are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import models
from django.db.models import QuerySet

BATCH = 1000


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
    changed = [
        model(**dict(zip(key, place, strict=True)), **dict(zip(amounts, values, strict=True)))
        for place, values in wanted.items()
        if place not in stored or stored[place][1] != tuple(values)
    ]
    model._default_manager.bulk_create(
        changed,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=[name.removesuffix("_id") for name in natural or key],
        update_fields=list(amounts),
    )
    return len(changed), len(gone)


def _batches(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(keys), BATCH):
        yield keys[at : at + BATCH]
