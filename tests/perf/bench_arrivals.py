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
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from clusters.documents.conditions import is_true
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.watch import ReflectorSettings
from clusters.reconcile.runtime.watches import Change, Seen, Watches
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
WATCH_S: Final = 1200.0
"""A watch lasts longer than a run, so that none begins while somebody waits."""
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
    observer = _Observer()
    with (
        closing(Watches(client, cluster="observed", pulse=None, sink=observer.take)) as watches,
        ThreadPoolExecutor(SENDERS) as pool,
    ):
        watches.add(r.WORKLOAD, settings=ReflectorSettings(watch_without_pulse_s=WATCH_S))
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


class _Observer:
    """Notes when the event of each admission came."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._admitted: dict[str, float] = {}
        self._seen: set[str] = set()
        self._last = time.monotonic()

    def take(self, seen: Seen) -> None:
        """What the watch told."""
        if seen.change is not Change.UPSERT:
            return
        now, name = time.monotonic(), seen.document["metadata"]["name"]
        with self._told:
            self._last = now
            self._seen.add(name)
            if name not in self._admitted and is_true(seen.document, "Admitted"):
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
        quiet = time.monotonic() - self._last
        raise StartError(
            f"it is not quiet after {SETTLES_S:g} s: {len(self._seen)} of {count} were seen, and "
            f"the last event came {quiet:.1f} s ago"
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
