"""A seeded run over two of each process of the portal, of which one after the other is killed.

``python -m tests.faults.availability --seed N --kills M``: nginx, two webs, two workers for tasks,
two for shifts and two beats over PostgreSQL and Redis, embedded clusters on which jobs run, and a
steady load of pages and API requests. Each kind of process is killed in turn and started again
after some seconds, one at a time. No request may fail for longer than 2 s, what was killed has to
be taken over in time, no task may show its effect twice, and the books have to be those of an
onlooker. The seed is printed and brings the same kills again. The report goes to ``artifacts/``;
exit status 1 when a rule was broken.
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from tests.faults.load import Asked, Failure, Load, failures
from tests.faults.pairs import KINDS
from tests.faults.report import ARTIFACTS, begin, conclude
from tests.faults.whole_road import INSTALLATION, METERED, Judge, NoAccidents, is_open
from tests.faults.whole_road import Report as Road

PER_S: Final = 5.0
EXPORT_EVERY_S: Final = 12.0
CLOSE_EVERY_S: Final = 25.0
JOBS_PER_S: Final = 0.3
CALM_S: Final = 15.0
"""Before the first kill: what the machine is able to do."""
FAILED_S: Final = 2.0
"""So long at most may a page fail."""
LEASE_S: Final = 15
"""The product's own."""
SHIFT_SLACK_S: Final = 15.0
"""Beyond the Lease: beat offers a shift every 2 s, its process starts, and it reads its cluster."""
BEAT_S: Final = 30.0
"""The lease of 15 s, a question every 3 s, and the start of what was killed where that is first."""
WELL_S: Final = 90.0
EFFECTS_S: Final = 150.0
"""Deliveries whose worker was killed are tried again after a minute."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One of them.

    Attributes:
        kind: Of :data:`KINDS`.
        which: ``a``, ``b``, or of beats the one that sends.
        down_s: After which it is started again.
        pause_s: After everything is well again, until the next kill.
    """

    kind: str
    which: str
    down_s: float
    pause_s: float


def kills_of(seed: int, count: int) -> list[Kill]:
    """The same for the same seed: each kind before any comes again.

    Every other beat stays away until the other one has taken over; the rest are there again first.
    """
    chance = random.Random(f"{seed}-kills")
    found: list[Kill] = []
    deck: list[str] = []
    for _ in range(count):
        if not deck:
            deck = [*KINDS]
            chance.shuffle(deck)
        kind = deck.pop()
        beats = sum(kill.kind == "beat" for kill in found)
        down = 24.0 if kind == "beat" and beats % 2 == 0 else chance.uniform(2.0, 6.0)
        which = "sends" if kind == "beat" else chance.choice("ab")
        found.append(Kill(kind, which, round(down, 1), round(chance.uniform(1.0, 4.0), 1)))
    return found


@dataclass(slots=True)
class Taken:
    """What became of one kill.

    Attributes:
        at_s: Of the run.
        name: Of the process.
        down_s: Until it was started again.
        over_s: Until another one had taken over, or itself; None for never.
        well_s: Until its own probe was content again; None for never.
    """

    at_s: float
    name: str
    down_s: float
    over_s: float | None
    well_s: float | None

    def faults(self) -> Iterator[str]:
        bounds = {"shifts": LEASE_S + SHIFT_SLACK_S, "beat": BEAT_S}
        bound = bounds.get(self.name.partition("-")[0])
        if bound and (self.over_s is None or self.over_s > bound):
            yield f"{self.name} was taken over after {self.over_s} s; {bound:.0f} s is the bound"
        if self.well_s is None:
            yield f"{self.name} does not come back"


