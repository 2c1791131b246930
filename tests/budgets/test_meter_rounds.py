"""Many days metered: in rounds under one lock, the next day worked out while one is written."""

from __future__ import annotations

import gc
import importlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db.models import F

from budgets import metering, services
from budgets.models import (
    AccountHour,
    AccountUsage,
    ClusterHour,
    MeterState,
    PlatformHour,
    UsageRecord,
    WorkloadUsage,
    WorkspaceDay,
)
from budgets.services.usage import hour_facts
from budgets.services.usage.batches import uncollected
from budgets.units import BOOKS_BEGIN, Period
from tests.budgets.test_concurrency import at_once
from tests.budgets.test_ledger_services import complete, held, store
from tests.builders import SmallFleet, hours, line, small_fleet

meter = importlib.import_module("budgets.services.usage.meter")
TABLES = (
    UsageRecord,
    AccountUsage,
    WorkloadUsage,
    PlatformHour,
    AccountHour,
    WorkspaceDay,
    ClusterHour,
)
UNTIL = hours(9 * 24 + 5.25)


def a_week_and_more(fleet: SmallFleet) -> None:
    """Nine days on two clusters with a revision on the fourth, nothing metered yet."""
    with time_machine.travel(hours(0), tick=False):
        fleet.revise(fleet.vision, line("h100", 8, 24))
        fleet.revise(fleet.speech, line("h100", 8))
    with time_machine.travel(hours(80.5), tick=False):
        fleet.revise(fleet.vision, line("h100", 12, 24))
    store(
        held("a", 0, 30),
        held("b", 20.75, 190, gpus=10),
        held("c", 47.5, 49, gpus=2, cluster="gpu-west"),
        held("d", 60, None, gpus=4, namespace="globex-search"),
        held("e", 150, 170, gpus=7, cluster="gpu-west"),
    )
    complete(UNTIL, "gpu-east", "gpu-west")


@pytest.fixture
def waiting(fleet: SmallFleet) -> SmallFleet:
    a_week_and_more(fleet)
    return fleet


def everything() -> dict[str, list[tuple[Any, ...]]]:
    """All facts and totals without their keys, and how far the meter says that it came."""
    found = {
        model.__name__: sorted(
            model.objects.values_list(
                *(field.attname for field in model._meta.concrete_fields if field.name != "id")
            )
        )
        for model in TABLES
    }
    marks = MeterState.objects.order_by("cluster")
    found["marks"] = list(marks.values_list("cluster", "metered_until", "dirty_from"))
    return found


def forget() -> None:
    for model in TABLES:
        model.objects.all().delete()
    MeterState.objects.update(metered_until=None, dirty_from=None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("step_h", "steps"),
    [
        pytest.param(24, 1, id="a day under each lock"),
        pytest.param(24, 100, id="everything under one lock"),
        pytest.param(5, 3, id="steps that are no days"),
        pytest.param(2400, 1, id="one step"),
    ],
)
def test_rounds_of_any_size_come_to_the_same(
    waiting: SmallFleet, monkeypatch: pytest.MonkeyPatch, step_h: int, steps: int
) -> None:
    services.meter_usage(UNTIL)
    want = everything()
    assert all(want.values())
    assert services.count_wrong_totals() == 0
    forget()
    monkeypatch.setattr(meter, "STEP", timedelta(hours=step_h))
    monkeypatch.setattr(meter, "ROUND", steps)
    services.meter_usage(UNTIL)
    assert everything() == want


@pytest.mark.django_db
def test_a_round_that_is_cut_off_leaves_the_rounds_before_and_is_done_again(
    waiting: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.meter_usage(UNTIL)
    want = everything()
    forget()
    monkeypatch.setattr(meter, "ROUND", 3)
    written: list[Period] = []

    def until_the_fifth(facts: hour_facts.WindowFacts) -> tuple[int, int]:
        if len(written) == 4:
            raise KeyboardInterrupt
        written.append(facts.window)
        return hour_facts.write_facts(facts)

    monkeypatch.setattr(meter, "write_facts", until_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        services.meter_usage(UNTIL)
    # The fourth day was written with the round of the fifth, and went with it.
    assert MeterState.objects.filter(metered_until=hours(72), dirty_from=hours(72)).count() == 2
    assert not UsageRecord.objects.filter(hour__gte=hours(72)).exists()
    assert UsageRecord.objects.filter(hour=hours(71)).exists()
    assert services.count_wrong_totals() == 0

    monkeypatch.setattr(meter, "write_facts", hour_facts.write_facts)
    assert services.meter_usage(UNTIL).start == hours(72)
    assert everything() == want
    MeterState.objects.update(dirty_from=hours(0))
    again = services.meter_usage(UNTIL)
    assert (again.written, again.removed) == (0, 0)
    assert everything() == want


def nothing_adds_up(window: Period) -> tuple[str, ...]:
    return ("nothing adds up",)


def contradiction(window: Period) -> tuple[str, ...]:
    raise metering.MeteringError(f"{window.start:%Y-%m-%dT%H}: nothing adds up")


@pytest.mark.django_db
@pytest.mark.parametrize("fault", [nothing_adds_up, contradiction])
def test_a_day_that_does_not_add_up_stops_the_meter_after_the_days_before(
    waiting: SmallFleet,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Period], tuple[str, ...]],
) -> None:
    real = metering.identity_faults

    def faults(usage: metering.Usage) -> tuple[str, ...]:
        return fault(usage.window) if usage.window.start == hours(72) else real(usage)

    monkeypatch.setattr(metering, "identity_faults", faults)
    errors = (services.MeterError, metering.MeteringError)
    for _ in range(2):
        with pytest.raises(errors, match="2026-03-04T00: nothing adds up"):
            services.meter_usage(UNTIL)
        assert MeterState.objects.filter(metered_until=hours(72), dirty_from=hours(72)).count() == 2
        assert UsageRecord.objects.filter(hour=hours(71)).exists()
        assert not UsageRecord.objects.filter(hour__gte=hours(72)).exists()
    monkeypatch.setattr(metering, "identity_faults", real)
    services.meter_usage(UNTIL)
    in_parts = everything()
    forget()
    services.meter_usage(UNTIL)
    assert everything() == in_parts


