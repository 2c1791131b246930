"""The same rules do not differ, however Kueue and the watches lag behind each other."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shadow.simulated import SimulatedKueue


@settings(max_examples=40, derandomize=True)
@given(st.integers(0, 2**32), st.integers(5, 60))
def test_lagging_kueue_with_the_same_rules_never_differs(seed, steps):
    world = SimulatedKueue(random.Random(seed))
    world.run(steps)
    assert world.story.differences == []


def test_decisions_are_compared_in_the_runs_that_find_nothing():
    compared = passed_over = 0
    for seed in range(20):
        world = SimulatedKueue(random.Random(seed))
        world.run(40)
        compared += world.story.compared
        passed_over += world.story.passed_over
    assert compared > 100
    assert passed_over < compared / 20
