"""Samples of a worker's nodes and pods: the newest one, and what they come to by hour.

Source: spec money, section 1.3; issue 6, section 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from budgets.metering import CapacitySample, capacity_parts
from budgets.models import CapacityHour, CapacityWatch, Flavor, MeasuredCapacity
from budgets.selectors.clock import utc_now
from budgets.services.usage.rows import upsert
from budgets.units import HOUR_S

AMOUNTS = ("capacity", "down", "free", "over_admitted", "outside")


@dataclass(frozen=True, slots=True)
class HeldNow:
    """What is known beside the count of nodes, by flavor slug, in GPUs.

    Attributes:
        held: What workloads hold that the ledger counts.
        outside: Taken by pods in namespaces of no workspace.
        by_pods: Whether the cluster's pods could be seen at all.
    """

    held: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)
    by_pods: bool = True


@transaction.atomic
def record_measured_capacity(
    *,
    cluster: str,
    rows: Mapping[str, tuple[int, int, int, int]],
    measured_at: datetime | None = None,
    beside: HeldNow | None = None,
) -> None:
    """Keep the newest sample of a worker's nodes, and add the one before to its hours.

    No log entry, for it comes every quarter of a minute.

    Args:
        cluster: Worker slug.
        rows: flavor slug -> (ready, broken, used GPUs, nodes); unknown flavors are left out and
            flavors that are absent have no node there any more.
        measured_at: UTC; None for now.
        beside: What workloads and foreign pods hold; None: the used GPUs are held by workloads.
    """
    instant = (measured_at or utc_now()).replace(microsecond=0)
    ids = dict(Flavor.objects.filter(slug__in=rows).values_list("slug", "pk"))
    _add_to_hours(cluster, instant)
    MeasuredCapacity.objects.filter(cluster=cluster).exclude(flavor__in=ids.values()).delete()
    known = beside or HeldNow(held={slug: row[2] for slug, row in rows.items()})
    upsert(
        MeasuredCapacity(
            cluster=cluster,
            flavor_id=pk,
            ready_gpus=rows[slug][0],
            broken_gpus=rows[slug][1],
            used_gpus=rows[slug][2],
            held_gpus=known.held.get(slug, 0),
            outside_gpus=known.outside.get(slug, 0),
            by_pods=known.by_pods,
            nodes=rows[slug][3],
            measured_at=instant,
        )
        for slug, pk in sorted(ids.items())
    )


def _add_to_hours(cluster: str, instant: datetime) -> None:
    """Count what the sample before this one stands for; the watch's row is the lock."""
    watch = CapacityWatch.objects.select_for_update().filter(cluster=cluster).first()
    if watch is None:
        CapacityWatch.objects.get_or_create(
            cluster=cluster, defaults={"since": instant, "until": instant}
        )
        return
    before = MeasuredCapacity.objects.filter(cluster=cluster)
    samples = {
        row.flavor.slug: CapacitySample(
            watch.until,
            ready=row.ready_gpus,
            down=row.broken_gpus,
            used=row.used_gpus,
            held=row.held_gpus,
            outside=row.outside_gpus,
            by_pods=row.by_pods,
        )
        for row in before.select_related("flavor")
    }
    by_pods = all(sample.by_pods for sample in samples.values())
    samples[""] = CapacitySample(watch.until, 0, 0, 0, 0, by_pods=by_pods)
    upsert(_grown(cluster, samples, instant))
    if instant > watch.until:
        watch.until = instant
        watch.save(update_fields=["until"])


def _grown(
    cluster: str, samples: Mapping[str, CapacitySample], instant: datetime
) -> Iterable[CapacityHour]:
    parts = [
        (slug, sample, part)
        for slug, sample in samples.items()
        for part in capacity_parts(sample, instant)
    ]
    stored = CapacityHour.objects.filter(
        cluster=cluster, hour__in={part.hour for *_, part in parts}
    )
    rows = {(row.flavor, row.hour): row for row in stored}
    for slug, sample, part in parts:
        row = rows.setdefault(
            (slug, part.hour), CapacityHour(cluster=cluster, flavor=slug, hour=part.hour)
        )
        row.measured_s = min(HOUR_S, row.measured_s + part.seconds)
        for name in AMOUNTS:
            setattr(row, name, getattr(row, name) + getattr(part, name))
        row.by_pods = row.by_pods and sample.by_pods
    return rows.values()
