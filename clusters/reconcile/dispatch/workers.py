"""The workers that dispatch is linked to: those it dispatches to, and those that left.

A worker has left once no MultiKueueConfig in use lists it, or its MultiKueueCluster is gone. Its
link stays until nothing of ours is left there, or until it is no longer registered: copies go at
once. Kueue leaves them until their job is deleted, and for ever once its client went with the
MultiKueueCluster (spec dispatch 2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.reconcile.context import ShiftContext, registered, registered_workers
from clusters.reconcile.multikueue.links import Link
from clusters.reconcile.multikueue.local import config_of, dispatched_workers, workers_of
from clusters.reconcile.multikueue.profiles import Profiles, profile_of
from clusters.reconcile.multikueue.workers import DispatchFleet, LinkedWorkers

Known = Callable[[], Collection[str]]
_NOT_LISTED: Final = "it is not in the configuration"
_STOPPED: Final = "writing to it is stopped"


class Workers(LinkedWorkers):
    """The workers that are dispatched to, and those that left.

    Args:
        context: The shift.
        profiles: Clients of workers that a ClusterProfile stands for.
        is_busy: Whether anything is under way on a worker.
        known: Workers that may hold copies of an earlier shift, asked once; None for all that are
            registered.
        linked: See :class:`LinkedWorkers`.

    Attributes:
        wanted: Those that are dispatched to.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        profiles: Profiles,
        is_busy: Callable[[str], bool],
        known: Known | None = None,
        **linked: Any,
    ) -> None:
        super().__init__(context, origin=context.cluster.installation, **linked)
        self._profiles, self._is_busy = profiles, is_busy
        self.wanted: frozenset[str] = frozenset()
        self._known = known or (registered_workers if self._is_stored else frozenset)
        self._profile_names: dict[str, str] = {}
        self._is_begun = False

    def follow(self) -> bool:
        """Open the links that are missing, and close those that have nothing left to do.

        Returns:
            Whether other workers are dispatched to, or any link was closed.
        """
        wanted = dispatched_workers(self.manager)
        for name in wanted:
            self._profile_names[name] = profile_of(self.manager.get(r.MULTIKUEUE_CLUSTER, name))
        over = [name for name in self.links.keys() - wanted if self._is_over(self.links[name])]
        # An earlier shift may have ended before it had taken everything back.
        opened = wanted if self._is_begun else wanted | set(self._known())
        self._is_begun = True
        for name in sorted(opened - self.links.keys()):
            self._open(name, shown=self.manager.get(r.MULTIKUEUE_CLUSTER, name))
        for name in over:
            self.links.pop(name).close()
            self._profile_names.pop(name, None)
        before, self.wanted = self.wanted, wanted
        return bool(over) or wanted != before

    def fleet(self, check: str) -> DispatchFleet:
        """Connected, lost and left workers of a check; all workers where no check says which.

        A configuration that is not there says of nobody that it left; it only takes nothing new.
        """
        found = self.manager.get(r.ADMISSION_CHECK, check) if check else None
        configs = self.manager.of(r.MULTIKUEUE_CONFIG)
        names = workers_of(found, configs) if found is not None else tuple(self.links)
        is_known = found is None or config_of(found) in configs
        left = frozenset(
            name
            for name in self.links
            if (is_known and name not in names)
            or self.manager.get(r.MULTIKUEUE_CLUSTER, name) is None
        )
        links = list(self.links.values())
        now = self._context.now()
        away = [link for link in links if not link.is_connected]
        return DispatchFleet(
            caches={link.name: link.cache for link in links if link.is_connected},
            lost={link.name: link.lost_since or now for link in away if link.name not in left},
            closed={
                **self.closed,
                **{link.name: _STOPPED for link in links if not link.may_write},
                **{name: _NOT_LISTED for name in self.links if name not in names or name in left},
            },
            worker_lost_timeout=self._settings.worker_lost_timeout,
            order=names,
            unserved={link.name: link.unserved for link in links if link.unserved},
            kinds=self.kinds,
            left=left,
            opening=frozenset(link.name for link in links if link.is_opening),
        )

    def client_of(self, worker: str) -> KubeClient:
        """A worker's client, by its profile where it has one."""
        profile = self._profile_names.get(worker)
        return self._profiles.client_for(profile) if profile else super().client_of(worker)

    def _is_over(self, link: Link) -> bool:
        """Whether a link to a worker that left has nothing more to do, or never will."""
        if self._is_busy(link.name):
            return False  # what is under way there may still make something
        if link.is_connected:
            return not link.cache.keys_to_plan()
        return link.client is None and not self._is_known(link.name)

    def _is_known(self, worker: str) -> bool:
        is_registered = self._is_stored and registered(worker) is not None
        return is_registered or self._has_no_switch(worker)

    def _has_no_switch(self, worker: str) -> bool:
        """One that only a profile stands for."""
        return bool(self._profile_names.get(worker))
