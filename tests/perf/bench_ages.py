"""How old is what queues say of themselves, while Kueue's runner fills and empties them.

The load is a fifth of ``baseline``. An observer follows Workloads, ClusterQueues and LocalQueues,
as any client does. Ten times a second it compares the numbers of each queue's status with what the
queue's Workloads say. Where they differ, the status is as old as the time since it was last
written, or last right. Who decides knows its decisions before its writes are seen, and others'
changes a little later: its numbers need not be ones that any observer has ever counted. And of each
Workload that was told why it waits: how long after it was created.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from clusters.documents.conditions import condition, is_true
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.reconcile.runtime.watches import Change, Seen, Watches
from tests.controlplane.control_plane import ControlPlane
from tests.perf import bench_admission
from tests.perf.bench import percentile
from tests.perf.contenders import Contender
from tests.waiting import eventually

SHARE: Final = 0.2
STEP_S: Final = 0.1
LATE_S: Final = 30.0
"""So long may the observer take to hear of the end."""
FIELDS: Final = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
_WORDS: Final = {r.CLUSTER_QUEUE.kind: "ClusterQueues", r.LOCAL_QUEUE.kind: "LocalQueues"}
PERCENTILES: Final = (50, 95, 99)
KEYS: Final = (
    *(f"age of {words}, p{of} s" for words in _WORDS.values() for of in PERCENTILES),
    *(f"told why after, p{of} s" for of in PERCENTILES),
    "told why",
)
"""Figures of a run."""
Queue = tuple[str, str]
"""Kind, and name or namespace/name."""
Numbers = tuple[int, ...]
"""In the order of :data:`FIELDS`."""


@dataclass(frozen=True, slots=True)
class Told:
    """Of one queue: what is true, or what its status says, from a moment on.

    Attributes:
        at: Monotonic seconds.
        is_status: Whether its status was written.
    """

    at: float
    is_status: bool
    numbers: Numbers


def ages_of(told: Sequence[Told], moments: Iterable[float]) -> Iterator[float]:
    """How old a queue's status is at each of some moments, which ascend, seconds.

    Args:
        told: In the order of time; before the first all numbers are 0.
        moments: When it is asked.
    """
    true = shown = (0,) * len(FIELDS)
    since, place = 0.0, 0
    for moment in moments:
        while place < len(told) and told[place].at <= moment:
            each = told[place]
            if true == shown or each.is_status:
                since = each.at
            true, shown = (true, each.numbers) if each.is_status else (each.numbers, shown)
            place += 1
        yield 0.0 if true == shown else moment - since


class Ages:
    """What was true and what was shown, of all queues; filled by the threads of an observer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[str, ...]] = {}
        self._counts: dict[Queue, Counter[str]] = {}
        self._queues: dict[Queue, list[Told]] = {}
        self._created: dict[str, float] = {}
        self._told: dict[str, float | None] = {}
        self._last = 0.0
        self._finished: set[str] = set()

    @property
    def finished(self) -> int:
        """How many workloads were seen to have finished."""
        return len(self._finished)

    def workload(self, document: Mapping[str, Any], at: float, *, is_gone: bool) -> None:
        """A Workload came, changed or went."""
        metadata, name = document["metadata"], document["spec"].get("queueName", "")
        queues = [
            (r.CLUSTER_QUEUE.kind, name),
            (r.LOCAL_QUEUE.kind, f"{metadata['namespace']}/{name}"),
        ]
        counted = () if is_gone else counted_as(document)
        uid = metadata["uid"]
        with self._lock:
            self._last = at
            before = self._states.get(uid, ())
            self._states[uid] = counted
            for queue in queues if counted != before else ():
                counts = self._counts.setdefault(queue, Counter())
                counts.subtract(before)
                counts.update(counted)
                self._note(queue, at, counts, is_status=False)
            self._created.setdefault(uid, at)
            if is_true(document, "Finished"):
                self._finished.add(uid)
            reserved = condition(document, "QuotaReserved")
            if uid not in self._told and reserved:
                waits = reserved["status"] != "True"
                self._told[uid] = at - self._created[uid] if waits else None

    def queue(self, kind: str, document: Mapping[str, Any], at: float) -> None:
        """A queue's status, as it was written."""
        metadata, status = document["metadata"], document.get("status") or {}
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        with self._lock:
            self._note((kind, name), at, status, is_status=True)

    def _note(
        self, queue: Queue, at: float, numbers: Mapping[str, int], *, is_status: bool
    ) -> None:
        each = Told(at, is_status, tuple(numbers.get(name, 0) for name in FIELDS))
        self._queues.setdefault(queue, []).append(each)

    def figures(self) -> dict[str, float]:
        """The :data:`KEYS`."""
        with self._lock:
            told = [seconds for seconds in self._told.values() if seconds is not None]
            found: dict[str, float] = {}
            for kind, words in _WORDS.items():
                ages = list(self._ages(kind))
                for of in PERCENTILES:
                    found[f"age of {words}, p{of} s"] = round(percentile(ages, of), 2)
            for of in PERCENTILES if told else ():
                found[f"told why after, p{of} s"] = round(percentile(told, of), 2)
            return found | {"told why": len(told)}

    def _ages(self, kind: str) -> Iterator[float]:
        begun = min(self._created.values())
        moments = [begun + step * STEP_S for step in range(int((self._last - begun) / STEP_S))]
        for queue in sorted(name for name in self._queues if name[0] == kind):
            yield from ages_of(self._queues[queue], moments)


