"""Dispatch on real API servers, by MultiKueue and by the portal, in turn on the same machine.

A manager and two workers for each: pods run under kwok, jobs are submitted to the manager at a
steady rate or all at once, and an onlooker's watches say when a job's pod runs on a worker and when
the manager's Job is complete. Afterwards the portal's dispatcher alone, with a fleet of remote
workloads at rest (``bench_dispatch_rest``).

A scale below 1 makes fewer jobs at the same rates, and fewer workloads at rest.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.manifests.names import MULTIKUEUE_ACCOUNT, PORTAL_ACCOUNT
from tests.controlplane import build, queues
from tests.controlplane.fleet import Fleet, start_fleet
from tests.controlplane.kwok_nodes import NodeShape
from tests.controlplane.processes import Program, StartError
from tests.faults.ground import grant, identity
from tests.faults.observer import JOBS, Observer, Told
from tests.perf import bench_dispatch_rest
from tests.perf.bench import Figure, percentile
from tests.perf.bench_admission import cpu_of, rendered
from tests.reconcile.admission_harness import MULTIKUEUE, is_true, multikueue_objects
from tests.resources import resource_of
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/pods"
QUEUE = "bench"
WORKERS = ("worker-1", "worker-2")
NODES, GPUS_PER_NODE = 16, 8
RUN_FOR = "1s"
SUBMITTERS = 8
AIM = 1.0
# MultiKueue asks a worker for 5 objects of a kind a second, which client-go presets and Kueue
# 0.19.2 has no setting for: that comes to about a job a second, whatever the machine.
PATIENCE_S_PER_JOB = 2.5
# Minutes of a run on two cores: those that a scale does not change, and those of scale 1.
MINUTES = (4, 40)


@dataclass(frozen=True, slots=True)
class Load:
    """One phase.

    Attributes:
        name: Of its figures.
        jobs: How many, of one GPU each.
        rate: Jobs a second; infinite for all at once.
    """

    name: str
    jobs: int
    rate: float

    @property
    def patience_s(self) -> float:
        """So long after the last one was submitted."""
        return 60 + PATIENCE_S_PER_JOB * self.jobs

    @property
    def longest_s(self) -> float:
        return self.jobs / self.rate + self.patience_s


def loads(scale: float) -> tuple[Load, ...]:
    """At least a handful of jobs each, however small the scale."""

    def of(count: int, least: int) -> int:
        return max(least, round(count * scale))

    return (
        Load("warm_up", 5, 2.0),
        Load("1_per_s", of(60, 5), 1.0),
        Load("20_per_s", of(200, 20), 20.0),
        Load("at_once", of(1000, 20), math.inf),
    )


def measure(*, scale: float = 1.0) -> list[Figure]:
    """Run both, compare, then the dispatcher with a resting fleet.

    Args:
        scale: Share of the jobs and of the resting workloads, above 0 and at most 1.

    Raises:
        StartError: a program did not start, or a phase did not end in time.
        PartMissingError: a program is not built.
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale {scale:g}: give a number above 0 and at most 1")
    build.ensure(["etcd", build.KUBERNETES, "kueue", "kwok"])
    rates = sum(load.longest_s for load in loads(scale)) + 60
    longest = 2 * rates + bench_dispatch_rest.longest_s(scale)
    minutes = f"about {MINUTES[0] + MINUTES[1] * scale:.0f} min, given up after {longest / 60:.0f}"
    print(f"dispatch: {minutes}", flush=True)
    table: dict[str, dict[str, Any]] = {}
    for name, contender in (("kueue", under_kueue), ("portal", under_portal)):
        load_before = round(os.getloadavg()[0], 2)
        with (
            tempfile.TemporaryDirectory(prefix=f"bench-dispatch-{name}-") as folder,
            contender(Path(folder)) as (fleet, deciders),
        ):
            table[name] = play(fleet, deciders, scale)
        table[name]["load_average_before"] = load_before
    print(rendered(table), flush=True)
    return [*compared(table, scale), *bench_dispatch_rest.measure(scale)]


