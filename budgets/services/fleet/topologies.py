"""How nodes stand together, and which flavors have it.

Kueue lets levels, and the topology of a flavor with its labels and tolerations, never change: what
is refused here would be refused on every cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from budgets.announcements import Work, announce
from budgets.errors import Fault, reject_any
from budgets.models import Account, Flavor, Topology, User
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.budget.in_force import generations_follow
from budgets.services.guards import by_admin, lock_flavors, require_reason, save_checked

HOSTNAME: Final = "kubernetes.io/hostname"
MOST_LEVELS: Final = 16
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@by_admin
def create_topology(actor: User | None, *, slug: str, name: str, levels: Sequence[str]) -> Topology:
    """Add a topology; slug and levels are for ever.

    Args:
        actor: A platform admin.
        slug: Name of the Topology on clusters.
        name: What people read.
        levels: Labels of nodes, the largest domain first; kubernetes.io/hostname only at the end.
    """
    topology = Topology(slug=slug, name=name, levels=list(levels))
    save_checked(topology, also=list(_level_faults(list(levels))))
    announce(Work.SYNC)
    audit(actor, "topology.create", topology, after=state_of(topology, "name", "levels"))
    return topology


@by_admin
def give_topology(actor: User | None, *, flavor: Flavor, topology: Topology) -> Flavor:
    """Say how the nodes of a flavor stand together; it is for good."""
    lock_flavors([flavor.slug])
    row = Flavor.objects.select_related("topology").get(pk=flavor.pk)
    faults = []
    if row.topology is not None:
        words = (
            f"{row.name} has the topology {row.topology.name}, and Kueue lets no flavor change it. "
            "Make a new flavor for the same nodes and move budgets there."
        )
        faults.append(Fault("topology", "has_topology", words))
    if not row.node_labels:
        words = (
            f"{row.name} has no node labels. Kueue finds nodes of a topology by labels: add one."
        )
        faults.append(Fault("topology", "no_labels", words))
    if topology.archived_at is not None or row.archived_at is not None:
        words = "The flavor or the topology is archived. Choose another one."
        faults.append(Fault("topology", "archived", words))
    reject_any(faults)
    # Queues change with it: what the host has counts in the flavor from now on.
    with generations_follow(*Account.objects.values_list("slug", flat=True)):
        row.topology = topology
        row.save(update_fields=["topology"])
    audit(actor, "flavor.topology", row, after={"topology": topology.slug})
    return row


@by_admin
def archive_topology(actor: User | None, *, topology: Topology, reason: str) -> Topology:
    """Put a topology away that no flavor has."""
    require_reason(reason)
    row = Topology.objects.select_for_update().get(pk=topology.pk)
    using = row.flavors.filter(archived_at__isnull=True).values_list("name", flat=True)
    reject_any([Fault("", "in_use", f"{name} has it; archive the flavor first.") for name in using])
    with generations_follow():
        row.archived_at = utc_now()
        row.save(update_fields=["archived_at"])
    audit(actor, "topology.archive", row, reason=reason)
    return row


def _level_faults(levels: Sequence[str]) -> list[Fault]:
    """What the schema of Kueue's Topology would refuse."""
    faults = []
    if not 1 <= len(levels) <= MOST_LEVELS:
        words = f"Name 1 to {MOST_LEVELS} labels of nodes, the largest domain first."
        faults.append(Fault("levels", "count", words))
    for level in levels:
        if len(level) > 316 or not _KEY.fullmatch(level):
            words = (
                f"{level[:80]!r} is not the key of a node label. Write one such as "
                "example.com/rack."
            )
            faults.append(Fault("levels", "not_a_label", words))
    if len(set(levels)) < len(levels):
        faults.append(Fault("levels", "twice", "A label is one level alone."))
    if HOSTNAME in levels[:-1]:
        words = f"{HOSTNAME} is the smallest domain: it comes last."
        faults.append(Fault("levels", "hostname_last", words))
    return faults
