"""Why a worker does not take a job that has quota on its manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from clusters.explaining.names import Names
from clusters.explaining.objects import queues
from clusters.explaining.objects.found import Objects, Trouble
from clusters.explaining.objects.unmade import Rule
from clusters.kueue.amounts import count_of


def _unserved(found: Objects, names: Names) -> Trouble | None:
    if found.is_served:
        return None
    return Trouble(
        f"{found.where(names)} does not serve {found.kind_word}s, because their CRD is not "
        "installed there",
        f"Ask an admin to install what runs {found.kind_word}s there.",
    )


def _full(found: Objects, names: Names) -> Trouble | None:
    """A ResourceQuota of the namespace has no room for what the job asks."""
    asked = dict(_asked(found))
    for quota in found.quotas:
        status = quota.get("status")
        hard, used = (
            (status.get(key) or {}) if isinstance(status, Mapping) else {}
            for key in ("hard", "used")
        )
        for key, most in sorted(hard.items()):
            resource = key.removeprefix("requests.")
            wanted = asked.get(resource, 0)
            has, limit = (count_of(str(each), resource) for each in (used.get(key, 0), most))
            if wanted and has + wanted > limit:
                return Trouble(
                    f"the ResourceQuota {quota['metadata']['name']} of namespace "
                    f"{found.namespace} on {found.where(names)} has no room: the job asks for "
                    f"{wanted:,} {key}, {has:,} are used, and {limit:,} are allowed",
                    "Ask an admin to raise it or to remove it.",
                )
    return None


def _asked(found: Objects) -> Iterator[tuple[str, int]]:
    """Devices that all pods of the Workload ask for, and how many pods there are."""
    sums: dict[str, int] = {}
    spec = (found.asked or {}).get("spec") or {}
    for item in spec.get("podSets") or ():
        count = int(item.get("count") or 0)
        sums["pods"] = sums.get("pods", 0) + count
        for name, each in _devices(item):
            sums[name] = sums.get(name, 0) + count * each
    yield from sums.items()


def _devices(pod_set: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    template = (pod_set.get("template") or {}).get("spec") or {}
    for container in template.get("containers") or ():
        resources = container.get("resources") or {}
        given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, amount in given.items():
            if "/" in name:
                yield name, count_of(str(amount), name)


REFUSING: Final[tuple[Rule, ...]] = (
    queues.no_namespace,
    _unserved,
    queues.no_local_queue,
    queues.no_cluster_queue,
    queues.stopped_queue,
    queues.inactive_queue,
    queues.unselected_namespace,
    _full,
    queues.waiting_copy,
)
