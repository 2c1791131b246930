"""What the workers could give: their quota objects watched, offers worked out for one workload.

Read with the portal's own identity on each worker, which may see its quota; a worker that cannot
be read gives an unknown offer and is nominated after the others.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, cast

import structlog
from django.db import DatabaseError, connection
from django.utils.functional import SimpleLazyObject

from budgets.models import Workspace
from budgets.selectors.billing import rates_now
from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, key_of, labels_of
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.kueue.amounts import Usage
from clusters.kueue.multikueue.offers import UNKNOWN_OFFER, Offer, WorkerQuota, as_sent
from clusters.kueue.workload.workloads import Workload
from clusters.reconcile.multikueue.local import Local
from clusters.reconcile.multikueue.workers import DispatchFleet
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.watches import Change, Seen, Watches

log = structlog.stdlib.get_logger(__name__)

Prices = Callable[[str, datetime], Mapping[str, Decimal]]
"""Per device and hour by flavor, for a namespace at a time."""

QUOTA_KINDS: Final[Mapping[Resource, str]] = {
    r.CLUSTER_QUEUE: "queues",
    r.COHORT: "cohorts",
    r.RESOURCE_FLAVOR: "flavors",
    r.LOCAL_QUEUE: "local_queues",
}
"""What is watched, and as what :class:`WorkerQuota` reads it."""
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
        self._tried_at = -CONNECT_EVERY_S
        self._lock = threading.Lock()
        self._told: dict[tuple[Resource, str], Seen] = {}
        self._is_read = False
        self._quota: WorkerQuota | None = None
        self._booked: deque[tuple[float, str, Usage]] = deque()

    def quota(self) -> WorkerQuota | None:
        """The worker's quota now; None while it is not known."""
        self._connect()
        watches = self._watches
        if watches is None or not all(watches.of(kind).is_synced for kind in QUOTA_KINDS):
            return None
        self._forget_booked()
        with self._lock:
            told, self._told = self._told, {}
        if not self._is_read or not all(self._is_counted(seen) for seen in told.values()):
            self._quota, self._is_read = self._read(watches), True
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
        watches = Watches(client, cluster=self._name, pulse=None, sink=self._take)
        try:
            for kind in QUOTA_KINDS:
                watches.add(kind, is_optional=True)
        except RuntimeError:  # no thread could be started
            watches.close()
            raise
        self._watches = watches

    def _take(self, seen: Seen) -> None:
        """Of each object the newest, until somebody asks; from the threads of the watches."""
        if seen.change is not Change.SYNCED:
            with self._lock:
                self._told[seen.resource, key_of(seen.document)] = seen

    def _is_counted(self, seen: Seen) -> bool:
        """Whether a change is one of what is reserved, and is counted; else all is read anew."""
        if self._quota is None or seen.change is Change.DELETED:
            return False
        try:
            return self._quota.count(QUOTA_KINDS[seen.resource], seen.document)
        except (KeyError, ValueError):
            return False  # to be told of where it is read

    def _forget_booked(self) -> None:
        moment = time.monotonic()
        while self._booked and self._booked[0][0] <= moment:
            _, queue, usage = self._booked.popleft()
            if self._quota is not None:
                self._quota.unbook(queue, usage)

    def _read(self, watches: Watches) -> WorkerQuota | None:
        objects = {name: watches.snapshot(kind) for kind, name in QUOTA_KINDS.items()}
        try:
            found = WorkerQuota(**objects)
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
        sent = _as_sent(workload)
        found = {}
        for worker in workers:
            cluster = manager.get(r.MULTIKUEUE_CLUSTER, worker)
            place = labels_of(cluster) if cluster is not None else {}
            offer = self._offer(worker, sent, wishes, place, prices)
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
        sent: Workload | None,
        wishes: Mapping[str, str],
        place: Mapping[str, str],
        prices: Mapping[str, Decimal],
    ) -> Offer:
        scout = self._scouts.get(worker)
        quota = scout.quota() if scout is not None else None
        offer = UNKNOWN_OFFER
        known = dict(place)
        if quota is not None and sent is not None:
            try:
                offer = quota.offer(sent, prices=prices)
            except (KeyError, ValueError) as error:
                log.warning("offer_unknown", cluster=worker, error=error)
            known |= quota.labels_of(offer.flavors)
        met = sum(known.get(name) == value for name, value in wishes.items())
        return replace(offer, locality=met)


def _as_sent(workload: Document) -> Workload | None:
    try:
        return as_sent(workload)
    except (KeyError, ValueError) as error:
        log.warning("workload_unknown", workload=key_of(workload), error=error)
        return None


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
