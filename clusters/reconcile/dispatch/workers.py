"""The workers that dispatch is linked to: those it dispatches to, and those that left.

A worker has left once no MultiKueueConfig in use lists it, or its MultiKueueCluster is gone. Its
link stays until nothing of ours is left there, or until it is no longer registered: copies go at
once. Kueue leaves them until their job is deleted, and for ever once its client went with the
MultiKueueCluster (spec dispatch 2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.reconcile.context import (
    Identity,
    ShiftContext,
    registered,
    registered_workers,
)
from clusters.reconcile.dispatch.connections import config_of, dispatched_workers, workers_of
from clusters.reconcile.dispatch.group import Fleet
from clusters.reconcile.dispatch.links import Link, shown_of
from clusters.reconcile.dispatch.profiles import Profiles, profile_of
from clusters.reconcile.runtime.faults import Doing
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.watches import Sink

Known = Callable[[], Collection[str]]
_NOT_LISTED: Final = "it is not in the configuration"
_SWITCHED_OFF: Final = "writing is switched off"


class Workers:
    """Links by worker; one thread owns it: the shift's own.

    Args:
        context: The shift.
        manager: JobCache of the manager.
        adapters: Kinds of jobs.
        profiles: Clients of workers that a ClusterProfile stands for.
        sink: Takes what watches on workers tell.
        is_busy: Whether anything is under way on a worker.
        known: Workers that may hold copies of an earlier shift, asked once; None for all that are
            registered.

    Attributes:
        links: By worker.
        wanted: Those that are dispatched to.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        manager: JobCache,
        adapters: JobKinds,
        profiles: Profiles,
        sink: Sink,
        is_busy: Callable[[str], bool],
        known: Known | None = None,
    ) -> None:
        self._context, self._manager, self._is_busy = context, manager, is_busy
        self._adapters, self._profiles, self._sink = adapters, profiles, sink
        self.links: dict[str, Link] = {}
        self.wanted: frozenset[str] = frozenset()
        self._is_stored = bool(context.cluster.pk)
        self._known = known or (registered_workers if self._is_stored else frozenset)
        self._profile_names: dict[str, str] = {}
        self._is_begun = False

    def follow(self) -> bool:
        """Open the links that are missing, and close those that have nothing left to do.

        Returns:
            Whether other workers are dispatched to, or any link was closed.
        """
        before, self.wanted = self.wanted, dispatched_workers(self._manager)
        for name in self.wanted:
            self._profile_names[name] = profile_of(self._manager.get(r.MULTIKUEUE_CLUSTER, name))
        over = [name for name in self.links.keys() - self.wanted if self._is_over(self.links[name])]
        opened = set(self.wanted)
        if not self._is_begun:
            # An earlier shift may have ended before it had taken everything back.
            self._is_begun = True
            opened |= set(self._known())
        for name in sorted(opened - self.links.keys()):
            self._open(name)
        for name in over:
            self.links.pop(name).close()
            self._profile_names.pop(name, None)
        return bool(over) or self.wanted != before

    def fleet(
        self, check: str, *, closed: Mapping[str, str], worker_lost_timeout: timedelta
    ) -> Fleet:
        """Connected, lost and left workers of a check; all workers where no check says which.

        A configuration that is not there says of nobody that it left; it only takes nothing new.

        Args:
            check: Name of the AdmissionCheck; empty when the workload lists none.
            closed: Workers that take nothing new, and why.
            worker_lost_timeout: How long a lost worker is waited for.
        """
        found = self._manager.get(r.ADMISSION_CHECK, check) if check else None
        configs = self._manager.of(r.MULTIKUEUE_CONFIG)
        names = workers_of(found, configs) if found is not None else tuple(self.links)
        is_known = found is None or config_of(found) in configs
        left = frozenset(
            name
            for name in self.links
            if (is_known and name not in names)
            or self._manager.get(r.MULTIKUEUE_CLUSTER, name) is None
        )
        links = list(self.links.values())
        now = self._context.now()
        away = [link for link in links if not link.is_connected]
        return Fleet(
            images={link.name: link.image for link in links if link.is_connected},
            lost={link.name: link.lost_since or now for link in away if link.name not in left},
            closed={
                **closed,
                **{link.name: _SWITCHED_OFF for link in links if not link.may_write},
                **{name: _NOT_LISTED for name in self.links if name not in names or name in left},
            },
            origin=self._context.cluster.installation,
            worker_lost_timeout=worker_lost_timeout,
            order=names,
            unserved={link.name: link.unserved for link in links if link.unserved},
            adapters=self._adapters,
            left=left,
            opening=frozenset(link.name for link in links if link.is_opening),
        )

    def look(self, now: datetime) -> list[str]:
        """Follow every connection; the workers whose state changed."""
        flips, faults = [], self._context.faults
        for name, link in self.links.items():
            try:
                if link.look(now):
                    flips.append(name)
            except Exception as error:
                faults.park(f"worker {name}", error, doing=Doing.READING)
            else:
                faults.clear(f"worker {name}")
        return flips

    def close(self) -> None:
        """End every watch on workers."""
        for link in self.links.values():
            link.close()

    def _open(self, name: str) -> None:
        self.links[name] = Link(
            name,
            origin=self._context.cluster.installation,
            client_for=self._client_for,
            sink=self._sink,
            may_write=self._may_write_on,
            adapters=self._adapters,
            shown=shown_of(self._manager.get(r.MULTIKUEUE_CLUSTER, name)),
        )

    def _is_over(self, link: Link) -> bool:
        """Whether a link to a worker that left has nothing more to do, or never will."""
        if self._is_busy(link.name):
            return False  # what is under way there may still make something
        if link.is_connected:
            return not link.image.keys_to_plan()
        return link.client is None and not self._is_known(link.name)

    def _is_known(self, worker: str) -> bool:
        if self._profile_names.get(worker):
            return True
        return self._is_stored and registered(worker) is not None

    def _client_for(self, worker: str) -> KubeClient:
        profile = self._profile_names.get(worker)
        if profile:
            return self._profiles.client_for(profile)
        return self._context.client_for(worker, identity=Identity.MULTIKUEUE)

    def _may_write_on(self, worker: str) -> bool:
        if not self._is_stored:
            return True
        found = registered(worker)
        if found is None:
            # One that only a profile stands for is under no switch but the manager's.
            return bool(self._profile_names.get(worker))
        return found.facts.writes_enabled
