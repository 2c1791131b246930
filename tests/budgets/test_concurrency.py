"""Two people at the same instant, on a database with real concurrency."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from budgets.errors import PortalError, Rejected
from budgets.models import Budget, BudgetRevision, SavedView
from budgets.plan import RevisionDraft
from budgets.selectors import fleet_grid
from budgets.services import revise_budget, saved_views, second_factor
from budgets.services.budget import revisions
from budgets.services.guards import save_checked
from budgets.services.second_factor import use_code
from tests.builders import SmallFleet, line, small_fleet
from tests.second_factors import set_up
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def fleet() -> SmallFleet:
    return small_fleet()


@pytest.fixture(autouse=True)
def slow_check(monkeypatch):
    """Widen the gap between check and write, so that a missing lock is always seen."""
    check = revisions.judge_draft

    def slowly(*args, **kwargs):
        judged = check(*args, **kwargs)
        time.sleep(0.4)
        return judged

    monkeypatch.setattr(revisions, "judge_draft", slowly)


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Run the calls in threads that start together; results or the portal's errors."""
    together = threading.Barrier(len(calls))
    outcomes: list[object] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            together.wait(timeout=PATIENCE_S)
            outcomes[index] = calls[index]()
        except PortalError as error:
            outcomes[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
    return outcomes


def save(fleet: SmallFleet, workspace, gpus: int) -> Callable[[], BudgetRevision]:
    draft = RevisionDraft(lines=(line("h100", gpus),), reason="race")
    return lambda: revise_budget(fleet.admin, workspace=workspace, draft=draft, expected_version=1)


def test_two_accounts_never_promise_the_same_gpus(fleet: SmallFleet):
    outcomes = at_once(save(fleet, fleet.vision, 32), save(fleet, fleet.search, 32))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BudgetRevision", "Rejected"]
    assert fleet_grid(fleet.admin).totals["h100"].excess == 0


def test_two_owners_of_one_budget_save_once(fleet: SmallFleet):
    outcomes = at_once(save(fleet, fleet.vision, 8), save(fleet, fleet.vision, 16))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "BudgetRevision",
        "StaleVersion",
    ]
    assert Budget.objects.get(workspace=fleet.vision).version == 2
    assert BudgetRevision.objects.count() == 1


def test_the_race_is_real_without_the_lock(fleet: SmallFleet, monkeypatch):
    monkeypatch.setattr("budgets.services.budget.in_force.lock_flavors", lambda slugs: None)
    at_once(save(fleet, fleet.vision, 32), save(fleet, fleet.search, 32))
    assert fleet_grid(fleet.admin).totals["h100"].excess == 16


def test_a_person_saves_two_views_of_one_name_once(fleet: SmallFleet, monkeypatch):
    def slowly(row: Any, **more: Any) -> None:
        save_checked(row, **more)
        time.sleep(0.4)

    monkeypatch.setattr(saved_views, "save_checked", slowly)

    def save_it() -> SavedView:
        return saved_views.save_view(fleet.admin, page="jobs", name="mine", query="text=a")

    outcomes = at_once(save_it, save_it)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Rejected", "SavedView"]
    (refused,) = (outcome for outcome in outcomes if isinstance(outcome, Rejected))
    assert "already have a view" in str(refused)


@pytest.mark.parametrize("kind", ["app", "recovery"])
def test_one_code_at_two_doors_opens_one(fleet: SmallFleet, monkeypatch, kind: str):
    app = set_up(fleet.owner)
    code = app.code() if kind == "app" else app.recovery[0]
    whole = second_factor._plain if kind == "recovery" else second_factor._step_of

    def slowly(*given: Any) -> Any:
        found = whole(*given)
        time.sleep(0.4)
        return found

    monkeypatch.setattr(second_factor, whole.__name__, slowly)
    outcomes = at_once(*[lambda: use_code(fleet.owner, code=code)] * 2)
    assert sorted(map(bool, outcomes)) == [False, True]
