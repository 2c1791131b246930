"""How long a Workload waits for its admission while quota is free and 10,000 others wait.

One queue has no room, and 10,000 Workloads wait in it, each told why. Then Workloads arrive in
another queue, in which there is room for all, at 10, 50 and 100 a second, 20 s each. The clock is
that of who sends: from the request that creates the Workload to the event of its admission.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from clusters.documents.conditions import is_true
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WatchOptions
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import Program, StartError
from tests.perf.bench import percentile
from tests.perf.bench_admission import HEAD_START_S, cpu_of, memory_and_cpu, requests_of, since
from tests.perf.contenders import Contender

PENDING: Final = 10_000
RATES: Final = (10, 50, 100)
LASTS_S: Final = 20
SENDERS: Final = 16
PERCENTILES: Final = (50, 95, 99)
KEYS: Final = {
    f"p{percent} ms at {rate} a second": (rate, percent)
    for rate in RATES
    for percent in PERCENTILES
}
"""Figures of a run, and of which rate and percentile each is."""
SETTLES_S: Final = 300.0
SILENCE_S: Final = 3.0
"""Without an event, whoever decides has said what it has to say."""
_FULL, _FREE = "full", "free"


def measure_one(contender: Contender, folder: Path, *, scale: float = 1.0) -> dict[str, Any]:
    """Percentiles of the wait by rate, in milliseconds, and what the processes used.

    Args:
        contender: Who decides.
        folder: For logs and certificates.
        scale: Share of those that wait.

    Raises:
        StartError: A program did not start, or an admission did not come in time.
    """
    folder.mkdir(parents=True)
    cluster = ControlPlane(contender.name, folder)
    load = os.getloadavg()[0]
    decider: Program | None = None
    try:
        cluster.start(controller_manager=False)
        decider = contender.start(cluster, "arrivals", folder / "decider.log")
        time.sleep(HEAD_START_S)
        served = {name: each for name, each in cluster.programs().items() if each is not decider}
        idle, begun = cpu_of(served), time.monotonic()
        with KubeClient.from_kubeconfig(cluster.admin_kubeconfig.read_text()) as client:
            waits = _waits(client, round(PENDING * scale))
        return {
            "wall_s": round(time.monotonic() - begun, 1),
            **memory_and_cpu(decider),
            "cpu_s_of_others": since(idle, cpu_of(served)),
            "requests": requests_of(cluster),
            "load_average_before": round(load, 2),
            "workloads": sum(RATES) * LASTS_S,
            **{
                key: round(1000 * percentile(waits[rate], percent), 1)
                for key, (rate, percent) in KEYS.items()
            },
        }
    finally:
        if decider is not None:
            decider.kill()
        cluster.stop()


def _waits(client: KubeClient, pending: int) -> Mapping[int, list[float]]:
    """Rate → seconds that each Workload waited."""
    _queues(client)
    observer = _Observer(client)
    observer.start()
    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(lambda n: _create(client, _FULL, f"waits-{n}"), range(pending)))
        observer.wait_for_silence(pending)
        found = {}
        for rate in RATES:
            names = [f"comes-{rate}-{n}" for n in range(rate * LASTS_S)]
            begun = time.monotonic()

            def send(place: tuple[int, str], begun: float = begun, rate: int = rate) -> float:
                at, name = place
                time.sleep(max(0.0, begun + at / rate - time.monotonic()))
                sent = time.monotonic()
                _create(client, _FREE, name)
                return sent

            sent = list(pool.map(send, enumerate(names)))
            admitted = observer.wait_for(names)
            found[rate] = [admitted[name] - at for name, at in zip(names, sent, strict=True)]
    return found


class _Observer(threading.Thread):
    """Notes when the event of each admission came."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._version = client.list(r.WORKLOAD).resource_version
        self._told = threading.Condition()
        self._admitted: dict[str, float] = {}
        self._seen: set[str] = set()
        self._last = time.monotonic()

    def run(self) -> None:
        # The client is closed under it in the end; whoever waits in between has a limit.
        with suppress(ClusterError):
            while True:
                self._watch()

    def _watch(self) -> None:
        """Until the API server ends the watch, as it does with one that reads too slowly."""
        options = WatchOptions(self._version, timeout_s=1200, idle_timeout_s=1200)
        with self._client.watch(r.WORKLOAD, options=options) as stream:
            for event in stream:
                self._version = event.resource_version
                now = time.monotonic()
                name = event.document["metadata"].get("name", "")
                with self._told:
                    self._last = now
                    self._seen.add(name)
                    if name not in self._admitted and is_true(event.document, "Admitted"):
                        self._admitted[name] = now
                        self._told.notify_all()

    def wait_for_silence(self, count: int) -> None:
        """Until so many were seen, and nothing was for a while."""
        deadline = time.monotonic() + SETTLES_S
        while time.monotonic() < deadline:
            with self._told:
                if len(self._seen) >= count and time.monotonic() - self._last > SILENCE_S:
                    return
            time.sleep(0.1)
        quiet, watch = time.monotonic() - self._last, "alive" if self.is_alive() else "over"
        raise StartError(
            f"it is not quiet after {SETTLES_S:g} s: {len(self._seen)} of {count} were seen, the "
            f"last event came {quiet:.1f} s ago, and the watch is {watch}"
        )

    def wait_for(self, names: list[str]) -> Mapping[str, float]:
        """When each of these was admitted, on the monotonic clock."""
        with self._told:
            if not self._told.wait_for(
                lambda: all(name in self._admitted for name in names), SETTLES_S
            ):
                missing = [name for name in names if name not in self._admitted]
                raise StartError(f"{len(missing)} were not admitted, {missing[0]} among them")
            return {name: self._admitted[name] for name in names}


def _queues(client: KubeClient) -> None:
    client.create(r.RESOURCE_FLAVOR, {"metadata": {"name": "rf"}, "spec": {}})
    for name, quota in ((_FULL, "0"), (_FREE, "1000000")):
        flavor = {"name": "rf", "resources": [{"name": "cpu", "nominalQuota": quota}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        client.create(r.CLUSTER_QUEUE, {"metadata": {"name": name}, "spec": spec})
        client.create(r.NAMESPACE, {"metadata": {"name": name}})
        queue = {"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}}
        client.create(r.LOCAL_QUEUE, queue)


def _create(client: KubeClient, queue: str, name: str) -> None:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "queueName": queue,
        "active": True,
        "podSets": [{"name": "main", "count": 1, "template": pod}],
    }
    client.create(r.WORKLOAD, {"metadata": {"name": name, "namespace": queue}, "spec": spec})
