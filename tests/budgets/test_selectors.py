"""What each person sees: isolation, previews, history, fleet, and how many queries it takes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import selectors, services
from budgets.errors import NotAllowed
from budgets.models import Account, BudgetRevision, Interval, Role, Workspace
from budgets.plan import ClusterPlace, Line, Promises, QueueQuota, RevisionDraft, plan_quota
from tests.builders import SmallFleet, line
from tests.factories import IntervalFactory, WorkspaceFactory

pytestmark = pytest.mark.django_db


def queries_of(call) -> int:
    with CaptureQueriesContext(connection) as captured:
        call()
    return len(captured)


def place(promises: Promises, name: str = "hub") -> dict[str, dict[str, QueueQuota]]:
    plan = plan_quota(promises, ClusterPlace(name, is_manager=name == "hub"))
    return {queue.name: dict(queue.quotas) for queue in plan.queues}


@pytest.mark.parametrize(
    ("who", "want"),
    [
        ("admin", {"acme-vision", "acme-speech", "globex-search"}),
        ("finance", {"acme-vision", "acme-speech", "globex-search"}),
        ("auditor", {"acme-vision", "acme-speech", "globex-search"}),
        ("owner", {"acme-vision"}),
    ],
)
def test_visible_workspaces_by_role(fleet: SmallFleet, who: str, want: set[str]):
    user = getattr(fleet, who)
    assert {row.namespace for row in selectors.visible_workspaces(user)} == want


def test_an_invisible_workspace_and_an_absent_one_look_the_same(fleet: SmallFleet):
    fleet.revise(fleet.speech, line("h100", 8))
    answers = []
    for namespace in ("acme-speech", "globex-search", "no-such"):
        with pytest.raises(Workspace.DoesNotExist) as caught:
            selectors.workspace_for(fleet.owner, namespace)
        with pytest.raises(Workspace.DoesNotExist):
            selectors.revision_for(fleet.owner, namespace, 1)
        answers.append(str(caught.value))
    assert len(set(answers)) == 1
    with pytest.raises(Workspace.DoesNotExist):
        selectors.budget_history(fleet.owner, fleet.speech)
    with pytest.raises(Account.DoesNotExist):
        selectors.account_for(fleet.owner, "globex")
    with pytest.raises(Workspace.DoesNotExist):
        selectors.preview_reallocation(fleet.owner, fleet.vision)
    with pytest.raises(NotAllowed):
        selectors.fleet_grid(fleet.owner)


def test_owner_reads_only_their_part_of_log_requests_pools_and_roles(fleet: SmallFleet):
    for workspace in (fleet.vision, fleet.speech, fleet.search):
        fleet.revise(workspace, line("h100", 1), actor=fleet.finance)
    pool = services.create_pool(fleet.admin, slug="shared", name="Shared")
    services.create_pool(fleet.admin, slug="theirs", name="Theirs", account=fleet.globex)
    for account in (fleet.acme, fleet.globex):
        services.set_pool_share(fleet.admin, pool=pool, account=account, limits={})
    entries = selectors.audit_entries(fleet.owner)
    assert {entry.workspace for entry in entries} == {fleet.vision}
    assert len(selectors.audit_entries(fleet.admin, limit=500)) > len(entries)
    waiting = {r.budget.workspace.namespace for r in selectors.requests_waiting(fleet.admin)}
    assert waiting == {"globex-search"}
    assert selectors.requests_waiting(fleet.owner) == []
    (seen,) = selectors.visible_pools(fleet.owner)
    assert [share.account.slug for share in seen.shares.all()] == ["acme"]
    assert {m.user for m in selectors.visible_memberships(fleet.owner)} == {fleet.owner}
    assert {e.account.slug for e in selectors.visible_envelopes(fleet.owner)} == {"acme"}
    assert not selectors.visible_capacities(fleet.owner).exists()


def test_account_owner_sees_and_edits_all_of_the_account(fleet: SmallFleet):
    services.grant_role(None, user=fleet.owner, role=Role.OWNER, account=fleet.acme)
    seen = {row.namespace for row in selectors.visible_workspaces(fleet.owner)}
    assert seen == {"acme-vision", "acme-speech"}
    assert fleet.revise(fleet.speech, line("h100", 8), actor=fleet.owner).state == "live"


def test_viewer_sees_and_cannot_change(fleet: SmallFleet):
    services.grant_role(None, user=fleet.owner, role=Role.VIEWER, workspace=fleet.speech)
    assert selectors.workspace_for(fleet.owner, "acme-speech") == fleet.speech
    with pytest.raises(NotAllowed):
        fleet.revise(fleet.speech, line("h100", 8), actor=fleet.owner)


def test_preview_writes_nothing_and_shows_both_plans(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 8))
    draft = RevisionDraft(lines=(line("h100", 16, 32),))
    preview = selectors.preview_revision(fleet.owner, fleet.vision, draft)
    assert (preview.state, preview.faults, preview.request_reasons) == ("live", (), ())
    assert place(preview.promises_before)["acme-vision"] == {"h100": QueueQuota(8, 0, 8)}
    assert place(preview.promises_after)["acme-vision"] == {"h100": QueueQuota(16, 16, 16)}
    assert place(preview.promises_after, "gpu-west")["acme-vision"]["h100"].nominal == 16
    assert BudgetRevision.objects.count() == 1
    fleet.revise(fleet.vision, *draft.lines)
    saved = next(
        w for w in selectors.promises_in_force().workspaces if w.namespace == "acme-vision"
    )
    shown = next(w for w in preview.promises_after.workspaces if w.namespace == "acme-vision")
    assert (saved.lines, saved.split) == (shown.lines, shown.split), "what was shown is what came"


def test_preview_warns_of_a_ceiling_beyond_reach_and_of_part_nodes(fleet: SmallFleet):
    draft = RevisionDraft(lines=(line("h100", 12, 40),))
    preview = selectors.preview_revision(fleet.owner, fleet.vision, draft)
    assert {(w.field, w.code) for w in preview.warnings} == {
        ("lines.0.ceiling", "beyond_reach"),
        ("lines.0.committed", "not_whole_nodes"),
    }
    assert (preview.reach[0].reachable, preview.largest_job) == (12, 12)


def test_preview_with_unusable_times_names_them_and_still_checks_lines(fleet: SmallFleet):
    soon = selectors.utc_now() + timedelta(days=1)
    draft = RevisionDraft(
        lines=(line("h100", 999),),
        valid_from=soon.replace(tzinfo=None),
        valid_until=soon + timedelta(microseconds=5),
    )
    preview = selectors.preview_revision(fleet.owner, fleet.vision, draft)
    assert {(f.field, f.code) for f in preview.faults} == {
        ("valid_from", "naive_time"),
        ("valid_until", "not_whole_seconds"),
        ("lines.0.committed", "exceeds_capacity"),
    }


def test_preview_says_when_a_scheduled_revision_takes_over(fleet: SmallFleet):
    soon = selectors.utc_now() + timedelta(days=1)
    fleet.revise(fleet.vision, line("h100", 8), valid_from=soon)
    warnings = [
        selectors.preview_revision(
            fleet.owner, fleet.vision, RevisionDraft(lines=(line("h100", 8),), valid_until=until)
        ).warnings
        for until in (None, soon)
    ]
    assert [[w.code for w in found] for found in warnings] == [["replaced_later"], []]


def test_preview_keeps_checking_the_rest_beside_a_broken_line(fleet: SmallFleet):
    draft = RevisionDraft(lines=(Line("h100", 8, 4, 8), line("a100", 999)))
    preview = selectors.preview_revision(fleet.owner, fleet.vision, draft)
    assert preview.state == "rejected"
    assert {(f.field, f.code) for f in preview.faults} == {
        ("lines.0.ceiling", "ceiling_below_committed"),
        ("lines.1.committed", "exceeds_capacity"),
    }


def test_preview_names_others_of_the_account_only_to_those_who_see_them(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 16))
    fleet.revise(fleet.speech, line("h100", 0, 16))
    draft = RevisionDraft(lines=(line("h100", 16, 16, 0),))
    for user, want in (
        (fleet.owner, "another workspace of this account"),
        (fleet.admin, "acme-speech"),
    ):
        rows = selectors.preview_revision(user, fleet.vision, draft).impact
        assert {row.namespace for row in rows} == {want}
        assert (rows[0].cluster, rows[0].before, rows[0].after) == ("", 16, 0)


def test_preview_of_a_future_draft_compares_with_what_will_stand_then(fleet: SmallFleet):
    soon = selectors.utc_now() + timedelta(days=3)
    fleet.revise(fleet.vision, line("h100", 8))
    fleet.revise(fleet.vision, line("h100", 24), valid_from=soon)
    draft = RevisionDraft(lines=(line("h100", 16),), valid_from=soon + timedelta(days=1))
    preview = selectors.preview_revision(fleet.owner, fleet.vision, draft)
    assert place(preview.promises_before)["acme-vision"]["h100"].nominal == 24
    assert place(preview.promises_after)["acme-vision"]["h100"].nominal == 16


def test_promises_at_shows_the_future_with_its_split(fleet: SmallFleet):
    soon = selectors.utc_now() + timedelta(days=3)
    fleet.revise(fleet.vision, line("h100", 8), valid_until=soon)
    later = selectors.promises_at(soon)
    assert place(later)["acme-vision"] == {"h100": QueueQuota(0, 0, 0)}
    drafted = selectors.promises_at(
        soon, include_drafts={"globex-search": RevisionDraft(lines=(line("h100", 16),))}
    )
    assert place(drafted)["globex-search"]["h100"].nominal == 16
    assert (
        sum(place(drafted, w)["globex-search"]["h100"].nominal for w in ("gpu-east", "gpu-west"))
        == 16
    )


def test_history_has_phases_and_differences(fleet: SmallFleet):
    soon = selectors.utc_now() + timedelta(days=3)
    fleet.revise(fleet.vision, line("h100", 8))
    fleet.revise(fleet.vision, line("h100", 16, 24), preference=("h100",))
    fleet.revise(fleet.vision, line("l4", 8), valid_from=soon)
    fleet.revise(fleet.vision, line("h100", 48), actor=fleet.owner)
    history = selectors.budget_history(fleet.owner, fleet.vision)
    assert [(r.number, r.phase) for r in history] == [
        (4, "requested"),
        (3, "scheduled"),
        (2, "in force"),
        (1, "past"),
    ]
    rows = {row.field: row for row in selectors.revision_diff(history[3], history[2])}
    assert (rows["h100.committed"].before, rows["h100.committed"].after) == ("8", "16")
    assert rows["preference"].changed and not rows["spill"].changed


def test_fleet_grid_adds_up_and_shows_excess(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 16))
    IntervalFactory(workspace=fleet.vision, flavor="h100", cluster="gpu-west", gpus=8)
    services.set_capacity(fleet.admin, cluster="gpu-west", flavor=fleet.flavors["h100"], gpus=8)
    grid = selectors.fleet_grid(fleet.auditor)
    cell = grid.cells["h100", "gpu-west"]
    assert (cell.capacity, cell.committed, cell.in_use, cell.free, cell.unmet) == (8, 16, 8, 0, 8)
    total = grid.totals["h100"]
    assert (total.capacity, total.committed, total.promised, total.excess) == (40, 16, 16, 0)
    assert total.unmet == 8
    assert grid.clusters == ("gpu-east", "gpu-west")


def test_fleet_grid_leaves_out_what_a_manager_only_reserved(fleet: SmallFleet):
    waiting = {"workspace": fleet.vision, "flavor": "h100", "cluster": "hub", "gpus": 8}
    IntervalFactory(**waiting, kind=Interval.Kind.MANAGER_WAIT)
    grid = selectors.fleet_grid(fleet.auditor)
    assert grid.totals["h100"].in_use == 0
    assert "hub" not in grid.clusters


def test_setup_steps_lead_an_admin_and_nobody_else(fleet: SmallFleet):
    steps = {step.key: step.done for step in selectors.setup_steps(fleet.admin)}
    assert steps == {
        "flavors": True,
        "capacity": True,
        "accounts": True,
        "envelopes": True,
        "workspaces": True,
        "members": True,
        "budgets": False,
        "finance": True,
    }
    assert selectors.setup_steps(fleet.owner) == []


def test_queries_do_not_grow_with_the_fleet(fleet: SmallFleet):
    draft = RevisionDraft(lines=(line("h100", 9, 48),))
    calls = {
        "promises_in_force": selectors.promises_in_force,
        "promises_at": lambda: selectors.promises_at(selectors.utc_now()),
        "preview": lambda: selectors.preview_revision(fleet.owner, fleet.vision, draft),
        "grid": lambda: selectors.fleet_grid(fleet.admin),
        "history": lambda: selectors.budget_history(fleet.owner, fleet.vision),
        "requests": lambda: selectors.requests_waiting(fleet.admin),
        "advance": services.advance_in_force,
    }
    fleet.revise(fleet.vision, line("h100", 8))
    fleet.revise(fleet.search, line("h100", 1), actor=fleet.finance)
    few = {name: queries_of(call) for name, call in calls.items()}
    for _ in range(5):
        workspace = WorkspaceFactory(account=fleet.acme, home_flavor=fleet.flavors["h100"])
        fleet.revise(workspace, line("h100", 1, 2), line("l4", 1))
        fleet.revise(fleet.vision, line("h100", 8))
        fleet.revise(fleet.search, line("h100", 1), actor=fleet.finance)
    many = {name: queries_of(call) for name, call in calls.items()}
    assert many == few
    assert max(few.values()) <= 40, few
