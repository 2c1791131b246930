"""The workers of a manager as its shift sees them: links, caches, who takes nothing new and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import structlog
from django.db import DatabaseError, connection

from clusters.documents.keys import Document
from clusters.jobs.remote import CopyMarks
from clusters.jobs.table import JOBS_ONLY, JobKinds
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.reconcile.context import Identity, ShiftContext
from clusters.reconcile.identity import switches_now
from clusters.reconcile.multikueue.links import Link
from clusters.reconcile.multikueue.local import Local, attempt_of, dispatch_check, local_job
from clusters.reconcile.runtime.faults import Doing
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.selectors.cordons import Cordons, cordons_now

log = structlog.stdlib.get_logger(__name__)

MANAGER: Final = ""
"""What watches of the manager call it."""
KNOWN_FOR_S: Final = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DispatchFleet:
    """The workers of one check as they are now.

    Attributes:
        caches: By connected worker.
        lost: Unconnected workers, and since when.
        closed: Workers that take nothing new, and why.
        worker_lost_timeout: How long a lost worker is waited for.
        order: Workers as the check's configuration lists them.
        unserved: Kinds of jobs that a worker does not serve, or forbids.
        kinds: Kinds of jobs.
        left: Workers that the check does not dispatch to any more.
        opening: Lost ones whose first try to connect is not over.
    """

    caches: Mapping[str, JobCache]
    lost: Mapping[str, datetime]
    closed: Mapping[str, str]
    worker_lost_timeout: timedelta
    order: tuple[str, ...] = ()
    unserved: Mapping[str, Collection[Resource]] = field(default_factory=dict)
    kinds: JobKinds = JOBS_ONLY
    left: frozenset[str] = frozenset()
    opening: frozenset[str] = frozenset()


class Known(Generic[T]):
    """What the database says, up to a second old; what it said last while it fails.

    Args:
        read: Asks it.
        what: Named in the log while it fails.

    Attributes:
        value: The answer; None before the first.
    """

    def __init__(self, read: Callable[[], T], *, what: str) -> None:
        self.value: T | None = None
        self._read, self._what, self._read_at = read, what, -KNOWN_FOR_S

    def look(self) -> bool:
        """Ask again where it is time; whether there is an answer to that."""
        now = time.monotonic()
        if now - self._read_at < KNOWN_FOR_S:
            return False
        self._read_at = now
        try:
            self.value = self._read()
        except DatabaseError as error:
            log.warning("database_silent", what=self._what, error=type(error).__name__)
            connection.close()
            return False
        return True


class Cordoned:
    """Workers that are passed over for their maintenance, as the database has it.

    Args:
        read: Where the windows in force are known from.

    Attributes:
        words: Worker → why it takes nothing new; what was known last while the database fails.
    """

    def __init__(self, *, read: Callable[[], Cordons] = cordons_now) -> None:
        self.words: Mapping[str, str] = {}
        self._known = Known(read, what="cordons")

    def look(self) -> bool:
        """Read anew once a second; whether a worker was cordoned or freed."""
        if not self._known.look() or (found := self._known.value) is None:
            return False
        before, self.words = self.words, {name: found.words(name) for name in found.workers}
        return before.keys() != self.words.keys()


class LinkedWorkers:
    """Links to workers, whose watches tell ``sink``; one thread owns it: the shift's own.

    Attributes:
        manager: What is known of the manager.
        kinds: Of jobs.
        origin: Mark of this manager's copies.
        links: By worker.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        manager: JobCache,
        settings: DispatchSettings,
        origin: str,
        sink: Callable[[Any], None],
    ) -> None:
        self._context, self._settings, self._sink = context, settings, sink
        self.manager, self.kinds, self.origin = manager, JobKinds(settings.kinds), origin
        self.links: dict[str, Link] = {}
        self._is_stored = bool(context.cluster.pk)
        self._switches = Known(switches_now, what="switches")
        self._cordoned = Cordoned(read=cordons_now if self._is_stored else Cordons)

    @property
    def closed(self) -> Mapping[str, str]:
        """Workers that take nothing new for their maintenance, and why."""
        return self._cordoned.words

    def cache_on(self, cluster: str) -> JobCache | None:
        """What is known of the manager, or of a worker; None of one without a link."""
        if cluster == MANAGER:
            return self.manager
        link = self.links.get(cluster)
        return link.cache if link is not None else None

    def local(self, key: str) -> Local:
        """The manager's side of the Workload of a key."""
        workload = self.manager.get(r.WORKLOAD, key)
        job = local_job(self.manager, key, self.kinds)
        return Local(
            key,
            workload,
            job,
            kind=self.kinds.of(job) if job is not None else None,
            check=self.check_of(workload),
            marks=CopyMarks(self.origin, attempt_of(workload) if workload is not None else ""),
        )

    def check_of(self, workload: Document | None) -> str:
        """The AdmissionCheck that stands for dispatch; empty when a Workload has none."""
        return dispatch_check(self.manager, workload) if workload is not None else ""

    def look(self, now: datetime) -> bool:
        """Follow every connection, and who is cordoned; whether anything changed."""
        faults, flips = self._context.faults, []
        for name, link in self.links.items():
            try:
                if link.look(now):
                    flips.append(name)
            except Exception as error:
                faults.park(f"worker {name}", error, doing=Doing.READING)
            else:
                faults.clear(f"worker {name}")
        if flips:
            log.info("workers_changed", workers=",".join(sorted(flips)))
        return self._cordoned.look() or bool(flips)

    def client_of(self, worker: str) -> KubeClient:
        """A worker's client, as the identity that dispatch uses there."""
        return self._context.client_for(worker, identity=Identity.MULTIKUEUE)

    def close(self) -> None:
        """End every watch on workers."""
        for link in self.links.values():
            link.close()

    def _open(self, name: str, *, shown: Document | None = None) -> None:
        """Begin a link; ``shown``: the MultiKueueCluster, for what an earlier shift told there."""
        self.links[name] = Link(
            name,
            origin=self.origin,
            client_for=self.client_of,
            sink=self._sink,
            may_write=self._may_write_on,
            kinds=self.kinds,
            shown=shown,
        )

    def _may_write_on(self, worker: str) -> bool:
        """Its switch, unless a decision is waited for, or another cluster answers in its place.

        Nothing is written anywhere before the database has answered once.
        """
        if not self._is_stored:
            return True
        self._switches.look()
        known = self._switches.value
        if known is None:
            return False
        return known[worker] if worker in known else self._has_no_switch(worker)

    def _has_no_switch(self, worker: str) -> bool:
        """Whether a worker that is not registered is under no switch but the manager's."""
        return False
