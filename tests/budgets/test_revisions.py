"""Saving, requesting, deciding and scheduling budgets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import time_machine

from budgets import selectors, services
from budgets.errors import NotAllowed, Rejected, StaleVersion
from budgets.models import Allocation, AuditEntry, Budget, BudgetRevision, Interval, MeterState
from budgets.plan import Line, Part, RevisionDraft, Spill, short_form_lines
from budgets.services.budget.in_force import DROPPED_FLAVOR_GRACE
from tests.builders import SmallFleet, agreed, hours, line
from tests.factories import IntervalFactory

pytestmark = pytest.mark.django_db


def fault_set(error: Rejected) -> set[tuple[str, str]]:
    return {(fault.field, fault.code) for fault in error.faults}


def allocations(workspace) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (row.line.flavor.slug, row.cluster): (row.committed, row.lendable)
        for row in Allocation.objects.filter(
            line__revision__budget__workspace=workspace,
            line__revision=Budget.objects.get(workspace=workspace).in_force,
        ).select_related("line__flavor")
    }


def test_revise_inside_envelope_is_live_and_raises_the_generation(fleet: SmallFleet):
    revision = fleet.revise(fleet.vision, line("h100", 16, 32), actor=fleet.owner)
    budget = Budget.objects.get(workspace=fleet.vision)
    fleet.acme.refresh_from_db()
    assert (revision.state, revision.number) == ("live", 1)
    assert (budget.in_force, budget.generation, budget.version) == (revision, 2, 2)
    assert fleet.acme.generation == 2, "the account's Cohort lists a new pair"
    assert allocations(fleet.vision) == {("h100", "gpu-west"): (16, 16)}


def test_revise_short_form_becomes_two_lines_with_the_preferred_first(fleet: SmallFleet):
    lines = short_form_lines(home_flavor="h100", committed=16, ceiling=32, preferred="h100-spot")
    fleet.revise(fleet.vision, *lines, preference=("h100-spot", "h100"), actor=fleet.owner)
    promise = next(
        item for item in selectors.promises_in_force().workspaces if item.namespace == "acme-vision"
    )
    assert promise.lines == (Line("h100", 16, 16, 16), Line("h100-spot", 0, 16, 0))
    assert promise.preference == ("h100-spot", "h100")
    assert promise.spill is Spill.NEXT_FLAVOR_FIRST


def test_revise_same_content_again_raises_no_generation(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 16))
    before = Budget.objects.get(workspace=fleet.vision)
    fleet.revise(fleet.vision, line("h100", 16))
    after = Budget.objects.get(workspace=fleet.vision)
    assert after.generation == before.generation
    assert after.version == before.version + 1
    assert after.in_force.number == 2


def test_revise_reports_all_faults_at_once_and_saves_nothing(fleet: SmallFleet):
    with pytest.raises(Rejected) as caught:
        fleet.revise(
            fleet.vision,
            Line("h100", 16, 8, 20),
            line("mystery", 1),
            Line("a100", 999, 999, 999),
            Line("l4", -1, 0, 0),
            preference=("t4",),
            valid_from=hours(-100000),
            actor=fleet.owner,
        )
    assert fault_set(caught.value) == {
        ("lines.0.ceiling", "ceiling_below_committed"),
        ("lines.0.lendable", "lendable_above_committed"),
        ("lines.1.flavor", "unknown_flavor"),
        ("lines.2.committed", "exceeds_capacity"),
        ("lines.3.committed", "not_whole_gpus"),
        ("preference.0", "preference_without_line"),
        ("valid_from", "valid_from_past"),
    }
    assert not BudgetRevision.objects.exists()
    assert Budget.objects.get(workspace=fleet.vision).version == 1


def test_revise_with_a_stale_version_tells_who_changed_what(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 8))
    with pytest.raises(StaleVersion) as caught:
        services.revise_budget(
            fleet.owner,
            workspace=fleet.vision,
            draft=RevisionDraft(lines=(line("h100", 16),)),
            expected_version=1,
        )
    assert caught.value.changed_by == "ada"
    assert caught.value.current_version == 2
    assert "8 H100 committed, burst limit 8" in caught.value.summary
    assert BudgetRevision.objects.count() == 1


def test_revise_beyond_envelope_waits_and_changes_nothing(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 16), actor=fleet.owner)
    generation = Budget.objects.get(workspace=fleet.vision).generation
    revision = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    budget = Budget.objects.get(workspace=fleet.vision)
    assert revision.state == "requested"
    assert (budget.in_force.number, budget.generation) == (1, generation)
    waiting = selectors.requests_waiting(fleet.admin)
    assert [reason.field for reason in waiting[0].reasons] == ["lines.0.committed"]


def test_revise_of_an_admin_beyond_the_envelope_is_live_with_a_reason(fleet: SmallFleet):
    with pytest.raises(Rejected) as caught:
        fleet.revise(fleet.vision, line("h100", 40), reason="")
    assert fault_set(caught.value) == {("reason", "reason_required")}
    revision = fleet.revise(fleet.vision, line("h100", 40), reason="launch")
    assert (revision.state, revision.decided_by) == ("live", fleet.admin)


def test_lowering_is_live_even_beyond_a_lowered_envelope(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 32), actor=fleet.owner)
    services.set_envelope(
        fleet.admin,
        account=fleet.acme,
        flavor=fleet.flavors["h100"],
        committed=8,
        ceiling=8,
        pool=0,
    )
    assert fleet.revise(fleet.vision, line("h100", 24), actor=fleet.owner).state == "live"
    assert fleet.revise(fleet.vision, line("h100", 25), actor=fleet.owner).state == "requested"


def test_envelope_sums_committed_over_the_account(fleet: SmallFleet):
    fleet.revise(fleet.speech, line("h100", 24))
    assert fleet.revise(fleet.vision, line("h100", 8), actor=fleet.owner).state == "live"
    assert fleet.revise(fleet.vision, line("h100", 9), actor=fleet.owner).state == "requested"


def test_accept_makes_the_request_live_from_its_decision(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False):
        waiting = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    with time_machine.travel(hours(5), tick=False):
        decided = services.decide_request(
            fleet.admin, revision=waiting, accept=True, reason="ok", expected_version=2
        )
    budget = Budget.objects.get(workspace=fleet.vision)
    assert (decided.state, decided.valid_from, budget.in_force) == ("live", hours(5), decided)
    entry = AuditEntry.objects.get(action="budget.accept")
    assert entry.before["valid_from"] == hours(0).isoformat()


def test_accept_is_refused_when_the_fleet_is_full_by_then(fleet: SmallFleet):
    waiting = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    fleet.revise(fleet.search, line("h100", 16))
    with pytest.raises(Rejected) as caught:
        services.decide_request(
            fleet.admin, revision=waiting, accept=True, reason="ok", expected_version=2
        )
    assert fault_set(caught.value) == {("lines.0.committed", "exceeds_capacity")}
    waiting.refresh_from_db()
    assert waiting.state == "requested"


def test_decline_needs_a_reason_and_changes_nothing(fleet: SmallFleet):
    waiting = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    decide = {"revision": waiting, "accept": False, "expected_version": 2}
    with pytest.raises(Rejected):
        services.decide_request(fleet.admin, reason=" ", **decide)
    declined = services.decide_request(fleet.admin, reason="too much", **decide)
    assert (declined.state, declined.decision_reason) == ("declined", "too much")
    assert Budget.objects.get(workspace=fleet.vision).in_force is None
    with pytest.raises(Rejected, match="already"):
        services.decide_request(fleet.admin, reason="again", **{**decide, "expected_version": 3})


def test_a_request_is_accepted_in_part_as_a_revision_that_names_it(fleet: SmallFleet):
    waiting = fleet.revise(fleet.vision, line("h100", 40, 44), actor=fleet.owner)
    end = selectors.utc_now() + timedelta(days=30)
    made = services.decide_request(
        fleet.admin,
        revision=waiting,
        accept=True,
        reason="half of it",
        expected_version=2,
        part=Part((line("h100", 20, 24),), end),
    )
    waiting.refresh_from_db()
    assert (made.number, made.answers, made.state, made.valid_until) == (2, 1, "live", end)
    assert [(row.committed, row.ceiling) for row in made.lines.all()] == [(20, 24)]
    assert (waiting.state, waiting.decided_by) == ("in_part", fleet.admin)
    assert Budget.objects.get(workspace=fleet.vision).in_force == made
    assert AuditEntry.objects.get(action="budget.accept").reason == "half of it"


@pytest.mark.parametrize(
    ("part", "want"),
    [
        pytest.param(
            Part((line("h100", 41, 48),)),
            {("lines.0.committed", "more_than_asked"), ("lines.0.ceiling", "more_than_asked")},
            id="more GPUs",
        ),
        pytest.param(Part((line("l4", 1),)), {("lines.0.flavor", "not_asked")}, id="other GPUs"),
        pytest.param(Part((line("h100", 0),)), {("", "nothing_accepted")}, id="no GPUs"),
        pytest.param(Part((), hours(99_999)), {("valid_until", "more_than_asked")}, id="longer"),
    ],
)
def test_a_part_is_never_more_than_the_request(fleet: SmallFleet, part, want):
    end = selectors.utc_now() + timedelta(days=30)
    waiting = fleet.revise(fleet.vision, line("h100", 40, 44), actor=fleet.owner, valid_until=end)
    part = replace(part, valid_until=part.valid_until and end + timedelta(days=1))
    with pytest.raises(Rejected) as caught:
        services.decide_request(
            fleet.admin, revision=waiting, accept=True, reason="x", expected_version=2, part=part
        )
    assert fault_set(caught.value) == want
    waiting.refresh_from_db()
    assert waiting.state == "requested"


def test_withdraw_takes_back_requests_and_scheduled_ones_only(fleet: SmallFleet):
    live = fleet.revise(fleet.vision, line("h100", 8))
    soon = selectors.utc_now() + timedelta(days=1)
    scheduled = fleet.revise(fleet.vision, line("h100", 16), valid_from=soon)
    withdrawn = services.withdraw_request(fleet.owner, revision=scheduled, expected_version=3)
    assert withdrawn.state == "withdrawn"
    with pytest.raises(Rejected, match="has"):
        services.withdraw_request(fleet.owner, revision=live, expected_version=4)


def test_future_revision_takes_effect_at_its_edge_and_reverts_after_it(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        fleet.revise(fleet.vision, line("h100", 8))
        fleet.revise(fleet.vision, line("h100", 16), valid_from=hours(1), valid_until=hours(2))
        budget = Budget.objects.get(workspace=fleet.vision)
        seen = [(budget.in_force.number, budget.generation)]
        for hour in (0.5, 1, 1.5, 2, 3):
            clock.move_to(hours(hour), tick=False)
            changed = services.advance_in_force()
            budget.refresh_from_db()
            seen.append((hour, changed, budget.in_force.number, budget.generation))
    assert seen == [
        (1, 2),
        (0.5, [], 1, 2),
        (1, ["acme-vision"], 2, 3),
        (1.5, [], 2, 3),
        (2, ["acme-vision"], 1, 4),
        (3, [], 1, 4),
    ]
    assert allocations(fleet.vision) == {("h100", "gpu-west"): (8, 8)}


def test_of_overlapping_windows_the_latest_start_wins_then_the_number(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        fleet.revise(fleet.vision, line("h100", 8), valid_from=hours(2))
        fleet.revise(fleet.vision, line("h100", 16), valid_from=hours(1))
        fleet.revise(fleet.vision, line("h100", 24), valid_from=hours(1))
        numbers = []
        for hour in (1, 2, 3):
            clock.move_to(hours(hour), tick=False)
            services.advance_in_force()
            numbers.append(Budget.objects.get(workspace=fleet.vision).in_force.number)
    assert numbers == [3, 1, 1]


def test_fleet_check_sees_a_conflict_that_only_comes_later(fleet: SmallFleet):
    soon = selectors.utc_now() + timedelta(days=7)
    fleet.revise(fleet.search, line("h100", 40), valid_from=soon)
    with pytest.raises(Rejected) as caught:
        fleet.revise(fleet.vision, line("h100", 16))
    assert fault_set(caught.value) == {("lines.0.committed", "exceeds_capacity")}
    assert f"{soon:%Y-%m-%d}" in str(caught.value)
    until = fleet.revise(fleet.vision, line("h100", 16), valid_until=soon)
    assert until.state == "live"


def test_only_finance_dates_back_and_says_why(fleet: SmallFleet):
    past = selectors.utc_now() - timedelta(days=2)
    MeterState.objects.create(cluster="gpu-east", complete_until=selectors.utc_now())
    draft = RevisionDraft(lines=(line("h100", 8),), valid_from=past, reason="agreed on the phone")
    terms = {"workspace": fleet.vision, "expected_version": fleet.vision.budget.version}
    for actor in (fleet.owner, fleet.admin, fleet.finance):
        with pytest.raises(Rejected, match="one person in finance proposes it"):
            fleet.revise(fleet.vision, line("h100", 8), valid_from=past, actor=actor)
    for actor in (fleet.owner, fleet.admin):
        with pytest.raises(NotAllowed):
            services.propose_dating_back(actor, draft=draft, **terms)
    with pytest.raises(Rejected, match="Say why"):
        services.propose_dating_back(fleet.finance, draft=replace(draft, reason=""), **terms)
    agreed(services.propose_dating_back(fleet.finance, draft=draft, **terms))
    revision = fleet.vision.budget.revisions.get()
    assert (revision.state, revision.valid_from) == ("live", past)
    assert (revision.author, revision.approval.approver.username) == (fleet.finance, "fay")
    assert MeterState.objects.get().dirty_from == past


def test_a_budget_begins_at_most_a_year_before_anything_of_its_workspace(fleet: SmallFleet):
    made = fleet.vision.created_at.replace(microsecond=0)

    def propose(back: timedelta) -> None:
        draft = RevisionDraft(lines=(line("h100", 8),), valid_from=made - back, reason="by mail")
        version = Budget.objects.get(workspace=fleet.vision).version
        agreed(
            services.propose_dating_back(
                fleet.finance, workspace=fleet.vision, draft=draft, expected_version=version
            )
        )

    with pytest.raises(Rejected, match="more than a year before anything of Vision") as caught:
        propose(timedelta(days=367))
    assert fault_set(caught.value) == {("valid_from", "too_early")}
    propose(timedelta(days=365))
    IntervalFactory(workspace=fleet.vision, start=made - timedelta(days=2 * 365))
    propose(timedelta(days=3 * 365))
    with pytest.raises(Rejected):
        propose(timedelta(days=4 * 365))


def test_restore_writes_a_new_revision_with_the_old_lines(fleet: SmallFleet):
    first = fleet.revise(fleet.vision, line("h100", 8, 24, 4), preference=("h100",))
    fleet.revise(fleet.vision, line("h100", 16))
    restored = services.restore_revision(fleet.owner, revision=first, reason="", expected_version=3)
    assert (restored.number, restored.restored_from) == (3, 1)
    assert [row.as_plan() for row in restored.lines.all()] == [Line("h100", 8, 24, 4)]
    assert restored.reason == "Restores revision 1."


def test_dropped_flavor_stays_as_zero_until_nothing_holds_it(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        fleet.revise(fleet.vision, line("h100", 8), line("l4", 8))
        held = IntervalFactory(workspace=fleet.vision, flavor="l4", start=hours(0))
        fleet.revise(fleet.vision, line("h100", 8))

        def l4_lines() -> list[Line]:
            promise = selectors.promises_in_force(accounts=["acme"])
            vision = next(w for w in promise.workspaces if w.workspace == "vision")
            return [entry for entry in vision.lines if entry.flavor == "l4"]

        assert l4_lines() == [Line("l4", 0, 0, 0)]
        clock.move_to(hours(0) + DROPPED_FLAVOR_GRACE, tick=False)
        assert services.advance_in_force() == []
        assert l4_lines() == [Line("l4", 0, 0, 0)], "an open interval holds it"
        Interval.objects.filter(pk=held.pk).update(end=hours(0.2), state=Interval.State.CLOSED)
        generation = Budget.objects.get(workspace=fleet.vision).generation
        assert services.advance_in_force() == ["acme-vision"]
    assert l4_lines() == []
    assert Budget.objects.get(workspace=fleet.vision).generation == generation + 1


def test_growth_keeps_what_stands_where_it_is(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 16))
    assert allocations(fleet.vision) == {("h100", "gpu-west"): (16, 16)}
    fleet.revise(fleet.vision, line("h100", 24))
    assert allocations(fleet.vision) == {
        ("h100", "gpu-west"): (16, 16),
        ("h100", "gpu-east"): (8, 8),
    }
    parts = services.reallocate(
        fleet.admin, workspace=fleet.vision, reason="together", expected_version=3
    )
    assert parts == {"h100": {"gpu-east": 24}}
    assert allocations(fleet.vision) == {("h100", "gpu-east"): (24, 24)}


def test_floor_on_a_lost_worker_stays_and_is_shown_as_unmet(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 16))
    services.retire_capacity(fleet.admin, cluster="gpu-west", reason="lost")
    fleet.revise(fleet.vision, line("h100", 16, 24))
    assert allocations(fleet.vision) == {("h100", "gpu-west"): (16, 16)}
    grid = selectors.fleet_grid(fleet.admin)
    assert grid.cells["h100", "gpu-west"].unmet == 16
    assert grid.totals["h100"].unmet == 16


def test_lines_that_fit_no_whole_node_are_refused_and_named(fleet: SmallFleet):
    fleet.revise(fleet.search, line("l4", 4))
    fleet.revise(fleet.speech, line("l4", 4))
    with pytest.raises(Rejected) as caught:
        services.set_capacity(fleet.admin, cluster="gpu-west", flavor=fleet.flavors["l4"], gpus=4)
        fleet.revise(fleet.vision, line("l4", 8))
    assert {code for _, code in fault_set(caught.value)} <= {"split_infeasible", "exceeds_capacity"}
    assert Budget.objects.get(workspace=fleet.vision).in_force is None


def test_hold_raises_generation_and_version(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 8))
    before = Budget.objects.get(workspace=fleet.vision)
    services.set_stop_policy(
        fleet.owner, budget=before, policy="HoldAndDrain", reason="incident", expected_version=2
    )
    after = Budget.objects.get(workspace=fleet.vision)
    assert (after.stop_policy, after.generation, after.version) == (
        "HoldAndDrain",
        before.generation + 1,
        3,
    )
    with pytest.raises(Rejected, match="no stop policy"):
        services.set_stop_policy(fleet.owner, budget=after, policy="Stop", reason="x")


@pytest.mark.parametrize(
    ("who", "want"),
    [("admin", True), ("finance", True), ("owner", True), ("auditor", False), ("stranger", False)],
)
def test_revise_is_for_owner_finance_and_admin(fleet: SmallFleet, who: str, want: bool):
    stranger = services.create_user(None, username="eve", email="e@example.org")
    actor = stranger if who == "stranger" else getattr(fleet, who)
    if want:
        fleet.revise(fleet.vision, line("h100", 8), actor=actor)
    else:
        with pytest.raises(NotAllowed):
            fleet.revise(fleet.vision, line("h100", 8), actor=actor)
    assert BudgetRevision.objects.exists() is want


def test_owner_of_one_workspace_cannot_change_another(fleet: SmallFleet):
    for call in (
        lambda: fleet.revise(fleet.speech, line("h100", 1), actor=fleet.owner),
        lambda: services.set_stop_policy(
            fleet.owner, budget=fleet.speech.budget, policy="Hold", reason="x"
        ),
        lambda: services.reallocate(
            fleet.owner, workspace=fleet.vision, reason="x", expected_version=1
        ),
    ):
        with pytest.raises(NotAllowed):
            call()
    assert Budget.objects.get(workspace=fleet.speech).version == 1


def test_archive_workspace_ends_promises_and_leaves_the_plan_when_free(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        fleet.revise(fleet.vision, line("h100", 16))
        fleet.revise(fleet.vision, line("h100", 24), valid_from=hours(9))
        services.archive_workspace(fleet.admin, workspace=fleet.vision, reason="over")
        promise = next(
            w for w in selectors.promises_in_force().workspaces if w.workspace == "vision"
        )
        assert (promise.lines, promise.stop_policy) == ((Line("h100", 0, 0, 0),), "Hold")
        assert selectors.fleet_grid(fleet.admin).totals["h100"].promised == 0
        clock.move_to(hours(10), tick=False)
        assert services.advance_in_force() == ["acme-vision"]
    assert all(w.workspace != "vision" for w in selectors.promises_in_force().workspaces)
    fleet.vision.refresh_from_db()
    with pytest.raises(Rejected, match="archived"):
        fleet.revise(fleet.vision, line("h100", 8))