@pytest.mark.django_db
def test_facts_are_worked_out_without_the_database(
    waiting: SmallFleet, django_assert_num_queries: Any
) -> None:
    source = hour_facts.FactSource(Period(hours(0), hours(48)))
    with django_assert_num_queries(0):
        facts = source.facts_of(Period(hours(24), hours(48)))
    assert facts.hours
    assert facts.accounts
    assert facts.workloads


@pytest.mark.django_db
def test_a_round_reads_what_it_needs_once(
    waiting: SmallFleet, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    """Each further day of a round costs what its own rows cost."""
    queries: list[int] = []
    for days in (1, 3):
        forget()
        complete(UNTIL, "gpu-east", "gpu-west")
        monkeypatch.setattr(meter, "ROUND", days)
        with django_assert_max_num_queries(200) as seen:
            meter._meter_round(hours(days * 24))
        queries.append(len(seen.captured_queries))
    a_day_more = (queries[1] - queries[0]) / 2
    assert a_day_more <= 30, queries


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_two_meters_at_once_write_every_fact_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a_week_and_more(small_fleet())
    services.meter_usage(UNTIL)
    want = everything()
    forget()
    monkeypatch.setattr(meter, "ROUND", 2)
    real = hour_facts.write_facts

    def slowly(facts: hour_facts.WindowFacts) -> tuple[int, int]:
        time.sleep(0.05)
        return real(facts)

    monkeypatch.setattr(meter, "write_facts", slowly)
    outcomes = at_once(lambda: services.meter_usage(UNTIL), lambda: services.meter_usage(UNTIL))
    assert everything() == want
    rows = sum(model.objects.count() for model in (UsageRecord, AccountUsage, WorkloadUsage))
    assert sum(summary.written for summary in outcomes) == rows  # type: ignore[attr-defined]  # both are summaries


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_what_is_stored_while_a_round_runs_is_metered_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A builder whose change lies behind the mark of the meter that runs waits for it."""
    a_week_and_more(small_fleet())
    has_read, stored = threading.Event(), threading.Event()
    real = hour_facts.write_facts

    def slowly(facts: hour_facts.WindowFacts) -> tuple[int, int]:
        has_read.set()
        # Not for ever: it cannot come while the round runs.
        stored.wait(1)
        return real(facts)

    monkeypatch.setattr(meter, "write_facts", slowly)
    monkeypatch.setattr(meter, "ROUND", 1)

    def late() -> None:
        has_read.wait(60)
        store(held("late", 10, 12, gpus=3))
        stored.set()

    at_once(lambda: services.meter_usage(UNTIL), late)
    assert stored.wait(60)
    monkeypatch.setattr(meter, "write_facts", real)
    services.meter_usage(UNTIL)
    late_rows = WorkloadUsage.objects.filter(uid="late")
    assert sum(late_rows.values_list(F("committed_used") + F("burst"), flat=True)) == 3 * 7200
    assert services.count_wrong_totals() == 0


def test_the_collector_is_put_back_as_it_was() -> None:
    @uncollected
    def work(*, fails: bool = False) -> bool:
        if fails:
            raise ValueError("no")
        return gc.isenabled()

    assert gc.isenabled()
    assert work() is False
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no"):
        work(fails=True)
    assert gc.isenabled()
    assert uncollected(work)() is False
    assert gc.isenabled()
    gc.disable()
    try:
        work()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_metered_before_there_are_books(fleet: SmallFleet):
    MeterState.objects.create(
        cluster="gpu-east",
        dirty_from=BOOKS_BEGIN - timedelta(days=9),
        complete_until=BOOKS_BEGIN + timedelta(hours=2),
    )
    summary = services.meter_usage(BOOKS_BEGIN + timedelta(hours=2))
    assert (summary.start, summary.end) == (BOOKS_BEGIN, BOOKS_BEGIN + timedelta(hours=2))
    assert MeterState.objects.get().dirty_from is None
