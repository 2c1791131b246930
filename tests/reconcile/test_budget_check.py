"""The portal's own AdmissionCheck on an embedded manager whose admission the portal decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import OperationalError

from budgets.models import Interval, SpendEffect
from budgets.selectors import utc_now
from budgets.services.spending import change_spend_rule, create_spend_rule, settle_workspace
from clusters.kube import resources as r
from clusters.manifests.names import SPEND_CHECK, spend_controller
from clusters.reconcile.budget_check import body
from clusters.reconcile.runtime.writer import Moment, Write
from tests.builders import SmallFleet, line
from tests.reconcile.admission_harness import (
    INSTALLATION,
    Document,
    Embedded,
    condition,
    facts,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.reconcile.kill_points import Killed
from tests.reconcile.spend_hand import SpendHand, granted, spend_hand, spent
from tests.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
CONTROLLER = spend_controller(INSTALLATION)


@pytest.fixture
def space(fleet: SmallFleet) -> SmallFleet:
    """acme-vision with 8 of 24 H100 committed."""
    fleet.revise(fleet.vision, line("h100", 8, 24))
    return fleet


@pytest.fixture
def cluster() -> Iterator[Embedded]:
    """A manager with 24 GPUs whose queue waits for the check; its admission shift works."""
    strategy = {"admissionChecks": [{"name": SPEND_CHECK}]}
    with Embedded("manager", webhooks=True) as found:
        found["manager"].create(
            kueue("AdmissionCheck", SPEND_CHECK, {"controllerName": CONTROLLER}),
            *quota_objects(24, admissionChecksStrategy=strategy),
        )
        found.start("manager", "admission")
        yield found


@contextmanager
def turned(cluster: Embedded, **more) -> Iterator[SpendHand]:
    with spend_hand(cluster["manager"].client, facts("manager", is_manager=True), **more) as hand:
        yield hand


def entry(workload: Document | None) -> Document:
    entries = ((workload or {}).get("status") or {}).get("admissionChecks") or [{}]
    return next((found for found in entries if found.get("name") == SPEND_CHECK), {})


def seen(cluster: Embedded, name: str):
    return lambda: str(cluster["manager"].workload_of(name))


def test_the_check_is_active_and_a_job_within_the_cap_is_let_in(space, cluster):
    granted(space, 100)
    manager = cluster["manager"]
    with turned(cluster) as hand:
        hand.until(lambda: is_true(manager.get(r.ADMISSION_CHECK, SPEND_CHECK), "Active"))
        found = condition(manager.get(r.ADMISSION_CHECK, SPEND_CHECK), "Active")
        assert found["observedGeneration"] == 1
        manager.create(job("train", run_s=60))
        begun = time.monotonic()
        hand.until(lambda: is_true(manager.workload_of("train"), "QuotaReserved"))
        reserved = time.monotonic()
        hand.until(lambda: is_true(manager.workload_of("train"), "Admitted"))
        assert time.monotonic() - reserved < 1.0, f"after {reserved - begun:.2f} s for the quota"
    found = manager.workload_of("train")
    assert entry(found)["state"] == "Ready"
    owner = [
        item["manager"]
        for item in found["metadata"]["managedFields"]
        if "f:admissionChecks" in str(item) and item["operation"] == "Apply"
    ]
    assert CONTROLLER in owner


def test_a_check_with_parameters_is_told_to_have_none(space, cluster):
    other = {
        "controllerName": CONTROLLER,
        "parameters": {"apiGroup": "example.org", "kind": "Rules", "name": "mine"},
    }
    manager = cluster["manager"]
    manager.create(kueue("AdmissionCheck", "mine", other))
    manager.create(kueue("AdmissionCheck", "theirs", {"controllerName": "example.org/x"}))
    with turned(cluster) as hand:
        hand.until(lambda: condition(manager.get(r.ADMISSION_CHECK, "mine"), "Active"))
    found = condition(manager.get(r.ADMISSION_CHECK, "mine"), "Active")
    assert (found["status"], found["reason"]) == ("False", "BadParametersRef")
    assert not condition(manager.get(r.ADMISSION_CHECK, "theirs"), "Active")


def test_a_job_that_races_is_rejected_and_the_raise_brings_it_back(space, cluster):
    rule = granted(space, 10)
    spent(space, burst_hours=12)
    manager = cluster["manager"]
    with turned(cluster) as hand:
        manager.create(job("train", run_s=60))
        hand.until(lambda: manager.workload_of("train"))
        hand.until(
            lambda: manager.workload_of("train")["spec"].get("active") is False,
            why=seen(cluster, "train"),
        )
        hand.until(
            lambda: (
                condition(manager.workload_of("train"), "Evicted").get("reason")
                == "DeactivatedDueToAdmissionCheck"
            ),
            why=seen(cluster, "train"),
        )
        assert "spend cap" in condition(manager.workload_of("train"), "Evicted")["message"]
        assert SpendEffect.objects.get().stop_policy == "Hold", "quota sync stops the queue, too"
        change_spend_rule(space.owner, rule=rule, amount=Decimal(20), reason="topped up")
        hand.settle_now()
        hand.until(
            lambda: is_true(manager.workload_of("train"), "Admitted"), why=seen(cluster, "train")
        )
        eventually(lambda: not manager.job("train")["spec"]["suspend"])


def test_running_jobs_are_let_through_whatever_the_cap_says(space, cluster):
    """A check that comes onto the queue while a job runs lists Pending for it, too."""
    manager = cluster["manager"]
    with turned(cluster) as hand:
        manager.create(job("train", run_s=60))
        hand.until(lambda: is_true(manager.workload_of("train"), "Admitted"))
    granted(space, 10)
    spent(space, burst_hours=12)
    # As core writes it when another check comes: Pending, and Admitted stays.
    found = manager.workload_of("train")
    entries = [{**entry(found), "state": "Pending", "message": ""}]
    manager.client.patch(
        r.WORKLOAD,
        found["metadata"]["name"],
        {"status": {"admissionChecks": entries}},
        namespace="acme-vision",
        options=_status_options(),
    )
    with turned(cluster) as hand:
        hand.until(
            lambda: entry(manager.workload_of("train")).get("state") == "Ready",
            why=seen(cluster, "train"),
        )
    assert is_true(manager.workload_of("train"), "Admitted")
    assert not condition(manager.workload_of("train"), "Evicted")


def _status_options():
    from clusters.kube.client import WriteOptions

    return WriteOptions(subresource="status")


def test_without_the_portal_new_jobs_wait_and_running_ones_run(space, cluster):
    granted(space, 100)
    manager = cluster["manager"]
    with turned(cluster) as hand:
        manager.create(job("runs", run_s=60))
        hand.until(lambda: is_true(manager.workload_of("runs"), "Admitted"))
    manager.create(job("waits", run_s=60))
    eventually(lambda: is_true(manager.workload_of("waits"), "QuotaReserved"))
    time.sleep(0.5)
    assert entry(manager.workload_of("waits"))["state"] == "Pending"
    assert is_true(manager.workload_of("runs"), "Admitted")
    assert is_true(manager.get(r.ADMISSION_CHECK, SPEND_CHECK), "Active")
    with turned(cluster) as hand:
        hand.until(lambda: is_true(manager.workload_of("waits"), "Admitted"))


@pytest.mark.django_db(transaction=True)  # the body closes the connection
def test_a_database_that_does_not_answer_leaves_jobs_waiting(space, cluster, monkeypatch):
    def lost(*_):
        raise OperationalError("gone")

    manager = cluster["manager"]
    with turned(cluster) as hand:
        monkeypatch.setattr(body, "settle_workspace", lost)
        manager.create(job("train", run_s=60))
        hand.until(lambda: is_true(manager.workload_of("train"), "QuotaReserved"))
        for _ in range(5):
            hand.body.turn()
        assert entry(manager.workload_of("train"))["state"] == "Pending"
        monkeypatch.undo()
        hand.until(lambda: is_true(manager.workload_of("train"), "Admitted"))


def test_twenty_jobs_at_once_are_answered_beside_one_another_for_one_question(
    space, cluster, monkeypatch
):
    """How long that takes is measured by ``tests/perf/bench_reaction.py``."""
    granted(space, 100)
    manager = cluster["manager"]
    beside, counting = threading.Barrier(body.BudgetCheckBody.threads), threading.Lock()
    sent: list[str] = []
    asked: list[str] = []

    def wait_for_the_others(moment: Moment, _: str, write: Write) -> None:
        if moment is Moment.BEFORE and write.step == "answer-ready":
            with counting:
                sent.append(write.key)
                is_of_the_first = len(sent) <= beside.parties
            if is_of_the_first:
                beside.wait(PATIENCE_S)

    def settle(namespace, now):
        asked.append(namespace)
        return settle_workspace(namespace, now)

    with turned(cluster, hook=wait_for_the_others) as hand:
        hand.until(lambda: is_true(manager.get(r.ADMISSION_CHECK, SPEND_CHECK), "Active"))
        monkeypatch.setattr(body, "settle_workspace", settle)
        monkeypatch.setattr(body, "LASTS_S", 3600.0)
        monkeypatch.setattr(body, "SETTLE_S", 3600.0)
        manager.create(*(job(f"j{number}", run_s=120) for number in range(20)))
        hand.until(
            lambda: (
                len(found := manager.all(r.WORKLOAD)) == 20
                and all(entry(each).get("state") == "Ready" for each in found)
            )
        )
    assert not beside.broken
    assert len(set(sent)) == 20
    assert asked == ["acme-vision"]


class Reaper:
    """Kills the body once before and once after each kind of write."""

    def __init__(self) -> None:
        self.killed: set[tuple[Moment, str]] = set()

    def __call__(self, moment: Moment, cluster: str, write: Write) -> None:
        if (moment, write.step) not in self.killed:
            self.killed.add((moment, write.step))
            raise Killed


def test_a_kill_between_any_two_writes_leaves_nothing_wrong(space, cluster):
    rule = granted(space, 10)
    used = spent(space, burst_hours=12)
    manager, reap = cluster["manager"], Reaper()
    manager.create(job("train", run_s=120))

    def until(check) -> None:
        for _ in range(40):
            try:
                with turned(cluster, hook=reap) as hand:
                    hand.until(check, why=seen(cluster, "train"))
                    return
            except Killed:
                continue
        raise AssertionError("it never came through")

    until(
        lambda: (
            manager.workload_of("train")["spec"].get("active") is False
            and condition(manager.workload_of("train"), "Evicted").get("status") == "True"
        )
    )
    Interval.objects.filter(pk=used.pk).update(gpus=9)
    until(lambda: is_true(manager.workload_of("train"), "Admitted"))
    steps = {step for _, step in reap.killed}
    assert {"activate-check", "answer-rejected", "activate", "answer-ready"} <= steps
    assert {moment for moment, _ in reap.killed} == {Moment.BEFORE, Moment.AFTER}
    assert rule.pk
    assert len(manager.all(r.WORKLOAD)) == 1


def test_nothing_is_written_while_writing_is_off(space, cluster):
    granted(space, 100)
    manager = cluster["manager"]
    manager.create(job("train", run_s=60))
    off = facts("manager", is_manager=True, writes_enabled=False)
    with spend_hand(manager.client, off) as hand:
        for _ in range(5):
            hand.body.turn()
    assert not condition(manager.get(r.ADMISSION_CHECK, SPEND_CHECK), "Active")


def test_a_rule_for_another_time_holds_nothing(space, cluster):
    from budgets.services.spending import RuleDraft

    tomorrow = utc_now() + timedelta(days=1)
    draft = RuleDraft(
        unit="gpu_hours", amount=Decimal(1), window="grant", action="hold", grant_start=tomorrow
    )
    create_spend_rule(space.owner, workspace=space.vision, draft=draft, reason="next")
    spent(space, burst_hours=12)
    manager = cluster["manager"]
    with turned(cluster) as hand:
        manager.create(job("train", run_s=60))
        hand.until(lambda: is_true(manager.workload_of("train"), "Admitted"))
