"""What an external dispatcher owes to Kueue: when to nominate, and whom never to withdraw. Pure.

Source: spec dispatch 3.3 (the contract) and 3.4 (the withdraw trap), tried on Kueue 0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, annotations_of, bound
from clusters.documents.numbers import whole_number
from clusters.kube import resources as r
from clusters.kueue.multikueue.group import GroupView
from clusters.reconcile.external.defects import CopySeen
from clusters.reconcile.runtime.writer import Write

MOST_NAMES: Final = 20


def may_nominate(view: GroupView, *, siblings: Iterable[Document] = ()) -> bool:
    """Whether Kueue waits for a nomination of this workload.

    Of several Workloads of one owner only for the primary: Kueue pins the siblings to its worker.
    """
    others = [state for name, state in view.checks.items() if name != view.group.check]
    return (
        view.state == "Pending"
        and view.has_quota
        and not view.is_evicted
        and not view.chosen
        and not is_true(view.local, "Finished")
        and not view.local["metadata"].get("deletionTimestamp")
        and (view.local.get("spec") or {}).get("active") is not False
        and all(state == "Ready" for state in others)
        and _is_primary(view.local, siblings)
    )


def _is_primary(local: Document, siblings: Iterable[Document]) -> bool:
    index = component_of(local)
    return index is None or all(index <= (component_of(item) or 0) for item in siblings)


def component_of(workload: Document) -> int | None:
    """Which part of a job with several Workloads this one is; None where there is one only."""
    return whole_number(annotations_of(workload).get(labels.COMPONENT_INDEX))


def wanted_names(
    nominated: Sequence[str], *, chosen: Sequence[str], seen: Mapping[str, CopySeen]
) -> tuple[str, ...]:
    """The nominations to write.

    A worker that is nominated stays unless its copy is known and not admitted: withdrawn just as
    it admits, its job would run there while Kueue may never record it. A worker whose copy is
    admitted without a nomination gets one, which is the way out of that trap.

    Args:
        nominated: As they stand.
        chosen: By the dispatcher, in order.
        seen: Copies by worker; a worker that is missing is not known.
    """
    kept = [name for name in nominated if name not in chosen and not _may_withdraw(seen.get(name))]
    admitted = [name for name, found in seen.items() if found.is_admitted]
    return tuple(dict.fromkeys((*chosen, *kept, *sorted(admitted))))[:MOST_NAMES]


def _may_withdraw(found: CopySeen | None) -> bool:
    return found is not None and found.answers and not found.is_admitted


def waits_for(view: GroupView, worker: str, seen: Mapping[str, CopySeen]) -> bool:
    """Whether a workload is nominated for a worker that has not got its copy yet."""
    found = seen.get(worker)
    has_copy = found is not None and found.answers and found.copy is not None
    return worker in view.nominated and not has_copy


def wake(local: Document, *, at: str) -> Write:
    """The write that makes Kueue look at a workload again.

    Nothing in Kueue 0.19.2 does so when a worker's connection comes back (spec dispatch 2.2). The
    time stamp is one that is not there yet, or nothing would change.
    """
    body = bound(local)
    body["metadata"]["annotations"] = {labels.WOKEN: at}
    return Write.patch("wake", r.WORKLOAD, local, body)
