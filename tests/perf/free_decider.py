"""``python -m tests.perf.free_decider``: admits each Workload at once; the price of the load alone.

It watches Workloads, as every decider does, and writes each one's admission with one patch, as the
portal's shift does. It knows no quota and no order, and of a ClusterQueue it tells only whether
something runs, twice a second at most, because the runner waits for that: so nothing that decides
can be quicker with the same client. The queue of a Workload of Kueue's benchmark has the name of
its ClusterQueue.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from clusters.documents.conditions import is_true
from clusters.documents.times import stamp
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WatchOptions, WriteOptions
from clusters.kube.stream import WatchType

WRITERS: Final = 16
TOLD_EVERY_S: Final = 0.5
_STATUS: Final = WriteOptions(subresource="status")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.free_decider", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    given = parser.parse_args()
    with KubeClient.from_kubeconfig(given.kubeconfig.read_text()) as client:
        admit_all(client)
    return 0


def admit_all(client: KubeClient) -> None:
    """Admit what is there and what comes, until the API server goes away."""
    flavors: list[str] = []
    queues = Queues(client)

    def take(document: Mapping[str, Any]) -> None:
        if not queues.is_new(document):
            return
        if not flavors:
            (flavor,) = client.list(r.RESOURCE_FLAVOR).items
            flavors.append(flavor["metadata"]["name"])
        pool.submit(admit, client, document, flavors[0])

    listed = client.list(r.WORKLOAD)
    threading.Thread(target=queues.tell_for_ever, daemon=True).start()
    with ThreadPoolExecutor(WRITERS) as pool:
        for document in listed.items:
            take(document)
        version = listed.resource_version
        while True:
            with client.watch(r.WORKLOAD, options=WatchOptions(version)) as stream:
                for event in stream:
                    version = event.resource_version
                    if event.type in {WatchType.ADDED, WatchType.MODIFIED}:
                        take(event.document)


class Queues:
    """Which ClusterQueues have something that is not finished."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._unfinished: dict[str, str] = {}
        self._finished: set[str] = set()
        self._running: Counter[str] = Counter()
        self._told: dict[str, bool] = {}

    def is_new(self, document: Mapping[str, Any]) -> bool:
        """Whether a Workload, as it is told now, was never told before."""
        uid, queue = document["metadata"]["uid"], document["spec"]["queueName"]
        if uid in self._finished:
            return False
        is_new = uid not in self._unfinished
        if is_new:
            self._unfinished[uid] = queue
            self._running[queue] += 1
        if is_true(document, "Finished"):
            del self._unfinished[uid]
            self._finished.add(uid)
            self._running[queue] -= 1
            return False
        return is_new

    def tell_for_ever(self) -> None:
        """Write the statuses that changed, again and again."""
        pause = threading.Event()
        while not pause.wait(TOLD_EVERY_S):
            for queue, count in list(self._running.items()):
                if self._told.get(queue) != bool(count):
                    self._tell(queue, is_running=bool(count))

    def _tell(self, queue: str, *, is_running: bool) -> None:
        active = {"type": "Active", "status": "True", "reason": "Ready", "message": "Ready"}
        status = {
            "conditions": [{**active, "lastTransitionTime": stamp(datetime.now(UTC))}],
            "reservingWorkloads": int(is_running),
            "pendingWorkloads": 0,
        }
        try:
            self._client.patch(r.CLUSTER_QUEUE, queue, {"status": status}, options=_STATUS)
            self._told[queue] = is_running
        except ClusterError as error:
            print(f"ClusterQueue {queue}: {error}", file=sys.stderr)


def admit(client: KubeClient, document: Mapping[str, Any], flavor: str) -> None:
    """Write the admission of one Workload, as a decider writes it."""
    metadata, spec = document["metadata"], document["spec"]
    at = stamp(datetime.now(UTC))
    told = {"status": "True", "lastTransitionTime": at, "observedGeneration": 1}
    status = {
        "admission": {
            "clusterQueue": spec["queueName"],
            "podSetAssignments": [
                {
                    "name": each["name"],
                    "count": each["count"],
                    "flavors": {"cpu": flavor},
                    "resourceUsage": {"cpu": "1"},
                }
                for each in spec["podSets"]
            ],
        },
        "conditions": [
            {"type": kind, "reason": kind, "message": "Admitted by nobody", **told}
            for kind in ("QuotaReserved", "Admitted")
        ],
    }
    try:
        client.patch(
            r.WORKLOAD,
            metadata["name"],
            {"status": status},
            namespace=metadata["namespace"],
            options=_STATUS,
        )
    except ClusterError as error:
        print(f"{metadata['namespace']}/{metadata['name']}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