def compared(table: Mapping[str, Mapping[str, Any]], scale: float) -> list[Figure]:
    """Ratios of the portal's figures to Kueue's; 1 is as fast."""
    ours, theirs = table["portal"], table["kueue"]
    notes = {"scale": scale, "aim": AIM, **table}
    figures = []
    for name, key in (
        ("p95_at_1_per_s_to_kueue", ("1_per_s", "running_p95_s")),
        ("p95_at_20_per_s_to_kueue", ("20_per_s", "running_p95_s")),
        ("makespan_of_1000_to_kueue", ("at_once", "all_complete_s")),
    ):
        ratio = ours[key[0]][key[1]] / theirs[key[0]][key[1]]
        figures.append(Figure(name, [ratio], limit=AIM, unit="", of="max", notes=notes))
        notes = {}
    return figures


# The two contenders


@contextmanager
def under_kueue(folder: Path) -> Iterator[tuple[Fleet, list[Program]]]:
    """MultiKueue on the manager, Kueue on each worker."""
    with _fleet(folder, kueue=True) as fleet:
        queues.connect_workers(fleet, QUEUE)
        _queues(fleet)
        with KubeClient.from_kubeconfig(fleet.manager.admin_kubeconfig.read_text()) as client:
            _wait_for_check(client, QUEUE)
        yield fleet, [cluster.programs()["kueue"] for cluster in fleet.clusters]


@contextmanager
def under_portal(folder: Path) -> Iterator[tuple[Fleet, list[Program]]]:
    """The portal's shifts, under the generated rights."""
    with _fleet(folder, kueue=False) as fleet, ExitStack() as stack:
        clients = [
            stack.enter_context(KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text()))
            for plane in fleet.clusters
        ]
        for client, role in zip(clients, ("manager", "worker", "worker"), strict=True):
            grant(client, role=role, workers=WORKERS)
        for document in multikueue_objects(*WORKERS):
            if document["metadata"]["name"] not in WORKERS:
                document["metadata"]["name"] = QUEUE
            if document["kind"] == "AdmissionCheck":
                document["spec"]["parameters"]["name"] = QUEUE
            clients[0].create(resource_of(document), document)
        _queues(fleet)
        programs = _shifts(fleet, folder)
        stack.callback(lambda: [program.kill() for program in programs])
        _wait_for_check(clients[0], QUEUE)
        yield fleet, programs


