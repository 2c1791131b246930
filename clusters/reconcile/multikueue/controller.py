"""What the shifts of a manager have in common, whether the portal dispatches there or a Kueue."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Final

from clusters.documents.keys import Document, key_of
from clusters.errors import NotFound
from clusters.jobs.kind import JobKind
from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.kube.client import EVERYTHING, KubeClient, Selection
from clusters.reconcile.configured import settings_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.multikueue.links import Link
from clusters.reconcile.multikueue.workers import MANAGER, LinkedWorkers
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.controller import Controller, Watched
from clusters.reconcile.runtime.faults import Doing
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.runtime.writer import Hook, Writer

LOOK_EVERY_S: Final = 0.25
MANAGER_KINDS: Final = (
    r.ADMISSION_CHECK, r.MULTIKUEUE_CONFIG, r.MULTIKUEUE_CLUSTER, r.WORKLOAD,
)  # fmt: skip
_CONNECTIONS: Final = "Connections to workers"
Place = tuple[str, str]
"""Key of a workload, or of something about it; and cluster, empty for the manager."""


class ManagerController(Controller[Place]):
    """Looks at a manager and its workers; looked at is the place of a workload on the manager.

    Attributes:
        settings: How the manager dispatches.
        kinds: Of jobs.
        manager: What is known of the manager.
        workers: Given by the role.

    Raises:
        Terminal: the stored Kueue Configuration says something of dispatch that is not usable.
    """

    threads: ClassVar[int] = 4
    resync_s = 60.0
    follows_configuration: ClassVar[bool] = True
    workers: LinkedWorkers

    def __init__(self, context: ShiftContext, *, hook: Hook) -> None:
        self.settings = settings_of(context.cluster.kueue_configuration)
        self.kinds = JobKinds(self.settings.kinds)
        self._job_resources = frozenset(self.kinds.resources)
        self.manager = JobCache(self._job_resources)
        super().__init__(context, hook=hook, cluster=MANAGER, cache=self.manager)
        self._hook = hook
        self._looked_at = 0.0

    def watched(self) -> Iterable[Watched]:
        """What says who is dispatched to, Workloads, and every kind of job."""
        yield from map(Watched, MANAGER_KINDS)
        for kind in self.kinds:
            yield Watched(kind.resource, self.selection_of(kind), not kind.is_required)

    def selection_of(self, kind: JobKind) -> Selection:
        """Which objects of a kind are watched on the manager."""
        return EVERYTHING

    def cache_of(self, cluster: str) -> Cache | None:
        """The manager's cache, or that of a worker with a link."""
        return self.workers.cache_on(cluster)

    def keys_of(self, seen: Seen) -> Iterable[Place]:
        """The workloads that an object concerns."""
        if seen.resource == r.WORKLOAD:
            return [(key, MANAGER) for key in self.of_workload(seen.document)]
        if seen.resource not in self._job_resources:
            self._looked_at = 0.0  # which workers are dispatched to, or how, may have changed
            return ()
        cache = self.workers.cache_on(seen.cluster)
        found = cache.workloads_of(seen.document) if cache is not None else ()
        return [(key, MANAGER) for key in found]

    def of_workload(self, document: Document) -> Iterable[str]:
        """The workloads that a Workload concerns; itself by default."""
        return (key_of(document),)

    def writer_on(self, link: Link, client: KubeClient) -> Writer:
        """Writes to a worker, behind this shift's fence and the worker's own switch."""
        return Writer(
            client,
            cluster=link.name,
            fence=self.context.fence,
            may_write=lambda: link.may_write,
            hook=self._hook,
        )

    def look_at(self, keys: Iterable[str]) -> None:
        """Something happened to these workloads."""
        self.queue.add_all((key, MANAGER) for key in keys)

    def look_at_all(self) -> None:
        """Something happened that may concern everybody."""
        self.queue.add_all(self.all_keys())

    def look(self) -> None:
        """Follows connections four times a second; what that raises stops nothing else."""
        moment = time.monotonic()
        if moment - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = moment
        try:
            self.follow(self.context.now())
        except Exception as error:
            self.faults.park(_CONNECTIONS, error, doing=Doing.READING)
        else:
            self.faults.clear(_CONNECTIONS)

    def follow(self, now: datetime) -> None:
        """Follow connections, and what the role reads beside its watches."""
        raise NotImplementedError


def read_workload(client: KubeClient, key: str) -> Document | None:
    """The Workload of a key as a cluster itself has it now; None when it is gone."""
    namespace, _, name = key.partition("/")
    try:
        return client.get(r.WORKLOAD, name, namespace=namespace)
    except NotFound:
        return None
