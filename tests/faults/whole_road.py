"""A seeded run of accidents over the whole road: admission, dispatch, quota, usage and billing.

``python -m tests.faults.whole_road --seed N --accidents M [--every S] [--real]``: the portal's own
processes over PostgreSQL and Redis, a manager and two workers, embedded or real. An onlooker with
a watch and a clock of its own counts GPU-seconds by itself; once the last accident is over
everything has to come to rest, and the books have to be the onlooker's. The seed is printed and
brings the same accidents again. The report goes to ``artifacts/``; exit status 1 when a rule was
broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.accidents import Plan, plan_of
from tests.faults.report import ARTIFACTS, add_options, begin, conclude, write_down
from tests.faults.schedule import GPUS_PER_WORKER, WORKERS
from tests.waiting import eventually

INSTALLATION = "portal"
AT_REST_FOR_S = 2.0
REST_WITHIN_S = 60.0
"""On a quiet machine; on a loaded one it is waited as long as what is open gets less."""
STUCK_S = 120.0
LAST_LINES, LINE = 12, 300
"""Of each log, where a rule was broken: who has the output alone sees who had stopped."""
RULES = (
    "one start per reservation", "one start per attempt", "one worker at a time",
    "a choice is kept", "a reservation is kept", "quota is kept", "ends are true", "no orphans",
)  # fmt: skip
ROWS = """
SELECT cluster, uid, workload, gpus, extract(epoch FROM start)::bigint,
       extract(epoch FROM "end")::bigint, state, kind, note
