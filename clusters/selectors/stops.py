"""Why queues stand still, by the records: people's holds, caps, archived workspaces, maintenance.

The caller asks only for workspaces whose jobs the reader sees. Who holds a budget, its caps, and
what is closed on the fleet may be told to all of those; other workspaces are not spoken of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from budgets.plan import StopPolicy
from budgets.selectors.budget.holds import BudgetHolds, ReachedCap, budget_holds
from clusters.explaining.evidence import Evidence
from clusters.explaining.stops import Stop, StopSource
from clusters.explaining.words import is_closed
from clusters.models import Cluster
from clusters.selectors.cordons import Cordons, cordons_now

_OWNERS = "an owner of the workspace or an admin"
_OWNERS_OR_FINANCE = "an owner of the workspace, finance or an admin"
_FINANCE = "finance or an admin"
_ADMIN = "an admin"


@dataclass(frozen=True, slots=True)
class Stops:
    """What stops queues now.

    Attributes:
        budgets: Namespace → what holds its budget.
        cordons: What maintenance covers.
        workers: Slug → name of all clusters where jobs run; every other one is a manager.
        dispatched_to: Those that the manager dispatches to.
    """

    budgets: Mapping[str, BudgetHolds]
    cordons: Cordons
    workers: Mapping[str, str]
    dispatched_to: tuple[str, ...]

    def of(self, namespace: str, cluster: str) -> tuple[Stop, ...]:
        """All reasons that touch a workspace's queue on a cluster."""
        return (
            *_of_budget(self.budgets.get(namespace, BudgetHolds())),
            *self._of_maintenance(cluster),
        )

    def _of_maintenance(self, cluster: str) -> Iterator[Stop]:
        cordons, is_worker = self.cordons, cluster in self.workers
        workers = (cluster,) if is_worker else self.dispatched_to
        if is_worker:
            kind = "worker" if cluster in self.dispatched_to else "cluster"
            what = f"{kind} {self.workers[cluster]}"
            policy, flavors = cordons.on(cluster), cordons.flavors_on(cluster)
        else:
            what = "every worker"
            policy, flavors = cordons.on_manager(workers), cordons.flavors_on_manager(workers)
        if policy is not StopPolicy.NONE:
            spans = [cordons.spans[worker, ""] for worker in workers]
            since, until = max(span.start for span in spans), min(span.end for span in spans)
            yield Stop(
                StopSource.MAINTENANCE, policy, what=what, since=since, until=until, keeper=_ADMIN
            )
        open_ones = [each for each in workers if is_worker or each not in cordons.workers]
        for flavor in sorted(flavors):
            span = cordons.span_of(flavor, open_ones)
            yield Stop(
                StopSource.MAINTENANCE,
                StopPolicy.NONE,
                what=what,
                since=span.start if span is not None else None,
                until=span.end if span is not None else None,
                keeper=_ADMIN,
                flavor=flavor,
            )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Evidence of a job that waits on a cluster.

    Attributes:
        cluster: Slug.
        is_capped: A spend rule makes the floor of its budget the ceiling.
    """

    namespace: str
    cluster: str
    evidence: Evidence
    is_capped: bool = False


def with_stops(found: Iterable[Waiting]) -> list[Evidence]:
    """Evidence completed by what the records say, where it speaks of something that they know.

    Args:
        found: Jobs that the reader sees.

    Returns:
        In the same order. No query when no queue is stopped or capped and nothing is under
        maintenance; else six at most.
    """
    rows = list(found)
    asked = {row.namespace for row in rows if _asks(row)}
    if not asked:
        return [row.evidence for row in rows]
    stops = _stops(asked)
    return [
        replace(row.evidence, stops=stops.of(row.namespace, row.cluster))
        if _asks(row)
        else row.evidence
        for row in rows
    ]


def _asks(row: Waiting) -> bool:
    """Whether the records have something to add to it."""
    found = row.evidence
    is_stopped = found.hold is not StopPolicy.NONE or found.is_turned_back
    return is_stopped or row.is_capped or any(map(is_closed, found.attempts))


def _stops(namespaces: Collection[str]) -> Stops:
    workers: dict[str, str] = {}
    active: list[str] = []
    rows = Cluster.objects.running_jobs().order_by("position", "slug")
    for slug, name, state, role in rows.values_list("slug", "name", "state", "role"):
        workers[slug] = name
        if state == Cluster.State.ACTIVE and role == Cluster.Role.WORKER:
            active.append(slug)
    return Stops(budget_holds(namespaces), cordons_now(), workers, tuple(active))


def _of_budget(holds: BudgetHolds) -> Iterator[Stop]:
    if holds.archived_at is not None:
        yield Stop(StopSource.ARCHIVED, StopPolicy.HOLD, since=holds.archived_at)
    if holds.person is not None:
        person = holds.person
        yield Stop(
            StopSource.PERSON,
            person.policy,
            what=person.by or "somebody",
            since=person.since,
            note=person.reason,
            keeper=_OWNERS,
        )
    for cap in holds.caps:
        yield Stop(
            StopSource.CAP,
            cap.effect.stop_policy,
            what=str(cap.rule),
            since=cap.since,
            until=cap.until,
            keeper=_keeper(cap),
        )


def _keeper(cap: ReachedCap) -> str:
    """As ``budgets.selectors.spending.may_change`` has it."""
    return _FINANCE if cap.rule.is_platform else _OWNERS_OR_FINANCE