@dataclass(slots=True)
class Report(Road):
    """What a run did and found."""

    kills: list[Taken] = field(default_factory=list)
    requests: int = 0
    calm_p95_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    slowest_s: float = 0.0
    failed: list[str] = field(default_factory=list)
    longest_failure_s: float = 0.0
    effects: dict[str, int] = field(default_factory=dict)
    told_again: list[str] = field(default_factory=list)

    def take_load(self, requests: Sequence[Asked], since: float) -> None:
        """What the load met."""
        found: Sequence[Failure] = failures(requests)
        seconds = [row.seconds for row in requests]
        calm = [row.seconds for row in requests if row.at < since + CALM_S]
        self.calm_p95_s = round(quantiles(calm, n=20)[-1], 3)
        self.p50_s = round(median(seconds), 3)
        self.requests = len(requests)
        self.p95_s = round(quantiles(seconds, n=20)[-1], 3)
        self.slowest_s = round(max(seconds), 2)
        self.failed = [one.text(since) for one in found]
        self.longest_failure_s = round(max((one.seconds for one in found), default=0.0), 2)
        self.broken += [
            f"failed for longer than {FAILED_S:.0f} s: {one.text(since)}"
            for one in found
            if one.seconds > FAILED_S
        ]

    def text(self) -> str:
        """For people, as Markdown."""
        rows = (
            f"| {k.at_s:.0f} s | {k.name} | {k.down_s:.1f} s | {in_words(k.over_s)} | "
            f"{in_words(k.well_s)} |"
            for k in self.kills
        )
        return "\n".join(
            [
                f"# Availability, seed {self.seed}",
                "",
                f"{len(self.kills)} kills in {self.seconds:.0f} s; load of the machine "
                f"{self.load:.1f}.",
                "",
                "| at | killed | down for | taken over after | well again after |",
                "| --- | --- | --- | --- | --- |",
                *rows,
                "",
                *self.load_lines(),
                f"* Broken rules: {len(self.broken)}.",
                *(f"  * {words}" for words in self.broken),
            ]
        )

    def load_lines(self) -> list[str]:
        """What load, tasks and books met, as a list in Markdown."""
        rest = "never" if self.rest_s is None else f"after {self.rest_s:.1f} s"
        return [
            f"* Requests: {self.requests}; median {1000 * self.p50_s:.0f} ms, p95 "
            f"{1000 * self.p95_s:.0f} ms ({1000 * self.calm_p95_s:.0f} ms in the first "
            f"{CALM_S:.0f} s), slowest {self.slowest_s:.2f} s. {len(self.failed)} failed, for "
            f"{self.longest_failure_s:.2f} s at most.",
            *(f"  * {words}" for words in self.failed),
            f"* Effects of tasks: {self.effects}; told again: {self.told_again or 'nothing'}.",
            f"* Jobs: {self.done}. GPU-seconds: {self.counted} seen in {self.holds} "
            f"admissions, {self.booked} booked; {self.estimated} missing as estimated, "
            f"{self.told} as not watched. Months closed: {self.closed}. At rest {rest}.",
        ]

    def store(self) -> Path:
        """Write it down; the path of the JSON."""
        stem = ARTIFACTS / f"availability-{self.seed}"
        stem.parent.mkdir(parents=True, exist_ok=True)
        stem.with_suffix(".md").write_text(self.text() + "\n")
        path = stem.with_suffix(".json")
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def in_words(seconds: float | None) -> str:
    """For people."""
    return "never" if seconds is None else f"{seconds:.1f} s"


