"""Labels of jobs that an admin named, and what jobs say by them."""

from __future__ import annotations

from collections.abc import Iterable

from budgets.models import JobLabel, UsageLabel
from budgets.selectors.fleet.places import at_places

PLACES_AT_ONCE = 1_000


def kept_labels() -> dict[str, int]:
    """Key → primary key of each label that is kept, as they were named. One query."""
    return dict(UsageLabel.objects.filter(is_kept=True).values_list("key", "pk"))


def values_by(
    keys: Iterable[str], places: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, str]]:
    """(cluster, uid) of some jobs → key → value; what a job does not say is not there.

    The caller has asked who may see the jobs. A query for each ``PLACES_AT_ONCE`` jobs.
    """
    asked = set(keys)
    labels = {pk: key for key, pk in kept_labels().items() if key in asked} if asked else {}
    wanted = sorted(set(places)) if labels else []
    found: dict[tuple[str, str], dict[str, str]] = {}
    for at in range(0, len(wanted), PLACES_AT_ONCE):
        rows = JobLabel.objects.filter(
            at_places(wanted[at : at + PLACES_AT_ONCE]), label__in=labels
        )
        for cluster, uid, label, value in rows.values_list("cluster", "uid", "label", "value"):
            found.setdefault((cluster, uid), {})[labels[label]] = value
    return found
