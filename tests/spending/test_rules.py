"""Setting spend rules, what they see, and what they let take effect."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import IntegrityError, transaction

from budgets import metering, services
from budgets.errors import NotAllowed, Rejected
from budgets.models import (
    Alert,
    AlertRule,
    AuditEntry,
    BillingTerms,
    Budget,
    Role,
    SpendEffect,
    SpendRule,
)
from budgets.plan import ClusterPlace, StopPolicy, plan_quota
from budgets.selectors import promises_in_force, roles_of
from budgets.selectors.spending import (
    active_rules,
    cap_states,
    namespaces_with_rules,
    rule_for,
)
from budgets.services import alerts
from budgets.services.spending import (
    break_glass,
    change_spend_rule,
    mend_glass,
    remove_spend_rule,
    settle_spending,
    settle_workspace,
)
from budgets.spending import NO_EFFECT
from budgets.units import BOOKS_BEGIN
from tests.builders import SmallFleet, hours, line
from tests.spending.conftest import at, ruled, running

MANAGER = ClusterPlace("hub", is_manager=True)


def state(rule: SpendRule, hour: float):
    return cap_states(active_rules().filter(pk=rule.pk), hours(hour))[0]


def queue(fleet: SmallFleet):
    plan = plan_quota(promises_in_force(), MANAGER)
    return next(queue for queue in plan.queues if queue.name == fleet.vision.namespace)


def codes(found) -> set[str]:
    return {fault.code for fault in found.value.faults}


# What a rule sees


def test_a_job_counts_to_the_second_while_it_runs(fleet):
    rule = ruled(fleet, 100)
    running(fleet, 1)
    assert state(rule, 1).spent == 0
    assert state(rule, 1 + 1 / 3600).spent == Fraction(8, 3600)
    found = state(rule, 5.5)
    assert (found.spent, found.per_hour) == (36, 8)
    assert found.exhausted_at == hours(1 + 100 / 8)


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param({}, 8 * 4, id="GPU-hours of burst"),
        pytest.param({"counts": "everything", "amount": 200}, 16 * 4, id="all GPU-hours used"),
        pytest.param({"unit": "money"}, 8 * 4 * 3, id="burst charges"),
        pytest.param(
            {"unit": "money", "counts": "everything", "amount": 400},
            8 * 4 * 3 + 8 * 6 * 2,
            id="burst charges and the floor of every hour",
        ),
    ],
)
def test_what_is_counted(fleet, terms, want):
    rule = ruled(fleet, **{"amount": 100, **terms})
    running(fleet, 1, 5)
    assert state(rule, 6).spent == want


@pytest.mark.parametrize("metered", [None, 2.5, 4, 7])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_meter_changes_nothing_about_what_is_seen(fleet, metered, zone):
    """Before and after its run, and in a zone whose days begin in the middle of an hour."""
    BillingTerms.objects.create(account=fleet.acme, zone=zone)
    rule = ruled(fleet, 500, unit="money")
    running(fleet, -6, 5.25)
    running(fleet, 3.1, gpus=4)
    before = state(rule, 7).spent
    if metered is not None:
        services.record_progress(cluster="gpu-east", complete_until=hours(metered))
        services.meter_usage(hours(metered))
    assert state(rule, 7).spent == before
    burst = {"UTC": 5.25 * 8 + 3.9 * 4 - (7 - 5.25) * 4, "Asia/Kolkata": None}[zone]
    if burst is not None:
        assert before == pytest.approx(Fraction(burst) * 3)


def test_windows_turn_in_the_billing_zone(fleet):
    BillingTerms.objects.create(account=fleet.acme, zone="America/New_York")
    rule = ruled(fleet, 30)
    running(fleet, 0)
    assert state(rule, 4.9).verdict.reached_at is not None
    turned = state(rule, 5 + 1)
    assert (turned.spent, turned.window.start) == (8, hours(5))


# Taking effect


def test_a_hard_cap_holds_the_queue_and_lets_go_when_the_window_turns(fleet):
    ruled(fleet, 40)
    running(fleet, 0)
    assert settle_spending(hours(4.9)).changed == ()
    assert queue(fleet).stop_policy is StopPolicy.NONE
    generation = Budget.objects.get(workspace=fleet.vision).generation
    assert settle_spending(hours(5)).changed == ("acme-vision",)
    assert queue(fleet).stop_policy is StopPolicy.HOLD
    assert Budget.objects.get(workspace=fleet.vision).generation == generation + 1
    assert settle_spending(hours(6)).changed == (), "nothing new, nothing written"
    assert settle_spending(hours(24)).changed == ("acme-vision",)
    assert queue(fleet).stop_policy is StopPolicy.NONE
    entries = AuditEntry.objects.filter(action="budget.spend_effect").order_by("pk")
    assert [entry.after["stop_policy"] for entry in entries] == ["Hold", "None"]
    assert "40 GPU-hours of burst a day" in entries[0].reason


def test_who_looks_at_some_workspaces_lets_nobody_elses_rules_take_effect(fleet):
    ruled(fleet, 40)
    running(fleet, 0)
    found = settle_spending(hours(5), namespaces={"others"})
    assert (found.looked_at, found.changed) == (0, ())
    assert settle_spending(hours(5), namespaces={"acme-vision"}).changed == ("acme-vision",)
    assert settle_spending(hours(24), namespaces={"others"}).changed == ()
    assert settle_spending(hours(24), namespaces={"acme-vision"}).changed == ("acme-vision",)


def test_whom_a_rule_may_concern_is_found_until_its_effect_is_over(
    fleet, django_assert_num_queries
):
    assert namespaces_with_rules() == frozenset()
    rule = ruled(fleet, 40)
    running(fleet, 0)
    with django_assert_num_queries(1):
        assert namespaces_with_rules() == {"acme-vision"}
    settle_spending(hours(5))
    SpendRule.objects.filter(pk=rule.pk).update(removed_at=hours(6))
    assert namespaces_with_rules() == {"acme-vision"}, "its queue is still held"
    settle_spending(hours(6), namespaces=namespaces_with_rules())
    assert queue(fleet).stop_policy is StopPolicy.NONE
    assert namespaces_with_rules() == frozenset()


def test_draining_follows_after_the_grace(fleet):
    ruled(fleet, 40, action="hold_and_drain", grace_minutes=30)
    running(fleet, 0)
    settle_spending(hours(5))
    assert queue(fleet).stop_policy is StopPolicy.HOLD
    settle_spending(hours(5.4))
    assert queue(fleet).stop_policy is StopPolicy.HOLD
    settle_spending(hours(5.5))
    assert queue(fleet).stop_policy is StopPolicy.HOLD_AND_DRAIN


def test_a_soft_cap_makes_the_floor_the_ceiling_without_a_revision(fleet):
    ruled(fleet, 40, action="drop_to_floor")
    running(fleet, 0)
    assert queue(fleet).quotas["h100"].borrowing_limit == 16
    revisions = fleet.vision.budget.revisions.count()
    settle_spending(hours(5))
    found = queue(fleet)
    assert (found.quotas["h100"].nominal, found.quotas["h100"].borrowing_limit) == (8, 0)
    assert found.stop_policy is StopPolicy.NONE
    assert fleet.vision.budget.revisions.count() == revisions
    settle_spending(hours(24))
    assert queue(fleet).quotas["h100"].borrowing_limit == 16


def test_a_warning_changes_nothing_on_the_queue(fleet):
    ruled(fleet, 40, action="warn")
    running(fleet, 0)
    before = queue(fleet)
    settle_spending(hours(5))
    assert queue(fleet) == before


def test_only_hard_rules_put_the_check_on_the_managers_queue(fleet):
    soft = ruled(fleet, 40, action="drop_to_floor")
    assert not queue(fleet).checks_spend
    change_spend_rule(fleet.owner, rule=soft, action="hold", reason="now hard")
    assert queue(fleet).checks_spend
    worker = plan_quota(promises_in_force(), ClusterPlace("gpu-east", is_manager=False))
    assert not any(queue.checks_spend for queue in worker.queues)
    remove_spend_rule(fleet.owner, rule=soft, reason="enough")
    assert not queue(fleet).checks_spend


def test_a_persons_hold_and_a_cap_never_undo_each_other(fleet):
    rule = ruled(fleet, 40, action="hold_and_drain")
    running(fleet, 0)
    services.set_stop_policy(fleet.owner, budget=fleet.vision.budget, policy="Hold", reason="x")
    settle_spending(hours(5))
    assert queue(fleet).stop_policy is StopPolicy.HOLD_AND_DRAIN, "the stronger of the two"
    with at(5.1):
        remove_spend_rule(fleet.owner, rule=rule, reason="enough")
    assert queue(fleet).stop_policy is StopPolicy.HOLD, "the person's hold stays"
    ruled(fleet, 40, action="hold")
    settle_spending(hours(6))
    services.set_stop_policy(fleet.owner, budget=fleet.vision.budget, policy="None", reason="x")
    assert queue(fleet).stop_policy is StopPolicy.HOLD, "the cap's hold stays"


def test_a_raise_lets_go_at_once(fleet):
    rule = ruled(fleet, 40)
    running(fleet, 0)
    settle_spending(hours(5))
    with at(5.5):
        change_spend_rule(fleet.owner, rule=rule, amount=Decimal(90), reason="topped up")
    assert queue(fleet).stop_policy is StopPolicy.NONE
    assert not SpendEffect.objects.exists()


def test_one_workspace_is_settled_on_its_own(fleet):
    ruled(fleet, 40)
    running(fleet, 0)
    assert settle_workspace("acme-vision", hours(4)) == NO_EFFECT
    assert settle_workspace("acme-vision", hours(5)).stop_policy is StopPolicy.HOLD
    assert SpendEffect.objects.get().reason.startswith("cap reached")
    assert settle_workspace("nobody-knows", hours(5)) == NO_EFFECT


def test_archiving_ends_what_rules_do(fleet):
    ruled(fleet, 40)
    running(fleet, 0, 6)
    settle_spending(hours(5))
    with at(7):
        services.archive_workspace(None, workspace=fleet.vision, reason="over")
    assert settle_spending(hours(7)).looked_at == 0
    assert not SpendEffect.objects.exists()


def test_looking_costs_the_same_queries_however_many_rules(fleet, django_assert_max_num_queries):
    ruled(fleet, 40)
    running(fleet, 0)
    with django_assert_max_num_queries(20):
        settle_spending(hours(1))
    ruled(fleet, 50)
    ruled(fleet, 60, unit="money", action="warn")
    with django_assert_max_num_queries(20):
        settle_spending(hours(1))


# Breaking the glass


def test_broken_glass_suspends_by_name_until_its_end(fleet):
    rule = ruled(fleet, 40, action="hold_and_drain", grace_minutes=60)
    running(fleet, 0)
    settle_spending(hours(5))
    with at(6):
        break_glass(fleet.owner, rule=rule, until=hours(8), reason="paper deadline")
    assert queue(fleet).stop_policy is StopPolicy.NONE
    entry = AuditEntry.objects.get(action="budget.break_glass")
    assert (entry.actor, entry.reason) == (fleet.owner, "paper deadline")
    settle_spending(hours(8))
    assert queue(fleet).stop_policy is StopPolicy.HOLD, "with the whole grace again"
    settle_spending(hours(9))
    assert queue(fleet).stop_policy is StopPolicy.HOLD_AND_DRAIN


def test_mended_glass_lets_the_rule_act_again(fleet):
    rule = ruled(fleet, 40)
    running(fleet, 0)
    with at(6):
        break_glass(fleet.owner, rule=rule, until=hours(9), reason="x")
        with pytest.raises(Rejected):
            break_glass(fleet.owner, rule=rule, until=hours(6 + 24 * 7.1), reason="too long")
    with at(7):
        mend_glass(fleet.owner, rule=rule, reason="done")
        assert queue(fleet).stop_policy is StopPolicy.HOLD
        with pytest.raises(Rejected):
            mend_glass(fleet.owner, rule=rule, reason="twice")


# Setting rules


def test_everything_that_is_wrong_is_told_at_once(fleet):
    with pytest.raises(Rejected) as found:
        ruled(fleet, 0, action="warn", grace_minutes=5, grant_end=hours(1), window="grant")
    assert codes(found) >= {"not_above_zero", "no_grace", "required"}


@pytest.mark.parametrize(
    ("unit", "window", "least"),
    [
        ("gpu_hours", "day", 25 * 8),
        ("money", "day", 25 * 8 * 2),
        ("gpu_hours", "month", 745 * 8),
    ],
)
def test_a_cap_with_the_floor_is_refused_below_the_floors_own_cost(fleet, unit, window, least):
    terms = {"unit": unit, "window": window, "counts": "everything"}
    with pytest.raises(Rejected) as found:
        ruled(fleet, least - 1, **terms)
    assert codes(found) == {"below_floor"}
    assert found.value.faults[0].field == "amount"
    assert str(least) in found.value.faults[0].message
    rule = ruled(fleet, least, **terms)
    with pytest.raises(Rejected) as found:
        change_spend_rule(fleet.owner, rule=rule, amount=Decimal(least - 1), reason="less")
    assert codes(found) == {"below_floor"}


def test_a_scheduled_floor_counts_for_it_too(fleet):
    fleet.revise(fleet.vision, line("h100", 16, 24), valid_from=hours(48))
    with pytest.raises(Rejected) as found:
        ruled(fleet, 25 * 8, counts="everything")
    assert "400" in found.value.faults[0].message


def test_a_revision_that_raises_the_floor_above_a_cap_is_refused(fleet):
    ruled(fleet, 25 * 8, counts="everything")
    ruled(fleet, 1)
    with pytest.raises(Rejected) as found:
        fleet.revise(fleet.vision, line("h100", 9, 24))
    assert codes(found) == {"floor_above_cap"}
    assert "225 GPU-hours" in found.value.faults[0].message
    fleet.revise(fleet.vision, line("h100", 8, 32))


def test_a_grant_has_its_own_time(fleet):
    rule = ruled(fleet, 40, window="grant", grant_start=hours(0), grant_end=hours(48))
    running(fleet, -3)
    assert state(rule, 30).spent == 30 * 8
    settle_spending(hours(30))
    assert queue(fleet).stop_policy is StopPolicy.HOLD, "a new day gives nothing back"
    settle_spending(hours(48))
    assert queue(fleet).stop_policy is StopPolicy.NONE
    with pytest.raises(IntegrityError), transaction.atomic():
        SpendRule.objects.filter(pk=rule.pk).update(window="day")


def test_a_grant_begins_at_most_a_year_before_anything_of_its_workspace(fleet):
    made = fleet.vision.created_at.replace(microsecond=0)
    with pytest.raises(Rejected, match="more than a year before anything of Vision") as found:
        ruled(fleet, 40, window="grant", grant_start=made - timedelta(days=400))
    assert codes(found) == {"too_early"}
    ruled(fleet, 40, window="grant", grant_start=made - timedelta(days=300))


def test_no_grant_is_metered_before_there_are_books(fleet, monkeypatch):
    rule = ruled(fleet, 40, window="grant", grant_start=hours(0))
    SpendRule.objects.filter(pk=rule.pk).update(grant_start=BOOKS_BEGIN - timedelta(days=9000))
    rule = active_rules().get(pk=rule.pk)
    meter = metering.meter

    def metered(intervals, revisions, pools, span):
        assert span.start >= BOOKS_BEGIN
        return meter(intervals, revisions, pools, span)

    monkeypatch.setattr(metering, "meter", metered)
    assert cap_states([rule], BOOKS_BEGIN + timedelta(hours=3))[0].spent == 0
    rule.grant_end = BOOKS_BEGIN - timedelta(days=8000)
    assert cap_states([rule], BOOKS_BEGIN + timedelta(hours=3))[0].spent == 0


def test_money_needs_prices(unpriced):
    with pytest.raises(Rejected) as found:
        ruled(unpriced, 40, unit="money")
    assert codes(found) == {"no_prices"}


def test_owners_set_their_own_rules_and_not_those_of_the_platform(fleet):
    own = ruled(fleet, 40)
    assert not own.is_platform
    platform = ruled(fleet, 50, actor=fleet.finance)
    assert platform.is_platform
    break_glass(fleet.finance, rule=platform, until=hours(1), reason="agreed")
    for act in (
        lambda: change_spend_rule(fleet.owner, rule=platform, amount=Decimal(99), reason="more"),
        lambda: remove_spend_rule(fleet.owner, rule=platform, reason="away"),
        lambda: break_glass(fleet.owner, rule=platform, until=hours(1), reason="now"),
        lambda: mend_glass(fleet.owner, rule=platform, reason="now"),
        lambda: ruled(fleet, 60, actor=fleet.auditor),
    ):
        with pytest.raises(NotAllowed):
            act()
    change_spend_rule(fleet.finance, rule=own, amount=Decimal(60), reason="agreed")
    with pytest.raises(Rejected):
        change_spend_rule(fleet.owner, rule=own, window="week", reason="other window")


def test_rules_of_others_do_not_exist(fleet):
    rule = ruled(fleet, 40)
    assert rule_for(roles_of(fleet.owner), "acme-vision", rule.pk) == rule
    stranger = services.create_user(
        None, username="sam", email="sam@example.org", password="correct horse battery"
    )
    services.grant_role(None, user=stranger, role=Role.OWNER, workspace=fleet.search)
    with pytest.raises(SpendRule.DoesNotExist):
        rule_for(roles_of(stranger), "acme-vision", rule.pk)
    with pytest.raises(SpendRule.DoesNotExist):
        rule_for(roles_of(stranger), "globex-search", rule.pk)


# Alerts


def test_the_word_is_given_before_the_cap_and_at_it_once_each(fleet):
    rule = ruled(fleet, 40, warn_at_percent=50)
    running(fleet, 0)
    for hour in (1, 2.5, 3, 5, 6):
        with at(hour):
            alerts.raise_alerts()
    texts = list(Alert.objects.order_by("raised_at").values_list("text", flat=True))
    assert len(texts) == 2
    assert "20.00 GPU-hours" in texts[0]
    assert "reached on 2026-03-01 05:00 UTC" in texts[0]
    assert "New jobs wait" in texts[1]
    with at(6):
        remove_spend_rule(fleet.owner, rule=rule, reason="enough")
    assert not AlertRule.objects.filter(removed_at=None).exists()


def test_a_caps_alert_goes_only_with_its_rule(fleet):
    ruled(fleet, 40)
    with pytest.raises(Rejected):
        alerts.remove_rule(fleet.owner, rule=AlertRule.objects.first())
    with pytest.raises(Rejected):
        alerts.create_rule(
            fleet.owner, workspace=fleet.vision, measure="cap", limit=Decimal(1), window="month"
        )