class Deeds(NoAccidents):
    """What people do meanwhile: jobs are submitted and deleted, months are closed."""

    def __init__(self, seed: int, house: Any, ground: Any, observer: Any) -> None:
        from tests.faults.mishaps import months_over

        super().__init__()
        self._seed, self._house, self._ground, self._observer = seed, house, ground, observer
        self._months = [f"{month:%Y-%m}" for month in months_over()]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._submit, self._close)
        ]

    def __enter__(self) -> Deeds:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _submit(self) -> None:
        from clusters.kube import resources as r
        from tests.faults.accidents import arrivals_of
        from tests.faults.ground import job_of
        from tests.faults.mishaps import MOST_OPEN
        from tests.faults.observer import JOBS
        from tests.faults.timeline import MANAGER, outcome

        begun = time.monotonic()
        chance = random.Random(f"{self._seed}-arrivals")
        for arrival in arrivals_of(chance, float("inf"), JOBS_PER_S):
            if self._stop.wait(max(0.0, begun + arrival.at_s - time.monotonic())):
                return
            if sum(not outcome(job) for job in self._observer.now(MANAGER, JOBS)) >= MOST_OPEN:
                self.left_out["arrival"] += 1
                continue
            self._ground.clients[MANAGER].create(r.JOB, job_of(arrival))
            self.done["arrival"] += 1

    def _close(self) -> None:
        """By finance at a shell, so that only what tasks make of it depends on who is killed."""
        from tests.faults.mishaps import CLOSE

        for month in self._months:
            if self._stop.wait(CLOSE_EVERY_S):
                return
            self.to_close.append(month)
            mark = str(self._house.folder / f"closing-{month}")
            self._house.run(CLOSE.format(mark=mark, month=month)).wait()


def run(seed: int, *, kills: int) -> Report:
    """Kill so many, and judge what came of it."""
    from tests.faults.effects import Effects
    from tests.faults.ground import embedded_ground
    from tests.faults.observer import Observer
    from tests.faults.pairs import Pairs
    from tests.faults.schedule import GPUS_PER_WORKER
    from tests.waiting import eventually

    print(f"seed {seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="availability-") as name,
        embedded_ground(is_bare=True) as ground,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        report = Report(seed, ground.name, 0.0)
        with (
            Pairs(folder / "house", installation=INSTALLATION, lease_s=LEASE_S) as house,
            Effects(house) as effects,
        ):
            house.furnish(ground.portal, gpus=GPUS_PER_WORKER)
            effects.prepare()
            house.open()
            eventually(lambda: is_open(ground), seconds=90, why="no queues are set up")
            eventually(lambda: house.query(METERED), seconds=180, why="nothing is metered")
            for process in house.portal:
                eventually(lambda p=process: house.is_well(p), seconds=WELL_S, why=process)
            with Observer(ground.admins, lists_anew=True) as observer:
                deeds = Deeds(seed, house, ground, observer)
                begun = time.monotonic()
                load = Load(house.port, per_s=PER_S, export_every_s=EXPORT_EVERY_S)
                with deeds, load:
                    time.sleep(CALM_S)
                    for kill in kills_of(seed, kills):
                        report.kills.append(_killed(kill, house, begun))
                        print(report.kills[-1], flush=True)
                        time.sleep(kill.pause_s)
                report.seconds = round(time.monotonic() - begun, 1)
                report.load = os.getloadavg()[0]
                report.take_load(load.requests, begun)
                for one in report.kills:
                    report.broken += one.faults()
                judge = Judge(house, observer, deeds, report)
                judge.wait_for_rest()
                judge.close_what_was_begun()
                judge.conclude(within_s=float("inf"))
            effects.judge(report, load.wishes, closed=deeds.to_close, within_s=EFFECTS_S)
            report.starts = house.starts
        return report


def _killed(kill: Kill, house: Any, begun: float) -> Taken:
    """Kill one, and wait until it is well again and was taken over."""
    name = house.sends() if kill.kind == "beat" else f"{kill.kind}-{kill.which}"
    at = time.monotonic()
    is_taken = house.take_down(name, seconds=kill.down_s)
    over = well = None
    while time.monotonic() - at < WELL_S and (over is None or well is None):
        since = round(time.monotonic() - at, 1)
        if over is None and is_taken():
            over = since
        if well is None and house.is_well(name):
            well = since
        time.sleep(0.2)
    return Taken(round(at - begun, 1), name, kill.down_s, over, well)


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.availability")
    parser.add_argument("--seed", type=int, help="another one each time, if not given")
    parser.add_argument("--kills", type=int, default=40)
    given = parser.parse_args(words, namespace=argparse.Namespace(real=False))
    return conclude(run(begin(given), kills=given.kills))


if __name__ == "__main__":
    sys.exit(main())
