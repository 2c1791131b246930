"""Kueue's own scheduler benchmark, once with minimalkueue and once with ``run_shift`` deciding.

Each contender gets a fresh etcd and kube-apiserver of the same flags, and the same load from
Kueue's runner: it creates queues and workloads, ends each workload after its running time, and
stops when no queue has anything left. What it measures (spec/admission.md 8) is put side by side
with what the processes used. All contenders are compared by :mod:`tests.perf.against_kueue`.

Full size is 15,000 workloads (``baseline``, and ``tas`` on 640 nodes) or 50,000 (``large``); a
scale below 1 makes fewer workloads of each class in the same queues at the same intervals.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from clusters.documents.conditions import is_true
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.transport import Call
from tests.controlplane import build
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import Program, StartError
from tests.perf.bench import Figure
from tests.perf.contenders import CONTENDERS, Contender

CONFIGS: Mapping[str, str] = {"baseline": "baseline", "large": "large-scale", "tas": "tas"}
# Seconds in which a run has to end, at full size.
LONGEST_S: Mapping[str, float] = {"baseline": 900.0, "large": 2400.0, "tas": 900.0}
HEAD_START_S = 4.0
RUNNER_QPS, RUNNER_BURST = 1000, 2000
AIM = 0.5
_WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.M)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Run:
    """One run's load.

    Attributes:
        config: Of :data:`CONFIGS`.
        generator: The runner's generator configuration, scaled.
        workloads: How many it creates.
        longest_s: When the run is given up, seconds.
    """

    config: str
    generator: Path
    workloads: int
    longest_s: float


def measure(*, config: str = "baseline", scale: float = 1.0) -> list[Figure]:
    """Run both contenders, one after the other, and compare.

    Args:
        config: ``baseline`` or ``large``.
        scale: Share of the workloads of each class, above 0 and at most 1.

    Raises:
        StartError: a program did not start, or a run did not end in time.
        PartMissingError: a program is not built.
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale {scale:g}: give a number above 0 and at most 1")
    build.ensure(["etcd", build.KUBERNETES, "kueue"])
    table: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-admission-") as scratch:
        folder = Path(scratch)
        run = prepare(folder, config, scale)
        for name in ("minimalkueue", "run_shift"):
            table[name] = measure_one(CONTENDERS[name], run, folder / name)
            print(rendered(table), flush=True)  # the first one's, should the second not end
    ours, theirs = table["run_shift"], table["minimalkueue"]
    notes = {"config": config, "scale": scale, "workloads": run.workloads, "aim": AIM, **table}
    ratio = ours["wall_s"] / theirs["wall_s"]
    return [Figure("run_shift_to_minimalkueue", [ratio], limit=1, unit="", of="max", notes=notes)]


Observe = Callable[[ControlPlane], AbstractContextManager[Mapping[str, Any]]]
"""Follows a run; what it saw is in the mapping when the run is over."""


def _unobserved(cluster: ControlPlane) -> AbstractContextManager[Mapping[str, Any]]:
    return nullcontext({})


def measure_one(
    contender: Contender, run: Run, folder: Path, *, observe: Observe = _unobserved
) -> dict[str, Any]:
    """Run the load once with one contender, on a control plane of its own.

    Args:
        contender: Who decides.
        run: The load.
        folder: For logs and certificates.
        observe: Follows the run from before the first workload until the last has finished.

    Returns:
        Wall seconds from the runner's start to its summary, CPU seconds by process, the decider's
        peak memory in MiB, the load before, by class of workloads the mean time to admission and
        evictions, and what was observed.

    Raises:
        StartError: a program did not start, the run took too long, or a workload did not finish.
    """
    output = folder / "output"
    output.mkdir(parents=True)
    cluster = ControlPlane(contender.name, folder)
    programs: list[Program] = []
    load = os.getloadavg()[0]
    try:
        cluster.start(controller_manager=False)
        decider = contender.start(cluster, run.config, folder / "decider.log")
        programs.append(decider)
        time.sleep(HEAD_START_S)
        served = {name: each for name, each in cluster.programs().items() if each is not decider}
        idle, begun = cpu_of(served), time.time()
        with observe(cluster) as seen:
            runner = _start_runner(cluster, run, output)
            programs.append(runner)
            _wait(runner, decider, output / "wlStates.csv", run.longest_s)
        used = {
            **memory_and_cpu(decider),
            "cpu_s_of_others": since(idle, cpu_of({**served, "runner": runner})),
            "requests": requests_of(cluster),
        }
        wall_s = (output / "summary.yaml").stat().st_mtime - begun
        finished = _finished(cluster)
    finally:
        for program in programs:
            program.kill()
        cluster.stop()
    if finished != run.workloads:
        raise StartError(f"{contender.name}: {finished} of {run.workloads} workloads finished")
    return {
        "wall_s": round(wall_s, 1),
        **used,
        "load_average_before": round(load, 2),
        "classes": _classes(output),
        **seen,
    }


