"""Changes that a what-if tries: documents, quota, a drained cluster, nodes.

Applied to a copy of an engine only; ``nodes`` makes those of nodes. Every change says beforehand
which trees of queues it touches, so that only those need to be copied and tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from budgets.plan import StopPolicy
from clusters.kueue.amounts import ZERO, Amount, FlavorResource, add, amount_of
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.quota.resource_node import NO_QUOTA, Quota
from clusters.kueue.quota.tree import ClusterQueueState, CohortState


class Inapplicable(Exception):
    """A change that makes no sense on this cluster; the message is for people."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One change: a document to take in, or the key of an object to delete.

    Attributes:
        kind: as in documents.
        document: its new version; ``None`` deletes ``key``.
    """

    kind: str
    document: Mapping[str, Any] | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Raise:
    """More nominal quota for one (flavor, resource), or less; never below 0.

    Attributes:
        kind: ``ClusterQueue`` or ``Cohort``.
        key: its name.
        resource: may be empty where the flavor has quota for one resource only.
        amount: whole units of the resource (thousandths for ``cpu``); negative lowers.
    """

    kind: str
    key: str
    flavor: str
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class Drain:
    """No quota anywhere on the cluster, and every queue held and drained."""


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes of one flavor that stand together; what they are called is of no weight.

    Attributes:
        flavor: one with a topology.
        count: of nodes, 1 to ``MOST_NODES``.
        resource: of the GPUs.
        gpus: of each node.
        within: the domain that they join, as values of the levels from the largest on; levels that
            are left out, but for the node itself, are one new domain each.
    """

    flavor: str
    count: int
    resource: str
    gpus: int
    within: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaintNodes:
    """Nodes that take no new pods, or only those that tolerate a taint.

    Attributes:
        names: of single nodes; or
        flavor, within: all nodes of a flavor in one domain, named as in :class:`AddNodes`.
        taint: key and value; an empty key cordons, which no pod tolerates.
        drains: what runs there and does not tolerate it stops, and queues again.
    """

    names: tuple[str, ...] = ()
    flavor: str = ""
    within: tuple[str, ...] = ()
    taint: tuple[str, str] = ("", "")
    drains: bool = False


OfNodes: TypeAlias = AddNodes | TaintNodes
AnyChange: TypeAlias = ObjectChange | Raise | Drain | OfNodes

MOST_NODES: Final = 1000
"""Of one change."""
_KINDS_IN_TREES: Final = frozenset(
    {"ClusterQueue", "Cohort", "LocalQueue", "ResourceClaimTemplate", "Workload"}
)


def touched_queues(engine: Engine, changes: Iterable[AnyChange]) -> frozenset[str] | None:
    """ClusterQueues whose decisions may depend on changes: whole trees; ``None`` for all.

    The engine has to be settled. Asked without a change, the question is about everything.
    """
    asked = tuple(changes)
    if not asked or engine.configuration.blocks_admission:
        # With the latter, whether anything may start depends on pods anywhere.
        return None
    trees: set[str] = set()
    for change in asked:
        found = trees_of(engine, change)
        if found is None:
            return None
        trees |= found
    alone = {tree for tree in trees if not tree.startswith("/")}
    queues = (engine.state.snapshot.cohort_queues(tree[1:]) for tree in trees - alone)
    return frozenset(alone | {queue.spec.name for tree in queues for queue in tree})


def trees_of(engine: Engine, change: AnyChange) -> frozenset[str] | None:
    """Names of the trees that one change is about, as far as they exist; ``None`` for all.

    The engine has to be settled. A tree is named by its root: ``/COHORT``, or the ClusterQueue
    that stands alone.
    """
    if isinstance(change, Drain | OfNodes) or change.kind not in _KINDS_IN_TREES:
        # Topology couples what shares no quota.
        return None
    snapshot, found = engine.state.snapshot, set()
    for kind, name in _touched(engine.state, change):
        member = snapshot.cohorts.get(name) if kind == "Cohort" else snapshot.queues.get(name)
        if member is None:
            continue
        if isinstance(member, CohortState) and member.is_cyclic:
            return None
        found.add(_root(member))
    return frozenset(found)


def queues_by_tree(engine: Engine) -> dict[str, set[str]]:
    """ClusterQueues by the name of their tree."""
    found: dict[str, set[str]] = {}
    for name, queue in engine.state.snapshot.queues.items():
        found.setdefault(_root(queue), set()).add(name)
    return found


def _root(member: ClusterQueueState | CohortState) -> str:
    root = member.node.path()[-1]
    is_queue = isinstance(member, ClusterQueueState) and root is member.node
    return root.name if is_queue else f"/{root.name}"


