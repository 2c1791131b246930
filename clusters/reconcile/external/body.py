"""The dispatch shift of a manager under a live Kueue: it nominates where asked, and guards."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from clusters.documents.keys import key_of
from clusters.kube import resources as r
from clusters.models import Cluster
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.external.guarding import CURE, DefectGuard
from clusters.reconcile.external.nominator import NOMINATION, Nominator
from clusters.reconcile.external.watched_workers import Return, WatchedWorkers
from clusters.reconcile.multikueue.controller import ManagerController, Place
from clusters.reconcile.multikueue.offers import Prices
from clusters.reconcile.multikueue.workers import MANAGER
from clusters.reconcile.runtime.pool import Answer, Work, reading
from clusters.reconcile.runtime.watches import Change, Seen
from clusters.reconcile.runtime.writer import Hook, no_fault


class ExternalBody(ManagerController):
    """One shift beside a live Kueue.

    Keys are places: what is decided about is (``namespace/name``, the manager); a nomination and a
    cure have places of their own, so that neither keeps the other, or a look, waiting.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        prices: For dispatchers that ask offers; None for those of the portal's rate cards.

    Raises:
        Terminal: the stored Kueue Configuration says something of dispatch that is not usable.
    """

    handles_always = True
    workers: WatchedWorkers

    def __init__(
        self, context: ShiftContext, *, hook: Hook = no_fault, prices: Prices | None = None
    ) -> None:
        super().__init__(context, hook=hook)
        self.workers = WatchedWorkers(
            context, settings=self.settings, manager=self.manager, sink=self.inbox.put
        )
        self._guard = DefectGuard(self, workers=self.workers)
        self._nominator = Nominator(self, workers=self.workers, prices=prices)
        self._nominates = self.settings.in_force.is_ours

    def opened(self) -> None:
        """Looks at what an earlier shift left."""
        self.look_at((*self._guard.load(), *self._nominator.load()))

    def closing(self) -> None:
        """Writes what was found and done, and ends every watch on workers."""
        self._nominator.close()
        self._guard.flush()
        self.workers.close()

    # What comes in

    def take(self, seen: Seen) -> None:
        """Notes also a copy that is gone."""
        super().take(seen)
        is_copy = seen.resource == r.WORKLOAD and seen.cluster != MANAGER
        if is_copy and seen.change is Change.DELETED:
            self._nominator.copy_gone(key_of(seen.document), seen.cluster)

    def take_other(self, item: Any) -> None:
        """A lost worker answers again, before its watches are back; or does so no longer."""
        if isinstance(item, Return):
            for seen in self.workers.returned(item):
                self.take_safely(seen)
            cache = self.workers.cache_on(item.worker)
            self.look_at(cache.keys_to_plan() if cache is not None else ())

    def concerned(self, key: Place) -> Iterable[Place]:
        """Whatever was done, on whichever cluster: the workload is looked at."""
        return ((key[0].rpartition(":")[2], MANAGER),)

    def all_keys(self) -> Iterable[Place]:
        """Every workload of the manager."""
        return [(key, MANAGER) for key in self.cache.of(r.WORKLOAD)]

    def says(self, key: Place) -> str:
        """The workload, and what was done about it."""
        what, _, name = key[0].rpartition(":")
        where = f" on {key[1]}" if key[1] else ""
        return f"Workload {name}{where}{f' ({what})' if what else ''}"

    # Connections and time

    def look(self) -> None:
        """Writes what was found and done; follows connections."""
        self._guard.flush()
        super().look()

    def follow(self, now: datetime) -> None:
        """Follows connections, Kueue's and the portal's, and the way of nominating."""
        has_changed, back = self.workers.follow(now)
        if self._nominates:
            has_changed |= self._nominator.look(now)
            self.look_at(self._nominator.wake(back))
        if has_changed:
            self.look_at_all()

    # Deciding

    def handle(self, key: Place) -> None:
        """Guards a workload, and nominates for it."""
        if self.context.cluster.guard == Cluster.Guard.OFF and not self._nominates:
            return
        name, now = key[0], self.context.now()
        self._guard.examine(name, self.cache.get(r.WORKLOAD, name), now)
        if self._nominates and self.may_write:
            self._nominator.consider(name, now)
        if self.faults.standing.parked:
            places = ((f"{NOMINATION}{name}", MANAGER), *self._guard.places(name))
            for place in filter(self.queue.is_free, places):
                self.faults.clear(self.says(place))  # nothing is to be done there any more

    def answered(self, answer: Answer[Place]) -> None:
        """What a cure did is told."""
        self._guard.answered(answer)

    def failed(self, answer: Answer[Place]) -> None:
        """Why a cure was refused is told."""
        self._guard.failed(answer)

    def reread(self, answer: Answer[Place]) -> Work | None:
        """The manager's Workload after a refused nomination; a cure reads everything anew."""
        what, _, name = answer.key[0].rpartition(":")
        if what == CURE.rstrip(":"):
            return None
        return reading(self.context.client, [(r.WORKLOAD, name)], cluster=MANAGER)
