"""Labels of jobs to group use and costs by: which an admin names, and what jobs say by them.

Owners write labels on their jobs as they like. Kept is a value that Kubernetes would take, of a
label that an admin named, as it was first seen: who writes another value later moves no cost.

Source: issue 14, section 2; Kubernetes, syntax of labels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from budgets.errors import Fault, reject_any
from budgets.models import JobLabel, UsageLabel, User
from budgets.selectors.usage.labels import kept_labels
from budgets.services.audit import audit
from budgets.services.finance import locked_installation
from budgets.services.guards import by_admin, require_reason

MOST_LABELS = 5
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
VALUE = re.compile(_NAME, re.ASCII)
KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){_DOMAIN}(?:\.{_DOMAIN})*/)?{_NAME}", re.ASCII)


@by_admin
def name_label(actor: User | None, *, key: str, reason: str) -> UsageLabel:
    """Keep a label of jobs from now on, to group by.

    Args:
        actor: A platform admin.
        key: As it stands on jobs: ``team`` or ``example.org/cost-centre``.
        reason: Kept in the log.

    Raises:
        Rejected: No reason; no key of a label; kept already; or ``MOST_LABELS`` are.
    """
    require_reason(reason)
    locked_installation()
    kept = list(kept_labels())
    faults = []
    if not KEY.fullmatch(key):
        words = (
            f"{key[:80]!r} is not the key of a label. Write one such as team or "
            "example.org/cost-centre."
        )
        faults.append(Fault("key", "invalid", words))
    if key in kept:
        faults.append(Fault("key", "kept", f"{key} is kept already."))
    elif len(kept) >= MOST_LABELS:
        words = f"At most {MOST_LABELS} labels are kept; drop one of {', '.join(kept)} first."
        faults.append(Fault("key", "too_many", words))
    reject_any(faults)
    row, _ = UsageLabel.objects.update_or_create(key=key, defaults={"is_kept": True})
    audit(actor, "label.name", f"label:{key}", reason=reason, after={"key": key})
    return row


@by_admin
def drop_label(actor: User | None, *, label: UsageLabel) -> None:
    """Keep a label of new jobs no longer, and group by it no longer; what was kept stays."""
    UsageLabel.objects.filter(pk=label.pk).update(is_kept=False)
    audit(actor, "label.drop", f"label:{label.key}", before={"key": label.key})


def store_labels(
    workloads: Sequence[Mapping[str, Any]], *, cluster: str, labels: Mapping[str, int]
) -> None:
    """Keep what some Workloads say by the named labels; what is known of one stays.

    Args:
        workloads: Documents, as somebody else wrote them; nonsense in them says nothing.
        cluster: Slug of where they are.
        labels: As :func:`kept_labels` gives them; without any, no query.
    """
    rows = [
        JobLabel(label_id=labels[key], cluster=cluster, uid=uid, value=value)
        for document in workloads
        if 0 < len(uid := str(document["metadata"].get("uid") or "")) <= 64
        for key, value in values_of(document, labels).items()
    ]
    if rows:
        JobLabel.objects.bulk_create(rows, ignore_conflicts=True, batch_size=1000)


def values_of(workload: Mapping[str, Any], keys: Collection[str]) -> dict[str, str]:
    """What a Workload says by some labels: its own first, then those of its pod templates."""
    pod_sets = _mapping(workload.get("spec")).get("podSets")
    templates = [
        _mapping(_mapping(row).get("template")).get("metadata")
        for row in (pod_sets if isinstance(pod_sets, list) else ())
    ]
    told = [
        _mapping(_mapping(metadata).get("labels"))
        for metadata in (workload.get("metadata"), *templates)
    ]
    found: dict[str, str] = {}
    for key in keys:
        for labels in told:
            value = labels.get(key)
            if isinstance(value, str) and VALUE.fullmatch(value):
                found[key] = value
                break
    return found


def _mapping(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {}
