"""Liveness, readiness and metrics: for machines, without login and without a page around them."""

from __future__ import annotations

import structlog
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from clusters import broker
from portal import metrics as measured

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


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """What Prometheus reads, for whoever has PORTAL_METRICS_TOKEN; without one set, for nobody."""
    wanted = settings.PORTAL_METRICS_TOKEN
    if not wanted:
        return _plain("Metrics are switched off. Set PORTAL_METRICS_TOKEN to read them.\n", 404)
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(token.strip(), wanted):
        refused = _plain("Send the token: Authorization: Bearer PORTAL_METRICS_TOKEN.\n", 401)
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
    try:
        text = measured.exposition()
    except DatabaseError as error:
        log.warning("metrics_without_database", error=type(error).__name__, exc_info=error)
        return _plain("The database does not answer, so there is nothing to show.\n", 503)
    return HttpResponse(text, content_type=measured.CONTENT_TYPE)


def _plain(text: str, status: int) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return bool(cursor.fetchone() == (1,))
    except DatabaseError as error:
        log.warning("database_unreachable", error=type(error).__name__, exc_info=error)
        return False
