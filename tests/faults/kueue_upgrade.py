"""An upgrade of Kueue as an operator makes it, cluster by cluster, under load.

``python -m tests.faults.kueue_upgrade [--seed N] [--first workers|manager]``: a manager and two
workers, each a real API server with the real Kueue 0.18.2, under the portal's own processes over
PostgreSQL and Redis, in kueue mode. Jobs arrive all the time. On one cluster after the other the
CRDs of 0.19.2 are put in place, then the old controller is stopped and the new one is started. The
portal checks each cluster before, between and after. An onlooker counts GPU-seconds by itself; at
the end everything has to come to rest, the books have to be the onlooker's, and no job may have run
twice. It ends by itself within ten minutes, on a machine that others use within as many as it is
given (``--minutes``). The report goes to ``artifacts/``; exit status 1 when a
rule was broken.

Kueue's notes name no order of manager and workers. Workers go first here: the manager's controller
writes the copies, and what it writes may have what only newer CRDs take, such as more pod sets.

The older Kueue is built once, with four and a half minutes of CPU, by ``python -m
tests.controlplane build kueue-0.18``; the time of a build is not that of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.controlplane import build
from tests.faults.limits import no_longer_than
from tests.faults.report import ARTIFACTS, begin, conclude, write_down
from tests.faults.schedule import CLUSTERS, GPUS_PER_WORKER, WORKERS, Arrival
from tests.faults.whole_road import INSTALLATION, METERED, Judge, NoAccidents, is_open
from tests.faults.whole_road import Report as Road
from tests.waiting import eventually

LIMIT_MINUTES: Final = 10.0
OLD: Final = build.OLDER_KUEUE
NEW: Final = "kueue"
JOBS_PER_S: Final = 0.25
BUSY: Final = 2
"""So many jobs at least run on a worker when its Kueue is stopped."""
CONFIG: Final[Mapping[str, Any]] = {
    "multiKueue": {"origin": INSTALLATION, "workerLostTimeout": "15m"},
}
CHECK: Final = """
import json
from budgets.models import User
from clusters import services
from clusters.models import Cluster
admin = User.objects.get(username='admin')
found = {{}}
for cluster in Cluster.objects.filter(slug__in={slugs!r}):
    table = services.run_preflight(admin, cluster=cluster)
    found[cluster.slug] = [[row.name, row.state, row.found, row.advice] for row in table.rows]
