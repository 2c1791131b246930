"""What a fault run did and found, as text for people and as JSON."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import django

from tests.faults import timeline as t
from tests.faults.observer import JOBS, Told
from tests.faults.traffic import Passage

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"


def write_down(report: Any, stem: Path) -> Path:
    """A report as text and as JSON; the path of the JSON."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".txt").write_text(report.text() + "\n")
    path = stem.with_suffix(".json")
    path.write_text(json.dumps(asdict(report), indent=1) + "\n")
    return path


def add_options(parser: ArgumentParser) -> None:
    """What the command of every seeded run takes."""
    parser.add_argument("--seed", type=int, help="another one each time, if not given")
    parser.add_argument("--real", action="store_true", help="on real API servers")


def begin(given: Namespace) -> int:
    """Set Django up for a command; its seed. Models can be imported only from here on."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django.core.management import call_command

    if given.real:
        # The generated rights are read from rows, of which there are none.
        call_command("migrate", verbosity=0)
    return given.seed if given.seed is not None else int.from_bytes(os.urandom(3), "big")


def conclude(report: Any) -> int:
    """Write down and print what a command did; its exit status."""
    path = report.store()
    print(report.text())
    print(f"report in {path}")
    return 1 if report.broken else 0


@dataclass(slots=True)
class Report:
    """One run.

    Attributes:
        seed, ground, seconds: Of the run; seconds of faults.
        jobs: How many arrived, were deleted, and how they ended.
        faults: By kind, how many were put on.
        kills: Where each killed shift was in its work.
        starts: Of shifts, the first ones included.
        evictions: On the manager, by reason.
        redispatches: Times that a workload was given a worker after its first one.
        writes: Of the shifts, by HTTP status; those that a road answered by itself apart.
        rest_s: Seconds from the last fault until everything was at rest; None for never.
        checks: How often each rule was looked at.
        broken: Every broken rule, in words.
    """

    seed: int
    ground: str
    seconds: float
    jobs: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    kills: list[str] = field(default_factory=list)
    starts: int = 0
    evictions: dict[str, int] = field(default_factory=dict)
    redispatches: int = 0
    writes: dict[str, int] = field(default_factory=dict)
    rest_s: float | None = None
    checks: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def count_jobs(self, history: Sequence[Told], done: Mapping[str, int]) -> None:
        """How many there were and how they ended, on the manager."""
        ends = Counter(
            t.outcome(life.last).lower() or "open"
            for life in t.lives(history, JOBS)
            if life.cluster == t.MANAGER
        )
        told = {"arrived": "arrival", "deleted": "deletion", "squatted": "squatter"}
        self.jobs = {name: done.get(key, 0) for name, key in told.items()}
        self.jobs |= dict(sorted(ends.items()))
        self.faults = {k: v for k, v in sorted(done.items()) if k not in told.values()}

    def count_evictions(self, history: Sequence[Told]) -> None:
        """Evictions, and what was dispatched once more."""
        evictions: Counter[str] = Counter()
        for life in t.workloads(history):
            given = 0
            for before, told in life.changes():
                if t.is_true(told.document, "Evicted") and not t.is_true(before, "Evicted"):
                    evictions[t.condition(told.document, "Evicted").get("reason", "")] += 1
                given += bool(t.chosen(told.document)) and not t.chosen(before)
            self.redispatches += max(0, given - 1)
        self.evictions = dict(sorted(evictions.items()))

    def count_writes(self, passages: Iterable[Passage]) -> None:
        """What became of the shifts' writes."""
        found = Counter(
            f"{passage.code} by fault" if passage.is_injected else str(passage.code)
            for passage in passages
            if passage.is_write
        )
        self.writes = dict(sorted(found.items()))

    def text(self) -> str:
        """For people."""
        rest = "never" if self.rest_s is None else f"after {self.rest_s:.1f} s"
        lines = [
            f"dispatch fault run: seed {self.seed}, {self.ground}, {self.seconds:.0f} s of faults",
            f"jobs          {_listed(self.jobs)}",
            f"faults        {sum(self.faults.values())}: {_listed(self.faults)}",
            f"kills         {len(self.kills)}, shifts started {self.starts}",
            f"evictions     {_listed(self.evictions)}; dispatched again {self.redispatches}",
            f"writes        {_listed(self.writes)}",
            f"at rest       {rest}",
            f"checks        {sum(self.checks.values())}: {_listed(self.checks)}",
            f"broken rules  {len(self.broken)}",
            *(f"  {words}" for words in self.broken),
        ]
        return "\n".join(lines)

    def stem(self, folder: Path = ARTIFACTS) -> Path:
        """Where it is written, without a suffix; with evidence, a folder of that name."""
        return folder / f"dispatch-run-{self.ground}-{self.seed}"

    def store(self, folder: Path = ARTIFACTS) -> Path:
        """Write it down as text and as JSON; the path of the JSON."""
        return write_down(self, self.stem(folder))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
