"""The workers that a shift beside a live Kueue sees, and who is connected to whom.

Kueue's own connections are read from the manager's MultiKueueClusters; the portal's are its own.
One thread owns it: the shift's own. Nothing is written here.

That a lost worker answers again is noticed within a quarter of a second, with what it holds.
Watches come back by their own growing waits; a Kueue that was cut off tries again after 5, 10, 20,
... seconds (spec dispatch 2.7), and whoever has to be there first cannot wait as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, uid_of
from clusters.errors import ClusterError
from clusters.jobs import remote
from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.resources import Resource
from clusters.kueue.multikueue.settings import origin_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.external.defects import CopySeen, Patient
from clusters.reconcile.multikueue.local import dispatched_workers, local_job, workers_of
from clusters.reconcile.multikueue.workers import DispatchFleet, LinkedWorkers
from clusters.reconcile.runtime import threads
from clusters.reconcile.runtime.watches import Change, Seen

ASK_EVERY_S: Final = 0.2
ANSWER_WITHIN_S: Final = 1.0
CALM_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Return:
    """A lost worker answers again; ``objects`` by kind is everything there with our origin.

    None where one that had answered again does so no longer.
    """

    worker: str
    objects: Mapping[Resource, Sequence[dict[str, Any]]] | None


class Returns:
    """Asks lost workers, one thread each; what they answer goes to ``sink``, from the threads."""

    def __init__(self, *, origin: str, kinds: JobKinds, sink: Callable[[Return], None]) -> None:
        self._selection = Selection(labels=f"{labels.ORIGIN}={origin}")
        self._kinds, self._sink = kinds, sink
        self._asked: dict[str, tuple[KubeClient, threading.Event, threading.Thread]] = {}

    def follow(self, lost: Mapping[str, KubeClient]) -> None:
        """Ask these workers and no others."""
        for name in [name for name, item in self._asked.items() if lost.get(name) is not item[0]]:
            self._asked.pop(name)[1].set()
        for name, client in lost.items():
            if name not in self._asked:
                stop = threading.Event()
                thread = threading.Thread(
                    target=self._ask, args=(name, client, stop), name=f"{name}-return", daemon=True
                )
                self._asked[name] = client, stop, thread
                threads.start(thread)

    def close(self) -> None:
        """Ask nobody any more."""
        threads = [item[2] for item in self._asked.values()]
        self.follow({})
        for thread in threads:
            thread.join(timeout=10)

    def _ask(self, worker: str, client: KubeClient, stop: threading.Event) -> None:
        is_here = False
        while not stop.is_set():
            try:
                client.probe(timeout_s=ANSWER_WITHIN_S)
                found = None if is_here else self._list(client)
            except ClusterError:
                if is_here:
                    self._sink(Return(worker, None))
                is_here = False
                stop.wait(ASK_EVERY_S)
                continue
            if found is not None and not stop.is_set():
                self._sink(Return(worker, found))
            is_here = True
            stop.wait(CALM_S)

    def _list(self, client: KubeClient) -> dict[Resource, Sequence[dict[str, Any]]]:
        found: dict[Resource, Sequence[dict[str, Any]]] = {}
        for kind in (r.WORKLOAD, *self._kinds.resources):
            try:
                found[kind] = client.list(kind, self._selection).items
            except ClusterError:
                if kind not in self._kinds.optional:
                    raise
        return found


class WatchedWorkers(LinkedWorkers):
    """The workers of one manager; arguments as of :class:`LinkedWorkers`."""

    def __init__(self, context: ShiftContext, **linked: Any) -> None:
        origin = origin_of(context.cluster.kueue_configuration)
        super().__init__(context, origin=origin, **linked)
        self._answering: set[str] = set()
        self._active: dict[str, bool] = {}
        self._returns = Returns(origin=origin, kinds=self.kinds, sink=self._sink)

    def close(self) -> None:
        """End every watch."""
        self._returns.close()
        super().close()

    def returned(self, item: Return) -> Iterable[Seen]:
        """What a lost worker that answers again holds now, as its watches would tell it."""
        link = self.links.get(item.worker)
        if item.objects is None or link is None or link.is_connected:
            self._answering.discard(item.worker)
            return
        self._answering.add(item.worker)
        for resource, documents in item.objects.items():
            here = {uid_of(document) for document in documents}
            for known in list(link.cache.of(resource).values()):
                if uid_of(known) not in here:
                    yield Seen(Change.DELETED, item.worker, resource, known)
            for document in documents:
                yield Seen(Change.UPSERT, item.worker, resource, document)

    # Connections

    def follow(self, now: datetime) -> tuple[bool, tuple[str, ...]]:
        """Follow configuration and connections.

        Returns:
            Whether any connection changed, the portal's or Kueue's; and the workers that Kueue has
            just connected to.
        """
        wanted = dispatched_workers(self.manager)
        for name in wanted - self.links.keys():
            self._open(name)
        gone = self.links.keys() - wanted
        for name in gone:
            self.links.pop(name).close()
        has_changed = self.look(now) or bool(gone)
        lost = {
            name: link.client
            for name, link in self.links.items()
            if not link.is_connected and link.client is not None
        }
        self._answering &= lost.keys()
        self._returns.follow(lost)
        before, self._active = self._active, {name: self._is_active(name) for name in wanted}
        back = tuple(name for name in wanted if self._active[name] and before.get(name) is False)
        return has_changed or before != self._active, back

    def _is_active(self, worker: str) -> bool:
        shown = self.manager.get(r.MULTIKUEUE_CLUSTER, worker)
        return shown is not None and is_true(shown, "Active")

    def answers(self, worker: str) -> bool:
        """Whether the portal sees what a worker holds now."""
        link = self.links.get(worker)
        return link is not None and (link.is_connected or worker in self._answering)

    # One workload

    def workers(self, check: str) -> tuple[str, ...]:
        """Workers of a check, as its configuration lists them; those that exist."""
        found = self.manager.get(r.ADMISSION_CHECK, check) if check else None
        if found is None:
            return ()
        configs = self.manager.of(r.MULTIKUEUE_CONFIG)
        return tuple(name for name in workers_of(found, configs) if name in self.links)

    def patient(self, key: str, local: Document, now: datetime) -> Patient:
        """A workload with all that the guard looks at."""
        job = local_job(self.manager, key, self.kinds)
        kind = self.kinds.of(job) if job is not None else None
        return Patient(
            local=local,
            copies=tuple(self.copies(key, self.check_of(local), now)),
            is_job_active=kind.is_active(job) if kind and job is not None else None,
            worker_lost_timeout=self._settings.worker_lost_timeout,
        )

    def copies(self, key: str, check: str, now: datetime) -> Iterable[CopySeen]:
        """What every worker of a check shows of a workload."""
        for worker in self.workers(check):
            link, answers = self.links[worker], self.answers(worker)
            copy, jobs = link.cache.get(r.WORKLOAD, key), link.cache.jobs_for(key)
            # By the portal's own loss: it must not count longer than anybody knows.
            lost_for = now - (link.lost_since or now)
            yield CopySeen(
                worker=worker,
                is_active=self._is_active(worker),
                answers=answers,
                lost_for=None if answers else lost_for,
                copy=copy if remote.is_ours(copy, self.origin) else None,
                has_job=any(remote.is_ours(job, self.origin) for job in jobs),
            )

    def fleet(self, check: str, now: datetime) -> DispatchFleet:
        """Workers of a check that may be nominated: those that Kueue is connected to."""
        names = self.workers(check)
        active = [name for name in names if self._is_active(name)]
        links = [self.links[name] for name in active]
        return DispatchFleet(
            caches={link.name: link.cache for link in links},
            lost={name: now for name in names if name not in active},
            closed=self.closed,
            worker_lost_timeout=self._settings.worker_lost_timeout,
            order=names,
            unserved={link.name: link.unserved for link in links if link.unserved},
            kinds=self.kinds,
        )
