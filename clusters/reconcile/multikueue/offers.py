"""What the workers could give: their quota objects watched, offers worked out for one workload.

Read with the portal's own identity on each worker, which may see its quota; a worker that cannot
be read gives an unknown offer and is nominated after the others.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast

import structlog
from django.db import DatabaseError, connection
from django.utils.functional import SimpleLazyObject

from budgets.models import Workspace
from budgets.selectors.billing import rates_now
from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.amounts import Usage
from clusters.kueue.multikueue.offers import UNKNOWN_OFFER, Offer, WorkerQuota
from clusters.reconcile.multikueue.local import Local
from clusters.reconcile.multikueue.workers import DispatchFleet
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.watches import Seen, Watches

log = structlog.stdlib.get_logger(__name__)

Prices = Callable[[str, datetime], Mapping[str, Decimal]]
"""Per device and hour by flavor, for a namespace at a time."""

QUOTA_KINDS: Final = (r.CLUSTER_QUEUE, r.COHORT, r.RESOURCE_FLAVOR, r.LOCAL_QUEUE)
# A busy queue may tell some seconds late what it took; until then it counts as booked.
BOOKED_S: Final = 10.0
FAILURES_FOR: Final = timedelta(hours=1)
PRICES_FOR_S: Final = 60.0
CONNECT_EVERY_S: Final = 5.0
SETTLE_S: Final = 5.0


class Scout:
    """Watches the quota of one worker."""

    def __init__(self, name: str, client_for: Callable[[str], KubeClient]) -> None:
        self._name, self._client_for = name, client_for
        self._born_at = time.monotonic()
        self._watches: Watches | None = None
        self._reflectors: list[Any] = []
        self._tried_at = -CONNECT_EVERY_S
        self._has_changed = False
        self._quota: WorkerQuota | None = None
        self._booked: list[tuple[float, str, Usage]] = []

    def quota(self) -> WorkerQuota | None:
        """The worker's quota now; None while it is not known."""
        self._connect()
        if not self._reflectors or not all(item.is_synced for item in self._reflectors):
            return None
        moment = time.monotonic()
        over = [item for item in self._booked if item[0] <= moment]
        if over or self._has_changed or self._quota is None:
            self._booked = [item for item in self._booked if item[0] > moment]
            self._has_changed = False
            self._quota = self._read()
        return self._quota

    @property
    def is_settled(self) -> bool:
        """Whether its quota is known, or was waited for long enough."""
        return self.quota() is not None or time.monotonic() - self._born_at > SETTLE_S

    def book(self, queue: str, usage: Usage) -> None:
        """Count a nomination until the worker's queue tells what became of it."""
        self._booked.append((time.monotonic() + BOOKED_S, queue, usage))
        if self._quota is not None:
            self._quota.book(queue, usage)

    def close(self) -> None:
        """End the watches."""
        if self._watches is not None:
            self._watches.close()

    def _connect(self) -> None:
        if self._watches is not None or time.monotonic() - self._tried_at < CONNECT_EVERY_S:
            return
        self._tried_at = time.monotonic()
        try:
            client = self._client_for(self._name)
        except ClusterError as error:
            log.info("offers_unknown", cluster=self._name, error=error)
            return
        self._watches = Watches(client, cluster=self._name, pulse=None, sink=self._take)
        self._reflectors = [self._watches.add(kind, is_optional=True) for kind in QUOTA_KINDS]

    def _take(self, seen: Seen) -> None:
        self._has_changed = True

    def _read(self) -> WorkerQuota | None:
        assert self._watches is not None
        queues, cohorts, flavors, local = (self._watches.snapshot(kind) for kind in QUOTA_KINDS)
        try:
            found = WorkerQuota(queues=queues, cohorts=cohorts, flavors=flavors, local_queues=local)
        except (KeyError, ValueError) as error:
            log.warning("offers_unknown", cluster=self._name, error=error)
            return None
        for _, queue, usage in self._booked:
            found.book(queue, usage)
        return found


