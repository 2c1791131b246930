"""Keyset pages with a cursor, and the ETag of a budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from budgets.errors import Fault, Rejected
from budgets.models import Budget
from portal.api.problems import PreconditionRequired

LIMIT = 100
MOST = 1000
Rows = QuerySet[Any] | Sequence[Any]
Slice = tuple[Sequence[Any], str | None]
"""Rows of a page, and the cursor of the next one."""


@dataclass(frozen=True, slots=True)
class Order:
    """A unique column that a list is sorted by; a cursor is the last value of a page.

    Attributes:
        field: The column.
        cursor: What its values look like.
        is_descending: Newest first.
    """

    field: str
    cursor: re.Pattern[str]
    is_descending: bool = False

    def rest(self, rows: Rows, cursor: str | None) -> Rows:
        """What comes behind a cursor, sorted; rows that are no queryset are so, by a number."""
        if isinstance(rows, QuerySet):
            found = rows.order_by(("-" if self.is_descending else "") + self.field)
            beyond = f"{self.field}__{'lt' if self.is_descending else 'gt'}"
            return found if cursor is None else found.filter(**{beyond: cursor})
        if cursor is None:
            return rows
        sign = -1 if self.is_descending else 1
        return [row for row in rows if sign * getattr(row, self.field) > sign * int(cursor)]


CREATED = Order("pk", re.compile(r"[0-9]{1,18}"), is_descending=True)
BY_NUMBER = Order("number", re.compile(r"[0-9]{1,9}"), is_descending=True)
OLDEST = Order("pk", re.compile(r"[0-9]{1,18}"))
BY_SLUG = Order("slug", re.compile(r"[a-z0-9-]{1,63}"))
BY_NAMESPACE = Order("namespace", re.compile(r"[a-z0-9-]{1,63}"))
BY_USERNAME = Order("username", re.compile(r"[\w.@+-]{1,150}"))


def page(
    request: Request,
    rows: Rows | Callable[[int, str | None], Slice],
    shape: Callable[..., serializers.BaseSerializer[Any]],
    order: Order,
    **more: Any,
) -> Response:
    """One page: ``{"next", "results"}``; one row more is read to know the next.

    Args:
        request: With ``limit`` and ``cursor``.
        rows: A queryset, or what a selector hands out as a whole and already in ``order``; or
            ``read(limit, cursor) -> rows, next cursor or None`` of one that pages by itself.
        shape: Of one row.
        order: What a cursor is a value of.
        more: Further keys of the answer.

    Raises:
        Rejected: The cursor or the limit is nonsense.
    """
    cursor = request.query_params.get("cursor") or None
    if cursor is not None and not (cursor.isprintable() and order.cursor.fullmatch(cursor)):
        message = f"{cursor[:80]!r} is not a cursor of this list; follow the address in 'next'."
        raise Rejected([Fault("cursor", "invalid", message)])
    limit = limit_of(request)
    if callable(rows):
        items, following = rows(limit, cursor)
    else:
        items = list(order.rest(rows, cursor)[: limit + 1])
        following = str(getattr(items[limit - 1], order.field)) if len(items) > limit else None
    address = None
    if following:
        query = request.query_params.copy()
        query["cursor"] = following
        address = f"{request.build_absolute_uri(request.path)}?{query.urlencode()}"
    results = shape(items[:limit], many=True).data
    return Response({**more, "next": address, "results": results})


def limit_of(request: Request) -> int:
    """The ``limit`` parameter, 1 to 1000.

    Raises:
        Rejected: it is something else.
    """
    text = request.query_params.get("limit", str(LIMIT))
    if not (re.fullmatch(r"[0-9]{1,4}", text) and 1 <= int(text) <= MOST):
        message = f"{text[:80]!r} is not a number from 1 to {MOST}."
        raise Rejected([Fault("limit", "invalid", message)])
    return int(text)


def etag_of(budget: Budget) -> str:
    """Version and generation: a scheduled revision that begins changes only the latter."""
    return f'"{budget.version}.{budget.generation}"'


def expected_version(request: Request) -> int:
    """The version in If-Match; the generation beside it is for reading alone.

    Raises:
        PreconditionRequired: the header is missing.
        Rejected: it is not an ETag of ours.
    """
    header = request.headers.get("If-Match")
    if header is None:
        raise PreconditionRequired
    found = re.fullmatch(r'(?:W/)?"([0-9]{1,18})(?:\.[0-9]{1,18})?"', header.strip())
    if found is None:
        message = f"{header[:80]!r} is not the ETag of a budget; read the budget again."
        raise Rejected([Fault("If-Match", "invalid", message)])
    return int(found[1])
