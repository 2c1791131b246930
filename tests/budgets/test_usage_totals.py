"""Totals of hour facts: kept with the facts, equal to their sums, rebuildable."""

from __future__ import annotations

import importlib
from datetime import timedelta

import pytest
import time_machine
from django.core.management import CommandError, call_command

from budgets import services
from budgets.models import (
    AccountHour,
    ClusterHour,
    MeterState,
    PlatformHour,
    UsageRecord,
    WorkspaceDay,
)
from budgets.units import Period
from tests.budgets.test_ledger_services import complete, held, store
from tests.builders import SmallFleet, hours, line
from tests.factories import UsageRecordFactory, WorkloadUsageFactory

pytestmark = pytest.mark.django_db
TOTALS = (PlatformHour, AccountHour, WorkspaceDay, ClusterHour)


@pytest.fixture
def promised(fleet: SmallFleet) -> SmallFleet:
    """Floors in two accounts; acme-speech lends."""
    with time_machine.travel(hours(0), tick=False):
        fleet.revise(fleet.vision, line("h100", 8, 24))
        fleet.revise(fleet.speech, line("h100", 8))
        fleet.revise(fleet.search, line("h100", 16))
    return fleet


@pytest.fixture
def metered(promised: SmallFleet) -> SmallFleet:
    """Two days of it, over a UTC midnight, on two clusters."""
    store(
        held("a", 0, 20),
        held("b", 3.5, 40, gpus=8),
        held("c", 1, 30, gpus=2, cluster="gpu-west"),
        held("d", 5, None, gpus=4, namespace="globex-search"),
    )
    complete(hours(41), "gpu-east", "gpu-west")
    services.meter_usage(hours(41))
    return promised


def everything() -> dict[str, list[tuple]]:
    """Every row of totals without its key."""
    return {
        model.__name__: sorted(
            tuple(str(value) for value in row)
            for row in model.objects.values_list(
                *(field.attname for field in model._meta.concrete_fields if field.name != "id")
            )
        )
        for model in TOTALS
    }


def test_totals_are_the_sums_of_the_facts_after_metering(metered: SmallFleet):
    assert services.count_wrong_totals() == 0
    assert all(rows for rows in everything().values())
    platform = PlatformHour.objects.get(hour=hours(4), flavor__slug="h100")
    # 8 + 8 + 2 held in vision, of them 8 within the floor; 8 of speech lent.
    assert (platform.committed, platform.committed_used) == (32 * 3600, 8 * 3600)
    assert (platform.burst, platform.lent, platform.borrowed) == (36_000, 28_800, 28_800)
    acme = AccountHour.objects.get(hour=hours(4), account=metered.acme, flavor__slug="h100")
    assert (acme.burst, acme.committed) == (36_000, 16 * 3600)
    assert set(ClusterHour.objects.values_list("cluster", flat=True)) == {"gpu-east", "gpu-west"}


def test_totals_follow_a_dirty_hour_that_is_metered_again(metered: SmallFleet):
    before = everything()
    store(held("late", 2, 3, gpus=1, namespace="globex-search", cluster="gpu-west"))
    services.meter_usage(hours(41))
    after = everything()
    assert all(before[name] != after[name] for name in before)
    assert services.count_wrong_totals() == 0


def test_totals_lose_what_is_no_longer_true(metered: SmallFleet):
    services.store_intervals((), workloads={("gpu-west", "c")}, pending=())
    services.meter_usage(hours(41))
    assert not ClusterHour.objects.filter(cluster="gpu-west").exists()
    assert services.count_wrong_totals() == 0


def test_totals_hold_after_a_workspace_is_archived(metered: SmallFleet):
    before = AccountHour.objects.filter(account=metered.globex).count()
    with time_machine.travel(hours(41), tick=False):
        services.archive_workspace(metered.admin, workspace=metered.search, reason="done")
    store(held("d", 5, 41.5, gpus=4, namespace="globex-search"))
    complete(hours(43), "gpu-east", "gpu-west")
    services.meter_usage(hours(43))
    assert services.count_wrong_totals() == 0
    last = AccountHour.objects.filter(account=metered.globex).order_by("hour").last()
    assert (last.hour, last.committed, last.burst) == (hours(41), 0, 4 * 1800)
    assert AccountHour.objects.filter(account=metered.globex).count() == before + 1


@pytest.mark.parametrize("model", TOTALS)
def test_wrong_totals_are_found_and_rebuilt(metered: SmallFleet, model):
    want = everything()
    row = model.objects.order_by("pk").last()
    model.objects.filter(pk=row.pk).update(burst=row.burst + 1)
    model.objects.order_by("pk").first().delete()
    assert services.count_wrong_totals() == 2
    assert services.rebuild_totals() == 2
    assert everything() == want
    assert (services.count_wrong_totals(), services.rebuild_totals()) == (0, 0)


def test_totals_of_no_fact_are_removed(metered: SmallFleet):
    UsageRecord.objects.filter(hour__lt=hours(12)).delete()
    assert services.count_wrong_totals() > 0
    services.rebuild_totals()
    assert services.count_wrong_totals() == 0
    assert PlatformHour.objects.order_by("hour").first().hour == hours(12)


def test_totals_are_written_with_the_facts_or_not_at_all(promised: SmallFleet, monkeypatch):
    store(held("a", 0, 2))
    complete(hours(2))
    facts = importlib.import_module("budgets.services.usage.hour_facts")

    def fails(window: Period) -> int:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(facts, "rewrite_totals", fails)
    with pytest.raises(RuntimeError, match="disk"):
        services.meter_usage(hours(2))
    assert not UsageRecord.objects.exists()
    assert MeterState.objects.get().metered_until is None


def test_hours_with_two_starts_are_one_row(fleet: SmallFleet):
    hour = hours(0)
    for minutes in (0, 30):
        start = hour + timedelta(minutes=minutes)
        UsageRecordFactory(
            workspace=fleet.vision, flavor=fleet.flavors["h100"], hour=hour, start=start
        )
    assert PlatformHour.objects.get().committed == 2 * 57_600
    assert services.count_wrong_totals() == 0


def test_totals_filled_anew_are_what_the_services_keep(metered: SmallFleet):
    WorkloadUsageFactory(workspace=metered.search, uid="x", hour=hours(-30), committed_used=5)
    want = everything()

    for total in TOTALS:
        total.objects.all().delete()
    assert not any(everything().values())
    services.rebuild_totals()

    assert everything() == want


def test_command_finds_and_puts_right(metered: SmallFleet, capsys):
    call_command("usage_totals")
    assert capsys.readouterr().out == "Every total is the sum of its hour facts.\n"
    PlatformHour.objects.order_by("pk").first().delete()
    with pytest.raises(CommandError, match="1 rows of totals") as refused:
        call_command("usage_totals")
    assert refused.value.returncode == 1
    call_command("usage_totals", rebuild=True)
    assert capsys.readouterr().out == "1 rows of totals were corrected.\n"
    call_command("usage_totals")