print(json.dumps(found))
"""
Table = dict[str, list[list[str]]]


@dataclass(slots=True)
class Step:
    """One cluster's upgrade.

    Attributes:
        at_s: Of the run, when the CRDs were put in place.
        crds_s: Until they were served.
        down_s: From the old controller's end until the new one's webhooks answered.
        ran_across: Jobs there that ran before that and after it.
        served_s: From then until a job that came later had started there; None on the manager.
    """

    cluster: str
    at_s: float
    crds_s: float = 0.0
    down_s: float = 0.0
    ran_across: int = 0
    served_s: float | None = None


@dataclass(slots=True)
class Report(Road):
    """What a run did and found.

    Attributes:
        order: Of the clusters.
        checks_by: What the portal's check said, by moment and cluster: name, state, found, advice.
        refused: How often a job could not be submitted, and was submitted again.
        refused_s: The longest time in which one could not.
        own: GPU-seconds of the jobs by their own start and end.
    """

    order: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    checks_by: dict[str, Table] = field(default_factory=dict)
    refused: int = 0
    refused_s: float = 0.0
    own: int = 0
    date: str = ""

    def text(self) -> str:
        """For people."""
        rest = "never" if self.rest_s is None else f"after {self.rest_s:.1f} s"
        lines = [
            f"Kueue {' to '.join(self.versions)}, {', '.join(self.order)}; {self.date}, seed "
            f"{self.seed}, load {self.load:.1f}",
            f"jobs          {self.done.get('arrival', 0)} submitted in {self.seconds:.0f} s; "
            f"{self.refused} tries refused, for {self.refused_s:.1f} s at most",
            *(
                f"{step.cluster:<13} at {step.at_s:.0f} s: CRDs {step.crds_s:.1f} s, controller "
                f"away {step.down_s:.1f} s, {step.ran_across} jobs ran across it"
                + ("" if step.served_s is None else f", the next started {step.served_s:.1f} s on")
                for step in self.steps
            ),
            f"GPU-seconds   {self.own} by the jobs' own times, {self.counted} seen in "
            f"{self.holds} admissions, {self.booked} booked; {self.estimated} estimated",
            f"at rest       {rest}",
            *(f"  {at:5.1f} s  {words}" for words, at in list(self.last_open.items())[-5:]),
        ]
        for moment, table in self.checks_by.items():
            lines.append(f"check {moment}")
            for cluster, rows in table.items():
                worth = [row for row in rows if row[1] != "ok" or "Kueue" in row[0]]
                lines += [f"  {cluster:<8} {row[1]:<5} {row[0]}: {row[2]}" for row in worth]
        lines += [f"rules         {self.checks}", f"broken rules  {len(self.broken)}"]
        return "\n".join([*lines, *(f"  {words}" for words in self.broken)])

    def store(self) -> Path:
        """Write it down; the path of the JSON."""
        return write_down(self, ARTIFACTS / f"kueue-upgrade-{self.order[0]}-first-{self.seed}")


def order_of(first: str) -> list[str]:
    """The clusters in the order of their upgrades."""
    return ["manager", *WORKERS] if first == "manager" else [*WORKERS, "manager"]


def arrivals_of(seed: int) -> Iterator[Arrival]:
    """Jobs without end, the same for the same seed; every third is long enough to run across."""
    chance = random.Random(f"{seed}-arrivals")
    at = 0.0
    for number in count():
        run_s = chance.uniform(35, 50) if number % 3 == 0 else chance.uniform(2, 12)
        yield Arrival(round(at, 2), f"j{number}", chance.choice([1, 1, 2]), round(run_s, 1))
        at += chance.expovariate(JOBS_PER_S)


class Deeds(NoAccidents):
    """Jobs are submitted all the time; one that is refused is submitted again."""

    def __init__(self, seed: int, ground: Any, observer: Any) -> None:
        super().__init__()
        self._seed, self._ground, self._observer = seed, ground, observer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit, name="deeds", daemon=True)
        self.refused = 0
        self.refused_s = 0.0

    def __enter__(self) -> Deeds:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _submit(self) -> None:
        from tests.faults.mishaps import MOST_OPEN
        from tests.faults.observer import JOBS
        from tests.faults.timeline import MANAGER, outcome

        begun = time.monotonic()
        for arrival in arrivals_of(self._seed):
            if self._stop.wait(max(0.0, begun + arrival.at_s - time.monotonic())):
                return
            if sum(not outcome(job) for job in self._observer.now(MANAGER, JOBS)) >= MOST_OPEN:
                self.left_out["arrival"] += 1
                continue
            self._until_taken(arrival)

    def _until_taken(self, arrival: Arrival) -> None:
        """While the manager's Kueue is away its webhook refuses every job."""
        from clusters.errors import AlreadyExists, Retryable
        from clusters.kube import resources as r
        from tests.faults.ground import job_of
        from tests.faults.timeline import MANAGER

        begun = time.monotonic()
        while not self._stop.is_set():
            try:
                self._ground.clients[MANAGER].create(r.JOB, job_of(arrival))
            except AlreadyExists:
                # The answer to an earlier try was lost.
                self.done["arrival"] += 1
                return
            except Retryable:
                self.refused += 1
                self.refused_s = round(max(self.refused_s, time.monotonic() - begun), 1)
                self._stop.wait(0.3)
            else:
                self.done["arrival"] += 1
                return


