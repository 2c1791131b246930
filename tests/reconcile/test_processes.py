"""One cluster's process dies, hangs or crashes alone; what it has is limited by the system."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from multiprocessing import forkserver
from pathlib import Path

import pytest
import yaml
from django.db import connection
from django.utils import timezone

from clusters.models import ShiftRun
from clusters.reconcile import processes as processes_module
from clusters.reconcile import shift
from clusters.reconcile.context import Clients, Identity
from clusters.reconcile.processes import STACK, THREADS, Order, Processes, place_of
from clusters.reconcile.shift import Ending, ShiftOutcome
from clusters.vault import seal
from tests.lanes import ROOT
from tests.reconcile.deeds import MIB, do
from tests.reconcile.fleet_rows import register
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.django_db(transaction=True)
MEMORY = 300 * MIB
Ask = Callable[..., "Future[ShiftOutcome]"]


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes(memory=MEMORY, does=do)
    yield found
    found.stop()
    eventually(lambda: not found.pids())


@pytest.fixture
def ask(processes: Processes) -> Iterator[Ask]:
    """Has a deed done by the process of a cluster; the outcome comes later."""
    with ThreadPoolExecutor(8) as pool:

        def work(order: Order) -> ShiftOutcome:
            try:
                return processes.work(order)
            finally:
                connection.close()

        def start(slug: str, role: str, *, seconds: float = 60.0, holder: str = "") -> object:
            return pool.submit(work, Order(slug, role, seconds, holder or f"{slug}-{role}"))

        yield start  # type: ignore[misc]
        processes.stop()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("way", ["eats", "eats beside", "eats and sets aside"])
def test_a_process_that_needs_too_much_dies_alone_and_says_so(
    ask: Ask, processes: Processes, way: str
):
    cluster = register("greedy", "{}")
    row = ShiftRun.objects.create(
        cluster=cluster,
        role="quota",
        holder="h",
        started_at=timezone.now(),
        heartbeat_at=timezone.now(),
    )
    other = ask("modest", "works", seconds=5.0)
    beside = ask("greedy", "works", holder="beside")
    eventually(lambda: len(processes.pids()) == 2)
    before = processes.pids()["modest"]
    died = ask("greedy", way, holder="h").result(PATIENCE_S)
    assert died.ending is Ending.FAILED
    assert "more memory than SHIFT_MEMORY_MB allows (300 MiB)" in died.message
    assert beside.result(PATIENCE_S) == died  # all roles of the cluster were in there
    row.refresh_from_db()
    assert row.ended_at is not None and row.outcome == str(died)[:300]
    assert other.result(PATIENCE_S) == ShiftOutcome(Ending.HANDED_OVER, str(before))


def test_the_limit_is_the_systems_and_stacks_come_on_top(ask: Ask):
    limit = int(ask("east", "reads its limit").result(PATIENCE_S).message)
    assert MEMORY < limit <= MEMORY + (10 + THREADS) * STACK
    assert ask("east", "has threads").result(PATIENCE_S).message == "60"  # 240 MiB of stacks


def test_a_shift_that_begins_has_room_for_its_threads(ask: Ask):
    """With stacks of 8 MiB, and room for two of them, it could not start the 35th."""
    assert ask("east", "has threads at once").result(PATIENCE_S).message == "60"


@pytest.mark.parametrize("what", ["threads", "a pool"])
def test_threads_that_are_told_of_have_room_at_any_time(ask: Ask, what: str):
    told = ask("east", f"has {what} when it is full").result(PATIENCE_S)
    assert told.message == "60"


@pytest.mark.parametrize(
    ("way", "want"), [("crashes", "It crashed (SIGABRT)"), ("leaves", "It crashed (exit code 3)")]
)
def test_a_process_that_crashes_is_told(ask: Ask, way: str, want: str):
    died = ask("east", way).result(PATIENCE_S)
    assert died.ending is Ending.FAILED and want in died.message


def test_a_process_that_is_killed_is_told(ask: Ask, processes: Processes):
    working = ask("east", "works")
    eventually(lambda: processes.pids())
    os.kill(processes.pids()["east"], signal.SIGKILL)
    assert (
        "as the operating system does where memory runs out" in working.result(PATIENCE_S).message
    )


def test_what_a_shift_raises_ends_that_shift_alone(ask: Ask, processes: Processes):
    other = ask("east", "works", seconds=4.0)
    raised = ask("east", "raises").result(PATIENCE_S)
    assert raised == ShiftOutcome(Ending.FAILED, "RuntimeError: nobody thought of this")
    assert other.result(PATIENCE_S).ending is Ending.HANDED_OVER


def test_a_process_that_hangs_is_killed(
    ask: Ask, processes: Processes, monkeypatch: pytest.MonkeyPatch
):
    for slug in ("east", "west"):  # a process that only begins says nothing for long
        ask(slug, "reads its limit").result(PATIENCE_S)
    monkeypatch.setattr(processes_module, "HUNG_S", 6.0)
    for slug in ("east", "west"):  # from its next word on it is listened to for so long
        ask(slug, "reads its limit").result(PATIENCE_S)
    hung, other = ask("east", "works"), ask("west", "works", seconds=8.0)
    os.kill(processes.pids()["east"], signal.SIGSTOP)
    assert "It said nothing for 6 s." in hung.result(PATIENCE_S).message
    assert other.result(PATIENCE_S).ending is Ending.HANDED_OVER


def test_a_shift_that_does_not_hand_over_is_ended(
    ask: Ask, processes: Processes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes_module, "GRACE_S", 1.0)
    late = ask("east", "eats beside", seconds=-0.9)  # its time is over before it has eaten
    assert late.result(PATIENCE_S).ending is Ending.FAILED


def test_rests_grow_with_each_death_and_begin_anew_after_a_long_life(
    ask: Ask, processes: Processes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes_module, "FIRST_REST_S", 70.0)
    said = []
    for _ in range(3):
        died = ask("east", "leaves").result(PATIENCE_S)
        assert died.ending is Ending.FAILED
        said.append(died.message.rpartition("again in ")[2])
        assert ask("east", "works").result(PATIENCE_S).ending is Ending.STOPPED  # it rests
        rest = processes._rests["east"]
        rested = rest.until - time.monotonic()
        rest.until = 0.0
    assert said == ["70 s.", "140 s.", "280 s."]
    assert 140.0 < rested <= 280.0
    assert processes._lay_to_rest("east", lived_s=10_000) == 70.0
    rest.deaths = 50
    assert processes._lay_to_rest("east", lived_s=1) == processes_module.LONGEST_REST_S


def test_a_worker_that_is_told_to_end_has_its_shifts_handed_over(ask: Ask, processes: Processes):
    working = [ask("east", "works"), ask("west", "works")]
    eventually(lambda: len(processes.pids()) == 2)
    pids = processes.pids().values()
    processes.stop()
    assert {each.result(PATIENCE_S).ending for each in working} == {Ending.HANDED_OVER}
    assert ask("east", "works").result(PATIENCE_S).ending is Ending.STOPPED
    eventually(lambda: not any(map(alive, pids)))


def test_without_the_process_that_starts_them_what_works_goes_on(ask: Ask, processes: Processes):
    """Its end is not that of those it started, and the next one starts another."""
    working = ask("east", "works", seconds=3.0)
    eventually(lambda: processes.pids())
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    assert working.result(PATIENCE_S).ending is Ending.HANDED_OVER
    assert ask("west", "works", seconds=0.1).result(PATIENCE_S).ending is Ending.HANDED_OVER


def test_a_process_without_a_shift_ends():
    found = Processes(memory=MEMORY, does=do, idle_s=0.5)
    assert found.work(Order("east", "works", 0.1, "h")).ending is Ending.HANDED_OVER
    eventually(lambda: not found.pids())
    assert found.work(Order("east", "works", 0.1, "h")).ending is Ending.HANDED_OVER  # anew
    found.stop()


def test_processes_end_with_their_worker(tmp_path: Path):
    marks = tmp_path / "pid"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    code = (
        "import django, sys; django.setup()\n"
        "from tests.reconcile import deeds; deeds.main(sys.argv[1])"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(marks)], cwd=ROOT, env=environment)
    try:
        pid = int(eventually(lambda: marks.exists() and marks.read_text(), seconds=60.0))
        assert alive(pid)
    finally:
        worker.kill()
        worker.wait()
    eventually(lambda: not alive(pid), seconds=20.0)


def test_dispatch_has_a_process_of_its_own():
    assert place_of("manager", "dispatch") != place_of("manager", "admission") == "manager"


def test_dispatch_gives_each_worker_its_part_of_the_memory(settings):
    settings.SHIFT_MEMORY_MB = 1_000
    kubeconfig = yaml.safe_dump(
        {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": "https://a.example"}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
    )
    for slug in ("east", "west"):
        worker = register(slug, kubeconfig)
        worker.multikueue_kubeconfig_sealed = seal(kubeconfig)
        worker.save()
    assert shift.shares_of("usage") is None
    with closing(Clients(shares=shift.shares_of("dispatch"))) as clients:
        share = clients.of("east", identity=Identity.MULTIKUEUE).transport.share
        assert share is not None and share is clients.of("east").transport.share
        assert share.largest == 200 * MIB // 4
    settings.SHIFT_MEMORY_MB = 0
    assert shift.shares_of("dispatch") is None