FROM budgets_interval WHERE state <> 'superseded' AND kind NOT IN ('reserved', 'manager_wait')
"""
UNWATCHED = """
SELECT cluster, extract(epoch FROM start)::bigint, extract(epoch FROM "end")::bigint
FROM budgets_discrepancy WHERE kind = 'unwatched'
"""
UNPROVEN = """
SELECT cluster, subject FROM budgets_discrepancy
WHERE kind = 'history' AND message LIKE 'nothing_proven%'
"""
FACTS = "SELECT coalesce(sum(committed_used + burst), 0) FROM budgets_usagerecord"
METERED = "SELECT 1 FROM budgets_meterstate WHERE metered_until > now() - '1h'::interval LIMIT 1"
CLOSED = "SELECT name FROM budgets_billingperiod WHERE closed_at IS NOT NULL ORDER BY close_number"


@dataclass(slots=True)
class Report:
    """What a run did and found; texts for people, and JSON."""

    seed: int
    ground: str
    seconds: float
    done: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    thrown_back: list[int] = field(default_factory=list)
    holds: int = 0
    counted: int = 0
    booked: int = 0
    estimated: int = 0
    told: int = 0
    closed: int = 0
    rest_s: float | None = None
    last_open: dict[str, float] = field(default_factory=dict)
    load: float = 0.0
    checks: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def accidents(self) -> int:
        """How many happened."""
        return sum(n for kind, n in self.done.items() if kind not in ("arrival", "deletion"))

    def text(self) -> str:
        """For people."""
        rest = "never" if self.rest_s is None else f"after {self.rest_s:.1f} s"
        return "\n".join(
            [
                f"whole road: seed {self.seed}, {self.ground}, {self.accidents} accidents in "
                f"{self.seconds:.0f} s, load {self.load:.1f}",
                f"done          {self.done}; left out {self.left_out or 'none'}",
                f"starts        {self.starts}; thrown back by {self.thrown_back} writes",
                f"GPU-seconds   {self.counted} seen in {self.holds} admissions, {self.booked} "
                f"booked; {self.estimated} missing as estimated, {self.told} as not watched",
                f"months closed {self.closed}",
                f"at rest       {rest}",
                *(f"  {at:5.1f} s  {words}" for words, at in list(self.last_open.items())[-5:]),
                f"checks        {self.checks}",
                f"broken rules  {len(self.broken)}",
                *(f"  {words}" for words in self.broken),
            ]
        )

    def store(self) -> Path:
        """Write it down; the path of the JSON."""
        return write_down(self, ARTIFACTS / f"whole-road-{self.ground}-{self.seed}")


def run(
    plan: Plan,
    *,
    is_real: bool = False,
    rest_within_s: float = REST_WITHIN_S,
    writes_ago: int = 1_000,
) -> Report:
    """Play a plan and judge what came of it.

    Args:
        plan: Accidents and jobs.
        is_real: On real API servers; else on embedded ones.
        rest_within_s: How soon after the last accident everything has to be at rest; a loaded
            machine takes longer.
        writes_ago: So old at least is what an etcd comes back with.
    """
    from tests.faults.ground import embedded_ground, real_ground
    from tests.faults.house import House
    from tests.faults.mishaps import Mishaps
    from tests.faults.observer import Observer

    print(f"seed {plan.seed}", flush=True)
    place = real_ground(is_bare=True) if is_real else embedded_ground(is_bare=True)
    with tempfile.TemporaryDirectory(prefix="whole-road-") as name, place as ground:
        folder = Path(name)
        folder.chmod(0o755)
        report = Report(plan.seed, ground.name, plan.seconds)
        with House(folder / "house", installation=INSTALLATION) as house:
            house.furnish(ground.portal, gpus=GPUS_PER_WORKER)
            house.open()
            eventually(
                lambda: is_open(ground), seconds=40, why="the portal does not set up its queues"
            )
            eventually(
                lambda: house.query(METERED), seconds=180, why="the months before are not metered"
            )
            with Observer(ground.admins, lists_anew=True) as observer:
                mishaps = Mishaps(plan, house, ground, observer, folder, writes_ago=writes_ago)
                stop = threading.Event()
                keeper = threading.Thread(target=mishaps.keep_snapshots, args=(stop,), daemon=True)
                keeper.start()
                try:
                    mishaps.play()
                finally:
                    stop.set()
                    keeper.join(60)
                report.load = os.getloadavg()[0]
                judge = Judge(house, observer, mishaps, report)
                judge.wait_for_rest()
                judge.close_what_was_begun()
                judge.conclude(within_s=rest_within_s)
            report.starts = house.starts
        if report.broken:
            _keep_evidence(report, folder / "house", observer.told())
        return report


def _keep_evidence(report: Report, folder: Path, history: list[Any]) -> None:
    target = ARTIFACTS / f"whole-road-{report.ground}-{report.seed}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for log in sorted(folder.glob("*.log")):
        shutil.copy(log, target)
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        print(f"--- {log.name}", *(line[:LINE] for line in last), sep="\n", flush=True)
    with (target / "history.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(row)) + "\n" for row in history)


def is_open(ground: Any) -> bool:
    """Whether a job could go all the way: queues everywhere, workers connected."""
    from clusters.errors import ClusterError
    from clusters.kube import resources as r
    from tests.faults.timeline import MANAGER
    from tests.reconcile.admission_harness import NS, is_true

    try:
        manager = ground.clients[MANAGER]
        for client in ground.clients.values():
            client.get(r.LOCAL_QUEUE, "default", namespace=NS)
        found = [manager.get(r.MULTIKUEUE_CLUSTER, name) for name in WORKERS]
        return all(is_true(document, "Active") for document in found)
    except ClusterError:
        return False


class NoAccidents:
    """What a :class:`Judge` reads of accidents, where there are none."""

    def __init__(self) -> None:
        self.to_close: list[str] = []
        self.done: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.broken_at: Mapping[str, list[tuple[int, int]]] = {}
        self.away: list[tuple[str, float, float]] = []
        self.thrown_back: list[int] = []


class Judge:
    """Waits for rest once nothing breaks any more, and holds the books against the onlooker's."""

    def __init__(self, house: Any, observer: Any, mishaps: Any, report: Report) -> None:
        from tests.faults.ground import QUOTA
        from tests.faults.invariants import Facts, Outage

        self._house, self._observer, self._mishaps = house, observer, mishaps
        self._report = report
        self._facts = Facts(INSTALLATION, 900.0, QUOTA)
        self._facts.outages = [Outage(*row) for row in mishaps.away if row[0] in WORKERS]
        self._over_at = time.monotonic()

    def wait_for_rest(self) -> None:
        """Until nothing has been open for a while, or nothing ends any more."""
        fewest, moved = float("inf"), time.monotonic()
        since: float | None = None
        while True:
            left = list(self._left())
            now = time.monotonic()
            for words in left:
                self._report.last_open.pop(words, None)
                self._report.last_open[words] = round(now - self._over_at, 1)
            if len(left) < fewest:
                fewest, moved = len(left), now
            since = None if left else since or now
            if since is not None and now - since >= AT_REST_FOR_S:
                self._report.rest_s = round(since - self._over_at, 1)
                return
            if now - moved > STUCK_S:
                self._report.broken += [f"at rest: {words}" for words in left[:20]]
                return
            time.sleep(0.5)

    def _left(self) -> Iterator[str]:
        from tests.faults.rest import unrest

        open_yet = list(unrest(self._observer.now, self._facts))
        if open_yet:
            # Reading the books costs the clusters of this process time.
            yield from open_yet
            return
        try:
            books, rows = self._books()
            facts = int(self._house.query(FACTS)[0][0])
        except psycopg.Error as error:
            yield f"the database does not answer: {error}"
            return
        billed = sum(row.gpu_seconds for row in rows if row.kind == "billable")
        if facts != billed:
            yield f"hour facts have {facts} GPU-seconds, intervals {billed}"
        yield from books.faults

    def _rows(self) -> list[Any]:
        from tests.faults.books import Row

        return [Row(*row) for row in self._house.query(ROWS)]

    def _books(self) -> tuple[Any, list[Any]]:
        from tests.faults.books import compare, holds_of

        holds = holds_of(self._observer.told(), wall_offset_s=self._observer.wall_offset_s)
        rows = self._rows()
        unwatched: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for cluster, start, end in self._house.query(UNWATCHED):
            unwatched[cluster].append((start, end))
        books = compare(
            holds,
            rows,
            broken_at=self._mishaps.broken_at,
            unwatched=unwatched,
            unproven={(cluster, uid) for cluster, uid in self._house.query(UNPROVEN)},
        )
        return books, rows

    def close_what_was_begun(self) -> None:
        """Each close that an accident broke is done by now, or can be done again."""
        from tests.faults.mishaps import CLOSE

        closed = [name for (name,) in self._house.query(CLOSED)]
        for month in self._mishaps.to_close:
            if month not in closed:
                mark = str(self._house.folder / "again")
                code = CLOSE.format(mark=mark, month=month)
                try:
                    self._house.manage("shell", "-v", "0", "-c", code)
                except AssertionError as error:
                    self._report.broken.append(f"close of {month}: {error}")
        closed = [name for (name,) in self._house.query(CLOSED)]
        self._report.closed = len(closed)
        if closed != self._mishaps.to_close:
            self._report.broken.append(f"closed {closed}, begun {self._mishaps.to_close}")
        for command in ("verify_ledger", "usage_totals"):
            try:
                self._house.manage(command)
            except AssertionError as error:
                self._report.broken.append(str(error))

    def conclude(self, *, within_s: float) -> None:
        """Every rule once more, over the whole history."""
        from tests.faults.books import doubles
        from tests.faults.invariants import RULES as ALL
        from tests.faults.invariants import Case
        from tests.faults.timeline import lives

        self._observer.catch_up()
        report, mishaps = self._report, self._mishaps
        books, rows = self._books()
        report.holds, report.counted, report.booked = books.holds, books.counted, books.booked
        report.estimated, report.told = books.estimated, books.told
        report.broken += books.faults
        report.broken += list(doubles(rows))
        report.broken += self._observer.blind
        report.done, report.left_out = dict(mishaps.done), dict(mishaps.left_out)
        report.thrown_back = mishaps.thrown_back
        history = self._observer.told()
        undone = _names_of_broken(history, mishaps.broken_at, self._observer.wall_offset_s)
        case = Case([told for told in history if told.name not in undone], self._facts)
        for name in RULES:
            found = list(ALL[name](case))
            report.checks[name] = len(found)
            report.broken += [f"{name}: {words}" for words in found if words]
        report.checks["lives"] = len(list(lives(history, "/apis/batch/v1/jobs")))
        if report.rest_s is None or report.rest_s > within_s:
            report.broken.append(f"at rest after {report.rest_s} s; {within_s:.0f} s is the bound")


