"""The pods of a story's Jobs: nobody runs them, so a story says when they are ready or done.

On a real API server the Job controller makes pods and counts them; here their status is written as
a kubelet would. On an embedded cluster, which has no pods, the Job's own counts are written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from clusters.devcluster.controllers import next_status
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection, WriteOptions
from tests.waiting import PATIENCE_S

Document = dict[str, Any]
STATUS = WriteOptions(subresource="status")
_WITHIN_S = PATIENCE_S
_STEP_S = 0.02
# How long pods that ended are named before they are counted.
_COUNTS_AFTER_S = 0.5


class Pods(Protocol):
    """Makes pods of a Job ready, done or failed; counts are of pods not touched so far."""

    def ready(self, client: KubeClient, namespace: str, job: str, count: int) -> None: ...

    def not_ready(self, client: KubeClient, namespace: str, job: str, count: int) -> None: ...

    def ended(
        self, client: KubeClient, namespace: str, job: str, count: int, *, well: bool
    ) -> None: ...


class RealPods:
    """Pods as objects; the Job controller watches them."""

    def ready(self, client: KubeClient, namespace: str, job: str, count: int) -> None:
        for pod in self._wanted(client, namespace, job, count, lambda pod: not _is_ready(pod)):
            _write(client, pod, _running(is_ready=True))

    def not_ready(self, client: KubeClient, namespace: str, job: str, count: int) -> None:
        for pod in self._wanted(client, namespace, job, count, _is_ready):
            _write(client, pod, _running(is_ready=False))

    def ended(
        self, client: KubeClient, namespace: str, job: str, count: int, *, well: bool
    ) -> None:
        for pod in self._wanted(client, namespace, job, count, lambda pod: True):
            _write(client, pod, _over(well=well))

    def _wanted(
        self,
        client: KubeClient,
        namespace: str,
        job: str,
        count: int,
        is_wanted: Callable[[Document], bool],
    ) -> list[Document]:
        """Waits until that many pods are there."""
        ends = time.monotonic() + _WITHIN_S
        selection = Selection(namespace=namespace, labels=f"job-name={job}")
        while True:
            found = [
                pod
                for pod in client.list(r.POD, selection).items
                if pod["status"].get("phase") not in ("Succeeded", "Failed")
                and "deletionTimestamp" not in pod["metadata"]
                and is_wanted(pod)
            ]
            if len(found) >= count:
                return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))[:count]
            assert time.monotonic() < ends, f"{job} has {len(found)} such pods, {count} wanted"
            time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class CountedPods:
    """Counts in the Job's status, where there are no pods; ``sleep`` lets time pass there."""

    sleep: Callable[[float], None] = time.sleep

    def ready(self, client: KubeClient, namespace: str, job: str, count: int) -> None:
        _count(client, self._started(client, namespace, job), ready=count)

    def not_ready(self, client: KubeClient, namespace: str, job: str, count: int) -> None:
        _count(client, self._started(client, namespace, job), ready=-count)

    def ended(
        self, client: KubeClient, namespace: str, job: str, count: int, *, well: bool
    ) -> None:
        """As the Job controller does it: pods that ended are named first and counted later."""
        word = "succeeded" if well else "failed"
        live = self._started(client, namespace, job)
        names = [f"{job}-{number}" for number in range(count)]
        ready = max(0, int(live["status"].get("ready") or 0) - count)
        _patch_status(client, live, {"uncountedTerminatedPods": {word: names}, "ready": ready})
        self.sleep(_COUNTS_AFTER_S)
        _count(client, self._started(client, namespace, job), active=-count, **{word: count})

    def _started(self, client: KubeClient, namespace: str, job: str) -> Document:
        for _ in range(int(_WITHIN_S / _STEP_S)):
            with suppress(NotFound):
                live = client.get(r.JOB, job, namespace=namespace)
                if (live.get("status") or {}).get("startTime"):
                    return live
            self.sleep(_STEP_S)
        raise AssertionError(f"{job} was not started")


def _count(client: KubeClient, job: Document, **changes: int) -> None:
    before = job["status"]
    counts = {key: max(0, int(before.get(key) or 0) + more) for key, more in changes.items()}
    end = _conclusion(job | {"status": before | counts})
    _patch_status(client, job, {"uncountedTerminatedPods": None} | counts | end)


def _patch_status(client: KubeClient, job: Document, status: Document) -> None:
    metadata = job["metadata"]
    client.patch(
        r.JOB, metadata["name"], {"status": status}, namespace=metadata["namespace"], options=STATUS
    )


def counted_status(job: Document, now: datetime) -> Document:
    """What the embedded Job controller writes for a story: started and stopped, never ended."""
    began = (job.get("status") or {}).get("startTime")
    found = next_status(job, datetime.fromisoformat(began) if began else now)
    if "startTime" in found and not began:
        found["ready"] = 0
    return found


def _conclusion(job: Document) -> Document:
    """The end of a Job whose last pod ended; empty while some are left."""
    status = job.get("status") or {}
    wanted = int(job["spec"].get("completions") or job["spec"].get("parallelism") or 1)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    more: Document = {}
    if int(status.get("succeeded") or 0) >= wanted:
        reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
        kinds, more = ("SuccessCriteriaMet", "Complete"), {"completionTime": at}
    elif int(status.get("failed") or 0) > int(job["spec"].get("backoffLimit", 6)):
        reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        kinds = "FailureTarget", "Failed"
    else:
        return {}
    told = {"status": "True", "reason": reason, "message": message}
    told |= {"lastProbeTime": at, "lastTransitionTime": at}
    conditions = [*(status.get("conditions") or []), *({"type": kind} | told for kind in kinds)]
    return {"active": 0, "ready": 0, "conditions": conditions} | more


def _is_ready(pod: Document) -> bool:
    entries = pod["status"].get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in entries)


def _running(*, is_ready: bool) -> Document:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": at}
    return {"phase": "Running", "startTime": at, "conditions": [ready]}


def _over(*, well: bool) -> Document:
    return {"phase": "Succeeded" if well else "Failed", "conditions": []}


def _write(client: KubeClient, pod: Document, status: Document) -> None:
    metadata = pod["metadata"]
    client.patch(
        r.POD, metadata["name"], {"status": status}, namespace=metadata["namespace"], options=STATUS
    )
