"""Reads that pages lean on: roles asked for once, news of a budget, jobs of a moment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from budgets import selectors, services
from budgets.models import Role
from clusters import selectors as seen_on
from clusters.models import Cluster, WorkloadState
from tests.acting.conftest import seen
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import register

pytestmark = pytest.mark.django_db


def test_roles_are_asked_for_once_within_a_request_and_no_longer(
    fleet: SmallFleet, django_assert_num_queries
) -> None:
    with django_assert_num_queries(2), selectors.remembered_roles():
        assert not selectors.roles_of(fleet.owner).is_admin
        assert selectors.roles_of(fleet.owner) is selectors.roles_of(fleet.owner)
        assert selectors.roles_of(fleet.admin).is_admin
    services.grant_role(None, user=fleet.owner, role=Role.ADMIN)
    assert selectors.roles_of(fleet.owner).is_admin
    with selectors.remembered_roles():
        assert selectors.roles_of(fleet.owner).is_admin, "the next request asks anew"


def test_a_page_that_is_left_with_an_error_forgets_the_roles(fleet: SmallFleet) -> None:
    with pytest.raises(ValueError, match="x"), selectors.remembered_roles():
        selectors.roles_of(fleet.owner)
        raise ValueError("x")
    services.grant_role(None, user=fleet.owner, role=Role.ADMIN)
    assert selectors.roles_of(fleet.owner).is_admin


def test_news_of_a_budget_are_the_last_and_all_that_is_to_come(
    fleet: SmallFleet, django_assert_num_queries
) -> None:
    soon = selectors.utc_now() + timedelta(days=3)
    fleet.revise(fleet.vision, line("l4", 8), valid_from=soon)
    fleet.revise(fleet.vision, line("h100", 48), actor=fleet.owner)
    for gpus in (8, 16, 24, 32):
        fleet.revise(fleet.vision, line("h100", gpus))
    workspace = selectors.workspace_for(fleet.owner, "acme-vision")
    with django_assert_num_queries(2):
        news = selectors.budget_news(workspace, most=2)
    whole = selectors.budget_history(fleet.owner, fleet.vision)
    assert [(row.number, row.phase) for row in news] == [
        *((6, "in force"), (5, "past"), (2, "requested"), (1, "scheduled")),
    ]
    assert [row.number for row in selectors.budget_news(workspace, most=50)] == [
        row.number for row in whole
    ]


def test_jobs_now_are_the_newest_that_wait_and_that_run(
    fleet: SmallFleet, django_assert_max_num_queries
) -> None:
    east: Cluster = register("gpu-east", "kubeconfig")
    for number in range(4):
        seen(east, f"wait-{number}", phase="pending", gpus={"": 8}, message="no room")
    WorkloadState.objects.filter(uid="uid-wait-3").update(reason="Deactivated")
    seen(east, "run")
    seen(east, "copy", is_remote_copy=True)
    seen(east, "over", phase="finished")
    with django_assert_max_num_queries(9):
        waiting, running = seen_on.jobs_now(fleet.owner, "acme-vision", most=3)
    assert [row.job_name for row in waiting.rows] == ["wait-3", "wait-2", "wait-1"]
    assert [row.phase_label for row in waiting.rows] == ["Deactivated", "Waiting", "Waiting"]
    assert waiting.next_cursor and not running.next_cursor
    assert [row.job_name for row in running.rows] == ["run"]
    rest = seen_on.workloads(
        fleet.owner,
        seen_on.WorkloadFilter(namespaces=("acme-vision",), phases=("pending",)),
        cursor=waiting.next_cursor,
    )
    assert [row.job_name for row in rest.rows] == ["wait-0"]
    nothing = seen_on.jobs_now(fleet.owner, "globex-search", most=3)
    assert [page.rows for page in nothing] == [(), ()]
