"""What a worker shows beside its Workloads: GPUs of nodes and pods, and what its queues say.

The shift *usage* looks on a thread of its own; nothing here changes a fact of the ledger.

Source: spec money, sections 1.3 (outside budgets), 1.4 (cross-check) and 1.5 (clocks).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

import structlog
from django.db import DatabaseError, connection, transaction

from budgets.metering import QueueSample
from budgets.models import Flavor, Workspace
from budgets.services import HeldNow, record_measured_capacity
from budgets.services.usage.reconciliation import QueueSight, QueueWatch, note_skew
from clusters.documents.queues import is_for_workers
from clusters.errors import ClusterError, Forbidden, Refusal, Terminal, Unreachable
from clusters.kube.client import Selection
from clusters.kube.resources import CLUSTER_QUEUE, NODE, POD, Document
from clusters.kube.watch import Reflector, ReflectorSettings
from clusters.kueue.amounts import count_of
from clusters.models import Cluster, NodeSight
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.watches import Seen, Watches
from clusters.reconcile.usage.measure import (
    FlavorNodes,
    Sight,
    measure,
    node_facts,
    pod_facts,
    sights,
    with_used,
)
from clusters.reconcile.usage.states import COUNTED, held_on
from clusters.selectors.places import flavors_elsewhere

log = structlog.stdlib.get_logger(__name__)

MEASURE_S = 15.0
QUEUES_S = 60.0
POLL_S = 0.05
_BATCH = 200
# An image that is older is not measured; nodes change seldom, and the pulse keeps them young.
LATE_S = 15.0
PODS_LATE_S = 60.0
ON_NODES = Selection(fields="status.phase!=Succeeded,status.phase!=Failed")
# Where pods may be listed and not watched, they are listed about as often as they are counted.
PATIENT = ReflectorSettings(backoff_cap_s=2 * MEASURE_S)


class Counting:
    """Counts on one worker.

    Nodes and pods are watched, and only what is measured of them is kept; counting itself makes
    no request.

    Args:
        context: The shift.
    """

    def __init__(self, context: ShiftContext) -> None:
        self._context = context
        self._slug = context.cluster.slug
        self._queues = QueueWatch(self._slug)
        self._looked_at = -QUEUES_S
        self._sights: dict[str, Sight] | None = None
        self._watches = Watches(
            context.client, cluster=self._slug, pulse=context.pulse, sink=_nobody
        )

    def run(self) -> None:
        """Counts now and then until the shift ends; what fails is told and tried again."""
        stop = self._context.stop
        try:
            self.start()
            self._await_images()
            while not stop.is_set():
                try:
                    self.measure()
                    if time.monotonic() - self._looked_at >= QUEUES_S:
                        self._looked_at = time.monotonic()
                        self.look_at_queues()
                except ClusterError as error:
                    level = logging.ERROR if isinstance(error, Terminal) else logging.WARNING
                    log.log(level, "measure_failed", cluster=self._slug, reason=error.reason)
                except DatabaseError as error:
                    log.warning("measure_failed", cluster=self._slug, error=error)
                    connection.close()
                except Exception:  # of one object; the next look may be without it
                    log.exception("measure_failed", cluster=self._slug)
                stop.wait(MEASURE_S)
        finally:
            self.close()
            connection.close()

    def start(self) -> None:
        """Begin to watch nodes and pods."""
        self._watches.add(NODE, keep=node_facts)
        self._watches.add(
            POD, selection=ON_NODES, is_optional=True, settings=PATIENT, keep=pod_facts
        )

    def _await_images(self) -> None:
        """Wait for the first lists, not longer than until something is known to be wrong."""
        ends = time.monotonic() + MEASURE_S
        while not (self._watches.is_synced or self._watches.last_error()):
            if time.monotonic() > ends or self._context.stop.wait(POLL_S):
                return

    def close(self) -> None:
        """End the watches."""
        self._watches.close()

    def measure(self) -> None:
        """Count the GPUs of the cluster's nodes; in use by its pods.

        The right to list pods may be refused, and an API server without nodes of its own has
        none: then what Workloads hold is in use.

        Raises:
            ClusterError: Nodes, or pods for another reason than a missing right, are not known as
                they are now.
        """
        nodes = _current(self._watches.of(NODE), late_s=LATE_S)
        pods: list[Document] = []
        with contextlib.suppress(Forbidden):
            pods = _current(self._watches.of(POD), late_s=PODS_LATE_S)
        # GPUs count in the fleet where their flavor stands.
        clusters = Cluster.objects.active().only("slug", "role", "own_queue")
        elsewhere = flavors_elsewhere(clusters).get(self._slug, frozenset())
        flavors = [
            FlavorNodes(row.slug, row.resource_name, row.node_labels)
            for row in Flavor.objects.filter(archived_at__isnull=True)
            if row.slug not in elsewhere
        ]
        rows = measure(nodes, pods, flavors=flavors)
        pk = self._context.cluster.pk
        if not pods:
            rows = with_used(rows, held_on(pk))
        beside = HeldNow(
            held=held_on(pk, phases=COUNTED),
            outside=_used_outside(nodes, pods, flavors),
            by_pods=bool(pods),
        )
        self._context.fence()
        now = self._context.now().replace(microsecond=0)
        record_measured_capacity(cluster=self._slug, rows=rows, measured_at=now, beside=beside)
        self._show(sights(nodes, pods, flavors=flavors))
        note_skew(cluster=self._slug, at=now, skew_s=int(self._context.skew.total_seconds()))

    def _show(self, found: dict[str, Sight]) -> None:
        """Write the nodes that changed; all of them at first."""
        known = self._sights or {}
        changed = [
            NodeSight(
                cluster=self._slug,
                name=name,
                flavor=sight.flavor,
                labels=dict(sight.labels),
                gpus=sight.gpus,
                used=sight.used,
            )
            for name, sight in found.items()
            if known.get(name) != sight
        ]
        rows = NodeSight.objects.filter(cluster=self._slug)
        with transaction.atomic():
            NodeSight.objects.bulk_create(
                changed,
                batch_size=_BATCH,
                update_conflicts=True,
                unique_fields=["cluster", "name"],
                update_fields=["flavor", "labels", "gpus", "used"],
            )
            before = known or dict.fromkeys(rows.values_list("name", flat=True))
            gone = [name for name in before if name not in found]
            for start in range(0, len(gone), _BATCH):
                rows.filter(name__in=gone[start : start + _BATCH]).delete()
        self._sights = found

    def look_at_queues(self) -> None:
        """Compare what every ClusterQueue says is used with the open intervals.

        Raises:
            ClusterError: ClusterQueues cannot be listed.
        """
        documents = self._context.client.list(CLUSTER_QUEUE).items
        now = self._context.now().replace(microsecond=0)
        flavors = Flavor.objects.values_list("slug", "resource_name", "clock_start")
        known = {slug: (resource, start) for slug, resource, start in flavors}
        self._context.fence()
        self._queues.look(queue_sights(documents, known, at=now), at=now)


def _current(watch: Reflector, *, late_s: float) -> list[Document]:
    """The image of a watch.

    Raises:
        ClusterError: It is not there, or was current longer ago than ``late_s``.
    """
    age = watch.age() if watch.is_synced else None
    if age is None or age > late_s:
        error = watch.last_error
        if error is not None:
            # Told again and again while it lasts: without what earlier times have added to it.
            raise error.with_traceback(None)
        raise Unreachable(Refusal("nothing current is known"))
    return watch.snapshot()


def _nobody(seen: Seen) -> None:
    """The image is looked at when it is counted; no single change is of interest."""


def queue_sights(
    documents: Iterable[Document], flavors: Mapping[str, tuple[str, str]], *, at: datetime
) -> Iterator[QueueSight]:
    """What the status of each ClusterQueue says of each flavor that the portal has.

    Args:
        documents: ClusterQueues; one without a status yet says nothing.
        flavors: Slug -> (device resource, when its clock starts). Usage is what was admitted; a
            clock of another start is compared with what was reserved.
        at: When they were listed.
    """
    for document in documents:
        name = document["metadata"]["name"]
        if is_for_workers(name):
            continue  # what it holds is used on workers, and compared there
        try:
            found = list(_samples(document, flavors, at=at))
        except ValueError as error:  # a quantity that only Kubernetes can read, or nobody
            log.warning("queue_not_read", queue=name, error=error)
            continue
        yield from (QueueSight(name, slug, sample) for slug, sample in found)


def _samples(
    document: Document, flavors: Mapping[str, tuple[str, str]], *, at: datetime
) -> Iterator[tuple[str, QueueSample]]:
    """Of one ClusterQueue, by flavor."""
    status, nominal = document.get("status") or {}, _nominal(document)
    for slug, (resource, start) in flavors.items():
        is_admitted = start == Flavor.ClockStart.ADMITTED
        listed = status.get("flavorsUsage" if is_admitted else "flavorsReservation")
        told = _told(listed or (), slug, resource)
        if told is not None:
            total, borrowed = told
            yield slug, QueueSample(at, total, borrowed, nominal.get((slug, resource), 0))


def _told(listed: Iterable[Document], flavor: str, resource: str) -> tuple[int, int] | None:
    for row in listed:
        if row.get("name") == flavor:
            for amount in row.get("resources") or ():
                if amount.get("name") == resource:
                    total, borrowed = amount.get("total", "0"), amount.get("borrowed", "0")
                    return count_of(str(total), resource), count_of(str(borrowed), resource)
    return None


def _nominal(document: Document) -> dict[tuple[str, str], int]:
    """(flavor, resource) -> GPUs of the queue's own quota as it stands on the cluster."""
    found = {}
    for group in (document.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for row in flavor.get("resources") or ():
                amount = count_of(str(row.get("nominalQuota", "0")), str(row["name"]))
                found[str(flavor["name"]), str(row["name"])] = amount
    return found


def _used_outside(
    nodes: Collection[Document], pods: Iterable[Document], flavors: list[FlavorNodes]
) -> dict[str, int]:
    """Flavor -> GPUs of pods in namespaces of no workspace."""
    own = set(Workspace.objects.values_list("namespace", flat=True))
    foreign = [pod for pod in pods if pod["metadata"].get("namespace") not in own]
    if not foreign:
        return {}
    return {slug: row[2] for slug, row in measure(nodes, foreign, flavors=flavors).items()}
