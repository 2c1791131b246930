"""A restore drill: the database of yesterday, the clusters of today, and books that balance.

``python -m tests.faults.restore_drill [--way dump|moment] [--real] [--seed N]``: the portal's own
processes over PostgreSQL and Redis, a manager and two workers, jobs running. A backup is taken by
the commands of docs/operations.md; life goes on; the database is thrown away with its server and
restored by those commands; an admin decides. An onlooker counts GPU-seconds by itself all the time.
The report goes to ``artifacts/``; exit status 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.faults.commands import commands
from tests.faults.observer import JOBS, QUEUES, WORKLOADS, Observer
from tests.faults.report import ARTIFACTS, add_options, begin, conclude, write_down
from tests.faults.schedule import CLUSTERS, GPUS_PER_WORKER, WORKERS, Arrival
from tests.faults.timeline import MANAGER
from tests.faults.whole_road import FACTS, INSTALLATION, METERED, ROWS, UNWATCHED, is_open
from tests.waiting import eventually

PATIENCE_S = 300.0
METERING_S = 900.0
"""Half a year is metered hour by hour, which a loaded machine takes its time for."""
LEASE_S = 60
"""No load makes a shift lose such a Lease; who stops gives it back, so nobody waits for its end."""
ROLE = "portal_app"
REVISE = """
from budgets import services
from budgets.models import Account, Flavor, User, Workspace
from budgets.plan import RevisionDraft, short_form_lines
admin = User.objects.get(username='admin')
flavor = Flavor.objects.get(slug='h100')
later = services.create_workspace(admin, account=Account.objects.get(), slug='later', name='Later',
                                  home_flavor=flavor)
for name, committed in (('{ns}', 4), ('acme-later', 2)):
    w = Workspace.objects.get(namespace=name)
    lines = short_form_lines(home_flavor='h100', committed=committed, ceiling=16, preferred=None)
    services.revise_budget(admin, workspace=w, draft=RevisionDraft(lines=lines, reason='today'),
                           expected_version=w.budget.version)
"""
DECIDE = """
from budgets.models import User
from clusters import services
from clusters.models import Cluster
for row in Cluster.objects.all():
    services.resolve_block(User.objects.get(username='admin'), cluster=row, apply_ours=True,
                           reason='the backup is right')
"""
CLOSE = """
from budgets.models import User
from budgets.services import billing
billing.close_period(User.objects.get(username='fin'), month={month!r})
"""
HEAD = "SELECT close_number, head FROM budgets_billingperiod WHERE name = '{month}'"
NEWEST = "SELECT coalesce(max(id), 0) FROM budgets_auditentry"
ARCHIVED = """
SELECT last_archived_wal >= pg_walfile_name('{at}'::pg_lsn) FROM pg_stat_archiver
"""


class Way(StrEnum):
    """How the database is backed up and restored."""

    DUMP = "dump"
    MOMENT = "moment"


@dataclass(frozen=True, slots=True)
class Jobs:
    """What is submitted: before the backup, over it, after it, and still running at its restore."""

    before: Sequence[Arrival]
    across: Sequence[Arrival]
    between: Sequence[Arrival]
    running: Sequence[Arrival]

    @property
    def lost(self) -> set[str]:
        """Names of those whose end no backup has."""
        return {one.name for one in (*self.across, *self.between)}


def jobs_of(seed: int) -> Jobs:
    """The same for the same seed."""
    rng = random.Random(seed)

    def several(name: str, least: int, most: int, *, run_s: tuple[float, float]) -> list[Arrival]:
        return [
            Arrival(0.0, f"{name}-{number}", rng.randint(1, 2), round(rng.uniform(*run_s), 1))
            for number in range(rng.randint(least, most))
        ]

    # Of those between only the manager knows, whose times prove two seconds less than it says.
    return Jobs(
        several("before", 1, 2, run_s=(1, 2)),
        several("across", 1, 1, run_s=(15, 20)),
        several("between", 1, 3, run_s=(4, 6)),
        several("running", 1, 2, run_s=(40, 50)),
    )


@dataclass(slots=True)
class Report:
    """What a drill did and found; texts for people, and JSON.

    Attributes:
        steps: Seconds that each took.
        counted, booked: GPU-seconds, as the onlooker saw them and as the ledger has them.
        estimated: Those that rows lack which are marked estimated.
        told: Those that it lacks in a time of which finance is told that nothing was watched.
        missing: What verify_ledger says of a month that was closed after the backup.
        load: Of the machine at the end.
    """

    seed: int
    ground: str
    way: str
    steps: dict[str, float] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    holds: int = 0
    counted: int = 0
    booked: int = 0
    estimated: int = 0
    told: int = 0
    missing: str = ""
    load: float = 0.0
    broken: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For people."""
        steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.steps.items())
        return "\n".join(
            [
                f"restore drill: seed {self.seed}, {self.ground}, by {self.way}, "
                f"load {self.load:.1f}",
                f"jobs          {self.jobs}",
                f"steps         {steps}",
                f"GPU-seconds   {self.counted} seen in {self.holds} admissions, {self.booked} "
                f"booked; {self.estimated} missing as estimated, {self.told} as not watched",
                f"verify_ledger {self.missing or 'was not asked: no month was closed'}",
                f"broken rules  {len(self.broken)}",
                *(f"  {words}" for words in self.broken),
            ]
        )

    def store(self) -> Path:
        """Write it down; the path of the JSON."""
        return write_down(self, ARTIFACTS / f"restore-drill-{self.ground}-{self.way}-{self.seed}")


