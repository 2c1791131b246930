"""The dispatcher in force with what it remembers: its rounds, and what the workers offer.

One thread owns it: the shift's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kueue.multikueue import steps as step
from clusters.kueue.multikueue.decide import Verdict, decide
from clusters.kueue.multikueue.dispatchers import InForce, Nomination, not_yet
from clusters.kueue.multikueue.group import Group, Round
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.group import Bids, Fleet
from clusters.reconcile.dispatch.local import Local, attempt_of
from clusters.reconcile.dispatch.offers import Bidding, places_of
from clusters.reconcile.dispatch.prices import Prices
from clusters.reconcile.dispatch.trail import Trail
from clusters.reconcile.runtime.job_cache import JobCache


class Nominating:
    """Decides with the dispatcher in force.

    Args:
        context: The shift.
        settings: Of the cluster.
        prices: Per device and hour by flavor, for a dispatcher that asks offers.
    """

    def __init__(
        self, context: ShiftContext, *, settings: DispatchSettings, prices: Prices
    ) -> None:
        self._context = context
        self._settings = settings
        self._trail = Trail(context.cluster.pk, dispatcher=settings.dispatcher)
        self._bidding = (
            Bidding(context.client_for, prices=prices) if settings.in_force.asks_offers else None
        )

    def load(self) -> Iterable[str]:
        """Take over what an earlier shift left; keys of workloads that have to be looked at."""
        self._trail.load()
        return self._trail.keys()

    def follow(self, workers: Iterable[str]) -> None:
        """Work with these workers and no others."""
        if self._bidding is not None:
            self._bidding.follow(workers)

    def flush(self, *, is_last: bool = False) -> None:
        """Write rounds that are due."""
        self._trail.flush(self._context.now(), is_last=is_last)

    def close(self) -> None:
        """Write the last rounds and end every watch."""
        self.flush(is_last=True)
        if self._bidding is not None:
            self._bidding.close()

    def failed(self, worker: str) -> None:
        """A worker refused what it should have taken."""
        if self._bidding is not None:
            self._bidding.failed(worker, self._context.now())

    def bids(self, local: Local, manager: JobCache, fleet: Fleet) -> Bids:
        """What a nomination hangs on.

        Args:
            local: The workload.
            manager: The manager's image.
            fleet: The workers.
        """
        now, attempt = self._context.now(), local.marks.attempt
        self._trail.observe(local.key, local.workload, attempt=attempt, now=now)
        if local.workload is None:
            return Bids()
        rounds = self._trail.rounds(local.key, attempt)
        if self._bidding is None:
            return Bids(rounds)
        places = places_of(fleet.images, manager.of(r.MULTIKUEUE_CLUSTER))
        offers = self._bidding.offers(local.workload, local.job, places=places, now=now)
        return Bids(rounds, offers)

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
        is_ready = self._bidding is None or self._bidding.is_ready(group.copies)
        return self._settings.nominate if is_ready else not_yet

    def _begin(self, key: str, local: Document, opened: Round, group: Group) -> None:
        self._trail.open(key, local, attempt=attempt_of(local), opened=opened)
        if self._bidding is not None:
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
                if _chosen(local):
                    self.failed(_chosen(local))


def _chosen(local: Document) -> str:
    return str((local.get("status") or {}).get("clusterName") or "")
