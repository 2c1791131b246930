"""The dispatcher in force with what it remembers: its rounds, and what the workers offer.

One thread owns it: the shift's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kueue.multikueue import steps as step
from clusters.kueue.multikueue.decide import Verdict, decide
from clusters.kueue.multikueue.dispatchers import InForce, Nomination, not_yet
from clusters.kueue.multikueue.group import Group, Round
from clusters.kueue.multikueue.offers import Offer
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.group import Fleet
from clusters.reconcile.dispatch.local import Local, attempt_of
from clusters.reconcile.dispatch.offers import Bidding, Prices, current_prices, no_prices, places_of
from clusters.reconcile.dispatch.trail import Trail
from clusters.reconcile.runtime.job_cache import JobCache


class Nominating:
    """Decides with the dispatcher in force.

    Args:
        context: The shift.
        settings: Of the cluster.
        prices: Per device and hour by flavor, for a dispatcher that asks offers; None for those
            of the portal's rate cards.
    """

    def __init__(
        self, context: ShiftContext, *, settings: DispatchSettings, prices: Prices | None
    ) -> None:
        self._context = context
        self._settings = settings
        self._trail = Trail(context.cluster.pk, dispatcher=settings.dispatcher)
        self._bidding: Bidding | None = None
        if settings.in_force.asks_offers:
            stored = current_prices if context.cluster.pk else no_prices
            self._bidding = Bidding(context.client_for, prices=prices or stored)

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

    def rounds(self, local: Local) -> tuple[Round, ...]:
        """The rounds of a workload's reservation so far; who won is noted."""
        attempt = local.marks.attempt
        now = self._context.now()
        self._trail.observe(local.key, local.workload, attempt=attempt, now=now)
        return self._trail.rounds(local.key, attempt)

    def offers(self, local: Local, manager: JobCache, fleet: Fleet) -> Mapping[str, Offer]:
        """What the workers could give a workload; empty unless the dispatcher asks.

        Args:
            local: The workload.
            manager: What is known of the manager.
            fleet: The workers.
        """
        if self._bidding is None or local.workload is None:
            return {}
        places = places_of(fleet.caches, manager.of(r.MULTIKUEUE_CLUSTER))
        now = self._context.now()
        return self._bidding.offers(local.workload, local.job, places=places, now=now)

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