class Upgrade:
    """Raises one cluster after the other, and has the portal look at it."""

    def __init__(
        self, house: Any, ground: Any, observer: Any, report: Report, *, within_s: float
    ) -> None:
        self._within_s = within_s
        self._house, self._ground, self._observer = house, ground, observer
        self._report, self._begun = report, time.monotonic()

    def look(self, moment: str, *slugs: str) -> None:
        """What the portal's check says now, of these clusters or of all."""
        told = self._house.manage(
            "shell", "-v", "0", "-c", CHECK.format(slugs=list(slugs or CLUSTERS))
        )
        self._report.checks_by[moment] = json.loads(told.strip().splitlines()[-1])

    def raise_one(self, cluster: str) -> Step:
        """CRDs, then the controller; return when a later job runs there."""
        from tests.faults.timeline import MANAGER

        plane = self._ground.places[cluster]
        if cluster != MANAGER:
            eventually(
                lambda: len(self._running(cluster)) >= BUSY,
                seconds=self._within_s,
                why=f"no jobs run on {cluster}",
            )
        step = Step(cluster, round(time.monotonic() - self._begun, 1))
        began = time.monotonic()
        plane.replace_crds(NEW)
        step.crds_s = round(time.monotonic() - began, 1)
        self.look(f"of {cluster} with new CRDs and the old controller", cluster)
        ran = self._running(cluster)
        began = time.monotonic()
        plane.terminate_kueue()
        plane.start_kueue(CONFIG)
        install_signs(plane, NEW)
        step.down_s = round(time.monotonic() - began, 1)
        after = time.monotonic()
        # All that ended meanwhile is told before it is asked who still runs.
        self._observer.catch_up()
        step.ran_across = len(ran & self._running(cluster))
        if cluster != MANAGER:
            eventually(
                lambda: self._started_since(cluster, after),
                seconds=self._within_s,
                why=f"no job starts on {cluster} after its upgrade",
            )
            step.served_s = round(time.monotonic() - after, 1)
        self._report.steps.append(step)
        return step

    def _running(self, cluster: str) -> set[str]:
        """UIDs of the Jobs that have pods there; on the manager, of those that have not ended."""
        from tests.faults.observer import JOBS
        from tests.faults.timeline import outcome

        return {
            job["metadata"]["uid"]
            for job in self._observer.now(cluster, JOBS)
            if (job.get("status") or {}).get("active") and not outcome(job)
        }

    def _started_since(self, cluster: str, moment: float) -> bool:
        from tests.faults.observer import JOBS

        return any(
            told.at > moment
            and (told.cluster, told.kind, told.change) == (cluster, JOBS, "ADDED")
            and told.uid in self._running(cluster)
            for told in self._observer.told()
        )


def install_signs(plane: Any, part: str) -> None:
    """The Deployment and the ConfigMap of an installation, by which its version is seen.

    Nothing runs Deployments here, so that no second controller starts.
    """
    import yaml

    names = {"namespace": "kueue-system"}
    labels = {"control-plane": "controller-manager"}
    image = f"registry.k8s.io/kueue/kueue:{build.kueue_version(part)}"
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**names, "name": "kueue-controller-manager"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "manager", "image": image}]},
            },
        },
    }
    text = yaml.safe_dump(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **CONFIG}
    )
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**names, "name": "kueue-manager-config"},
        "data": {"controller_manager_config.yaml": text},
    }
    place = "namespaces/kueue-system"
    plane.rest.apply(f"/apis/apps/v1/{place}/deployments/kueue-controller-manager", deployment)
    plane.rest.apply(f"/api/v1/{place}/configmaps/kueue-manager-config", settings)


def run(seed: int, *, first: str = "workers", minutes: float = LIMIT_MINUTES) -> Report:
    """Upgrade every cluster, and judge what came of it.

    Args:
        seed: Of the jobs.
        first: ``workers`` or ``manager``.
        minutes: So long at most.

    Raises:
        PartMissingError: something is not built, and cannot be.
        OutOfTime: it did not end in time; everything was ended.
    """
    build.ensure(("etcd", build.KUBERNETES, "kwok", NEW, OLD))
    print(f"seed {seed}", flush=True)
    with no_longer_than(60 * minutes):
        return _run(Report(seed, "real", 0.0, order=order_of(first)), within_s=60 * minutes)