def run(
    seed: int, *, way: Way = Way.DUMP, is_real: bool = False, closes_a_month: bool = True
) -> Report:
    """The whole drill.

    Args:
        seed: Of the jobs.
        way: Of the backup.
        is_real: On real API servers; else on embedded ones.
        closes_a_month: After the backup, so that the restored ledger lacks it; it takes as long
            as six months take to be metered.

    Raises:
        AssertionError: a step has no end, or a command failed.
    """
    from tests.faults.ground import embedded_ground, real_ground
    from tests.faults.house import House

    print(f"seed {seed}", flush=True)
    place = real_ground(is_bare=True) if is_real else embedded_ground(is_bare=True)
    with tempfile.TemporaryDirectory(prefix="restore-drill-") as name, place as ground:
        folder = Path(name)
        folder.chmod(0o755)
        house = House(
            folder / "house", installation=INSTALLATION, lease_s=LEASE_S, archives=way is Way.MOMENT
        )
        report = Report(seed, ground.name, str(way))
        with house:
            house.furnish(ground.portal, gpus=GPUS_PER_WORKER)
            house.manage("grant_rights", ROLE)
            house.open()
            eventually(lambda: is_open(ground), seconds=PATIENCE_S, why="it does not open")
            with Observer(ground.admins, lists_anew=True) as observer:
                try:
                    _Drill(house, ground, observer, jobs_of(seed), report).play(
                        way, closes_a_month=closes_a_month
                    )
                except BaseException:
                    _keep_evidence(report, house.disk, observer)
                    raise
            report.load = os.getloadavg()[0]
        return report


