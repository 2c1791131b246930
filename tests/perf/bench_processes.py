"""A process for each cluster: what that takes, and what clusters that mean harm do to the others.

Embedded API servers in processes of their own, the shifts as the worker that Celery starts has them
worked. First all are good, and memory and times are taken; then some more come that are hostile,
and the times of the good ones are taken again.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path

from django.db import connection

from budgets.models import Workspace
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.models import Cluster, ShiftRun
from clusters.reconcile import claims
from clusters.reconcile.processes import Order, Processes
from tests.perf import fleet_rows
from tests.perf.bench import Figure, percentile
from tests.perf.bench_reaction import HAND
from tests.perf.bench_sync import nominal, wait
from tests.perf.served import GOOD
from tests.reconcile.admission_harness import job
from tests.reconcile.fleet_rows import register

MIB = 1024**2
MEMORY = 400 * MIB
CLUSTERS, HOSTILE, ROUNDS = 20, 3, 6
SLACK_S, SLACK = 0.25, 1.2
SIZES = (1, 5, 10)


@dataclass
class Told:
    """What a run has shown; times in seconds, memory in MiB by number of clusters."""

    memory: dict[int, float] = field(default_factory=dict)
    before: dict[str, list[float]] = field(default_factory=dict)
    beside: dict[str, list[float]] = field(default_factory=dict)
    outcomes: dict[str, set[str]] = field(default_factory=dict)
    pids: tuple[dict[str, int], dict[str, int]] = ({}, {})


def measure() -> list[Figure]:
    told = run(good=CLUSTERS - HOSTILE, hostile=HOSTILE, rounds=ROUNDS, sizes=SIZES)
    figures = []
    for what in ("admission", "sync"):
        had, has = told.before[what], told.beside[what]
        limit = max(SLACK * percentile(had, 95), percentile(had, 95) + SLACK_S)
        notes = {"p95_before": round(percentile(had, 95), 3), "hostile": HOSTILE}
        figures.append(Figure(f"{what}_of_the_others", has, limit=limit, notes=notes))
    died = sum("memory" in each for found in told.outcomes.values() for each in found)
    notes = {"clusters": {str(n): round(mib) for n, mib in told.memory.items()}, "died": died}
    largest = told.memory[max(told.memory)]
    figures.append(Figure("memory_of_all_processes", [largest], unit="MiB", notes=notes))
    return figures


def main() -> None:
    """A small run, on a database without rows; prints what it showed as JSON."""
    told = run(good=4, hostile=1, rounds=2)
    before, after = told.pids
    said = {
        "died": sorted(x for found in told.outcomes.values() for x in found),
        "same_processes": before == after,
        "n": {what: len(values) for what, values in told.beside.items()},
    }
    print(json.dumps(said))


def run(*, good: int, hostile: int, rounds: int, sizes: Sequence[int] = ()) -> Told:
    """Memory by number of clusters, then times without and beside hostile ones."""
    told = Told()
    fleet_rows.people()
    names = [f"good-{n:02}" for n in range(good)]
    places = list(zip(names, cycle(("h100", "a100")), strict=False))
    with served(GOOD, names) as kubeconfigs, Worker() as worker:
        clients = {name: KubeClient.from_kubeconfig(kubeconfigs[name]) for name in names}
        made = fleet_rows.promises(accounts=1, workspaces=good, places=places)
        spaces = dict(zip(names, made, strict=True))
        for count, name in enumerate(names, 1):
            register(name, kubeconfigs[name], mode=Cluster.Mode.PORTAL)
            if count in sizes or count == good:
                wait(worker.is_settled, 300)
                wait(partial(_are_there, clients, spaces, names[:count]), 300)
                time.sleep(5)
                told.memory[count] = worker.memory_mib()
        told.before = times(clients, spaces, rounds)
        before = worker.processes.pids()
        evil = [f"evil-{n}" for n in range(hostile)]
        with served("hostile", evil) as theirs:
            for name in evil:
                register(name, theirs[name], mode=Cluster.Mode.PORTAL)
            with watching(evil, told.outcomes):
                wait(lambda: any("memory" in x for e in told.outcomes.values() for x in e), 120)
                told.beside = times(clients, spaces, rounds)
            after = worker.processes.pids()
            told.pids = before, {name: pid for name, pid in after.items() if name in before}
            Cluster.objects.filter(slug__in=evil).update(state=Cluster.State.REMOVED)
            worker.stop()
        for client in clients.values():
            client.close()
    return told


class Worker:
    """What Celery's worker and beat do for shifts: each that nobody works is worked by a slot.

    Args:
        shard: Slugs of the clusters that it works; None for all.
        memory: Bytes that each process may take.
    """

    def __init__(self, shard: Collection[str] | None = None, *, memory: int = MEMORY) -> None:
        self._shard = shard
        self.processes = Processes(memory=memory)
        self._slots = ThreadPoolExecutor(400)
        self._busy: set[tuple[int, str]] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._offer)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self.processes.stop()
        self._thread.join()
        self._slots.shutdown()
        wait(lambda: not self.processes.pids(), 60)

    def is_settled(self) -> bool:
        """Whether every shift is worked."""
        return not claims.unfilled(self._wanted())

    def memory_mib(self) -> float:
        """Of the children together, what they share divided among those who share it (PSS)."""
        return sum(map(_pss_mib, self.processes.pids().values()))

    def _wanted(self) -> dict[tuple[int, str], str]:
        """Slugs of the clusters by cluster and role."""
        return {
            (cluster.pk, role): cluster.slug
            for cluster, role in claims.wanted_shifts()
            if self._shard is None or cluster.slug in self._shard
        }

    def _offer(self) -> None:
        while not self._over.wait(2.0):
            slugs = self._wanted()
            for pair in claims.unfilled(slugs):
                if pair not in self._busy:
                    self._busy.add(pair)
                    self._slots.submit(self._work, pair, slugs[pair])
        connection.close()

    def _work(self, pair: tuple[int, str], slug: str) -> None:
        try:
            holder = f"bench-{slug}-{pair[1]}-{time.monotonic_ns()}"
            self.processes.work(Order(slug, pair[1], 3600, holder))
        finally:
            self._busy.discard(pair)
            connection.close()


def _pss_mib(pid: int) -> float:
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1024


@contextmanager
def served(kind: str, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Kubeconfigs of embedded clusters of a kind, in a process of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="portal-bench-") as folder,
        served_in(Path(folder), kind, names) as found,
    ):
        yield found


@contextmanager
def served_in(folder: Path, kind: str, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """The same, with their files in a folder that is there."""
    command = [sys.executable, "-m", "tests.perf.served", folder, kind, *names]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        wait(Path(folder, f"ready.{kind}").exists, 60)
        yield {name: Path(folder, f"{name}.kubeconfig").read_text() for name in names}
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def watching(slugs: list[str], outcomes: dict[str, set[str]]) -> Iterator[None]:
    """Notes how shifts of these clusters ended, as their pages would say."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            rows = ShiftRun.objects.filter(cluster__slug__in=slugs, ended_at__isnull=False)
            for slug, outcome in rows.values_list("cluster__slug", "outcome"):
                outcomes.setdefault(slug, set()).add(outcome)
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _are_there(
    clients: dict[str, KubeClient], spaces: dict[str, Workspace], names: list[str]
) -> bool:
    found = (_nominal(clients[name], spaces[name].namespace) for name in names)
    return all(floor is not None for floor in found)


