"""What-if about single nodes: a rack is added, or nodes take no pods any more.

Only an engine that decides knows nodes: of a cluster where Kueue decides, the portal follows quota
alone. What may be named is checked against the nodes that were counted last, so that everything
that is wrong is said at once. Nothing is saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from budgets.errors import Fault, reject_any
from budgets.models import Account, Flavor, Pool, User
from budgets.selectors import utc_now
from clusters.documents.labels import HOSTNAME, level_word
from clusters.kueue.explanation.asking import MOST_GPUS_EACH
from clusters.kueue.explanation.changes import MOST_NODES
from clusters.models import Cluster, NodeSight
from clusters.selectors.racks import nodes_of, standings
from clusters.services.questions import ask_what_if
from clusters.services.what_if import (
    MOST_GPUS,
    Asked,
    changes_of,
    quota_with_nodes,
    require_admin,
)

NAMED: Final = 3
"""Names that a sentence tells."""
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_TAINT: Final = re.compile(
    rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}(?:=(?:{_NAME})?)?"
)


def ask_rack(
    actor: User | None,
    *,
    cluster: Cluster,
    flavor: Flavor,
    nodes: int,
    gpus: int | None = None,
    within: Sequence[str] = (),
    account: Account | None = None,
    pool: Pool | None = None,
) -> Asked:
    """Ask what more nodes that stand together would lead to.

    Args:
        actor: An admin; None for a command on the server.
        cluster: One that runs jobs, where the portal decides.
        flavor: Of the nodes, one with a topology.
        nodes: 1 to ``MOST_NODES``.
        gpus: Of each node; those of the flavor's nodes where None.
        within: The domain that they join, as values of the levels from the largest on; levels that
            are left out are one new domain each.
        account: Whose own pool gets the GPUs as quota; or
        pool: the platform pool that gets them. Without either, quota stays as it is.

    Raises:
        NotAllowed: The actor is no admin.
        Rejected: With everything that is not usable.
    """
    require_admin(actor)
    each = flavor.gpus_per_node if gpus is None else gpus
    faults = [*_cluster_faults(cluster), *_domain_faults(cluster, flavor, within)]
    if not 1 <= nodes <= MOST_NODES:
        words = f"{nodes} is no number of nodes from 1 to {MOST_NODES:,}. Type one."
        faults.append(Fault("nodes", "invalid", words))
    if not 1 <= each <= MOST_GPUS_EACH:
        words = f"{each} is no number of GPUs of one node from 1 to {MOST_GPUS_EACH:,}. Type one."
        faults.append(Fault("gpus", "invalid", words))
    elif nodes * each > MOST_GPUS:
        words = f"{nodes:,} × {each:,} GPUs are more than {MOST_GPUS:,}. Ask about fewer nodes."
        faults.append(Fault("nodes", "too_many", words))
    if account is not None and pool is not None:
        words = "Name an account or a platform pool that gets the GPUs, not both."
        faults.append(Fault("receiver", "invalid", words))
    reject_any(faults)
    change = {
        "kind": "AddNodes",
        "flavor": flavor.slug,
        "count": nodes,
        "resource": flavor.resource_name,
        "gpus": each,
        "within": list(within),
    }
    changed = quota_with_nodes((flavor, cluster), nodes * each, account or pool)
    changes = {slug: changes_of(documents) for slug, documents in changed.items()}
    changes.setdefault(cluster.slug, []).append(change)
    clusters = Cluster.objects.in_bulk(list(changes), field_name="slug")
    now = utc_now()
    return Asked(
        tuple(ask_what_if(clusters[slug], asked, actor, at=now) for slug, asked in changes.items())
    )


def ask_taint(
    actor: User | None,
    *,
    cluster: Cluster,
    flavor: Flavor | None = None,
    within: Sequence[str] = (),
    names: Sequence[str] = (),
    taint: str = "",
    drains: bool = False,
) -> Asked:
    """Ask what nodes that take no new pods would lead to: a cordon, a taint, a drained rack.

    Args:
        actor: An admin; None for a command on the server.
        cluster: One that runs jobs, where the portal decides.
        flavor: Whose nodes, those ``within`` one domain, or all; or
        within: (see ``ask_rack``)
        names: those of single nodes, at most ``MOST_NODES``.
        taint: ``key`` or ``key=value``, which some pods tolerate; empty for a cordon.
        drains: What runs there stops, too, and queues again.

    Raises:
        NotAllowed: The actor is no admin.
        Rejected: With everything that is not usable.
    """
    require_admin(actor)
    faults = [*_cluster_faults(cluster), *_taint_faults(taint)]
    if flavor is not None and names:
        words = "Name nodes, or a flavor and a domain of its nodes, not both."
        faults.append(Fault("names", "invalid", words))
    elif flavor is not None:
        faults += _domain_faults(cluster, flavor, within)
    elif within:
        faults.append(Fault("flavor", "required", "Name the flavor whose domain this is."))
    else:
        faults += _name_faults(cluster, names)
    reject_any(faults)
    change: dict[str, Any] = {"kind": "TaintNodes", "taint": taint, "drains": drains}
    if flavor is not None:
        change |= {"flavor": flavor.slug, "within": list(within)}
    else:
        change["names"] = list(dict.fromkeys(names))
    return Asked((ask_what_if(cluster, [change], actor),))


def _cluster_faults(cluster: Cluster) -> Iterator[Fault]:
    if not cluster.runs_jobs:
        yield Fault("cluster", "not_a_worker", "A manager has no nodes for jobs. Name a worker.")
    elif cluster.mode != Cluster.Mode.PORTAL:
        words = (
            f"On {cluster.name} Kueue decides, and the portal follows quota there, not nodes. Name "
            "a cluster where the portal decides, or ask about a node pool."
        )
        yield Fault("cluster", "not_followed", words)


def _domain_faults(cluster: Cluster, flavor: Flavor, within: Sequence[str]) -> Iterator[Fault]:
    topology = flavor.topology
    if topology is None:
        words = (
            f"{flavor.name} has no topology, so it does not matter where its nodes stand. Name a "
            "flavor that has one, or ask about a node pool."
        )
        yield Fault("flavor", "no_topology", words)
        return
    if not within:
        return
    levels = [level for level in topology.levels if level != HOSTNAME]
    if len(within) > len(levels):
        listed = ", ".join(map(level_word, levels)) or "none"
        words = (
            f"{'/'.join(within)[:200]} has {len(within)} parts, and the nodes of {flavor.name} "
            f"stand in {len(levels)} levels: {listed}. Leave out the last ones."
        )
        yield Fault("within", "too_deep", words)
        return
    found = standings(
        topology.levels, nodes_of([flavor.slug], cluster=cluster.slug).get(flavor.slug, ())
    )
    known = found[0].domains[len(within) - 1] if found else {}
    if tuple(within) not in known:
        paths = ["/".join(path) for path in sorted(known)]
        more = f" or one of {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        others = f"Name {', '.join(paths[:NAMED])}{more}, or" if paths else "There is none yet:"
        words = (
            f"{cluster.name} has no {level_word(levels[len(within) - 1])} "
            f"{'/'.join(within)[:200]} with nodes of {flavor.name}. {others} leave it out."
        )
        yield Fault("within", "unknown", words)


def _name_faults(cluster: Cluster, names: Sequence[str]) -> Iterator[Fault]:
    if not names:
        words = "Name nodes, or a flavor and a domain of its nodes."
        yield Fault("names", "required", words)
        return
    if len(names) > MOST_NODES:
        words = f"{len(names):,} nodes are more than {MOST_NODES:,}. Ask in parts."
        yield Fault("names", "too_many", words)
        return
    rows = NodeSight.objects.filter(cluster=cluster.slug, name__in=names)
    known = set(rows.values_list("name", flat=True))
    lacking = [name for name in dict.fromkeys(names) if name not in known]
    if lacking:
        more = f" and {len(lacking) - NAMED:,} more" if len(lacking) > NAMED else ""
        words = (
            f"{cluster.name} has no node {', '.join(name[:80] for name in lacking[:NAMED])}{more} "
            "of a flavor. Name nodes as kubectl get nodes does."
        )
        yield Fault("names", "unknown", words)


def _taint_faults(taint: str) -> Iterator[Fault]:
    if taint and not _TAINT.fullmatch(taint):
        words = (
            f"{taint[:80]!r} is no taint of Kubernetes. Type key or key=value, such as "
            "repair=today, or nothing for a cordon."
        )
        yield Fault("taint", "invalid", words)
