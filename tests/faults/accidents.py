"""What befalls the whole house in a run, and when: drawn from a seed alone. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults.schedule import CLUSTERS, Arrival

PORTAL: Final = ("shifts-a", "shifts-b", "tasks", "beat")
HOUSE: Final = ("postgres", "redis", *PORTAL)
WITH_CHILDREN: Final = PORTAL[:2]
DECK: Final = (
    *("kill",) * 9, *("child",) * 3, *("pause",) * 6, *("clock",) * 6, *("disk", "flush") * 2,
    *("failover", "close") * 2, *("api",) * 4,
)  # fmt: skip
CLOSES: Final = 6
"""So many months there are to close; then PostgreSQL goes down by itself."""
ETCD_EVERY: Final = 400
"""One of so many accidents, past their middle, is an etcd that comes back with its past: what that
undoes cannot be judged, so it may not undo a whole run."""
KINDS: Final = frozenset(DECK)
JUMP_S: Final = 600


@dataclass(frozen=True, slots=True)
class Accident:
    """One thing that happens.

    Attributes:
        at_s: When it begins.
        kind: Of :data:`DECK`, or ``etcd``. ``child`` kills one alone of the processes that another
            has started, such as that of a cluster's shifts; ``close`` is a close of a month in
            whose middle PostgreSQL goes down; ``api`` a restart of an API server whose history is
            compacted; ``etcd`` one that comes back with what it held some writes ago.
        whom: A process of the house, or a cluster.
        seconds: How long it lasts, or how long after its beginning PostgreSQL goes down.
        jump_s: Of a clock.
        nth: Which of the processes that another has started.
    """

    at_s: float
    kind: str
    whom: str
    seconds: float = 0.0
    jump_s: int = 0
    nth: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's programme, each list in order of time."""

    seed: int
    seconds: float
    accidents: Sequence[Accident]
    arrivals: Sequence[Arrival]


def plan_of(seed: int, *, accidents: int, every_s: float, jobs_per_s: float = 0.4) -> Plan:
    """The same for the same seed and sizes, on every machine.

    Args:
        seed: Any number.
        accidents: How many.
        every_s: Mean time between two.
        jobs_per_s: Mean rate of arrivals.
    """
    found = tuple(_accidents(random.Random(f"{seed}-accidents"), accidents, every_s))
    seconds = found[-1].at_s + 1.0
    arrivals = tuple(arrivals_of(random.Random(f"{seed}-arrivals"), seconds, jobs_per_s))
    return Plan(seed, seconds, found, arrivals)


def _accidents(chance: random.Random, count: int, every_s: float) -> Iterator[Accident]:
    """Every kind of the deck before any comes again."""
    deck: list[str] = []
    at, closes = 2.0, 0
    for number in range(count):
        if not deck:
            deck = [*DECK]
            chance.shuffle(deck)
        kind = "etcd" if number % ETCD_EVERY == ETCD_EVERY * 3 // 4 else deck.pop()
        closes += kind == "close"
        if kind == "close" and closes > CLOSES:
            kind = "failover"
        whom, seconds, jump_s, nth = "", 0.0, 0, 0
        if kind in ("kill", "pause"):
            whom = chance.choice(HOUSE)
            seconds = chance.uniform(0.5, 9.0) if kind == "pause" else 0.0
        elif kind == "child":
            whom, nth = chance.choice(WITH_CHILDREN), chance.randrange(60)
        elif kind == "clock":
            whom, seconds = chance.choice(PORTAL), chance.uniform(3.0, 15.0)
            jump_s = chance.choice((-JUMP_S, JUMP_S))
        elif kind in ("api", "etcd"):
            whom, seconds = chance.choice(CLUSTERS), chance.uniform(0.2, 2.0)
        elif kind == "disk":
            seconds = chance.uniform(1.0, 5.0)
        elif kind == "close":
            seconds = chance.uniform(0.6, 2.5)
        yield Accident(round(at, 2), kind, whom, round(seconds, 2), jump_s, nth)
        at += chance.uniform(0.4, 1.6) * every_s


def arrivals_of(chance: random.Random, seconds: float, jobs_per_s: float) -> Iterator[Arrival]:
    """Jobs for so long, most of them short."""
    at, number = 0.0, 0
    while at < seconds:
        is_long = chance.random() < 0.1
        is_deleted = chance.random() < 0.12
        yield Arrival(
            at_s=round(at, 2),
            name=f"j{number}",
            gpus=chance.choice([1, 1, 2, 2, 4]),
            run_s=round(chance.uniform(10, 20) if is_long else chance.uniform(0.5, 5), 1),
            fails=chance.random() < 0.1,
            deleted_at_s=round(at + chance.uniform(0, 10), 2) if is_deleted else None,
        )
        at += chance.expovariate(jobs_per_s)
        number += 1