def _nominal(client: KubeClient, namespace: str) -> int | None:
    try:
        client.get(r.LOCAL_QUEUE, "default", namespace=namespace)
        return nominal(client, namespace)
    except (ClusterError, LookupError):
        return None


def times(
    clients: dict[str, KubeClient], spaces: dict[str, Workspace], rounds: int
) -> dict[str, list[float]]:
    """Seconds from a job to its start, and from an edit to its end, one after the other."""
    found: dict[str, list[float]] = {"admission": [], "sync": []}
    for _ in range(rounds):
        for name, client in clients.items():
            found["admission"].append(admitted(client, spaces[name]))
            found["sync"].append(restored(client, spaces[name]))
    for what, values in found.items():
        print(
            f"{what}: p50 {statistics.median(values):.3f} s, p95 {percentile(values, 95):.3f} s",
            file=sys.stderr,
        )
    return found


def admitted(client: KubeClient, workspace: Workspace) -> float:
    namespace, name = workspace.namespace, f"train-{time.monotonic_ns()}"
    begun = time.perf_counter()
    client.create(r.JOB, job(name, namespace=namespace))
    wait(lambda: not client.get(r.JOB, name, namespace=namespace)["spec"]["suspend"], 120)
    return time.perf_counter() - begun


def restored(client: KubeClient, workspace: Workspace) -> float:
    """From somebody's edit of a queue until the quota sync has put it back."""
    edited = {
        "apiVersion": r.CLUSTER_QUEUE.api_version,
        "kind": r.CLUSTER_QUEUE.kind,
        "metadata": {"name": workspace.namespace},
        "spec": {"stopPolicy": "Hold"},
    }
    begun = time.perf_counter()
    client.apply(r.CLUSTER_QUEUE, edited, options=WriteOptions(field_manager=HAND, force=True))
    wait(lambda: not _is_held(client, workspace.namespace), 120)
    return time.perf_counter() - begun


def _is_held(client: KubeClient, namespace: str) -> bool:
    return client.get(r.CLUSTER_QUEUE, namespace)["spec"].get("stopPolicy") == "Hold"
