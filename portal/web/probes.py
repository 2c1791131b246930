"""Liveness and readiness, without login and without a page around them."""

from __future__ import annotations

import structlog
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from clusters import broker

log = structlog.stdlib.get_logger(__name__)


@login_not_required
@never_cache
@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """The process answers; a database outage restarts no web server."""
    return JsonResponse({"alive": True})


@login_not_required
@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Pages can be served: the database answers. ``?broker=1`` asks for the broker too.

    The broker only makes changes quicker; without it the periodic sweep carries them, so it
    does not decide readiness unless asked.
    """
    parts = {"database": _database_answers()}
    if request.GET.get("broker"):
        parts["broker"] = broker.is_broker_reachable()
    is_ready = all(parts.values())
    return JsonResponse({"ready": is_ready, **parts}, status=200 if is_ready else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return bool(cursor.fetchone() == (1,))
    except DatabaseError as error:
        log.warning("database_unreachable", error=type(error).__name__, exc_info=error)
        return False
