"""What Prometheus reads: the fleet and the books out of the database, and this process's own times.

The web answers for everything that the database knows, so a killed worker takes no number with it;
times of requests and tasks belong to the process that measured them, and its scrape shows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Histogram,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from budgets.selectors.metrics import Family, book_families
from clusters.selectors.metrics import cluster_families, queue_families

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Seconds. Pages are to answer within a tenth; a shift lasts for hours.
_REQUEST_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TASK_BUCKETS: Final = (0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600)

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
PROCESS: Final = CollectorRegistry()
REQUESTS: Final = Histogram(
    "portal_http_request_duration_seconds",
    "Time to answer a request, by the name of its route.",
    ("method", "route", "code"),
    buckets=_REQUEST_BUCKETS,
    registry=PROCESS,
)
TASKS: Final = Histogram(
    "portal_task_duration_seconds",
    "Time that a task took, by the name of the task.",
    ("task", "state"),
    buckets=_TASK_BUCKETS,
    registry=PROCESS,
)


def families() -> Iterator[Family]:
    """Everything that the database says now."""
    now = timezone.now()
    yield from chain(cluster_families(now), queue_families(), book_families(now))


class Fleet(Collector):
    """Asks the database at each scrape."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return [_gauge(family) for family in families()]


_FLEET: Final = CollectorRegistry()
_FLEET.register(Fleet())


def exposition() -> bytes:
    """Everything that the web shows, in Prometheus' text format.

    Raises:
        DatabaseError: the database does not answer.
    """
    return generate_latest(_FLEET) + generate_latest(PROCESS)


def serve(port: int) -> None:
    """Show a worker's own times on a port of its own, until the process ends."""
    start_http_server(port, registry=PROCESS)


def observed(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware: the time of every answer; labels are names of ours, whatever is asked for."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        begun = time.perf_counter()
        response = get_response(request)
        took = time.perf_counter() - begun
        match = request.resolver_match
        route = match.view_name if match else ""
        method = request.method if request.method in _METHODS else "other"
        REQUESTS.labels(method, route or "none", response.status_code).observe(took)
        return response

    return answer


class TaskTimes:
    """Times of a worker's tasks, by the signals of Celery."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}

    def begun(self, task_id: str, **_: Any) -> None:
        self._begun[task_id] = time.perf_counter()

    def ended(self, task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
        begun = self._begun.pop(task_id, None)
        if begun is not None:
            TASKS.labels(task.name, state or "none").observe(time.perf_counter() - begun)


def _gauge(family: Family) -> GaugeMetricFamily:
    found = GaugeMetricFamily(family.name, family.says, labels=family.labels)
    for values, number in family.samples:
        found.add_metric(values, number)
    return found
