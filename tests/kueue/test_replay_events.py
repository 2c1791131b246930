"""What an event of a recorded scenario does to the engine, each by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from clusters.kueue.cycle.replay_events import Replay, elapsed, end, happen, take_in, unknown_in
from tests.kueue.builders import (
    GPU,
    START,
    World,
    cluster_queue,
    group,
    local_queue,
    pod_set,
    quota,
    reserved,
    workload,
)


def replay_of(*documents: dict[str, Any], **queue: Any) -> Replay:
    """A queue of four GPUs, and what holds quota in it."""
    world = World({}, cluster_queue("q", group(f0=quota(4)), **queue), *documents)
    return Replay(world.engine, now=world.now)


def held(replay: Replay, name: str) -> Any:
    return replay.engine.state.snapshot.holding(f"ns/{name}")


def usage(replay: Replay) -> list[int]:
    return list(replay.engine.state.snapshot.queues["q"].node.usage.values())


def test_clock_goes_as_far_as_the_event_says():
    usual = timedelta(minutes=1)
    assert elapsed({"advanceSeconds": 5, "tick": 1}, otherwise=usual) == timedelta(seconds=5)
    assert elapsed({"advanceSeconds": 0}, otherwise=usual) == timedelta()
    assert elapsed({"tick": 1}, otherwise=usual) == usual


def test_keys_that_are_not_understood_are_named_in_order():
    workloads = ["arrive", "given", "finish", "checksReady", "scaleDown"]
    places = ["nodesSet", "nodesDelete", "podsSet", "podsDelete"]
    known = dict.fromkeys(["advanceSeconds", "tick", *workloads, *places])
    assert unknown_in(known) == []
    assert unknown_in({**known, "quake": 1, "flood": 2}) == ["flood", "quake"]


def test_documents_are_taken_in_as_of_their_kind():
    replay = replay_of()
    bare = {key: value for key, value in workload("w", "q").items() if key != "kind"}
    take_in(replay, [bare], kind="Workload")
    assert list(replay.engine.state.workloads) == ["ns/w"]


def test_workload_that_ends_gives_its_quota_back_and_is_remembered():
    replay = replay_of(reserved(workload("w", "q", gpus=3), "q"), workload("v", "q"))
    assert usage(replay) == [3]
    for key in ("ns/w", "ns/v", "ns/none"):
        end(replay, key)
    assert replay.finished == {"ns/w": "q"}
    assert held(replay, "w") is None
    assert sum(usage(replay)) == 0
    assert list(replay.engine.state.workloads) == ["ns/v"]


def test_checks_pass_of_what_holds_quota_and_of_nothing_else():
    waits = reserved(workload("w", "q"), "q", is_admitted=False)
    replay = replay_of(waits, reserved(workload("a", "q"), "q"), workload("v", "q"))
    before = held(replay, "a")
    assert not held(replay, "w").workload.reservation.is_admitted
    happen(replay, {"advanceSeconds": 9, "checksReady": ["none", "v", "a", "w"]})
    assert held(replay, "w").workload.reservation.is_admitted
    assert held(replay, "a") is before
    assert replay.engine.state.workloads["ns/v"].reservation is None


def test_usage_begins_when_its_checks_have_passed():
    rules = {"usageHalfLifeTime": "1h0m0s", "usageSamplingInterval": "5m0s"}
    queue = cluster_queue(
        "q",
        group(f0=quota(4)),
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
    )
    waits = reserved(workload("w", "q", gpus=3), "q", is_admitted=False)
    world = World({"admissionFairSharing": rules}, queue, waits)
    replay = Replay(world.engine, now=world.now + timedelta(minutes=2))
    happen(replay, {"checksReady": ["w"]})
    line = replay.engine.state.ledger.entry("ns/q")
    assert line.updated_at == replay.now


def test_counts_are_lowered_and_never_raised_while_admissions_stay():
    sets = [pod_set({GPU: 1}, name=name, count=2) for name in ("head", "tail")]
    replay = replay_of(reserved(workload("w", "q", *sets), "q"), workload("v", "q", gpus=3))
    replay.engine.cycle(replay.now)

    def counts(what: str) -> list[int]:
        found = replay.engine.state.workloads["ns/w"]
        rows = found.pod_sets if what == "asked" else found.reservation.pod_sets
        return [row.count for row in rows]

    assert replay.engine.state.queues.active_count == 0
    happen(replay, {"scaleDown": [{"name": "w", "counts": {"tail": 5}}]})
    assert replay.engine.state.queues.active_count == 0
    happen(replay, {"scaleDown": [{"name": "v", "counts": {"main": 0}}]})
    assert replay.engine.state.workloads["ns/v"].pod_sets[0].count == 1
    rows = [{"name": "none", "counts": {}}, {"name": "w", "counts": {"tail": 1}}]
    happen(replay, {"scaleDown": rows})
    assert (counts("asked"), counts("held")) == ([2, 1], [2, 2])
    replay.engine.state.settle(replay.now)
    assert replay.engine.state.queues.active_count == 1
    assert sum(usage(replay)) == 3


def test_usage_is_followed_where_its_ledger_is_kept():
    rules = {"usageHalfLifeTime": "1h0m0s", "usageSamplingInterval": "5m0s"}
    with_ledger = World({"admissionFairSharing": rules, "featureGates": {}}).engine
    assert Replay(with_ledger, now=START).follows_usage
    assert not replay_of(local_queue("a", "q")).follows_usage
