"""Dispatch of jobs that are not one object with one Workload: groups, replicas, slices."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.multikueue.group import Copy, Siblings
from clusters.kueue.multikueue.steps import (
    CopyStatus,
    CreateCopy,
    CreateJob,
    FollowJob,
    MarkJobInactive,
    Nominate,
    RemoveCopy,
)
from tests.kueue.test_multikueue import ADMITTED, EVICTED, READY, actions, copied, local, true

REPLACED = true("Finished", "WorkloadSliceReplaced")


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, (CopyStatus("a"),), id="as it should be"),
        pytest.param(
            {"is_short": True}, (CopyStatus("a"), CreateJob("a")), id="a member is still to be made"
        ),
        pytest.param(
            {"is_behind": True}, (CopyStatus("a"), FollowJob("a")), id="its size was changed"
        ),
        pytest.param(
            {"has_lost": True},
            (RemoveCopy("a", why="job-deleted"),),
            id="a member was made and is gone",
        ),
        pytest.param(
            {"has_lost": True, "is_short": True},
            (RemoveCopy("a", why="job-deleted"),),
            id="one is gone and another still to be made",
        ),
    ],
)
def test_running_copy_is_completed_followed_or_given_up(changes: dict[str, Any], want: Any):
    copies = {"a": copied(ADMITTED, job=True, **changes), "b": Copy()}
    assert actions(local(**READY), copies=copies) == want


@pytest.mark.parametrize(
    ("siblings", "want"),
    [
        pytest.param(
            Siblings(is_complete=False, is_first=True), (), id="not all of them are there"
        ),
        pytest.param(
            Siblings(is_complete=True, is_first=False), (), id="the first one has not chosen"
        ),
        pytest.param(
            Siblings(is_complete=True, is_first=True), (Nominate(("a", "b")),), id="it is the first"
        ),
        pytest.param(
            Siblings(is_complete=True, is_first=False, chosen="b"),
            (Nominate(("b",)),),
            id="another one has a worker",
        ),
        pytest.param(
            Siblings(is_complete=False, is_first=True, chosen="b"),
            (),
            id="a worker is known and one is missing",
        ),
    ],
)
def test_siblings_go_where_the_first_one_went(siblings: Siblings, want: Any):
    assert actions(local(), siblings=siblings) == want


def test_sibling_is_made_only_on_the_worker_of_the_others_and_taken_away_elsewhere():
    siblings = Siblings(is_complete=True, is_first=False, chosen="b")
    nominated = local(nominatedClusterNames=["b"])
    assert actions(nominated, siblings=siblings) == (CreateCopy("b"),)
    copies = {"a": copied(), "b": Copy()}
    assert actions(nominated, siblings=siblings, copies=copies) == (
        RemoveCopy("a", why="withdrawn", only_unchanged=True),
    )


def test_sibling_waits_for_a_worker_that_is_lost():
    siblings = Siblings(is_complete=True, is_first=False, chosen="z")
    found = actions(local(nominatedClusterNames=["z"]), siblings=siblings)
    assert not any(isinstance(item, CreateCopy) for item in found)


def test_replaced_slice_leaves_its_job_to_the_next_one_and_goes_once_that_has_it():
    document = local(REPLACED)
    running = {"a": copied(true("Finished"), job=True), "b": Copy()}
    assert actions(document, copies=running, is_handed_over=True) == ()
    followed = {"a": copied(true("Finished")), "b": Copy()}
    assert actions(document, copies=followed, is_handed_over=True) == (
        RemoveCopy("a", why="replaced"),
    )
    # The next one was evicted before it had the Job: nobody answers for it any more.
    assert actions(document, copies=running) == (RemoveCopy("a", why="released"),)


@pytest.mark.parametrize("state", ["Ready", "Pending"])
def test_copy_that_lost_its_owner_has_not_ended_the_managers_job(state: str):
    ended = copied(true("Finished", "OwnerNotFound"), ADMITTED)
    document = local(**READY) if state == "Ready" else local(nominatedClusterNames=["a"])
    copies = {"a": ended, "b": Copy()}
    assert actions(document, copies=copies) == (RemoveCopy("a", why="job-deleted"),)


@pytest.mark.parametrize("has_quota", [True, False])
def test_kind_whose_status_says_nothing_is_free_once_its_worker_gave_the_quota_back(has_quota):
    conditions = [EVICTED, *([true("QuotaReserved")] if has_quota else [])]
    document = local(EVICTED)
    copies = {"a": copied(*conditions, job=True), "b": Copy()}
    known = {"copies": copies, "is_silent": True, "is_job_active": True}
    if has_quota:
        assert actions(document, **known) == (CopyStatus("a"),)
        return
    assert actions(document, **known) == (RemoveCopy("a", why="evicted"),)
    left = {**known, "copies": {"a": Copy(), "b": Copy()}}
    assert actions(document, **left) == (MarkJobInactive(),)
