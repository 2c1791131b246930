"""The time on a cluster, however wrong this machine's wall clock is or becomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from clusters.kube.client import Probe
from clusters.kube.pulse import ClusterClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass
class Machine:
    """A machine with two clocks, of which somebody sets one."""

    set_by_s: float = 0.0
    passed_s: float = 0.0

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.passed_s + self.set_by_s)

    def steady(self) -> float:
        return 5_000.0 + self.passed_s


@dataclass
class Feeling:
    """A pulse with its last answer, and when that came by the steady clock."""

    probed: tuple[Probe, float] | None = None


def told(machine: Machine, at: datetime, *, s_ago: float = 0.0) -> tuple[Probe, float]:
    """An answer of so many seconds ago, with the cluster's time."""
    return Probe("v1", 0.01, at), machine.steady() - s_ago


def clock_of(machine: Machine, pulse: Feeling | None) -> ClusterClock:
    return ClusterClock(machine.wall, pulse=pulse, steady=machine.steady)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ahead_s", "want_s"),
    [
        pytest.param(0, 0, id="in step"),
        pytest.param(1, 0, id="within what a header can say"),
        pytest.param(90, 90, id="ahead"),
        pytest.param(-90, -90, id="behind"),
        pytest.param(200_000, 0, id="too far ahead to be believed"),
        pytest.param(200_000_000_000, 0, id="another age"),
    ],
)
def test_clock_goes_by_the_cluster(ahead_s: int, want_s: int) -> None:
    answered = NOON - timedelta(seconds=2)
    machine = Machine()
    pulse = Feeling(told(machine, answered + timedelta(seconds=ahead_s), s_ago=2.0))
    assert clock_of(machine, pulse).now() == NOON + timedelta(seconds=want_s)


@pytest.mark.parametrize("set_by_s", [600.0, -600.0])
def test_wall_clock_that_is_set_moves_nothing_even_before_the_next_answer(set_by_s: float) -> None:
    machine = Machine()
    pulse = Feeling(told(machine, NOON))
    clock = clock_of(machine, pulse)
    assert clock.now() == NOON
    machine.passed_s, machine.set_by_s = 2.0, set_by_s
    assert clock.now() == NOON + timedelta(seconds=2)
    machine.passed_s = 5.0
    pulse.probed = told(machine, NOON + timedelta(seconds=5))
    assert clock.now() == NOON + timedelta(seconds=5)
    assert clock.skew == timedelta(seconds=-set_by_s)
    machine.passed_s, machine.set_by_s = 6.0, 0.0
    assert clock.now() == NOON + timedelta(seconds=6)


def test_without_a_cluster_to_ask_the_machine_is_believed() -> None:
    machine = Machine(set_by_s=600.0)
    assert clock_of(machine, None).now() == NOON + timedelta(seconds=600)