def _shifts(fleet: Fleet, folder: Path) -> list[Program]:
    paths = {}
    for plane in fleet.clusters:
        paths[plane.name] = folder / f"{plane.name}.portal"
        paths[plane.name].write_text(identity(plane, PORTAL_ACCOUNT))
    workers = []
    for plane in fleet.workers:
        path = folder / f"{plane.name}.multikueue"
        path.write_text(identity(plane, MULTIKUEUE_ACCOUNT))
        workers += ["--worker", f"{plane.name}={path}"]
    roles = [("dispatch", "manager", workers)]
    roles += [("admission", plane.name, []) for plane in fleet.clusters]
    return [
        Program(
            [sys.executable, str(ROOT / "manage.py"), "run_shift", "--role", role,
             "--kubeconfig", str(paths[name]), "--name", name, "--origin", QUEUE, *more],
            name=f"{role}-{name}",
            log=folder / f"{role}-{name}.log",
            environment={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        for role, name, more in roles
    ]  # fmt: skip


@contextmanager
def _fleet(folder: Path, *, kueue: bool) -> Iterator[Fleet]:
    with start_fleet(len(WORKERS), kueue=kueue, kwok=True, folder=folder / "fleet") as fleet:
        for worker in fleet.workers:
            worker.create_nodes(NODES, shape=NodeShape(gpus=GPUS_PER_NODE), prefix=worker.name)
        yield fleet


def _queues(fleet: Fleet) -> None:
    gpus = NODES * GPUS_PER_NODE
    for worker in fleet.workers:
        queues.make_queue(worker, QUEUE, gpus=gpus)
    queues.make_queue(fleet.manager, QUEUE, gpus=gpus * len(WORKERS), admission_check=QUEUE)


def _wait_for_check(client: KubeClient, name: str) -> None:
    eventually(
        lambda: is_true(client.get(r.ADMISSION_CHECK, name), "Active"),
        seconds=90,
        why="the admission check does not become active",
    )


# The load


def play(fleet: Fleet, deciders: Sequence[Program], scale: float) -> dict[str, Any]:
    """Every phase, one after the other.

    Returns:
        By phase: seconds from submission to a pod that runs (p50, p95, max), seconds until the
        last job was complete on the manager, CPU seconds of those who decide and of the rest.
    """
    workers = {plane.name: plane.admin_kubeconfig.read_text() for plane in fleet.workers}
    manager = {"manager": fleet.manager.admin_kubeconfig.read_text()}
    figures = {}
    with (
        Observer(workers, kinds=(PODS,)) as pods,
        Observer(manager, kinds=(JOBS,)) as jobs,
        KubeClient.from_kubeconfig(manager["manager"]) as client,
    ):
        for load in loads(scale):
            others = [each for plane in fleet.clusters for each in plane.programs().values()]
            others = [program for program in others if program not in deciders]
            before = _cpu(deciders), _cpu(others)
            figures[load.name] = _phase(load, client, pods, jobs)
            after = _cpu(deciders), _cpu(others)
            for name, begun, ended in zip(("deciders", "others"), before, after, strict=True):
                figures[load.name][f"cpu_ms_per_job_of_{name}"] = round(
                    1000 * (ended - begun) / load.jobs, 1
                )
            print(f"{load.name}: {figures[load.name]}", flush=True)
    del figures["warm_up"]
    return figures


def _cpu(programs: Sequence[Program]) -> float:
    """Seconds, all together."""
    return sum(cpu_of({str(number): each for number, each in enumerate(programs)}).values())


def _phase(load: Load, client: KubeClient, pods: Observer, jobs: Observer) -> dict[str, Any]:
    begun = time.monotonic()
    submitted = _submit(load, client, begun)
    wanted = set(submitted)
    ends = time.monotonic() + load.patience_s
    while not (wanted <= (ran := _running(pods.told())).keys()) or not (
        wanted <= (complete := _complete(jobs.told())).keys()
    ):
        if time.monotonic() > ends:
            left = len(wanted - ran.keys())
            raise StartError(f"{load.name}: {left} of {load.jobs} jobs do not run")
        time.sleep(0.25)
    waits = [ran[name] - at for name, at in submitted.items()]
    return {
        "jobs": load.jobs,
        "running_p50_s": round(percentile(waits, 50), 3),
        "running_p95_s": round(percentile(waits, 95), 3),
        "running_max_s": round(max(waits), 3),
        "all_running_s": round(max(ran[name] for name in wanted) - begun, 2),
        "all_complete_s": round(max(complete[name] for name in wanted) - begun, 2),
    }


def _submit(load: Load, client: KubeClient, begun: float) -> dict[str, float]:
    """Names, and the monotonic second right before each was sent."""
    numbers = iter(range(load.jobs))
    lock = threading.Lock()
    submitted: dict[str, float] = {}
    errors: list[Exception] = []

    def work() -> None:
        while not errors:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            document = _job(load, number)
            time.sleep(max(0.0, begun + number / load.rate - time.monotonic()))
            submitted[document["metadata"]["name"]] = time.monotonic()
            try:
                client.create(r.JOB, document)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return submitted


def _job(load: Load, number: int) -> dict[str, Any]:
    document = queues.job(f"{load.name.replace('_', '-')}-{number}", gpus=1, run_for=RUN_FOR)
    document["metadata"]["namespace"] = QUEUE
    document["spec"]["managedBy"] = MULTIKUEUE
    return document


def _running(history: Sequence[Told]) -> dict[str, float]:
    """Job → when a pod of it first ran."""
    found: dict[str, float] = {}
    for told in history:
        name = (told.document["metadata"].get("labels") or {}).get("job-name")
        phase = (told.document.get("status") or {}).get("phase")
        if name and phase in ("Running", "Succeeded"):
            found.setdefault(name, told.at)
    return found


def _complete(history: Sequence[Told]) -> dict[str, float]:
    """Job → when the manager's was complete."""
    found: dict[str, float] = {}
    for told in history:
        if is_true(told.document, "Complete"):
            found.setdefault(told.name, told.at)
    return found
