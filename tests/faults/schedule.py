"""What happens in a fault run, and when: drawn from a seed alone, before anything runs. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

WORKERS: Final = ("w1", "w2")
CLUSTERS: Final = ("manager", *WORKERS)
GPUS_PER_WORKER: Final = 8
# A cut worker is found to be lost within this time, seconds; see clusters/kube/pulse.py.
NOTICED_WITHIN_S: Final = 8.0
# An outage within the grace ends at least so long before it, seconds.
SHORT_OF_S: Final = 0.4
KINDS: Final = (
    "cut-within", "cut-beyond", "freeze", "errors", "conflicts", "slow", "slow-watch",
    "drop-watches", "expire-watches", "lost-answer", "kill-dispatch", "kill-admission",
    "kill-dispatch", "kill-dispatch", "pause", "lease-blocked", "drain",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """How long faults come, and what they are measured against.

    Attributes:
        seconds: Of faults and arrivals; what follows is the way back to rest.
        grace_s: ``workerLostTimeout``.
        lease_s: Duration of a shift's Lease.
        jobs_per_s: Mean rate of arrivals.
        fault_every_s: Mean time between two faults.
    """

    seconds: float
    grace_s: float = 12.0
    lease_s: int = 4
    jobs_per_s: float = 0.8
    fault_every_s: float = 2.5


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at_s: When it begins.
        kind: Of :data:`KINDS`.
        cluster: Whose road, or whose shift, it concerns; the manager for faults of the Lease.
        seconds: How long it lasts; 0 where that means nothing.
        count: How many requests it hits; for a kill, the change that is the program's last.
        what: Status code, ``reads`` or ``writes``, ``before`` or ``after`` the change.
    """

    at_s: float
    kind: str
    cluster: str
    seconds: float = 0.0
    count: int = 0
    what: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job.

    Attributes:
        at_s: When it is submitted to the manager.
        name: Of the Job.
        gpus: It asks for.
        run_s: How long it runs once it was started.
        fails: It ends badly.
        deleted_at_s: When its owner deletes it; None for never.
        squatted: The worker where a Job of that name that is not the portal's is already there.
    """

    at_s: float
    name: str
    gpus: int
    run_s: float
    fails: bool = False
    deleted_at_s: float | None = None
    squatted: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run's whole programme, each list in order of time."""

    seed: int
    size: Size
    arrivals: Sequence[Arrival]
    faults: Sequence[Fault]


def schedule_of(seed: int, size: Size) -> Schedule:
    """The same for the same seed and size, on every machine."""
    return Schedule(
        seed,
        size,
        tuple(_arrivals(random.Random(f"{seed}-jobs"), size)),
        tuple(_faults(random.Random(f"{seed}-faults"), size)),
    )


def _arrivals(chance: random.Random, size: Size) -> Iterator[Arrival]:
    at, number = 0.0, 0
    while at < size.seconds * 0.75:
        is_long = chance.random() < 0.12
        is_deleted = chance.random() < 0.15
        yield Arrival(
            at_s=round(at, 2),
            name=f"j{number}",
            gpus=chance.choice([1, 1, 2, 2, 4, 8]),
            run_s=round(chance.uniform(15, 30) if is_long else chance.uniform(0.5, 6), 1),
            fails=chance.random() < 0.1,
            deleted_at_s=round(at + chance.uniform(0, 12), 2) if is_deleted else None,
            squatted=chance.choice(WORKERS) if chance.random() < 0.06 else "",
        )
        at += chance.expovariate(size.jobs_per_s)
        number += 1


def _faults(chance: random.Random, size: Size) -> Iterator[Fault]:
    """Faults of every kind before any comes twice; a worker's outages never touch."""
    deck: list[str] = []
    at = 2.0
    contact_at = dict.fromkeys(WORKERS, 0.0)
    while at < size.seconds * 0.9:
        if not deck:
            deck = [*KINDS]
            chance.shuffle(deck)
            if size.seconds < 120:
                # The longest one first, so that its end is seen.
                deck.remove("cut-beyond")
                deck.append("cut-beyond")
        kind = deck.pop()
        fault = _MAKERS[kind](chance, size, round(at, 2))
        at += chance.uniform(0.4, 1.6) * size.fault_every_s
        if fault.at_s + fault.seconds > size.seconds:
            continue
        if kind in ("cut-within", "cut-beyond", "freeze"):
            free = [name for name in WORKERS if contact_at[name] <= fault.at_s]
            if free:
                fault = _at(fault, chance.choice(free))
                # Time to be found again: two short outages must not look like one long one.
                contact_at[fault.cluster] = fault.at_s + fault.seconds + size.grace_s
                yield fault
        else:
            yield fault