def rendered(table: Mapping[str, Mapping[str, Any]]) -> str:
    """The measured figures side by side, one line each."""
    flat = {name: dict(_flat(figures)) for name, figures in table.items()}
    lines = [f"{'':42}" + "".join(f"{name:>16}" for name in flat)]
    for key in dict.fromkeys(key for figures in flat.values() for key in figures):
        cells = "".join(f"{figures.get(key, '-'):>16}" for figures in flat.values())
        lines.append(f"{key:42}{cells}")
    return "\n".join(lines)


def _flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def prepare(folder: Path, config: str, scale: float) -> Run:
    """Write Kueue's generator configuration with fewer workloads, as it is at scale 1."""
    configs = build.kueue_source() / "test" / "performance" / "scheduler" / "configs"
    document = yaml.safe_load((configs / CONFIGS[config] / "generator.yaml").read_text())
    workloads = 0
    for cohort in document["cohorts"]:
        for queues in cohort["queuesSets"]:
            for batch in queues["workloadsSets"]:
                batch["count"] = max(1, round(batch["count"] * scale))
                each = batch["count"] * len(batch["workloads"])
                workloads += cohort["count"] * queues["count"] * each
    path = folder / "generator.yaml"
    path.write_text(yaml.safe_dump(document))
    return Run(config, path, workloads, max(300.0, LONGEST_S[config] * scale))


def _start_runner(cluster: ControlPlane, run: Run, output: Path) -> Program:
    """Start Kueue's runner on a running cluster; it looks for files in its working folder."""
    options = {
        "o": output,
        "generatorConfig": run.generator,
        "timeout": f"{math.ceil(run.longest_s)}s",
        "qps": RUNNER_QPS,
        "burst": RUNNER_BURST,
        "zap-log-level": "error",
    }
    runner = [build.binary("runner"), *(f"--{name}={value}" for name, value in options.items())]
    return Program(
        ["env", f"--chdir={build.kueue_source()}", *runner],
        name="runner",
        log=cluster.folder / "runner.log",
        environment={"KUBECONFIG": str(cluster.admin_kubeconfig)},
    )


def _wait(runner: Program, decider: Program, result: Path, longest_s: float) -> None:
    """Wait for the runner's last file, which it writes at once when nothing is left to wait for."""

    def is_over() -> bool:
        if not decider.is_running():
            raise StartError(f"{decider.name} ended:\n{decider.log_tail()}")
        return result.is_file()

    runner.wait_until(is_over, timeout_s=longest_s)


def memory_and_cpu(decider: Program) -> dict[str, Any]:
    """CPU seconds since it was started, starting included, and peak memory."""
    status = Path(f"/proc/{decider.process_id}/status").read_text()
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
    (cpu_s,) = cpu_of({decider.name: decider}).values()
    return {"cpu_s": round(cpu_s, 1), "peak_rss_mib": round(peak_kib / 1024)}


def cpu_of(programs: Mapping[str, Program]) -> dict[str, float]:
    """CPU seconds of each program since it was started."""
    found = {}
    for name, program in programs.items():
        text = Path(f"/proc/{program.process_id}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value - before.get(name, 0.0), 1) for name, value in after.items()}


def requests_of(cluster: ControlPlane) -> dict[str, int]:
    """Writes of Kueue's objects and of Events that the API server counted, conflicts apart."""
    with _client(cluster) as client:
        call = Call("GET", "/metrics")
        text = client.transport.open_stream(call, idle_timeout_s=30).read().decode()
    found: dict[str, int] = {}
    for labels, value in _REQUESTS.findall(text):
        label = dict(_LABEL.findall(labels))
        is_counted = label["group"] == "kueue.x-k8s.io" or label["resource"] == "events"
        if not is_counted or label["verb"] not in _WRITES:
            continue
        name = "/".join(filter(None, (label["resource"], label["subresource"])))
        name = f"{label['verb'].lower()} {name}"
        name = name if label["code"].startswith("2") else f"{name} ({label['code']})"
        found[name] = found.get(name, 0) + round(float(value))
    return dict(sorted(found.items()))


def _client(cluster: ControlPlane) -> KubeClient:
    return KubeClient.from_kubeconfig(cluster.admin_kubeconfig.read_text())


def _finished(cluster: ControlPlane) -> int:
    with _client(cluster) as client:
        return sum(is_true(item, "Finished") for item in client.list(r.WORKLOAD).items)


def _classes(output: Path) -> dict[str, Any]:
    """By class of workloads, what the runner recorded."""
    summary = yaml.safe_load((output / "summary.yaml").read_text())
    return {
        name: {
            "workloads": figures["count"],
            "mean_s_to_admission": round(figures["averageTimeToAdmissionMs"] / 1000, 2),
            "mean_s_to_finish": round(figures["averageTimeToFinishMs"] / 1000, 2),
            "evictions": figures["totalEvictions"],
        }
        for name, figures in sorted(summary["workloadClasses"].items())
    }
