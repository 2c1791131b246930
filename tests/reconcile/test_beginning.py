"""Shifts begin a few at a time; nobody keeps the others from it for long."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.lease import LeaseName
from clusters.reconcile import beginning
from clusters.reconcile.beginning import Gate, Place
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.processes import Order, Processes
from clusters.reconcile.shift import BODIES, Ending, lease_name, run_shift
from tests.lanes import ROOT
from tests.reconcile.deeds import MIB, do
from tests.reconcile.fleet_rows import register
from tests.waiting import PATIENCE_S, eventually

HOLDS = """
import sys, threading
from pathlib import Path
from clusters.reconcile.beginning import Gate
with Gate(Path(sys.argv[1]), places=1).passing(threading.Event()):
    print("in", flush=True)
    threading.Event().wait(60)
"""


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path, places=2)


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def passes_soon(gate: Gate) -> bool:
    """Whether somebody gets a place without waiting long for it."""
    over = threading.Event()
    threading.Timer(0.3, over.set).start()
    with gate.passing(over) as place:
        return place.is_mine


def test_a_few_begin_and_the_next_one_waits_until_one_has(
    gate: Gate, stop: threading.Event
) -> None:
    with gate.passing(stop) as first, gate.passing(stop) as second:
        assert (first.is_mine, second.is_mine) == (True, True)
        assert not passes_soon(gate)
        first.leave()
        first.leave()
        assert passes_soon(gate)
        with gate.passing(stop):
            assert not passes_soon(gate)
    assert passes_soon(gate)


def test_a_process_that_is_killed_gives_its_place_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        gate = Gate(tmp_path, places=1)
        assert not passes_soon(gate)
        other.send_signal(signal.SIGKILL)
        other.wait(PATIENCE_S)
        assert passes_soon(gate)


def test_who_waits_too_long_begins_all_the_same(
    gate: Gate, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "WAITS_S", 0.2)
    threading.Timer(5, stop.set).start()
    with gate.passing(stop), gate.passing(stop), gate.passing(stop) as third:
        assert not third.is_mine
        assert not stop.is_set()


def test_a_place_is_not_kept_for_long(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    with gate.passing(threading.Event()) as place:
        place.leave_if_late()
        assert place.is_mine
    monkeypatch.setattr(beginning, "KEEPS_S", 0.0)
    with gate.passing(threading.Event()) as place:
        place.leave_if_late()
        assert not place.is_mine


@pytest.fixture
def full(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Place]]:
    """A gate of which others have every place."""
    monkeypatch.setattr(beginning, "gate", lambda: gate)
    with ExitStack() as stack:
        yield [stack.enter_context(gate.passing(threading.Event())) for _ in range(2)]


@pytest.fixture
def work(transactional_db: None, east: DevServer, stop: threading.Event) -> Iterator[object]:
    """Works a shift in a thread."""
    register("gpu-east", east.kubeconfig)
    with ThreadPoolExecutor(1) as pool:
        yield lambda: pool.submit(run_shift, "gpu-east", "quota", stop=stop, seconds=60, holder="a")
        stop.set()


@pytest.mark.embedded
def test_a_shift_has_its_lease_and_waits_for_its_place(
    full: list[Place], work, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it writes is guarded from the beginning, and nobody else begins in its place."""
    begun = threading.Event()

    class Body:
        def __init__(self, context: ShiftContext) -> None:
            begun.set()
            self.context = context

        def run(self) -> None:
            self.context.begun()
            assert passes_soon(beginning.gate())

    monkeypatch.setitem(BODIES, "quota", Body)
    shift, name = work(), lease_name("quota", "portal")

    def holder() -> object:
        found = kube.list(r.LEASE).items
        return [each["spec"]["holderIdentity"] for each in found if is_its(each["metadata"])]

    def is_its(metadata: dict[str, str]) -> bool:
        return LeaseName(metadata["namespace"], metadata["name"]) == name

    eventually(lambda: holder() == ["a"])
    assert not begun.wait(0.5)
    full[0].leave()
    assert shift.result(PATIENCE_S).ending is Ending.STOPPED
    assert begun.is_set()


@pytest.mark.embedded
def test_a_cluster_that_hangs_while_it_begins_keeps_its_place_for_a_while_only(
    full: list[Place], work, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "KEEPS_S", 0.5)

    class Hangs:
        def __init__(self, context: ShiftContext) -> None:
            self.context = context

        def run(self) -> None:
            self.context.stop.wait(10 * PATIENCE_S)

    monkeypatch.setitem(BODIES, "quota", Hangs)
    full[0].leave()
    shift = work()
    eventually(lambda: not passes_soon(beginning.gate()))
    eventually(lambda: passes_soon(beginning.gate()))
    stop.set()
    assert shift.result(PATIENCE_S).ending is Ending.STOPPED


@pytest.mark.embedded
def test_real_bodies_leave_their_place_once_they_have_their_lists(
    gate: Gate, work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "gate", lambda: gate)
    monkeypatch.setattr(beginning, "KEEPS_S", 10 * PATIENCE_S)
    left = threading.Event()
    leave = Place.leave
    monkeypatch.setattr(Place, "leave", lambda place: (leave(place), left.set()))
    shift = work()
    assert left.wait(PATIENCE_S)
    assert not shift.done()


@pytest.mark.django_db(transaction=True)
def test_all_processes_of_a_worker_pass_one_gate() -> None:
    processes = Processes(memory=300 * MIB, does=do)
    try:
        gates = {
            processes.work(Order(slug, "says its gate", 60.0, slug)).message
            for slug in ("east", "west")
        }
        assert gates == {beginning.folder()}
    finally:
        processes.stop()
        eventually(lambda: not processes.pids())
