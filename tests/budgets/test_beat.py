"""What beat calls, and long work."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine

from budgets import services, tasks
from budgets.models import Budget, Operation
from budgets.services.budget import in_force
from tests.builders import SmallFleet, hours, line

pytestmark = pytest.mark.django_db


def test_advance_task_puts_due_revisions_in_force(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        fleet.revise(fleet.vision, line("h100", 8), valid_from=hours(1))
        assert tasks.advance_in_force() == {"changed": 0}
        clock.move_to(hours(1), tick=False)
        assert tasks.advance_in_force() == {"changed": 1}
        assert tasks.advance_in_force() == {"changed": 0}
    assert Budget.objects.get(workspace=fleet.vision).in_force.number == 1


def test_one_budget_that_fails_does_not_stop_the_others(fleet: SmallFleet, monkeypatch):
    with time_machine.travel(hours(0), tick=False) as clock:
        for workspace in (fleet.vision, fleet.speech, fleet.search):
            fleet.revise(workspace, line("h100", 8), valid_from=hours(1))
        settle = in_force.settle_budget

        def settle_but_speech(budget, *, now):
            if budget.workspace_id == fleet.speech.pk:
                raise RuntimeError("disk full")
            return settle(budget, now=now)

        monkeypatch.setattr(in_force, "settle_budget", settle_but_speech)
        clock.move_to(hours(1), tick=False)
        with pytest.raises(ExceptionGroup) as caught:
            services.advance_in_force()
        assert [str(error) for error in caught.value.exceptions] == ["disk full"]
        monkeypatch.undo()
        assert services.advance_in_force() == ["acme-speech"]
    assert not Budget.objects.filter(in_force__isnull=True).exists()


def test_concurrent_activation_that_finds_no_room_is_placed_as_far_as_it_goes(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        fleet.revise(fleet.vision, line("h100", 48), valid_from=hours(1))
        services.retire_capacity(None, cluster="gpu-west", reason="lost")
        clock.move_to(hours(1), tick=False)
        services.advance_in_force()
    budget = Budget.objects.get(workspace=fleet.vision)
    line_ = budget.in_force.lines.get()
    assert {row.cluster: row.committed for row in line_.allocations.all()} == {"gpu-east": 32}


def test_operation_shows_progress_and_ends_once(fleet: SmallFleet):
    operation = services.start_operation(fleet.admin, kind="export", total=3)
    services.advance_operation(operation.pk, step="rows", done=2)
    operation.refresh_from_db()
    assert (operation.step, operation.done, operation.total) == ("rows", 2, 3)
    services.finish_operation(operation.pk, message="disk full", failed=True)
    services.finish_operation(operation.pk)
    services.advance_operation(operation.pk, step="late", done=3)
    operation.refresh_from_db()
    assert (operation.state, operation.message, operation.done) == (
        Operation.State.FAILED,
        "disk full",
        2,
    )
    assert operation.finished_at - operation.created_at < timedelta(minutes=1)
