"""``python -m tests.perf.free_decider``: admits each Workload at once; the price of the load alone.

It watches Workloads, as every decider does, and writes each one's admission with one patch, as the
portal's shift does. It knows no quota, no order, no statuses of queues, so nothing that decides can
be quicker with the same client. The queue of a Workload of Kueue's benchmark has the name of its
ClusterQueue.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from clusters.documents.conditions import is_true
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WatchOptions, WriteOptions
from clusters.kube.stream import WatchType

WRITERS: Final = 16
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
    seen: set[str] = set()

    def take(document: Mapping[str, Any]) -> None:
        uid = document["metadata"]["uid"]
        if uid in seen or is_true(document, "QuotaReserved"):
            return
        seen.add(uid)
        if not flavors:
            (flavor,) = client.list(r.RESOURCE_FLAVOR).items
            flavors.append(flavor["metadata"]["name"])
        pool.submit(admit, client, document, flavors[0])

    listed = client.list(r.WORKLOAD)
    with ThreadPoolExecutor(WRITERS) as pool:
        for document in listed.items:
            take(document)
        version = listed.resource_version
        while True:
            with client.watch(r.WORKLOAD, options=WatchOptions(version)) as stream:
                for event in stream:
                    version = event.resource_version
                    if event.type == WatchType.ADDED:
                        take(event.document)


def admit(client: KubeClient, document: Mapping[str, Any], flavor: str) -> None:
    """Write the admission of one Workload, as a decider writes it."""
    metadata, spec = document["metadata"], document["spec"]
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    told = {"status": "True", "lastTransitionTime": now, "observedGeneration": 1}
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
