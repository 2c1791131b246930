"""A fault run from its schedule to its report: shifts, faults, a way back to rest, a judgement."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from clusters.kube import resources as r
from tests.faults.director import Director
from tests.faults.ground import QUOTA, Ground, embedded_ground, real_ground
from tests.faults.invariants import Facts, judge
from tests.faults.observer import Observer, Told
from tests.faults.report import Report
from tests.faults.rest import unrest
from tests.faults.schedule import WORKERS, Schedule
from tests.faults.timeline import MANAGER
from tests.faults.troupe import Troupe
from tests.reconcile.admission_harness import is_true
from tests.waiting import eventually

ORIGIN = "fault-run"
REST_WITHIN_S = 240.0
AT_REST_FOR_S = 1.5


def run(
    schedule: Schedule,
    *,
    is_real: bool = False,
    variant: str = "",
    rest_within_s: float = REST_WITHIN_S,
) -> Report:
    """Play a schedule and judge it; the seed is printed first.

    Args:
        schedule: Jobs and faults.
        is_real: On real API servers; else on embedded ones.
        variant: A broken dispatcher of ``broken_shift``, for negative controls.
        rest_within_s: So long may nothing come to its end on the way to rest.

    Raises:
        AssertionError: dispatch did not begin, or the observer could not look on.
        StartError: a real control plane did not come up.
    """
    print(f"seed {schedule.seed}", flush=True)
    place = real_ground() if is_real else embedded_ground()
    with tempfile.TemporaryDirectory(prefix="fault-run-shifts-") as folder, place as ground:
        facts = Facts(ORIGIN, schedule.size.grace_s, QUOTA)
        report = Report(schedule.seed, ground.name, schedule.size.seconds)
        with (
            Observer(ground.admins) as observer,
            Troupe(ground, schedule.size, Path(folder), origin=ORIGIN, variant=variant) as troupe,
        ):
            _wait_until_ready(ground, troupe)
            director = Director(schedule, ground, troupe, facts)
            director.play()
            left = _rest(observer, facts, report, within_s=rest_within_s)
            observer.catch_up()
            facts.passages, facts.blind = list(troupe.passages), list(observer.blind)
            facts.crashes = list(troupe.crashes())
        history = observer.told()
        verdict = judge(history, facts)
        report.broken = [*(f"at rest: {words}" for words in left), *verdict.faults]
        report.checks = dict(verdict.checked)
        report.kills, report.starts = troupe.killed, troupe.starts
        report.count_jobs(history, director.done)
        report.count_evictions(history)
        report.count_writes(facts.passages)
        if report.broken:
            _keep_evidence(report, history, facts, Path(folder))
        return report


def _keep_evidence(report: Report, history: list[Told], facts: Facts, shifts: Path) -> None:
    """Everything that was told, what went over the roads, and the shifts' logs."""
    folder = report.stem()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for log in shifts.glob("*.log"):
        shutil.copy(log, folder)
    for name, rows in (("history", history), ("passages", facts.passages)):
        with (folder / f"{name}.jsonl").open("w") as file:
            file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)


def _wait_until_ready(ground: Ground, troupe: Troupe) -> None:
    """Until dispatch has found both workers; a schedule counts from then on."""
    client = ground.clients[MANAGER]

    def is_ready() -> bool:
        if words := list(troupe.crashes()):
            raise AssertionError("\n".join(words))
        return all(is_true(client.get(r.MULTIKUEUE_CLUSTER, name), "Active") for name in WORKERS)

    eventually(is_ready, seconds=90, why="dispatch does not find its workers")


def _rest(observer: Observer, facts: Facts, report: Report, *, within_s: float) -> list[str]:
    """Wait until nothing has been open for a while; what still is when nothing ends any more.

    A loaded machine leaves a long queue behind: as long as it gets shorter, nothing is stuck.
    """
    begun = moved = time.monotonic()
    fewest = math.inf
    since: float | None = None
    while True:
        left = list(unrest(observer.now, facts))
        now = time.monotonic()
        if len(left) < fewest:
            fewest, moved = len(left), now
        since = None if left else since or now
        if since is not None and now - since >= AT_REST_FOR_S:
            report.rest_s = round(since - begun, 1)
            return []
        if left and now - moved > within_s:
            return left
        time.sleep(0.2)