def _names_of_broken(history: Any, broken_at: Any, offset_s: float) -> set[str]:
    """Names of everything that was told of in a span whose history was taken back.

    A job with its Workload: of one alone nothing can be judged.
    """
    found: set[str] = set()
    owners: dict[str, str] = {}
    spans = [span for of_cluster in broken_at.values() for span in of_cluster]
    for told in history:
        for owner in told.document["metadata"].get("ownerReferences") or ():
            owners[told.name] = owner["name"]
        if any(begin <= told.at + offset_s <= end + 30 for begin, end in spans):
            found.add(told.name)
    jobs = found | {owners[name] for name in found & owners.keys()}
    return jobs | {name for name, owner in owners.items() if owner in jobs}


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.whole_road")
    add_options(parser)
    parser.add_argument("--accidents", type=int, default=100)
    parser.add_argument("--every", type=float, default=1.2, help="seconds between two, on average")
    parser.add_argument("--rest", type=float, default=REST_WITHIN_S, help="bound of the rest, s")
    parser.add_argument("--writes-ago", type=int, default=1_000, help="age of an etcd's snapshot")
    given = parser.parse_args(words)
    seed = begin(given)
    plan = plan_of(seed, accidents=given.accidents, every_s=given.every)
    report = run(plan, is_real=given.real, rest_within_s=given.rest, writes_ago=given.writes_ago)
    return conclude(report)


if __name__ == "__main__":
    sys.exit(main())
