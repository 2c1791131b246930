"""The workers that a shift beside a live Kueue sees, and who is connected to whom.

Kueue's own connections are read from the manager's MultiKueueClusters; the portal's are its own.
One thread owns it: the shift's own. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, uid_of
from clusters.jobs import remote
from clusters.kube import resources as r
from clusters.kueue.multikueue.settings import origin_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.external.defects import CopySeen, Patient
from clusters.reconcile.external.returns import Return, Returns
from clusters.reconcile.multikueue.connections import dispatched_workers, workers_of
from clusters.reconcile.multikueue.local import local_job
from clusters.reconcile.multikueue.workers import DispatchFleet, LinkedWorkers
from clusters.reconcile.runtime.watches import Change, Seen


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