def counted_as(workload: Mapping[str, Any]) -> tuple[str, ...]:
    """The numbers of its queue's status in which a Workload is one."""
    if is_true(workload, "Finished"):
        return ()
    if not is_true(workload, "QuotaReserved"):
        return FIELDS[:1] if workload["spec"].get("active", True) else ()
    return FIELDS[1:] if is_true(workload, "Admitted") else FIELDS[1:2]


def measure_one(contender: Contender, folder: Path, *, scale: float = 1.0) -> dict[str, Any]:
    """What :func:`bench_admission.measure_one` measures of a fifth of the load, and the ages.

    Raises:
        StartError: A program did not start, or the run did not end in time.
    """
    folder.mkdir(parents=True)
    run = bench_admission.prepare(folder, "baseline", SHARE * scale)
    observe = partial(observing, workloads=run.workloads)
    measured = bench_admission.measure_one(contender, run, folder, observe=observe)
    return {**measured, "workloads": run.workloads}


@contextmanager
def observing(cluster: ControlPlane, *, workloads: int) -> Iterator[dict[str, Any]]:
    """Observe a cluster until so many workloads have finished; then the figures are there.

    An API server may end a watch, and does so soon after its kinds were made: it is begun again.

    Raises:
        AssertionError: Not all of them were seen to finish, so that the figures would be of a part.
    """
    ages, found = Ages(), dict[str, Any]()

    def take(seen: Seen) -> None:
        at, is_gone = time.monotonic(), seen.change is Change.DELETED
        if seen.change is Change.SYNCED:
            return
        if seen.resource == r.WORKLOAD:
            ages.workload(seen.document, at, is_gone=is_gone)
        elif not is_gone:
            ages.queue(seen.resource.kind, seen.document, at)

    with KubeClient.from_kubeconfig(cluster.admin_kubeconfig.read_text()) as client:
        watches = Watches(client, cluster="observed", pulse=None, sink=take)
        for kind in (r.WORKLOAD, r.CLUSTER_QUEUE, r.LOCAL_QUEUE):
            watches.add(kind)
        try:
            yield found
            eventually(
                lambda: ages.finished >= workloads,
                seconds=LATE_S,
                why=lambda: f"only {ages.finished} of {workloads} were seen to finish",
            )
        finally:
            watches.close()
    found.update(ages.figures())
