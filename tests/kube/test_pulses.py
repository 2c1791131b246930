"""One pulse in a process for all who reach a cluster in the same way."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from clusters.errors import KubeconfigRejected, Refusal
from clusters.kube.client import KubeClient
from clusters.kube.pulse import Pulses
from tests.kube.conftest import DevServer
from tests.waiting import eventually


class Door:
    """Makes clients, and counts them."""

    def __init__(self, dev: DevServer) -> None:
        self._dev, self.made = dev, 0

    def __call__(self) -> KubeClient:
        self.made += 1
        return KubeClient.from_kubeconfig(self._dev.kubeconfig)


@pytest.fixture
def door(dev: DevServer) -> Door:
    return Door(dev)


def beating() -> int:
    return sum(thread.name == "pulse" for thread in threading.enumerate())


def test_who_reaches_a_cluster_the_same_way_goes_by_one_pulse(door: Door) -> None:
    pulses = Pulses()
    with pulses.shared("east", door) as one, pulses.shared("east", door) as same:
        assert one is same
        eventually(lambda: one.last_answer is not None)
        with pulses.shared("west", door) as other:
            assert other is not one
        eventually(lambda: beating() == 1)
        assert door.made == 2


def test_pulse_beats_as_long_as_somebody_goes_by_it(door: Door) -> None:
    pulses = Pulses()
    with ExitStack() as second:
        with pulses.shared("east", door) as pulse:
            second.enter_context(pulses.shared("east", door))
        assert beating() == 1
    eventually(lambda: beating() == 0)
    with pulses.shared("east", door) as anew:
        assert anew is not pulse
    eventually(lambda: beating() == 0)


def test_cluster_that_cannot_be_reached_leaves_no_pulse_behind(door: Door) -> None:
    def refuse() -> KubeClient:
        raise KubeconfigRejected(Refusal("no"))

    pulses = Pulses()
    with pytest.raises(KubeconfigRejected), pulses.shared("east", refuse):
        pass
    with pulses.shared("east", door) as pulse:
        eventually(lambda: pulse.last_answer is not None)