def _run(report: Report, *, within_s: float) -> Report:
    from tests.faults.ground import kueue_ground
    from tests.faults.house import House
    from tests.faults.observer import Observer

    report.versions = [build.kueue_version(part) for part in (OLD, NEW)]
    report.date = f"{datetime.now().astimezone():%Y-%m-%d}"
    with (
        tempfile.TemporaryDirectory(prefix="kueue-upgrade-") as name,
        kueue_ground(part=OLD, config=CONFIG) as ground,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        for plane in ground.places.values():
            install_signs(plane, OLD)
        with House(folder / "house", installation=INSTALLATION) as house:
            # A floor on both, for what has a floor on one worker alone runs only there.
            floor = GPUS_PER_WORKER * len(WORKERS)
            house.furnish(ground.portal, gpus=GPUS_PER_WORKER, mode="kueue", floor=floor)
            house.open()
            # The whole run is bounded; what a loaded machine needs to begin is not its subject.
            eventually(lambda: is_open(ground), seconds=within_s, why="no queues are set up")
            eventually(lambda: house.query(METERED), seconds=within_s, why="nothing is metered")
            with Observer(ground.admins, lists_anew=True) as observer:
                deeds = Deeds(report.seed, ground, observer)
                begun = time.monotonic()
                with deeds:
                    upgrade = Upgrade(house, ground, observer, report, within_s=within_s)
                    upgrade.look("before")
                    for cluster in report.order:
                        print(upgrade.raise_one(cluster), flush=True)
                        upgrade.look(f"after {cluster}")
                report.seconds = round(time.monotonic() - begun, 1)
                report.load = os.getloadavg()[0]
                report.refused, report.refused_s = deeds.refused, deeds.refused_s
                judge = Judge(house, observer, deeds, report)
                judge.wait_for_rest()
                judge.close_what_was_begun()
                judge.conclude(within_s=float("inf"))
                report.own = sum(own_seconds(observer.told()).values())
                report.broken += faults_of(report)
                report.broken += list(short_of(own_seconds(observer.told()), _booked(house)))
            report.starts = house.starts
    return report


def _booked(house: Any) -> dict[str, int]:
    """Workload → GPU-seconds in the ledger, on workers."""
    found: Counter[str] = Counter()
    for row in _rows(house):
        found[row.workload] += row.gpu_seconds
    return dict(found)


def _rows(house: Any) -> list[Any]:
    from tests.faults.books import Row
    from tests.faults.whole_road import ROWS

    return [Row(*row) for row in house.query(ROWS)]


def own_seconds(history: Sequence[Any]) -> dict[str, int]:
    """Workload → GPU-seconds of its Jobs on workers, from their own start to their own end.

    The end is that of the condition, for a failed Job has no ``completionTime``.
    """
    from tests.faults.observer import JOBS
    from tests.faults.timeline import MANAGER, condition, lives, outcome, workload_of

    found: Counter[str] = Counter()
    gpus = _gpus_of(history)
    for life in lives(history, JOBS):
        status = life.last.get("status") or {}
        ended = outcome(life.last)
        if life.cluster == MANAGER or not ended or not status.get("startTime"):
            continue
        end = _at(condition(life.last, ended)["lastTransitionTime"])
        name = workload_of(life)
        found[name] += gpus.get(name, 0) * (end - _at(status["startTime"]))
    return dict(found)


def _gpus_of(history: Sequence[Any]) -> dict[str, int]:
    """Workload → GPUs, as it was admitted."""
    from tests.faults.observer import WORKLOADS
    from tests.faults.timeline import holds

    found: dict[str, int] = {}
    for told in history:
        if told.kind == WORKLOADS:
            found[told.name] = max(found.get(told.name, 0), holds(told.document))
    return found


def _at(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def short_of(own: Mapping[str, int], booked: Mapping[str, int]) -> Iterator[str]:
    """Jobs for which the ledger has less than they ran by their own times."""
    for name, seconds in sorted(own.items()):
        if booked.get(name, 0) < seconds:
            yield f"{name}: ran for {seconds} GPU-seconds, {booked.get(name, 0)} are booked"


def faults_of(report: Report) -> Iterator[str]:
    """What would make the run prove nothing, and checks that tell of faults."""
    for step in report.steps:
        if not step.ran_across:
            yield f"no job ran across the upgrade of {step.cluster}: nothing is proven of it"
    for moment, table in report.checks_by.items():
        for cluster, rows in table.items():
            for name, state, found, _ in rows:
                if state == "fault":
                    yield f"check {moment}: {cluster}: {name}: {found}"


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kueue_upgrade")
    parser.add_argument("--seed", type=int, help="another one each time, if not given")
    parser.add_argument("--first", choices=("workers", "manager"), default="workers")
    parser.add_argument("--minutes", type=float, default=LIMIT_MINUTES, help="at most")
    given = parser.parse_args(words, namespace=argparse.Namespace(real=True))
    return conclude(run(begin(given), first=given.first, minutes=given.minutes))


if __name__ == "__main__":
    sys.exit(main())