def _touched(state: ClusterState, change: ObjectChange | Raise) -> Iterable[tuple[str, str]]:
    """Members of the trees that one change is about, before and after it, by kind and name."""
    if isinstance(change, Raise):
        return [(change.kind, change.key)]
    document = change.document or {}
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    name = str(metadata.get("name") or change.key)
    if change.kind == "ClusterQueue":
        return [("ClusterQueue", name), ("Cohort", str(spec.get("cohortName") or ""))]
    if change.kind == "Cohort":
        return [("Cohort", name), ("Cohort", str(spec.get("parentName") or ""))]
    key = f"{metadata.get('namespace', '')}/{name}" if change.document else change.key
    if change.kind == "LocalQueue":
        before = state.queues.leads_to(key)
        return [("ClusterQueue", before), ("ClusterQueue", str(spec.get("clusterQueue") or ""))]
    namespace = key.partition("/")[0]
    if change.kind == "ResourceClaimTemplate":
        return [("ClusterQueue", queue) for queue in _claiming(state, key)]
    asked = state.queues.leads_to(f"{namespace}/{spec.get('queueName') or ''}")
    holding = state.snapshot.holding(key)
    places = [state.queues.queue_of(key), asked]
    admission = (document.get("status") or {}).get("admission") or {}
    places.append(holding.cluster_queue if holding is not None else "")
    places.append(str(admission.get("clusterQueue") or ""))
    return [("ClusterQueue", place) for place in places]


def _claiming(state: ClusterState, template: str) -> Iterator[str]:
    """ClusterQueues of what waits, or holds quota, and claims by a template, NAMESPACE/NAME."""
    namespace, _, name = template.partition("/")
    for workload in state.workloads.values():
        if workload.namespace != namespace or not workload.claims(name):
            continue
        if workload.reservation is not None:
            yield workload.reservation.cluster_queue
        elif queue := state.queues.leads_to(workload.local_queue):
            yield queue


def make(engine: Engine, change: ObjectChange | Raise | Drain, *, now: datetime) -> None:
    """Make a change that is not of nodes.

    Raises:
        Inapplicable: there is nothing of that name, or it has no quota of that kind.
        KeyError: an unknown kind, or a document that lacks a required field.
        ValueError: a malformed document.
    """
    if isinstance(change, Raise):
        _raise(engine, change, now=now)
    elif isinstance(change, Drain):
        _drain(engine, now=now)
    elif change.document is None:
        engine.delete(change.kind, key=change.key, now=now)
    else:
        engine.upsert(change.document, kind=change.kind, now=now)


def _raise(engine: Engine, change: Raise, *, now: datetime) -> None:
    state, snapshot = engine.state, engine.state.snapshot
    is_cohort = change.kind == "Cohort"
    member = (snapshot.cohorts if is_cohort else snapshot.queues).get(change.key)
    if member is None:
        raise Inapplicable(f"There is no {change.kind} {change.key} on this cluster.")
    before = member.spec.quotas
    pair = _pair(change, before)
    quotas = {**before, pair: _raised(before.get(pair), change.amount)}
    if isinstance(member, CohortState):
        state.set_cohort(replace(member.spec, quotas=quotas))
        return
    if pair not in before:
        raise Inapplicable(
            f"ClusterQueue {change.key} has no quota of {pair.resource} in flavor {pair.flavor}: "
            "name one of its own."
        )
    state.set_queue(replace(member.spec, quotas=quotas), now=now)


def _pair(change: Raise, quotas: Mapping[FlavorResource, Quota]) -> FlavorResource:
    if change.resource:
        return FlavorResource(change.flavor, change.resource)
    found = [pair for pair in quotas if pair.flavor == change.flavor]
    if len(found) == 1:
        return found[0]
    raise Inapplicable(
        f"{change.kind} {change.key} has quota of {len(found)} resources in flavor "
        f"{change.flavor}: name the resource."
    )


def _raised(quota: Quota | None, amount: int) -> Quota:
    quota = quota or NO_QUOTA
    return _with_nominal(quota, max(ZERO, add(quota.nominal, amount_of(amount))))


def _with_nominal(quota: Quota, nominal: Amount) -> Quota:
    # A queue cannot lend more than it has.
    lending = None if quota.lending_limit is None else min(quota.lending_limit, nominal)
    return Quota(nominal, quota.borrowing_limit, lending)


def _drain(engine: Engine, *, now: datetime) -> None:
    state = engine.state
    for cohort in list(state.snapshot.cohorts.values()):
        if cohort.is_declared:
            none = {pair: _with_nominal(quota, ZERO) for pair, quota in cohort.spec.quotas.items()}
            state.set_cohort(replace(cohort.spec, quotas=none))
    for queue in list(state.snapshot.queues.values()):
        none = {pair: _with_nominal(quota, ZERO) for pair, quota in queue.spec.quotas.items()}
        stopped = replace(queue.spec, quotas=none, stop_policy=StopPolicy.HOLD_AND_DRAIN)
        state.set_queue(stopped, now=now)
