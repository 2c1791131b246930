"""Replay recorded scenarios of the real scheduler and compare every decision.

Format: one JSON object per scenario; see the conformance data's description. Pure: lines in,
results out.

Where the recordings say more than their description: the status of a finished workload still shows
its reservation, so finishing it a second time wakes its tree again; and a step ends after a cycle
that left everything as the cycle before had, so its first cycle never is the last one while a heap
holds something.

Source: recordings of Kueue v0.19.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clusters.kueue.configuration import DEFAULT_STRATEGIES, Configuration
from clusters.kueue.cycle.engine import Engine

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_STEP: Final = timedelta(minutes=1)
_CYCLE: Final = timedelta(seconds=1)
_MOST_CYCLES: Final = 1000
_FEEDS: Final = (
    ("namespaces", "Namespace"),
    ("resourceFlavors", "ResourceFlavor"),
    ("cohorts", "Cohort"),
    ("clusterQueues", "ClusterQueue"),
    ("localQueues", "LocalQueue"),
)


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """Where a replay left the recording.

    Attributes:
        step: index of the event.
        cycle: index of the cycle in the step, ``None`` for the state after the last one.
        what: ``admitted``, ``preempted``, ``cycles``, ``queued``, ``inadmissible`` or
            ``pendingMessages``.
    """

    step: int
    cycle: int | None
    what: str
    wanted: object
    got: object


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """Outcome of one scenario."""

    name: str
    family: str
    differences: tuple[ReplayDifference, ...]

    @property
    def is_match(self) -> bool:
        """Whether every decision agreed."""
        return not self.differences


@dataclass(slots=True)
class _ReplayState:
    engine: Engine
    now: datetime = START
    messages: dict[str, str] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)


def replay_line(line: str) -> ScenarioResult:
    """Replay one recorded scenario, its JSON, up to and including the first step that differs.

    Raises:
        ValueError: the line is no scenario.
    """
    return replay_scenario(json.loads(line))


def replay_scenario(scenario: Mapping[str, Any]) -> ScenarioResult:
    """Replay one scenario; see ``replay_line``."""
    strategies = DEFAULT_STRATEGIES if scenario["fairSharing"] else ()
    replay = _ReplayState(Engine(Configuration(fair_strategies=strategies)))
    for section, kind in _FEEDS:
        for document in scenario[section]:
            replay.engine.upsert(document, now=replay.now, kind=kind)
    differences: tuple[ReplayDifference, ...] = ()
    for index, step in enumerate(scenario["steps"]):
        differences = tuple(_differences(index, step["expect"], _run_step(replay, step["event"])))
        if differences:
            break
    return ScenarioResult(scenario["name"], scenario["family"], differences)


def _run_step(replay: _ReplayState, event: Mapping[str, Any]) -> dict[str, Any]:
    engine = replay.engine
    replay.now += _STEP
    for document in event.get("arrive", ()):
        engine.upsert(document, now=replay.now, kind="Workload")
    for name in event.get("finish", ()):
        key = f"ns/{name}"
        holding = engine.state.snapshot.holding(key)
        if holding is not None:
            replay.finished[key] = holding.cluster_queue
            engine.delete("Workload", key=key, now=replay.now)
        elif key in replay.finished:
            engine.wake(replay.finished[key])
    cycles: list[dict[str, Any]] = []
    engine.state.settle(replay.now)
    # The recording compares with the state after the cycle before, so one cycle never ends a step.
    before: object = None
    state = _queue_state(engine)
    while state[0] and len(cycles) < _MOST_CYCLES:
        replay.now += _CYCLE
        cycle = _run_cycle(replay)
        cycles.append(cycle)
        state = _queue_state(engine)
        if not cycle["admitted"] and not cycle["preempted"] and before == state:
            break
        before = state
    return {
        "cycles": cycles,
        "queued": state[0],
        "inadmissible": state[1],
        "pendingMessages": dict(replay.messages),
    }


def _run_cycle(replay: _ReplayState) -> dict[str, Any]:
    result = replay.engine.cycle(replay.now)
    for pending in result.pending:
        replay.messages[pending.key] = pending.message
    for preempt in result.preempted:
        replay.messages[preempt.key] = preempt.message
        replay.engine.release_evicted(preempt.key, now=replay.now)
    for admit in result.admitted:
        replay.messages.pop(admit.key, None)
    replay.engine.state.settle(replay.now)
    return {
        "admitted": {admit.key: dict(admit.admission) for admit in result.admitted},
        "preempted": {preempt.key: preempt.reason for preempt in result.preempted},
    }


def _queue_state(engine: Engine) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    active, parked = {}, {}
    for queue in engine.state.queues.queues():
        if keys := queue.active_keys():
            active[queue.name] = sorted(keys)
        if keys := queue.parked_keys():
            parked[queue.name] = sorted(keys)
    return active, parked


def _differences(
    step: int, expect: Mapping[str, Any], got: Mapping[str, Any]
) -> Iterator[ReplayDifference]:
    """Where a step left the recording: of its first cycle that did, else of its end."""
    for number, (cycle, have) in enumerate(zip(expect["cycles"], got["cycles"], strict=False)):
        want = {
            "admitted": {item["workload"]: item["admission"] for item in cycle["admitted"]},
            "preempted": {item["workload"]: item["reason"] for item in cycle["preempted"]},
        }
        if want != have:
            yield from _unequal(step, number, want, have)
            return
    ends: dict[str, Any] = {"cycles": len(expect["cycles"])}
    for what in ("queued", "inadmissible"):
        ends[what] = {name: sorted(keys) for name, keys in expect[what].items()}
    ends["pendingMessages"] = expect["pendingMessages"]
    yield from _unequal(step, None, ends, {**got, "cycles": len(got["cycles"])})


def _unequal(
    step: int, cycle: int | None, wanted: Mapping[str, Any], got: Mapping[str, Any]
) -> Iterator[ReplayDifference]:
    for what, want in wanted.items():
        if want != got[what]:
            yield ReplayDifference(step, cycle, what, want, got[what])
