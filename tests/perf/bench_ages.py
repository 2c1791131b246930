"""How old is what queues say of themselves, while Kueue's runner fills and empties them.

The load is a fifth of ``baseline``. An observer follows Workloads, ClusterQueues and LocalQueues,
as any client does. Ten times a second it asks of each queue how far off each number of its status
is: the time since it was last true, or until it is, for who decides knows what it has decided
before its writes are seen. The worst of the three numbers counts. And of each Workload that was
told why it waits: how long after it was created.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clusters.documents.conditions import condition, is_true
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WatchOptions
from clusters.kube.stream import WatchEvent, WatchType
from tests.controlplane.control_plane import ControlPlane
from tests.perf import bench_admission
from tests.perf.bench import percentile
from tests.perf.contenders import Contender

SHARE: Final = 0.2
STEP_S: Final = 0.1
AHEAD_S: Final = 2.0
"""Nobody's word is further ahead of what others see."""
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


@dataclass(slots=True)
class History:
    """What a number was, from when on; 0 before anything is known."""

    times: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def note(self, at: float, value: int) -> None:
        """It is this from now on."""
        if value != (self.values[-1] if self.values else 0):
            self.times.append(at)
            self.values.append(value)

    def at(self, time: float) -> int:
        """What it was."""
        place = bisect_right(self.times, time)
        return self.values[place - 1] if place else 0


def age(shown: History, true: History, at: float, *, since: float) -> float:
    """Seconds between a moment and the nearest one at which what is shown was true.

    Args:
        shown: What the status said.
        true: What was so.
        at: The moment of the question.
        since: When the truth began to be known: nothing is older.
    """
    value, now = shown.at(at), bisect_right(true.times, at)
    if value == true.at(at):
        return 0.0
    past = at - since
    for place in range(now - 1, -1, -1):
        if (true.values[place - 1] if place else 0) == value:
            past = at - true.times[place]
            break
    for place in range(now, len(true.times)):
        if true.times[place] - at >= min(past, AHEAD_S):
            break
        if true.values[place] == value:
            return true.times[place] - at
    return past


class Ages:
    """What was true and what was shown, of all queues; filled by the threads of an observer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[str, ...]] = {}
        self._counts: dict[tuple[Queue, str], int] = {}
        self._true: dict[tuple[Queue, str], History] = {}
        self._shown: dict[tuple[Queue, str], History] = {}
        self._created: dict[str, float] = {}
        self._told: dict[str, float | None] = {}
        self._last = 0.0

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
            for queue in queues:
                for number in {*before, *counted}:
                    key = queue, number
                    change = (number in counted) - (number in before)
                    self._counts[key] = self._counts.get(key, 0) + change
                    self._true.setdefault(key, History()).note(at, self._counts[key])
            self._created.setdefault(uid, at)
            reserved = condition(document, "QuotaReserved")
            if uid not in self._told and reserved:
                waits = reserved["status"] != "True"
                self._told[uid] = at - self._created[uid] if waits else None

    def queue(self, kind: str, document: Mapping[str, Any], at: float) -> None:
        """A queue's status, as it was written."""
        metadata, status = document["metadata"], document.get("status") or {}
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        with self._lock:
            for number in FIELDS:
                shown = self._shown.setdefault(((kind, name), number), History())
                shown.note(at, status.get(number, 0))

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
        queues = sorted({queue for queue, _ in self._true if queue[0] == kind})
        begun = min(self._created.values())
        nothing = History()
        for step in range(int((self._last - begun) / STEP_S)):
            at = begun + step * STEP_S
            for queue in queues:
                yield max(
                    age(
                        self._shown.get((queue, number), nothing),
                        self._true.get((queue, number), nothing),
                        at,
                        since=begun,
                    )
                    for number in FIELDS
                )


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
    measured = bench_admission.measure_one(contender, run, folder, observe=observing)
    return {**measured, "workloads": run.workloads}


@contextmanager
def observing(cluster: ControlPlane) -> Iterator[dict[str, Any]]:
    """Observe a cluster; the figures are in what was given when it is over."""
    ages, found = Ages(), dict[str, Any]()

    def take_workload(event: WatchEvent, at: float) -> None:
        ages.workload(event.document, at, is_gone=event.type == WatchType.DELETED)

    def take_queue(event: WatchEvent, at: float) -> None:
        if event.type in (WatchType.ADDED, WatchType.MODIFIED):
            ages.queue(event.document["kind"], event.document, at)

    with KubeClient.from_kubeconfig(cluster.admin_kubeconfig.read_text()) as client:
        for kind, take in (
            (r.WORKLOAD, take_workload),
            (r.CLUSTER_QUEUE, take_queue),
            (r.LOCAL_QUEUE, take_queue),
        ):
            options = WatchOptions(
                client.list(kind).resource_version, timeout_s=1800, idle_timeout_s=1800
            )
            threading.Thread(
                target=_follow, args=(client, kind, options, take), daemon=True
            ).start()
        yield found
    found.update(ages.figures())


def _follow(
    client: KubeClient,
    kind: r.Resource,
    options: WatchOptions,
    take: Callable[[WatchEvent, float], None],
) -> None:
    # The client is closed under it in the end.
    with suppress(ClusterError), client.watch(kind, options=options) as stream:
        for event in stream:
            if event.type != WatchType.BOOKMARK:
                take(event, time.monotonic())
