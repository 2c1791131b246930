"""How often forecasts of a start hold: ``python -m tests.forecast [--seed N] [--waits N]``.

Fleets of made-up workspaces live in virtual time on the real engine: jobs come, run, are preempted
and end. At random moments a job that waits is asked about, the way its page asks: the engine's own
explanation, written and read as evidence, recorded runs of the same kind, and past forecasts of the
same fleet. Afterwards the real start tells whether the stated range held. One wait is asked about
once; a wait whose job never starts before the end counts as missed when its range is over.

The same seed gives the same figures. Exit status 1 where ranges hold more than ``TOLERANCE`` less
or more often than they say.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.explaining.evidence import evidence_document, read_evidence
from clusters.explaining.starting import (
    MOST_AHEAD,
    MOST_RECORDS,
    RECENT,
    WINDOW,
    awaited,
    history_in,
    likely_start,
    unless_unlike,
)
from clusters.forecasting import (
    NEWEST,
    Correction,
    Outcome,
    RunTimes,
    StartForecast,
    corrected,
    correction_from,
    runs_by_kind,
)
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.what_if import Bounds, run_until_quiet
from clusters.kueue.explanation.why import Explainer
from tests.kueue.builders import (
    GPU,
    cluster_queue,
    cohort,
    flavor,
    group,
    local_queue,
    pod_set,
    preemption,
    quota,
    workload,
)

TOLERANCE = 0.05
START = datetime(2026, 3, 2, tzinfo=UTC)
FLEETS = 8
WARM_UP = timedelta(days=6)
MOST_DAYS = 2_000
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one kind in one workspace: run times are lognormal."""

    name: str
    queue: str
    gpus: int
    median_s: float
    spread: float
    priority: int
    every_s: float


@dataclass(slots=True)
class Asked:
    """A forecast that was made, and what happened."""

    made_at: datetime
    played: StartForecast
    stated: StartForecast
    started_at: datetime | None = None

    @property
    def holds(self) -> bool:
        earliest, latest = self.stated.earliest, self.stated.latest
        assert earliest is not None and latest is not None
        return self.started_at is not None and earliest <= self.started_at <= latest

    @property
    def held_as_played(self) -> bool:
        earliest, latest = self.played.earliest, self.played.latest
        assert earliest is not None and latest is not None
        return self.started_at is not None and earliest <= self.started_at <= latest

    def outcome(self, now: datetime) -> Outcome:
        """What the portal knows of it by now."""
        earliest, latest = self.played.earliest, self.played.latest
        assert earliest is not None and latest is not None
        return Outcome(
            (earliest - self.made_at).total_seconds(),
            (latest - self.made_at).total_seconds(),
            ((self.started_at or now) - self.made_at).total_seconds(),
        )


@dataclass(slots=True)
class Running:
    """One stay of a job."""

    kind: Kind
    since: datetime
    epoch: int


