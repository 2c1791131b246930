"""Tasks, their queues and their schedule."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clusters import tasks
from clusters.models import Cluster, ShiftRun
from clusters.reconcile import claims
from portal.celery import app, require_shift_slots
from tests.reconcile.fleet_rows import register
from tests.waiting import PATIENCE_S


def test_every_beat_entry_names_a_registered_task() -> None:
    app.loader.import_default_modules()
    named = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert named - set(app.tasks) == set()


def test_every_task_of_ours_has_a_queue_that_somebody_reads() -> None:
    app.loader.import_default_modules()
    queues = {
        name: app.amqp.router.route({}, name)["queue"].name
        for name in app.tasks
        if name.startswith(("clusters.", "budgets."))
    }
    assert queues["clusters.tasks.run_shift"] == "shift"
    assert [name for name, queue in queues.items() if queue == "shift"] == [
        "clusters.tasks.run_shift"
    ]
    assert set(queues.values()) <= {"shift", "sync", "meter"}


def test_beat_entries_expire_so_that_they_do_not_pile_up() -> None:
    for entry in app.conf.beat_schedule.values():
        assert entry["options"]["expires"] <= max(5, entry["schedule"] * 2)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What would be sent to the broker."""
    found: list[tuple[str, str]] = []

    def send(args: tuple[str, str], **options: Any) -> None:
        assert options["expires"] == tasks.OFFER_EXPIRES_S
        found.append(args)

    monkeypatch.setattr(tasks.run_shift, "apply_async", send)
    return found


@pytest.mark.django_db
def test_fill_offers_exactly_the_shifts_that_nobody_works(
    offered: list[tuple[str, str]],
) -> None:
    worker = register("gpu-east", "{}", mode="portal")
    register("manager", "{}", role="manager", mode="portal")
    register("gone", "{}").delete()
    assert claims.take(worker.pk, ShiftRun.Role.USAGE, holder="somebody") is not None
    assert tasks.fill_shifts() == {"wanted": 8, "offered": 7}
    assert sorted(offered) == [
        ("gpu-east", "admission"),
        ("gpu-east", "quota"),
        ("manager", "admission"),
        ("manager", "dispatch"),
        ("manager", "quota"),
        ("manager", "spend"),
        ("manager", "usage"),
    ]


@pytest.mark.django_db
def test_nudge_makes_sure_that_every_shift_is_filled(offered: list[tuple[str, str]]) -> None:
    register("gpu-east", "{}")
    assert tasks.nudge_sync() == {"wanted": 3, "offered": 3}


@pytest.mark.django_db
def test_shift_of_a_cluster_that_is_gone_returns_quietly() -> None:
    assert tasks.run_shift("nobody", "quota") == "cluster is not registered"
    assert tasks.run_preflight("nobody") == 0


@pytest.mark.django_db
def test_worker_with_too_few_slots_does_not_start() -> None:
    register("gpu-east", "{}")

    class Queues:
        consume_from = ("shift",)

    class Amqp:
        queues = Queues

    class App:
        amqp = Amqp

    class Instance:
        app = App
        concurrency = 1

    with pytest.raises(SystemExit, match="1 slots for 3 shifts"):
        require_shift_slots(instance=Instance)
    Instance.concurrency = 3
    require_shift_slots(instance=Instance)
    assert Cluster.objects.count() == 1


@pytest.mark.parametrize(
    ("task", "service"),
    [
        (tasks.check_health, "check_health"),
        (tasks.rotate_tokens, "rotate_due_tokens"),
        (tasks.run_workload_actions, "run_workload_actions"),
    ],
)
def test_second_round_does_not_wait_for_the_first(
    task: Any, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> dict[str, bool]:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return {"gpu-east": True}

    monkeypatch.setattr(tasks.services, service, slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(task)
        assert begun.wait(PATIENCE_S)
        assert not task()
        go_on.set()
        assert first.result(PATIENCE_S) == {"gpu-east": True}
    assert task() == {"gpu-east": True}
