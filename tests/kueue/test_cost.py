"""The work of one cycle, counted in function calls, does not follow the length of the queues."""

from __future__ import annotations

import sys
from types import FrameType

from tests.kueue.builders import World, cluster_queue, group, quota, reserved, workload


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

    count = 0

    def tally(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tally)
    try:
        result = world.cycle()
    finally:
        sys.setprofile(None)
    assert len(result.admitted) == 4
    return count


def test_cost_of_a_cycle_does_not_grow_with_what_waits():
    few, many = calls_of_a_cycle(60), calls_of_a_cycle(3000)
    assert many <= few * 1.1
