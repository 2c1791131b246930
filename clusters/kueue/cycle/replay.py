"""Replay recorded scenarios of the real scheduler and compare every decision.

Format: one JSON object per scenario; see the conformance data's descriptions. Pure: lines in,
results out. A section that is absent or null is empty; what a record does not expect is not
compared. What events do is in ``replay_events``; the ledger of admission fair sharing is taken in,
shown and compared here.

Where the recordings say more than their description: a step ends after a cycle that left everything
as the cycle before had, so its first cycle never is the last one while a heap holds something. The
cases of upstream's own tables (family ``upstream``) stop after the recorded number of cycles, their
clock stands still, and what they evict is not released. Admissions come back as seen in those
with a ledger and in the family ``elastic`` alone: the others go on from their notes of flavors.

Source: recordings of Kueue v0.19.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from clusters.kueue.amounts import parse_decimal
from clusters.kueue.configuration import DEFAULT_STRATEGIES, Configuration
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.cycle.replay_events import Replay, elapsed, end, happen, take_in, unknown_in
from clusters.kueue.quota.usage_ledger import Nanos, format_nanos

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_STEP: Final = timedelta(minutes=1)
_CYCLE: Final = timedelta(seconds=1)
_STANDSTILL: Final = timedelta()
_MOST_CYCLES: Final = 1000
_UPSTREAM: Final = "upstream"
_CONFIRMED: Final = "elastic"
_FEEDS: Final = (
    ("namespaces", "Namespace"),
    ("topologies", "Topology"),
    ("nodes", "Node"),
    ("pods", "Pod"),
    ("resourceFlavors", "ResourceFlavor"),
    ("admissionChecks", "AdmissionCheck"),
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
        what: key of the part of the record that differs; ``cycles`` for their number, ``event``
            for one that is not understood.
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


def replay_line(line: str) -> ScenarioResult:
    """Replay one recorded scenario, its JSON, up to and including the first step that differs.

    Raises:
        ValueError: the line is no scenario.
    """
    return replay_scenario(json.loads(line))


def replay_scenario(scenario: Mapping[str, Any]) -> ScenarioResult:
    """Replay one scenario; see ``replay_line``."""
    is_upstream = scenario["family"] == _UPSTREAM
    replay = Replay(Engine(_configuration(scenario)), now=START)
    replay.confirms = not is_upstream and (replay.follows_usage or scenario["family"] == _CONFIRMED)
    # In the oldest recordings what got a reservation never left the queues.
    replay.ends_precedence = "configuration" in scenario
    for item in scenario.get("objects") or ():
        take_in(replay, (item["object"],), kind=item["type"].rpartition(".")[2])
    for section, kind in _FEEDS:
        take_in(replay, scenario.get(section) or (), kind=kind)
    if replay.follows_usage:
        queues = with_consumed(scenario["localQueues"], scenario.get("consumed") or {})
        take_in(replay, queues, kind="LocalQueue")
        replay.engine.sample_usage(now=replay.now)
    differences: tuple[ReplayDifference, ...] = ()
    for index, step in enumerate(scenario["steps"]):
        expect, event = step["expect"], step["event"]
        if unknown := unknown_in(event):
            differences = (ReplayDifference(index, None, "event", unknown, []),)
            break
        most = len(expect["cycles"]) if is_upstream else _MOST_CYCLES
        got = _run_step(replay, event, most=most, is_upstream=is_upstream)
        differences = tuple(_differences(index, expect, got))
        if differences:
            break
    return ScenarioResult(scenario["name"], scenario["family"], differences)


def _configuration(scenario: Mapping[str, Any]) -> Configuration:
    """The configuration of a scenario: its gates, its parts, fair sharing in its default form."""
    document = {
        **(scenario.get("configuration") or {}),
        "featureGates": scenario.get("featureGates") or {},
    }
    if scenario["fairSharing"]:
        document["fairSharing"] = {
            "preemptionStrategies": [strategy.value for strategy in DEFAULT_STRATEGIES]
        }
    return Configuration.from_document(document)


def _run_step(
    replay: Replay, event: Mapping[str, Any], *, most: int, is_upstream: bool
) -> dict[str, Any]:
    engine = replay.engine
    replay.now += _STANDSTILL if is_upstream else elapsed(event, otherwise=_STEP)
    if replay.follows_usage and not is_upstream:
        engine.sample_usage(now=replay.now)
    usage_before = usage_view(engine)
    happen(replay, event)
    cycles: list[dict[str, Any]] = []
    engine.state.settle(replay.now)
    # The recording compares with the state after the cycle before, so one cycle never ends a step.
    before: object = None
    state = _queue_state(engine)
    while len(cycles) < most and (
        is_upstream or state[0] or engine.state.second_passes.due(replay.now)
    ):
        replay.now += _STANDSTILL if is_upstream else _CYCLE
        cycle = _run_cycle(replay, is_upstream=is_upstream)
        cycles.append(cycle)
        state = _queue_state(engine)
        if not any(cycle.values()) and before == state and not is_upstream:
            break
        before = state
    return {
        "cycles": cycles,
        "queued": state[0],
        "inadmissible": state[1],
        "pendingMessages": dict(replay.messages),
        "usageBefore": usage_before,
        "usageAfter": usage_view(engine),
    }


def _run_cycle(replay: Replay, *, is_upstream: bool) -> dict[str, Any]:
    result = replay.engine.cycle(replay.now)
    if replay.confirms:
        for key in sorted(admit.key for admit in result.admitted if admit.is_admitted):
            replay.engine.confirm_admitted(key, now=replay.now)
    for pending in result.pending:
        replay.messages[pending.key] = pending.message
    for preempt in result.preempted:
        if not is_upstream:
            replay.messages[preempt.key] = preempt.message
            replay.engine.release_evicted(preempt.key, now=replay.now)
    for admit in result.admitted:
        replay.messages.pop(admit.key, None)
        if replay.ends_precedence:
            replay.engine.state.end_precedence(replay.engine.state.workloads[admit.key])
    if not is_upstream:
        for key in result.replaced:
            end(replay, key)
    replay.engine.state.settle(replay.now)
    return {
        "admitted": {admit.key: dict(admit.admission) for admit in result.admitted},
        "preempted": {item.key: item.reason for item in result.preempted}
        | {item.key: item.reason for item in result.evicted},
        "replaced": sorted(result.replaced),
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
            "replaced": sorted(cycle.get("replaced") or ()),
        }
        if want != have:
            yield from _unequal(step, number, want, have)
            return
    ends: dict[str, Any] = {"cycles": len(expect["cycles"])}
    for what in ("queued", "inadmissible"):
        ends[what] = {name: sorted(keys) for name, keys in expect[what].items()}
    ends["pendingMessages"] = expect["pendingMessages"]
    for what in ("usageBefore", "usageAfter"):
        if what in expect and not is_same_usage(expect[what], got[what]):
            ends[what] = expect[what]
    unstable = frozenset(expect.get("unstableMessages") or ())
    messages = {key: text for key, text in got["pendingMessages"].items() if key not in unstable}
    state = {**got, "cycles": len(got["cycles"]), "pendingMessages": messages}
    yield from _unequal(step, None, ends, state)


def _unequal(
    step: int, cycle: int | None, wanted: Mapping[str, Any], got: Mapping[str, Any]
) -> Iterator[ReplayDifference]:
    for what, want in wanted.items():
        if want != got[what]:
            yield ReplayDifference(step, cycle, what, want, got[what])


_TOLERANCE: Final = Decimal("1e-12")


def with_consumed(
    local_queues: Iterable[Mapping[str, Any]], consumed: Mapping[str, Mapping[str, str]]
) -> Iterator[Mapping[str, Any]]:
    """LocalQueue documents whose status tells what was consumed before the scenario."""
    for document in local_queues:
        metadata = document["metadata"]
        status = {"consumedResources": consumed.get(f"{metadata['namespace']}/{metadata['name']}")}
        yield {**document, "status": {"fairSharing": {"admissionFairSharingStatus": status}}}


def usage_view(engine: Engine) -> dict[str, dict[str, Any]]:
    """Every line of the ledger as a recording shows it."""
    view = {}
    for key in engine.state.queues.local_queues:
        entry = engine.state.ledger.entry(key)
        if entry is not None:
            view[key] = {
                "consumed": _quantities(entry.consumed),
                "pending": _quantities(entry.pending),
                "lastUpdate": entry.updated_at.isoformat().replace("+00:00", "Z"),
            }
    return view


def is_same_usage(want: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    """Whether two views agree, amounts within the last digit of a float."""
    return want.keys() == got.keys() and all(
        line["lastUpdate"] == got[key]["lastUpdate"]
        and _is_close(line["consumed"], got[key]["consumed"])
        and _is_close(line["pending"], got[key]["pending"])
        for key, line in want.items()
    )


def _quantities(amounts: Nanos) -> dict[str, str]:
    return {name: format_nanos(amount) for name, amount in amounts.items()}


def _is_close(want: Mapping[str, str], got: Mapping[str, str]) -> bool:
    def amount(quantities: Mapping[str, str], name: str) -> Decimal:
        return parse_decimal(quantities.get(name, "0"))

    return all(
        abs(amount(want, name) - amount(got, name)) <= _TOLERANCE * abs(amount(want, name))
        for name in want.keys() | got.keys()
    )
