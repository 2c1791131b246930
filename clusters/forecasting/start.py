"""When a waiting job is likely to start: the queue played forward many times.

Each play draws when every holder ends, gives what comes free to those ahead in the order of the
queue, lets them run in their turn, and notes when the job's own request is met. What is left out
makes the range wide or the answer unknown, never precise: jobs that come later with a higher
priority, preemption, and changes of budgets are not foreseen.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from clusters.forecasting.runs import RunTimes

DRAWS: Final = 200
COVERAGE: Final = 0.8
# Below this a range would be wrong more often than a person forgives.
_LEAST_COVERAGE: Final = 0.5
FURTHEST: Final = timedelta(days=60)


class Confidence(StrEnum):
    """How far a forecast may be trusted."""

    GOOD = "good"
    FAIR = "fair"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """What a running job will give back.

    Attributes:
        gpus: Of the flavor in question.
        started_at: None when it is not known; then its end is unknown, too.
        history: Of its kind.
        is_own: It is of the same budget, so that its end also makes room below the ceiling.
    """

    gpus: int
    started_at: datetime | None
    history: RunTimes
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that stands before this one in the queue."""

    gpus: int
    history: RunTimes


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """The question.

    Attributes:
        gpus: What the job asks for.
        free: What it could have now, borrowing included; negative counts as missing.
        held: Who holds the rest.
        ahead: In the order of the queue, of the same budget.
        room: What its budget may still take below its ceiling; None for no bound.
        most: What it can ever have; less than ``gpus`` means never. None for no bound.
    """

    gpus: int
    free: int
    held: Sequence[HeldGpus]
    ahead: Sequence[Ahead] = ()
    room: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class StartForecast:
    """The answer.

    Attributes:
        earliest, latest: The range, UTC, whole minutes; both None when it is unknown.
        coverage: How often the start falls into the range, between 0 and 1.
        runs: Recorded runs behind it.
        why_unknown: A sentence; empty with a range.
    """

    confidence: Confidence
    earliest: datetime | None = None
    latest: datetime | None = None
    coverage: float = 0.0
    runs: int = 0
    why_unknown: str = ""


def forecast_start(question: StartQuestion, *, now: datetime, seed: int) -> StartForecast:
    """Say when a job is likely to start; the same seed gives the same answer.

    Returns:
        A range that holds in 8 of 10 cases; with few records a narrower claim, down to "unknown".
        Cost: draws x (holders + those ahead) x log.

    Raises:
        ValueError: ``now`` is naive.
    """
    if now.tzinfo is None:
        raise ValueError("now must be aware")
    if question.most is not None and question.gpus > question.most:
        return _unknown("it asks for more than its budget can ever have")
    records = [item.history for item in question.held]
    records += [item.history for item in question.ahead]
    histories = {id(history): history for history in records}
    runs = sum(history.complete for history in histories.values())
    if not runs:
        return _unknown("no run of the jobs that hold the GPUs has been recorded yet")
    # Chance decides nothing of value here; the same question has to get the same answer.
    rng = random.Random(seed)  # noqa: S311
    held = [(item, _elapsed(item, now)) for item in question.held]
    found = sorted(_play(question, held, rng) for _ in range(DRAWS))
    known = [seconds for seconds in found if seconds < math.inf]
    tail = (1 - COVERAGE) / 2
    upper = min(1 - tail, len(known) / DRAWS)
    coverage = upper - tail
    if coverage < _LEAST_COVERAGE:
        return _unknown("too few runs of the jobs that hold the GPUs have been recorded")
    low = found[int(tail * DRAWS)]
    high = found[max(math.ceil(upper * DRAWS) - 1, 0)]
    if high > FURTHEST.total_seconds():
        return _unknown("it is too far ahead to say")
    return StartForecast(
        confidence=Confidence.GOOD if coverage >= COVERAGE - 0.01 else Confidence.FAIR,
        earliest=whole_minute(now + timedelta(seconds=low)),
        latest=whole_minute(now + timedelta(seconds=high), up=True),
        coverage=round(coverage, 2),
        runs=runs,
    )


def _play(
    question: StartQuestion, held: Sequence[tuple[HeldGpus, float | None]], rng: random.Random
) -> float:
    """Seconds until the job starts in one possible future; infinite when it is not known.

    ``held`` is that of the question, each with the seconds for which it has run.
    """
    ends = [(_end_of(item, elapsed, rng), item.gpus, item.is_own) for item, elapsed in held]
    heapq.heapify(ends)
    free, clock = question.free, 0.0
    room = question.free if question.room is None else question.room
    is_bounded = question.room is not None
    for wanted, history in (
        *((item.gpus, item.history) for item in question.ahead),
        (question.gpus, None),
    ):
        while free < wanted or (is_bounded and room < wanted):
            if not ends or ends[0][0] == math.inf:
                return math.inf
            at, gpus, is_own = heapq.heappop(ends)
            clock, free = max(clock, at), free + gpus
            room += gpus if is_own else 0
        if history is not None:
            free, room = free - wanted, room - wanted
            drawn = history.draw(rng)
            heapq.heappush(ends, (math.inf if drawn is None else clock + drawn, wanted, True))
    return clock


def _elapsed(item: HeldGpus, now: datetime) -> float | None:
    """Seconds for which a holder has run; None where that is not known."""
    if item.started_at is None:
        return None
    return max(0.0, (now - item.started_at).total_seconds())


def _end_of(item: HeldGpus, elapsed: float | None, rng: random.Random) -> float:
    """Seconds from now until a holder that has run so long ends."""
    if elapsed is None:
        return math.inf
    drawn = item.history.draw(rng, elapsed=elapsed)
    return math.inf if drawn is None else drawn - elapsed


def _unknown(why: str) -> StartForecast:
    return StartForecast(Confidence.UNKNOWN, why_unknown=why)


def whole_minute(at: datetime, *, up: bool = False) -> datetime:
    """The minute that a time lies in, or on request the next one that begins."""
    whole = at.replace(second=0, microsecond=0)
    return whole + timedelta(minutes=1) if up and whole < at else whole