@dataclass
class Fleet:
    """One cluster in virtual time.

    Attributes:
        asked: in the order in which they were made.
        unknown: waits that nothing was said of.
        open: forecasts whose range is not over, by its end.
        past: those whose range is over, in the order of their ends.
    """

    seed: int
    is_corrected: bool = True
    now: datetime = START
    engine: Engine = field(default_factory=Engine)
    asked: list[Asked] = field(default_factory=list)
    unknown: int = 0
    open: list[tuple[datetime, int, Asked]] = field(default_factory=list)
    past: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._numbers = itertools.count()
        self._events: list[tuple[datetime, int, str, Any]] = []
        self._running: dict[str, Running] = {}
        self._epochs: dict[str, int] = defaultdict(int)
        self._kinds: dict[str, Kind] = {}
        self._forecast: dict[str, Asked] = {}
        self._seen: set[str] = set()
        self._created: dict[str, datetime] = {}
        self._spans: dict[tuple[str, str, int], tuple[str, str, datetime, datetime]] = {}
        self._waits: dict[str, list[tuple[datetime, timedelta]]] = defaultdict(list)
        self._records: tuple[datetime, dict[Key, RunTimes]] = (START - WINDOW, {})
        self._furnish()

    # The fleet

    def _furnish(self) -> None:
        """Accounts with workspaces, kinds of jobs, and about as much work as there are GPUs."""
        rng = self._rng
        self._feed(flavor("f0"))
        load = rng.uniform(0.75, 0.95)
        for account in range(rng.randint(1, 3)):
            self._feed(cohort(f"acc{account}"))
            for space in range(rng.randint(1, 3)):
                name = f"acc{account}-w{space}"
                nominal = rng.choice([8, 16, 32])
                borrowing = rng.choice([0, 8, 16, None])
                document = cluster_queue(
                    name,
                    group(f0=quota(nominal, borrowing)),
                    in_cohort=f"acc{account}",
                    preemption=preemption("LowerPriority", "Any"),
                )
                queue = local_queue("default", name)
                queue["metadata"]["namespace"] = name
                namespace = {"kind": "Namespace", "metadata": {"name": name}}
                self._feed(namespace, document, queue)
                self._add_kinds(name, nominal, load * rng.uniform(0.85, 1.05))

    def _add_kinds(self, queue: str, nominal: int, load: float) -> None:
        rng = self._rng
        count = rng.randint(1, 3)
        for number in range(count):
            gpus = rng.choice([each for each in (1, 2, 4, 8) if each <= nominal])
            median = rng.choice([20, 60, 180, 480]) * 60.0
            spread = rng.uniform(0.3, 0.9)
            mean = median * math.exp(spread**2 / 2)
            kind = Kind(
                name=rng.choice(["train", "eval", "sweep", "tune"]) + f"-{'abc'[number]}x",
                queue=queue,
                gpus=gpus,
                median_s=median,
                spread=spread,
                priority=rng.choice([0, 0, 0, 100]),
                every_s=gpus * mean * count / (nominal * load),
            )
            self._later(self._gap(kind), "comes", kind)

    def _feed(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.engine.upsert(document, now=self.now)

    def _gap(self, kind: Kind) -> timedelta:
        """Until the next job of a kind: more come by day than by night."""
        hour = (self.now - START).total_seconds() / 3600 % 24
        pace = 1 + 0.6 * math.sin(hour / 24 * 2 * math.pi)
        return timedelta(seconds=round(self._rng.expovariate(pace / kind.every_s)) + 1)

    def _later(self, after: timedelta, what: str, about: Any) -> None:
        heapq.heappush(self._events, (self.now + after, next(self._numbers), what, about))

    # Life

    def live(self, waits: int, *, every: timedelta = timedelta(minutes=30)) -> None:
        """Until so many forecasts were made and their ranges are over."""
        self._later(WARM_UP, "asks", every)
        end = self.now + timedelta(days=MOST_DAYS)
        while self.now < end and (len(self.asked) < waits or self.open):
            at, _, what, about = heapq.heappop(self._events)
            self.now = at
            self._settle_ranges()
            if what == "comes":
                self._comes(about)
            elif what == "ends":
                self._ends(*about)
            elif len(self.asked) < waits:
                self._ask()
                self._later(every * self._rng.expovariate(1), "asks", every)

    def _comes(self, kind: Kind) -> None:
        name = f"{kind.name}-{next(self._numbers)}"
        document = workload(name, "default", pod_set({GPU: kind.gpus}), priority=kind.priority)
        document["metadata"]["namespace"] = kind.queue
        document["metadata"]["creationTimestamp"] = self.now.isoformat().replace("+00:00", "Z")
        key = f"{kind.queue}/{name}"
        self._kinds[key], self._created[key] = kind, self.now
        self._feed(document)
        self._later(self._gap(kind), "comes", kind)
        self._decide()

    def _ends(self, key: str, epoch: int) -> None:
        running = self._running.get(key)
        if running is None or running.epoch != epoch:
            return
        self._stop(key)
        self.engine.delete("Workload", key=key, now=self.now)
        for known in (self._kinds, self._created, self._epochs):
            known.pop(key, None)
        self._decide()

    def _stop(self, key: str) -> None:
        running = self._running.pop(key)
        namespace, _, name = key.partition("/")
        self._spans[str(self.seed), key, running.epoch] = (
            namespace, name, running.since, self.now,
        )  # fmt: skip

    def _decide(self) -> None:
        results, _ = run_until_quiet(self.engine, now=self.now, bounds=Bounds(most_cycles=50))
        for result in results:
            for victim in result.preempted:
                if victim.key in self._running:
                    self._stop(victim.key)
            for item in result.admitted:
                self._starts(item.key)

    def _starts(self, key: str) -> None:
        kind, rng = self._kinds[key], self._rng
        self._epochs[key] += 1
        epoch = self._epochs[key]
        self._running[key] = Running(kind, self.now, epoch)
        seconds = rng.lognormvariate(math.log(kind.median_s), kind.spread)
        self._later(timedelta(seconds=math.ceil(seconds)), "ends", (key, epoch))
        if epoch == 1:
            self._waits[kind.queue].append((self.now, self.now - self._created[key]))
        asked = self._forecast.pop(key, None)
        if asked is not None:
            asked.started_at = self.now

    # Forecasts

    def _settle_ranges(self) -> None:
        while self.open and self.open[0][0] < self.now:
            self.past.append(heapq.heappop(self.open)[2])

    def _ask(self) -> None:
        state = self.engine.state
        waiting = [
            key
            for key in self._kinds
            if key not in self._running and key not in self._seen and self._epochs[key] == 0
        ]
        if not waiting:
            return
        key = self._rng.choice(waiting)
        self._seen.add(key)
        explanation = Explainer(self.engine, now=self.now).explain(key)
        if explanation is None:
            return
        evidence = read_evidence(json.loads(json.dumps(evidence_document(explanation))))
        short = awaited(evidence)
        if short is None:
            self.unknown += 1
            return
        pending = state.queues.queue(evidence.cluster_queue)
        assert pending is not None
        order = pending.active_keys() + pending.parked_keys()
        before = order[: evidence.position - 1][:MOST_AHEAD]
        ahead = [((*each.split("/"),), self._kinds[each].gpus) for each in before]
        titles = {
            name: name[1]
            for name in [
                *((item.namespace, item.name) for item in evidence.holders),
                *(name for name, _ in ahead),
            ]
        }
        played = likely_start(
            evidence,
            short,
            ahead=ahead,
            history=history_in(self._known(), titles),
            now=self.now,
            uid=f"{self.seed}/{key}",
        )
        played = unless_unlike(
            played, created_at=self._created[key], waits=lambda: self._recent(key)
        )
        newest = [each.outcome(self.now) for each in self.past[-NEWEST:]]
        by = correction_from(newest) if self.is_corrected else Correction()
        stated = corrected(played, by, now=self.now)
        if stated.earliest is None or stated.latest is None:
            self.unknown += 1
            return
        asked = Asked(self.now, played, stated)
        self.asked.append(asked)
        self._forecast[key] = asked
        heapq.heappush(self.open, (stated.latest, next(self._numbers), asked))

    def _recent(self, key: str) -> list[timedelta]:
        found = self._waits[key.partition("/")[0]]
        return [wait for at, wait in found[-MOST_AHEAD:] if at > self.now - RECENT]

    def _known(self) -> dict[Key, RunTimes]:
        """Recorded runs, looked at anew each hour."""
        at, records = self._records
        if self.now - at > timedelta(hours=1):
            newest = dict(list(self._spans.items())[-MOST_RECORDS:])
            self._spans = newest
            recent = {place: span for place, span in newest.items() if span[3] > self.now - WINDOW}
            records = runs_by_kind(recent)
            self._records = (self.now, records)
        return records


@dataclass(frozen=True, slots=True)
class Figures:
    """How forecasts did."""

    asked: int
    unknown: int
    stated: float
    held: float
    held_as_played: float
    early: float
    late: float
    median_hours: float
    median_hours_as_played: float

    @property
    def is_calibrated(self) -> bool:
        return abs(self.held - self.stated) <= TOLERANCE


def figures(asked: Sequence[Asked], unknown: int = 0) -> Figures:
    def share(found: Sequence[bool]) -> float:
        return sum(found) / len(asked)

    def hours(found: StartForecast) -> float:
        assert found.earliest is not None and found.latest is not None
        return (found.latest - found.earliest) / timedelta(hours=1)

    return Figures(
        asked=len(asked),
        unknown=unknown,
        stated=statistics.fmean(each.stated.coverage for each in asked),
        held=share([each.holds for each in asked]),
        held_as_played=share([each.held_as_played for each in asked]),
        early=share([bool(each.started_at and each.started_at < _end(each, 0)) for each in asked]),
        late=share([each.started_at is None or each.started_at > _end(each, 1) for each in asked]),
        median_hours=statistics.median(hours(each.stated) for each in asked),
        median_hours_as_played=statistics.median(hours(each.played) for each in asked),
    )


def _end(asked: Asked, which: int) -> datetime:
    found = (asked.stated.earliest, asked.stated.latest)[which]
    assert found is not None
    return found


def simulate(
    seed: int, waits: int, *, fleets: int = FLEETS, is_corrected: bool = True
) -> list[Fleet]:
    """Fleets that lived until each had its part of the waits."""
    found = []
    for number in range(fleets):
        fleet = Fleet(seed * 1000 + number, is_corrected=is_corrected)
        fleet.live(math.ceil(waits / fleets))
        found.append(fleet)
    return found


def words(name: str, found: Figures) -> str:
    return (
        f"{name}: {found.asked} forecasts, {found.unknown} unknown; stated {found.stated:.0%}, "
        f"held {found.held:.1%} (too early {found.early:.1%}, too late {found.late:.1%}), "
        f"as played {found.held_as_played:.1%}; median width {found.median_hours:.1f} h, as played "
        f"{found.median_hours_as_played:.1f} h"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--waits", type=int, default=10_000)
    parser.add_argument("--fleets", type=int, default=FLEETS)
    given = parser.parse_args(arguments)
    fleets = simulate(given.seed, given.waits, fleets=given.fleets)
    for fleet in fleets:
        if fleet.asked:
            print(words(f"fleet {fleet.seed}", figures(fleet.asked, fleet.unknown)))
    everything = [each for fleet in fleets for each in fleet.asked]
    found = figures(everything, sum(fleet.unknown for fleet in fleets))
    print(words("all", found))
    return 0 if found.is_calibrated else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
