"""The dispatcher in force with what it remembers: its rounds, and what the workers offer.

One thread owns it: the shift's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from clusters.documents.keys import Document
from clusters.kueue.multikueue import steps as step
from clusters.kueue.multikueue.decide import Verdict, decide
from clusters.kueue.multikueue.dispatchers import InForce, Nomination, not_yet
from clusters.kueue.multikueue.group import Group, Round
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.multikueue.group import group_for
from clusters.reconcile.multikueue.local import Local, attempt_of, chosen_of
from clusters.reconcile.multikueue.offers import Bidding, Prices, current_prices, no_prices
from clusters.reconcile.multikueue.trail import Trail
from clusters.reconcile.multikueue.workers import DispatchFleet
from clusters.reconcile.runtime.job_cache import JobCache


class Nominating:
    """Decides with the dispatcher in force.

    One that asks offers is told prices per device and hour by flavor, those of the portal's rate
    cards unless others are given.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        settings: DispatchSettings,
        manager: JobCache,
        prices: Prices | None,
    ) -> None:
        self._context, self._settings, self._manager = context, settings, manager
        self._trail = Trail(context.cluster.pk, dispatcher=settings.dispatcher)
        stored = current_prices if context.cluster.pk else no_prices
        self._bidding = Bidding(context.client_for, prices=prices or stored)
        self._asks_offers = settings.in_force.asks_offers

    def load(self) -> Iterable[str]:
        """Take over what an earlier shift left; keys of workloads that have to be looked at."""
        self._trail.load()
        return self._trail.keys()

    def follow(self, workers: Iterable[str]) -> None:
        """Work with these workers and no others."""
        self._bidding.follow(workers if self._asks_offers else ())

    def flush(self, *, is_last: bool = False) -> None:
        """Write rounds that are due."""
        self._trail.flush(self._context.now(), is_last=is_last)

    def close(self) -> None:
        """Write the last rounds and end every watch."""
        self.flush(is_last=True)
        self._bidding.close()

    def failed(self, worker: str) -> None:
        """A worker refused what it should have taken."""
        self._bidding.failed(worker, self._context.now())

    def observe(self, local: Local) -> None:
        """Note who won a workload, and whether its reservation ended."""
        attempt, now = local.marks.attempt, self._context.now()
        self._trail.observe(local.key, local.workload, attempt=attempt, now=now)

    def group(
        self,
        local: Local,
        fleet: DispatchFleet,
        *,
        blocked: Mapping[str, str] | None = None,
        foreign: Collection[str] = (),
    ) -> Group:
        """Everything about one workload, its rounds and the offers of workers included.

        Arguments as of :func:`group_for`.
        """
        self.observe(local)
        now = self._context.now()
        is_asked = self._asks_offers and local.workload is not None
        return group_for(
            local,
            self._manager,
            fleet,
            now=now,
            rounds=self._trail.rounds(local.key, local.marks.attempt),
            offers=self._bidding.offers(local, fleet, self._manager, now) if is_asked else {},
            blocked=blocked or {},
            foreign=foreign,
        )

    def decide(self, key: str, group: Group) -> Verdict:
        """What has to be done for a workload; what explains it later is kept."""
        verdict = decide(group, dispatcher=self._in_force(group))
        if group.local is not None:
            self._remember(key, group.local, verdict, group)
        return verdict

    def nominate(self, key: str, group: Group) -> Nomination:
        """Who shall be nominated, where a Kueue does everything else; the round is kept."""
        found = self._in_force(group)(group)
        if group.local is not None and found.opened is not None:
            self._begin(key, group.local, found.opened, group)
        return found

    def lost_race(self, key: str, worker: str) -> None:
        """A worker's copy is gone because another worker has won."""
        self._trail.lost_race(key, worker, self._context.now())

    def _in_force(self, group: Group) -> InForce:
        return self._settings.nominate if self._bidding.is_ready(group.copies) else not_yet

    def _begin(self, key: str, local: Document, opened: Round, group: Group) -> None:
        self._trail.open(key, local, attempt=attempt_of(local), opened=opened)
        if self._asks_offers:
            for worker in opened.nominated:
                self._bidding.book(local, worker, group.offers[worker])

    def _remember(self, key: str, local: Document, verdict: Verdict, group: Group) -> None:
        if verdict.opened is not None:
            self._begin(key, local, verdict.opened, group)
        for action in verdict.actions:
            if isinstance(action, step.RemoveCopy) and action.why == "lost":
                self._trail.lost_race(key, action.cluster, group.now)
            elif isinstance(action, step.SetCheck):
                self._trail.because(key, action.message)
                if chosen_of(local):
                    self.failed(chosen_of(local))
