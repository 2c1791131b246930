"""Kinds of GPU nodes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from budgets.announcements import Work, announce
from budgets.errors import Fault, reject_any
from budgets.models import Flavor, FlavorClock, User, Workspace
from budgets.plan import HOST_FLAVOR
from budgets.selectors import fleet_timeline
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.budget.in_force import generations_follow
from budgets.services.guards import by_admin, lock_flavors, require_reason, save_checked

EDITABLE = (
    "name",
    "resource_name",
    "node_labels",
    "node_taints",
    "tolerations",
    "gpus_per_node",
    "clock_start",
    "oversubscription_factor",
    "position",
)
TAINT_KEYS = frozenset({"key", "value", "effect"})
TAINT_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
TOLERATION_KEYS = frozenset({"key", "operator", "value", "effect", "tolerationSeconds"})


@by_admin
def create_flavor(actor: User | None, /, *, slug: str, **fields: Any) -> Flavor:
    """Add a flavor; the slug is the ResourceFlavor's name and for ever.

    Args:
        actor: A platform admin.
        slug: Up to 40 characters.
        **fields: Of :data:`EDITABLE`; all but the name have a default.
    """
    flavor = Flavor(slug=slug, **({"oversubscription_factor": Decimal(1)} | fields))
    faults = _shape_faults(flavor)
    if slug == HOST_FLAVOR:
        words = "The slug host is kept for CPU and memory; choose another one."
        faults.append(Fault("slug", "reserved", words))
    save_checked(flavor, also=faults)
    FlavorClock.objects.create(flavor=flavor, clock_start=flavor.clock_start, valid_from=utc_now())
    announce(Work.SYNC)
    audit(actor, "flavor.create", flavor, after=state_of(flavor, *EDITABLE))
    return flavor


@by_admin
def edit_flavor(actor: User | None, /, *, flavor: Flavor, **changes: Any) -> Flavor:
    """Change a flavor; ``changes`` are fields of :data:`EDITABLE`."""
    lock_flavors([flavor.slug])
    row = Flavor.objects.get(pk=flavor.pk)
    before = state_of(row, *EDITABLE)
    faults = [
        Fault(name, "not_editable", f"{name} of a flavor cannot be changed.")
        for name in changes
        if name not in EDITABLE
    ]
    if "resource_name" in changes and changes["resource_name"] != row.resource_name:
        faults += _promise_faults(row, field="resource_name")
    faults += [
        Fault(name, "has_topology", f"Kueue lets {words} of a flavor with a topology never change.")
        for name, words in (("node_labels", "node labels"), ("tolerations", "tolerations"))
        if row.topology_id is not None and changes.get(name, before[name]) != before[name]
    ]
    with generations_follow():
        for name in EDITABLE:
            if name in changes:
                setattr(row, name, changes[name])
        save_checked(row, also=faults + _shape_faults(row))
    if row.clock_start != before["clock_start"]:
        FlavorClock.objects.create(flavor=row, clock_start=row.clock_start, valid_from=utc_now())
    audit(actor, "flavor.edit", row, before=before, after=state_of(row, *EDITABLE))
    row.refresh_from_db()
    return row


@by_admin
def archive_flavor(actor: User | None, *, flavor: Flavor, reason: str) -> Flavor:
    """Take a flavor out of use, once nothing is promised of it, now or later."""
    require_reason(reason)
    lock_flavors([flavor.slug])
    row = Flavor.objects.get(pk=flavor.pk)
    faults = _promise_faults(row, field="")
    homes = Workspace.objects.filter(home_flavor=row, archived_at__isnull=True)
    faults += [
        Fault("", "home_flavor", f"It is the home flavor of {workspace.name}. Change that first.")
        for workspace in homes
    ]
    reject_any(faults)
    row.archived_at = utc_now()
    row.save(update_fields=["archived_at"])
    audit(actor, "flavor.archive", row, reason=reason)
    return row


def _promise_faults(flavor: Flavor, *, field: str) -> list[Fault]:
    """Name every workspace and pool that is promised some of it, now or later."""
    timeline = fleet_timeline(utc_now(), flavors=[flavor.slug])
    namespaces = {
        span.namespace
        for span in timeline.revisions
        if any(line.committed or line.ceiling for line in span.lines)
    }
    found = Workspace.objects.filter(namespace__in=namespaces).order_by("name", "pk")
    pools = sorted({span.holder for span in timeline.pool_amounts if span.gpus})
    holders = [f"The workspace {row.name}" for row in found]
    holders += [f"The pool {holder}" for holder in pools]
    return [
        Fault(field, "still_promised", f"{holder} has a promise of {flavor.name}. End it first.")
        for holder in holders
    ]


def _shape_faults(flavor: Flavor) -> list[Fault]:
    """What Kubernetes would refuse in labels, taints and tolerations."""
    faults = []
    labels = flavor.node_labels
    if not isinstance(labels, dict) or not all(
        isinstance(key, str) and key and isinstance(value, str) for key, value in labels.items()
    ):
        faults.append(
            Fault("node_labels", "not_labels", "Write labels as pairs of a name and a value.")
        )
    for field, keys in (("node_taints", TAINT_KEYS), ("tolerations", TOLERATION_KEYS)):
        for index, entry in enumerate(getattr(flavor, field)):
            if not isinstance(entry, dict) or not entry.keys() <= keys:
                words = f"An entry has only the keys {', '.join(sorted(keys))}."
                faults.append(Fault(f"{field}.{index}", "unknown_key", words))
            elif field == "node_taints" and (
                not entry.get("key") or entry.get("effect") not in TAINT_EFFECTS
            ):
                words = f"A taint has a key and an effect of {', '.join(sorted(TAINT_EFFECTS))}."
                faults.append(Fault(f"{field}.{index}", "not_a_taint", words))
    return faults
