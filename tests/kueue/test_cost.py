"""The work of a cycle, and of telling a status, counted in function calls, follows no number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from clusters.kueue.explanation.reports import cluster_queue_report, local_queue_report
from tests.kueue.builders import World, cluster_queue, group, quota, reserved, workload

T = TypeVar("T")


def calls_of_a_cycle(pending: int) -> int:
    """Function calls of the cycle after a workload finished in a full tree of queues."""
    world = World()
    for index in range(4):
        name = f"q{index}"
        world.feed(cluster_queue(name, group(f0=quota(8)), in_cohort="pool"))
        world.feed(reserved(workload(f"held{index}", name, gpus=8), name))
        for number in range(pending // 4):
            size = (2, 4, 8)[number % 3]
            world.feed(workload(f"w{index}-{number}", name, gpus=size, age=number))
    world.run(30)
    world.engine.delete("Workload", key="ns/held0", now=world.now)
    result, count = counted(world.cycle)
    assert len(result.admitted) == 4
    return count


def counted(call: Callable[[], T]) -> tuple[T, int]:
    """What a call returns, and how many function calls it takes."""
    count = 0

    def tally(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tally)
    try:
        found = call()
    finally:
        sys.setprofile(None)
    return found, count


def calls_of_statuses(running: int) -> int:
    """Function calls of the statuses of two queues in which so many workloads run."""
    world = World()
    world.feed(cluster_queue("q", group(f0=quota(running))))
    for number in range(running):
        world.feed(reserved(workload(f"w{number}", "q", gpus=1), "q"))
    cluster, count = counted(lambda: cluster_queue_report(world.engine, "q"))
    local, more = counted(lambda: local_queue_report(world.engine, "ns/q"))
    assert cluster.admitted == local.admitted == running
    return count + more


def test_cost_of_a_status_does_not_grow_with_what_runs():
    few, many = calls_of_statuses(10), calls_of_statuses(1000)
    assert many <= few * 1.1


def test_cost_of_a_cycle_does_not_grow_with_what_waits():
    few, many = calls_of_a_cycle(60), calls_of_a_cycle(3000)
    assert many <= few * 1.1