def _at(fault: Fault, cluster: str) -> Fault:
    return Fault(fault.at_s, fault.kind, cluster, fault.seconds, fault.count, fault.what)


def _cut_within(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "cut-within", "", round(chance.uniform(0.2, size.grace_s - SHORT_OF_S), 2))


def _cut_beyond(chance: random.Random, size: Size, at: float) -> Fault:
    longest = size.grace_s + NOTICED_WITHIN_S
    return Fault(at, "cut-beyond", "", round(longest + chance.uniform(2, 8), 2))


def _freeze(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "freeze", "", round(chance.uniform(1, size.grace_s - SHORT_OF_S), 2))


def _errors(chance: random.Random, size: Size, at: float) -> Fault:
    what = chance.choice(["500", "503", "429"]), chance.choice(["writes", "reads"])
    return Fault(at, "errors", chance.choice(CLUSTERS), count=chance.randint(1, 5), what=what)


def _conflicts(chance: random.Random, size: Size, at: float) -> Fault:
    what = "409", "writes"
    return Fault(at, "conflicts", chance.choice(CLUSTERS), count=chance.randint(1, 3), what=what)


def _slow(chance: random.Random, size: Size, at: float) -> Fault:
    cluster, latency = chance.choice(CLUSTERS), round(chance.uniform(0.1, 0.8), 2)
    return Fault(at, "slow", cluster, round(chance.uniform(2, 6), 2), what=(str(latency),))


def _slow_watch(chance: random.Random, size: Size, at: float) -> Fault:
    cluster, lag = chance.choice(CLUSTERS), round(chance.uniform(0.5, 3), 2)
    return Fault(at, "slow-watch", cluster, round(chance.uniform(3, 8), 2), what=(str(lag),))


def _drop_watches(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "drop-watches", chance.choice(CLUSTERS))


def _expire_watches(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "expire-watches", chance.choice(CLUSTERS), count=chance.randint(1, 4))


def _lost_answer(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "lost-answer", chance.choice(CLUSTERS), count=chance.randint(1, 3))


def _kill_dispatch(chance: random.Random, size: Size, at: float) -> Fault:
    moment = chance.choice(["before", "after"])
    return Fault(at, "kill-dispatch", "manager", count=chance.randint(1, 8), what=(moment,))


def _kill_admission(chance: random.Random, size: Size, at: float) -> Fault:
    moment, cluster = chance.choice(["before", "after"]), chance.choice(CLUSTERS)
    return Fault(at, "kill-admission", cluster, count=chance.randint(1, 8), what=(moment,))


def _pause(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "pause", "manager", round(size.lease_s * chance.uniform(0.5, 2.5), 2))


def _lease_blocked(chance: random.Random, size: Size, at: float) -> Fault:
    seconds = size.lease_s * chance.uniform(0.6, 2.5)
    return Fault(at, "lease-blocked", "manager", round(seconds, 2))


def _drain(chance: random.Random, size: Size, at: float) -> Fault:
    return Fault(at, "drain", "manager", round(chance.uniform(0.5, 4), 2))


_MAKERS: Final[Mapping[str, Callable[[random.Random, Size, float], Fault]]] = {
    "cut-within": _cut_within,
    "cut-beyond": _cut_beyond,
    "freeze": _freeze,
    "errors": _errors,
    "conflicts": _conflicts,
    "slow": _slow,
    "slow-watch": _slow_watch,
    "drop-watches": _drop_watches,
    "expire-watches": _expire_watches,
    "lost-answer": _lost_answer,
    "kill-dispatch": _kill_dispatch,
    "kill-admission": _kill_admission,
    "pause": _pause,
    "lease-blocked": _lease_blocked,
    "drain": _drain,
}