class Bidding:
    """Offers of all workers.

    Args:
        client_for: Gives the portal's client of a worker.
        prices: Of a namespace now: per device and hour by flavor; empty without a rate card.
    """

    def __init__(self, client_for: Callable[[str], KubeClient], *, prices: Prices) -> None:
        self._client_for, self._read_prices = client_for, prices
        self._scouts: dict[str, Scout] = {}
        self._prices: dict[str, tuple[float, Mapping[str, Decimal]]] = {}
        self._failures: deque[tuple[datetime, str]] = deque(maxlen=10_000)

    def follow(self, workers: Iterable[str]) -> None:
        """Watch these workers and no others."""
        wanted = set(workers)
        for name in wanted - self._scouts.keys():
            self._scouts[name] = Scout(name, self._client_for)
        for name in self._scouts.keys() - wanted:
            self._scouts.pop(name).close()

    def is_ready(self, workers: Iterable[str]) -> bool:
        """Whether the quota of these workers is known, or was waited for long enough."""
        return all(self._scouts[name].is_settled for name in workers if name in self._scouts)

    def failed(self, worker: str, at: datetime) -> None:
        """Something went wrong on a worker; it counts for an hour."""
        self._failures.append((at, worker))

    def offers(
        self, local: Local, fleet: DispatchFleet, manager: Cache, now: datetime
    ) -> Mapping[str, Offer]:
        """What each worker could give a workload, worked out when somebody asks.

        It may name labels of the place that it wants to be at, or its job may.
        """
        found = SimpleLazyObject(lambda: self._work_out(local, fleet.caches, manager, now))
        return cast("Mapping[str, Offer]", found)

    def _work_out(
        self, local: Local, workers: Iterable[str], manager: Cache, now: datetime
    ) -> dict[str, Offer]:
        workload = local.there
        prices = self._prices_of(workload["metadata"]["namespace"], now)
        wishes = wishes_of(workload) or (wishes_of(local.job) if local.job is not None else {})
        while self._failures and self._failures[0][0] < now - FAILURES_FOR:
            self._failures.popleft()
        failures = Counter(worker for _, worker in self._failures)
        found = {}
        for worker in workers:
            cluster = manager.get(r.MULTIKUEUE_CLUSTER, worker)
            place = labels_of(cluster) if cluster is not None else {}
            offer = self._offer(worker, workload, wishes, place, prices)
            found[worker] = replace(offer, failures=failures[worker])
        return found

    def book(self, local: Document, worker: str, offer: Offer) -> None:
        """A workload is nominated there: others shall not count on the same room."""
        scout = self._scouts.get(worker)
        quota = scout.quota() if scout is not None else None
        if scout is not None and quota is not None and offer.usage:
            scout.book(quota.queue_of(local), offer.usage)

    def close(self) -> None:
        """End every watch."""
        for scout in self._scouts.values():
            scout.close()

    def _prices_of(self, namespace: str, now: datetime) -> Mapping[str, Decimal]:
        known = self._prices.get(namespace)
        if known is None or time.monotonic() - known[0] > PRICES_FOR_S:
            known = time.monotonic(), self._read_prices(namespace, now)
            self._prices[namespace] = known
        return known[1]

    def _offer(
        self,
        worker: str,
        local: Document,
        wishes: Mapping[str, str],
        place: Mapping[str, str],
        prices: Mapping[str, Decimal],
    ) -> Offer:
        scout = self._scouts.get(worker)
        quota = scout.quota() if scout is not None else None
        offer = UNKNOWN_OFFER
        known = dict(place)
        if quota is not None:
            try:
                offer = quota.offer(local, prices=prices)
            except (KeyError, ValueError) as error:
                log.warning("offer_unknown", cluster=worker, error=error)
            known |= quota.labels_of(offer.flavors)
        met = sum(known.get(name) == value for name, value in wishes.items())
        return replace(offer, locality=met)


def wishes_of(document: Document) -> dict[str, str]:
    """Labels of the place that a job wants to be at: ``key=value``, separated by commas."""
    text = annotations_of(document).get(labels.DATA_LOCALITY, "")
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, found, value in pairs if found and name.strip()}


def current_prices(namespace: str, now: datetime) -> Mapping[str, Decimal]:
    """What a GPU-hour of each flavor costs a workspace now, on top of its floor.

    The burst price, also where the floor has room: that one is paid for anyway, so it cannot tell
    flavors apart. Empty without a rate card, outside of any workspace, and while the database does
    not answer.
    """
    found = Workspace.objects.filter(namespace=namespace).values_list("account_id", flat=True)
    try:
        account = found.first()
        rates = rates_now(account, now) if account is not None else {}
    except DatabaseError as error:
        log.warning("prices_unknown", namespace=namespace, error=type(error).__name__)
        connection.close()
        return {}
    return {str(flavor): rate.burst for flavor, rate in rates.items()}


def no_prices(namespace: str, now: datetime) -> Mapping[str, Decimal]:
    """Where there is no database: workers are told apart by everything else."""
    return {}