def _keep_evidence(report: Report, folder: Path, observer: Observer) -> None:
    target = ARTIFACTS / f"restore-drill-{report.ground}-{report.way}-{report.seed}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, target)
    with (target / "history.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(row)) + "\n" for row in observer.told())


class _Drill:
    def __init__(
        self, house: Any, ground: Any, observer: Observer, jobs: Jobs, report: Report
    ) -> None:
        from tests.faults.ground import QUOTA
        from tests.faults.invariants import Facts

        self._house, self._ground, self._observer = house, ground, observer
        self._jobs, self._report = jobs, report
        self._facts = Facts(INSTALLATION, 900.0, QUOTA)
        self._begun = time.monotonic()
        self._moment = self._anchor = self._month = ""

    def play(self, way: Way, *, closes_a_month: bool) -> None:
        """Every step in its order."""
        self._yesterday(closes_a_month=closes_a_month)
        self._back_up(way)
        self._today(closes_a_month=closes_a_month)
        self._lose_everything_and_restore(way)
        self._ask()
        self._decide()
        self._balance()

    def _done(self, step: str) -> None:
        now = time.monotonic()
        self._report.steps[step], self._begun = round(now - self._begun, 1), now
        print(f"{step}: {self._report.steps[step]} s", flush=True)

    def _until(self, check: Callable[[], Any], why: str | Callable[[], object]) -> None:
        eventually(check, seconds=PATIENCE_S, why=why)

    # 1. Yesterday

    def _yesterday(self, *, closes_a_month: bool) -> None:
        self._run_out(self._jobs.before)
        self._submit(self._jobs.across)
        self._until(lambda: self._run_on(self._jobs.across), "a job does not begin")
        self._until(lambda: self._watched() == set(CLUSTERS), "usage watches nothing")
        if closes_a_month:
            eventually(lambda: self._house.query(METERED), seconds=METERING_S, why="not metered")
        self._done("yesterday")

    def _back_up(self, way: Way) -> None:
        if way is Way.MOMENT:
            self._house.by_hand(commands("A base backup and the log of writes"))
        self._newest = -1
        while (newest := self._house.query(NEWEST)[0][0]) != self._newest:
            # Until nothing was entered meanwhile: what is the newest in the backup is known then.
            self._newest = newest
            if way is Way.DUMP:
                self._house.by_hand(commands("A dump"))
            else:
                self._moment = self._house.query("SELECT clock_timestamp()::text")[0][0]
        self._done("backup")

    # 2. Since then

    def _today(self, *, closes_a_month: bool) -> None:
        from tests.faults.mishaps import months_over
        from tests.reconcile.admission_harness import NS

        self._house.manage("shell", "-v", "0", "-c", REVISE.format(ns=NS))
        self._until(lambda: self._floors() == (4, 2), "promises are not applied")
        if closes_a_month:
            self._month = f"{months_over()[0]:%Y-%m}"
            self._close()
            [(number, head)] = self._house.query(HEAD.format(month=self._month))
            self._anchor = f"{number}:{head}"
        self._run_out(self._jobs.between)
        self._until(lambda: self._has_left(self._jobs.lost), lambda: self._told_of("across"))
        self._submit(self._jobs.running)
        self._until(lambda: self._run_on(self._jobs.running), "a job does not begin")
        self._until(self._is_remembered, "clusters do not remember the newest entry")
        self._done("today")

    def _close(self) -> None:
        self._house.manage("shell", "-v", "0", "-c", CLOSE.format(month=self._month))

    # 3. The database is lost with its server, and the clusters' history as a day forgets it

    def _lose_everything_and_restore(self, way: Way) -> None:
        house = self._house
        house.shut()
        if way is Way.MOMENT:
            at = house.query("SELECT pg_switch_wal()::text")[0][0]
            self._until(lambda: house.query(ARCHIVED.format(at=at)) == [(True,)], "no archive")
        self._forget()
        if way is Way.DUMP:
            with house.without_database(is_made_anew=True):
                pass
            house.by_hand(commands("From a dump"))
        else:
            with house.without_database(is_made_anew=False):
                house.by_hand(commands("To a moment"), MOMENT=self._moment)
        said = house.by_hand(commands("Then, either way"))
        self._check("do not open the credentials" not in said, said)
        found = house.query(NEWEST)[0][0]
        self._check(found == self._newest, f"entry {found} is the newest, not {self._newest}")
        if self._anchor:
            self._report.missing = self._missing()
        self._done("restore")

    def _missing(self) -> str:
        """What verify_ledger says of the month that was closed after the backup."""
        try:
            said = self._house.manage("verify_ledger", "--anchor", self._anchor)
        except AssertionError as error:
            said = str(error).partition("CommandError: ")[2] or str(error)
            if "missing" in said:
                return said.strip().splitlines()[0][:200]
        self._check(False, f"verify_ledger misses nothing: {said[-300:]}")
        return ""

    def _forget(self) -> None:
        from tests.faults.mishaps import compact, is_real

        for place in self._ground.places.values():
            if is_real(place):
                compact(place)
                place.kill_api_server()
                place.start_api_server()
            else:
                place.server.cluster.store.compact()
        self._observer.catch_up(seconds=PATIENCE_S)

    # 4. Nothing is written before somebody decides, and what is lacking is told

    def _ask(self) -> None:
        told = len(self._observer.told())
        self._house.open()
        self._until(lambda: self._blocked() == set(CLUSTERS), "the portal does not ask")
        self._until(lambda: self._gaps() == set(CLUSTERS), "finance is not told")
        self._until(
            lambda: self._estimated() >= self._jobs.lost,
            lambda: f"only {self._estimated()} of {self._jobs.lost} are estimated",
        )
        self._observer.catch_up(seconds=PATIENCE_S)
        for one in self._observer.told()[told:]:
            is_gone = one.change == "DELETED"
            self._check(not is_gone, f"before the decision: {one.kind} {one.name} was deleted")
            is_portals = one.kind in (QUEUES, WORKLOADS) and not is_gone
            self._check(not is_portals, f"before the decision: {one.kind} {one.name} was written")
        self._check(self._floors() == (4, 2), f"rolled back to {self._floors()}")
        self._done("asked")

    # 5. An admin decides that the backup is right

    def _decide(self) -> None:
        self._house.manage("shell", "-v", "0", "-c", DECIDE)
        self._until(lambda: self._floors() == (8, 0), lambda: f"quota is {self._floors()}")
        self._until(lambda: self._have_ended(self._jobs.running), lambda: self._told_of("running"))
        self._check(not self._blocked(), f"still blocked: {self._blocked()}")
        self._done("decided")

    # 6. The books

    def _balance(self) -> None:
        eventually(lambda: self._house.query(METERED), seconds=METERING_S, why="not metered")
        self._until(lambda: not list(self._left()), lambda: "\n".join(self._left()))
        if self._anchor:
            self._close()
        for command in ("verify_ledger", "usage_totals") if self._anchor else ():
            self._house.manage(command)
        books, report = self._books(), self._report
        report.holds, report.counted, report.booked = books.holds, books.counted, books.booked
        report.estimated, report.told = books.estimated, books.told
        parts = ("before", "across", "between", "running")
        report.jobs = {part: len(getattr(self._jobs, part)) for part in parts}
        report.broken += [*self._observer.blind]
        self._done("balanced")

    def _left(self) -> Iterator[str]:
        from tests.faults.rest import unrest

        open_yet = list(unrest(self._observer.now, self._facts))
        yield from open_yet
        if open_yet:
            return
        yield from self._books().faults
        billed = sum(row.gpu_seconds for row in self._rows() if row.kind == "billable")
        facts = int(self._house.query(FACTS)[0][0])
        if facts != billed:
            yield f"hour facts have {facts} GPU-seconds, intervals {billed}"

    def _rows(self) -> list[Any]:
        from tests.faults.books import Row

        return [Row(*row) for row in self._house.query(ROWS)]

    def _books(self) -> Any:
        from tests.faults.books import compare, holds_of

        unwatched: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for cluster, start, end in self._house.query(UNWATCHED):
            unwatched[cluster].append((start, end))
        holds = holds_of(self._observer.told(), wall_offset_s=self._observer.wall_offset_s)
        return compare(holds, self._rows(), broken_at={}, unwatched=unwatched)

    # What is so

    def _check(self, is_kept: bool, otherwise: str) -> None:
        if not is_kept:
            self._report.broken.append(otherwise)

    def _submit(self, jobs: Sequence[Arrival]) -> None:
        from clusters.kube import resources as r
        from tests.faults.ground import job_of

        for one in jobs:
            self._ground.clients[MANAGER].create(r.JOB, job_of(one))

    def _run_out(self, jobs: Sequence[Arrival]) -> None:
        self._submit(jobs)
        self._until(lambda: self._have_ended(jobs), lambda: self._told_of(jobs[0].name))

    def _have_ended(self, jobs: Sequence[Arrival]) -> bool:
        from tests.reconcile.admission_harness import is_true

        found = self._jobs_on(MANAGER)
        return all(is_true(found.get(one.name) or {}, "Complete") for one in jobs)

    def _run_on(self, jobs: Sequence[Arrival]) -> bool:
        """Whether each has begun on a worker."""
        begun = {
            name
            for worker in WORKERS
            for name, job in self._jobs_on(worker).items()
            if (job.get("status") or {}).get("startTime")
        }
        return begun >= {one.name for one in jobs}

    def _has_left(self, names: set[str]) -> bool:
        """Whether they have ended, and nothing is left of them on workers."""
        found = self._jobs_on(MANAGER)
        copies = [
            item["metadata"]["name"]
            for worker in WORKERS
            for kind in (JOBS, WORKLOADS)
            for item in self._observer.now(worker, kind)
        ]
        has_ended = all((found[name].get("status") or {}).get("succeeded") for name in names)
        return has_ended and not any(name in copy for copy in copies for name in names)

    def _jobs_on(self, cluster: str) -> dict[str, Any]:
        return {item["metadata"]["name"]: item for item in self._observer.now(cluster, JOBS)}

    def _told_of(self, name: str) -> str:
        """Everything that the clusters and the database say of a job."""
        from clusters.kube import resources as r

        found = [
            (cluster, item.get("kind"), item["metadata"], item.get("status"))
            for cluster, client in self._ground.clients.items()
            for kind in (r.JOB, r.WORKLOAD)
            for item in client.list(kind).items
            if name in item["metadata"]["name"]
        ]
        shifts = self._house.query(
            "SELECT c.slug, s.role, s.holder, s.started_at, s.heartbeat_at, s.ended_at, s.outcome, "
            "s.parked, s.parked_says, c.blocked_reason FROM clusters_shiftrun s "
            "JOIN clusters_cluster c ON c.id = s.cluster_id ORDER BY 1, 2"
        )
        return "\n".join(map(str, (*found, *shifts)))

    def _floors(self) -> tuple[int, int]:
        """Nominal quota of both workspaces on the manager; 0 where there is no queue."""
        from tests.reconcile.admission_harness import NS

        found = {NS: 0, "acme-later": 0}
        for queue in self._observer.now(MANAGER, QUEUES):
            for group in (queue.get("spec") or {}).get("resourceGroups") or []:
                if group["coveredResources"] == ["nvidia.com/gpu"]:
                    found[queue["metadata"]["name"]] = sum(
                        int(one["resources"][0]["nominalQuota"]) for one in group["flavors"]
                    )
        return found[NS], found["acme-later"]

    def _is_remembered(self) -> bool:
        """Whether every cluster knows an entry that the backup does not have."""
        from clusters.kube import resources as r
        from clusters.reconcile.past import NOTE

        notes = []
        for client in self._ground.clients.values():
            lease = client.get(r.LEASE, f"gpu-budget-quota-{INSTALLATION}", namespace="kube-system")
            notes.append((lease["metadata"].get("annotations") or {}).get(NOTE, "0"))
        return all(int(note.partition(" ")[0]) > self._newest for note in notes)

    def _watched(self) -> set[str]:
        return self._slugs("SELECT cluster FROM budgets_meterstate WHERE watched_version <> ''")

    def _blocked(self) -> set[str]:
        return self._slugs("SELECT slug FROM clusters_cluster WHERE blocked_reason LIKE '%backup%'")

    def _gaps(self) -> set[str]:
        return self._slugs(
            "SELECT cluster FROM budgets_discrepancy WHERE kind = 'unwatched' AND state = 'open'"
        )

    def _estimated(self) -> set[str]:
        """Names of jobs that are billed as estimated."""
        return self._slugs(
            "SELECT job_name FROM budgets_interval WHERE state = 'estimated' AND kind = 'billable'"
        )

    def _slugs(self, query: str) -> set[str]:
        return {found for (found,) in self._house.query(query)}


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.restore_drill")
    add_options(parser)
    parser.add_argument("--way", choices=[str(way) for way in Way], default=str(Way.DUMP))
    given = parser.parse_args(words)
    seed = begin(given)
    report = run(seed, way=Way(given.way), is_real=given.real)
    return conclude(report)


if __name__ == "__main__":
    sys.exit(main())
