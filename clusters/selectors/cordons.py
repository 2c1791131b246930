"""Which workers and flavors take no new work at this moment, by windows of maintenance.

How it is enforced, with means that Kueue offers and that cost no running job anything: on a
cordoned worker every ClusterQueue has stopPolicy Hold, or HoldAndDrain where the window drains. It
stays in the MultiKueueConfig: taken off it, Kueue would give up the jobs that run there (spec
dispatch 2.4, 2.7). A cordoned flavor's ResourceFlavor carries a taint of the portal's on that
worker; quota is left alone, so that floors and their sums stay what they are. A job whose pods
tolerate every taint is not kept off a flavor by that, only off a worker.

The manager follows where nothing is left to dispatch to: a flavor that is cordoned on every worker
is tainted there too, so that jobs try the next one instead of holding quota that leads nowhere;
with every worker cordoned its queues are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import NamedTuple

from budgets.plan import StopPolicy, strongest_stop
from clusters.models import MaintenanceWindow

EVERYWHERE = ""


class Span(NamedTuple):
    """From the beginning of the first window to the end of the last; UTC."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Cordons:
    """What is cordoned now.

    Attributes:
        workers: Slug → stopPolicy of its queues.
        flavors: Worker slug, or EVERYWHERE → flavor slugs.
        spans: (worker slug or EVERYWHERE, flavor slug or "" for the whole worker) → from the
            beginning of the first window in force to the end of the last.
    """

    workers: Mapping[str, StopPolicy] = field(default_factory=dict)
    flavors: Mapping[str, frozenset[str]] = field(default_factory=dict)
    spans: Mapping[tuple[str, str], Span] = field(default_factory=dict)

    def on(self, worker: str) -> StopPolicy:
        """What a worker's queues do."""
        return self.workers.get(worker, StopPolicy.NONE)

    def on_manager(self, workers: Iterable[str]) -> StopPolicy:
        """What the manager's queues do: held while no worker takes anything."""
        known = list(workers)
        is_closed = bool(known) and all(worker in self.workers for worker in known)
        return StopPolicy.HOLD if is_closed else StopPolicy.NONE

    def flavors_on(self, worker: str) -> frozenset[str]:
        """Flavors that take nothing new on a worker."""
        return self.flavors.get(EVERYWHERE, frozenset()) | self.flavors.get(worker, frozenset())

    def flavors_on_manager(self, workers: Iterable[str]) -> frozenset[str]:
        """Flavors that take nothing new on any worker that takes work at all."""
        everywhere = self.flavors.get(EVERYWHERE, frozenset())
        open_ones = [self.flavors_on(worker) for worker in workers if worker not in self.workers]
        return reduce(frozenset.intersection, open_ones) if open_ones else everywhere

    def words(self, worker: str) -> str:
        """Why a worker takes nothing new; empty when it does."""
        if worker not in self.workers:
            return ""
        return f"cordoned for maintenance until {self.spans[worker, ''].end:%Y-%m-%d %H:%M} UTC"

    def span_of(self, flavor: str, workers: Iterable[str]) -> Span | None:
        """Since when none of these workers gives a flavor, and when the first of them does again.

        Args:
            flavor: Slug.
            workers: That are open by themselves: one, or all for the manager.
        """
        ends = [self._flavor_span(flavor, worker) for worker in workers]
        known = [span for span in ends if span is not None]
        if not known or len(known) < len(ends):
            return None
        return Span(max(span.start for span in known), min(span.end for span in known))

    def _flavor_span(self, flavor: str, worker: str) -> Span | None:
        found = [self.spans.get((place, flavor)) for place in (EVERYWHERE, worker)]
        spans = [span for span in found if span is not None]
        return reduce(_joined, spans) if spans else None


def cordons_now() -> Cordons:
    """What windows in force cover. One query."""
    workers: dict[str, StopPolicy] = {}
    flavors: dict[str, frozenset[str]] = {}
    spans: dict[tuple[str, str], Span] = {}
    rows = MaintenanceWindow.objects.filter(state=MaintenanceWindow.State.ACTIVE).order_by("pk")
    for worker, flavor, drains, starts_at, ends_at in rows.values_list(
        "cluster__slug", "flavor__slug", "drains", "starts_at", "ends_at"
    ):
        place, span = (worker or EVERYWHERE, flavor or ""), Span(starts_at, ends_at)
        spans[place] = _joined(spans.get(place, span), span)
        if flavor:
            flavors[place[0]] = flavors.get(place[0], frozenset()) | {flavor}
        else:
            asked = StopPolicy.HOLD_AND_DRAIN if drains else StopPolicy.HOLD
            workers[worker] = strongest_stop(asked, workers.get(worker, StopPolicy.NONE))
    return Cordons(workers, flavors, spans)


def _joined(one: Span, other: Span) -> Span:
    """From the earlier beginning to the later end."""
    return Span(min(one.start, other.start), max(one.end, other.end))
