"""The dispatch decision as a table: what there is, what has to be done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.kueue.multikueue.decide import Copy, Group, check_of, decide
from clusters.kueue.multikueue.steps import (
    Choose,
    CopyStatus,
    CreateCopy,
    CreateJob,
    Finish,
    MarkJobInactive,
    Nominate,
    RemoveCopy,
    SetCheck,
    StopCopy,
    Tell,
    UpdatePriority,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHECK = "mk"
TIMEOUT = timedelta(minutes=15)


def at(seconds: int) -> str:
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def true(kind: str, reason: str = "R", since: int = -60, message: str = "m") -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(since),
    }


def local(
    *conditions: dict[str, Any],
    state: str = "Pending",
    others: dict[str, str] | None = None,
    has_quota: bool = True,
    deleting: bool = False,
    priority: int = 0,
    **status: Any,
) -> dict[str, Any]:
    checks = [{"name": CHECK, "state": state}] if state else []
    checks += [{"name": name, "state": value} for name, value in (others or {}).items()]
    listed = [*([true("QuotaReserved")] if has_quota else []), *conditions]
    metadata = {"name": "w", "namespace": "ns", "uid": "u"}
    if deleting:
        metadata["deletionTimestamp"] = at(-1)
    return {
        "metadata": metadata,
        "spec": {"priority": priority},
        "status": {"conditions": listed, "admissionChecks": checks, **status},
    }


def copied(*conditions: dict[str, Any], job: bool = False, **changes: Any) -> Copy:
    spec = changes.pop("spec", {"priority": 0, "active": True})
    workload = {"metadata": {"name": "w"}, "spec": spec, "status": {"conditions": list(conditions)}}
    return Copy(workload=workload, has_job=job, **{"is_adopted": job, **changes})


def group(document: dict[str, Any] | None, **changes: Any) -> Group:
    copies = changes.pop("copies", {"a": Copy(), "b": Copy()})
    return Group(
        local=document, check=CHECK, now=NOW, copies=copies, worker_lost_timeout=TIMEOUT, **changes
    )


def actions(document: dict[str, Any] | None, **changes: Any) -> tuple[Any, ...]:
    return decide(group(document, **changes)).actions


ADMITTED = true("Admitted")
EVICTED = true("Evicted")
READY = {"state": "Ready", "clusterName": "a"}
RETRY_GONE = SetCheck("Retry", 'Admitting remote no longer exists, Previously: "Ready"')


@pytest.mark.parametrize(
    ("document", "changes", "want"),
    [
        pytest.param(
            None,
            {"copies": {"a": copied(job=True), "b": Copy()}},
            (RemoveCopy("a", why="gone"),),
            id="a deleted workload leaves nothing on workers",
        ),
        pytest.param(
            local(deleting=True),
            {"copies": {"a": Copy(has_job=True), "b": Copy()}},
            (RemoveCopy("a", why="gone"),),
            id="a job without its workload is removed with a workload that is being deleted",
        ),
        pytest.param(
            None,
            {"copies": {"a": copied(is_ours=False, job=True, is_job_ours=False)}},
            (),
            id="what is not ours is never removed",
        ),
        pytest.param(
            local(has_quota=False),
            {"copies": {"a": copied(), "b": Copy()}},
            (RemoveCopy("a", why="released"),),
            id="without quota the copies go",
        ),
        pytest.param(
            local(true("Finished"), **READY),
            {"copies": {"a": copied(ADMITTED, job=True)}},
            (RemoveCopy("a", why="released"),),
            id="a finished workload's copy goes",
        ),
        pytest.param(local(state=""), {}, (), id="without the check it is somebody else's"),
        pytest.param(local(state="Rejected"), {}, (), id="a rejected check is left alone"),
        pytest.param(
            local(),
            {"refusal": "no"},
            (SetCheck("Rejected", 'no, Previously: "Pending"'),),
            id="a job that cannot be dispatched is rejected",
        ),
        pytest.param(
            local(EVICTED),
            {"refusal": "no"},
            (),
            id="nothing is rejected under an eviction",
        ),
        pytest.param(
            local(),
            {"copies": {"a": copied(ADMITTED, job=True, is_current=False), "b": Copy()}},
            (RemoveCopy("a", why="stale"),),
            id="a copy of an earlier reservation goes before anything else",
        ),
        pytest.param(
            local(),
            {},
            (Nominate(("a", "b")),),
            id="nominations are stored before copies are made",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {"copies": {"a": copied(), "b": Copy()}},
            (CreateCopy("b"),),
            id="nominated workers that lack a copy get one",
        ),
        pytest.param(
            local(others={"budget": "Pending"}),
            {},
            (),
            id="nothing is nominated before every other check is ready",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {"copies": {"a": Copy()}, "lost": {"b": NOW}},
            (CreateCopy("a"),),
            id="a worker that cannot be looked at is not withdrawn",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {"copies": {"a": copied(), "b": copied()}, "blocked": {"b": "x"}},
            (RemoveCopy("b", why="withdrawn", only_unchanged=True),),
            id="a copy goes before its nomination is withdrawn",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {"copies": {"a": copied(), "b": Copy()}, "blocked": {"b": "x"}},
            (Nominate(("a",)),),
            id="a blocked worker without a copy is withdrawn",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {"copies": {"a": copied(ADMITTED), "b": copied()}},
            (Choose("a"), RemoveCopy("b", why="lost")),
            id="the first admitted copy wins and the others go",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {
                "copies": {
                    "a": copied(true("Admitted", since=-5)),
                    "b": copied(true("Admitted", since=-9)),
                }
            },
            (Choose("b"), RemoveCopy("a", why="lost")),
            id="of two admitted copies the older one wins",
        ),
        pytest.param(
            local(nominatedClusterNames=["b"]),
            {"copies": {"a": copied(ADMITTED), "b": copied()}},
            (Nominate(("a", "b")),),
            id="an admitted copy that is not nominated is nominated again, never chosen at once",
        ),
        pytest.param(
            local(nominatedClusterNames=["a", "b"]),
            {"copies": {"a": copied(true("QuotaReserved")), "b": copied()}},
            (),
            id="quota alone wins nothing",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED), "b": Copy()}},
            (CreateJob("a"),),
            id="the job is made once the choice is stored",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True), "b": Copy()}},
            (CopyStatus("a"),),
            id="a running job is followed",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, is_adopted=True), "b": Copy()}},
            (RemoveCopy("a", why="job-deleted"),),
            id="a job that was deleted on its worker is not made again under the same admission",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {
                    "a": copied(true("Admitted", since=-5), job=True),
                    "b": copied(true("Admitted", since=-900), job=True),
                }
            },
            (CopyStatus("a"), RemoveCopy("b", why="lost")),
            id="the chosen worker wins over an older admitted copy",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": Copy(), "b": copied(ADMITTED)}},
            (RETRY_GONE,),
            id="a copy that vanished asks for a new race",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(), "b": Copy()}},
            (RETRY_GONE,),
            id="a copy that lost its admission asks for a new race",
        ),
        pytest.param(
            local(state="Ready"),
            {},
            (
                SetCheck(
                    "Retry",
                    "Admission check is Ready but no admitting cluster is recorded; "
                    'this is unexpected, please report it, Previously: "Ready"',
                ),
            ),
            id="ready without a worker is reported",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"b": Copy()}, "lost": {"a": NOW - TIMEOUT}},
            (SetCheck("Retry", 'Admitting remote lost, Previously: "Ready"'),),
            id="a worker lost for longer than the time-out is given up",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(true("Finished", "Succeeded", message="done"), job=True)}},
            (CopyStatus("a"), Finish("a", "Succeeded", "done")),
            id="the end is copied before it is declared",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {
                    "a": copied(ADMITTED, job=True),
                    "b": copied(true("Finished", "Succeeded"), job=True),
                }
            },
            (CopyStatus("a"), RemoveCopy("b", why="lost")),
            id="the end of a copy that was not chosen counts for nothing",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(EVICTED, job=True), "b": Copy()}},
            (
                SetCheck(
                    "Retry",
                    'Workload evicted on worker cluster: "a", resetting for re-admission. '
                    'Previously: "Ready"',
                ),
                Tell(
                    "MultiKueueEvictedOnWorker",
                    'Workload evicted on worker cluster: "a", resetting for re-admission. '
                    'Previously: "Ready"',
                ),
            ),
            id="an eviction on the worker starts over",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(EVICTED, job=True)}},
            (CopyStatus("a"),),
            id="an eviction on both sides is followed until the job has stopped",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(ADMITTED, job=True), "b": Copy()}},
            (StopCopy("a"),),
            id="an eviction on the manager stops the copy in an orderly way",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(ADMITTED, job=True, spec={"active": False})}},
            (),
            id="a copy is told once",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(), "b": copied()}},
            (RemoveCopy("a", why="evicted"), RemoveCopy("b", why="evicted")),
            id="copies that wait are removed with an eviction",
        ),
        pytest.param(
            local(EVICTED),
            {"is_job_active": True},
            (MarkJobInactive(),),
            id="quota is freed once the copy is proved to be gone",
        ),
        pytest.param(
            local(EVICTED),
            {"is_job_active": True, "copies": {"b": Copy()}, "lost": {"a": NOW - TIMEOUT}},
            (MarkJobInactive(),),
            id="quota is freed once a lost worker's time is over",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True, is_as_sent=False)}},
            (RemoveCopy("a", why="changed"),),
            id="a copy that somebody changed goes",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {
                    "a": copied(
                        ADMITTED,
                        job=True,
                        spec={"priority": 0, "maximumExecutionTimeSeconds": 60},
                    )
                }
            },
            (RemoveCopy("a", why="changed"),),
            id="a copy that somebody gave a limit goes",
        ),
        pytest.param(
            local(nominatedClusterNames=["a"]),
            {"copies": {"a": copied(spec={"priority": 0, "active": False})}},
            (RemoveCopy("a", why="changed", blocks="its copy was deactivated there"),),
            id="a waiting copy that somebody deactivated goes, and is not made at once",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {
                    "a": copied(ADMITTED, job=True, spec={"priority": 0, "active": False}),
                }
            },
            (CopyStatus("a"),),
            id="a running copy that somebody deactivated is evicted by its worker first",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True), "b": Copy()}, "left": frozenset("a")},
            (RemoveCopy("a", why="left"),),
            id="a worker that left gives its copy back",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"b": Copy()}, "left": frozenset("a")},
            (RETRY_GONE,),
            id="what ran on a worker that left starts over",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {"a": copied(true("Finished", "Succeeded", message="done"), job=True)},
                "left": frozenset("a"),
            },
            (CopyStatus("a"), Finish("a", "Succeeded", "done")),
            id="an end on a worker that left still counts",
        ),
        pytest.param(
            local(priority=7, **READY),
            {"copies": {"a": copied(ADMITTED, job=True), "b": Copy()}},
            (UpdatePriority("a", 7, None),),
            id="a changed priority follows",
        ),
    ],
)
def test_decide_says_what_to_do(document, changes, want):
    assert actions(document, **changes) == want


@pytest.mark.parametrize(
    ("ours", "theirs", "wants_update"),
    [
        pytest.param("high", "low", True, id="another class of equal priority"),
        pytest.param("high", None, True, id="a class where it had none"),
        pytest.param("high", "high", False, id="the same"),
    ],
)
def test_decide_lets_a_class_of_priority_follow(ours, theirs, wants_update):
    document = local(nominatedClusterNames=["a", "b"])
    document["spec"]["priorityClassRef"] = reference = {"name": ours}
    spec = {"priority": 0} | ({"priorityClassRef": {"name": theirs}} if theirs else {})
    found = actions(document, copies={"a": copied(spec=spec), "b": copied(spec=document["spec"])})
    assert found == ((UpdatePriority("a", 0, reference),) if wants_update else ())


@pytest.mark.parametrize(
    ("is_active", "want"),
    [
        pytest.param(
            True,
            (RemoveCopy("a", why="changed", blocks="its copy was deactivated there"),),
            id="there alone",
        ),
        pytest.param(False, (), id="on the manager, too"),
    ],
)
def test_decide_gives_up_a_copy_that_was_put_out(is_active, want):
    document = local(nominatedClusterNames=["a", "b"])
    document["spec"]["active"] = is_active
    off = copied(spec={"priority": 0, "active": False})
    assert actions(document, copies={"a": off, "b": copied()}) == want


def test_decide_sends_a_waiting_workload_elsewhere_that_went_out_of_sync():
    ended = copied(true("Finished", reason="OutOfSync"), job=True)
    found = actions(local(nominatedClusterNames=["a"]), copies={"a": ended, "b": Copy()})
    text = (
        'Remote workload on worker cluster "a" is out of sync with its user job, resetting for '
        "re-dispatch"
    )
    assert found == (
        Tell("MultiKueueOutOfSync", text),
        RemoveCopy("a", why="out-of-sync", blocks="its copy and its Job differed there"),
    )


def test_decide_waits_for_a_worker_that_is_lost_for_less_than_the_time_out():
    verdict = decide(group(local(**READY), copies={}, lost={"a": NOW - timedelta(seconds=60)}))
    assert verdict.actions == ()
    assert verdict.look_again == NOW - timedelta(seconds=60) + TIMEOUT


def test_decide_keeps_the_quota_while_a_lost_worker_may_still_run_the_job():
    verdict = decide(group(local(EVICTED), copies={}, lost={"a": NOW}, is_job_active=True))
    assert verdict.actions == ()
    assert verdict.look_again == NOW + TIMEOUT


def test_decide_passes_a_worker_with_a_foreign_job_over_and_says_so():
    found = actions(
        local(nominatedClusterNames=["a"]),
        copies={"a": Copy(workload=copied(ADMITTED).workload, has_job=True, is_job_ours=False)},
    )
    tell, remove = found
    assert isinstance(tell, Tell)
    assert remove.cluster == "a"
    assert remove.blocks


def test_decide_says_why_no_worker_can_take_it():
    [nominate, tell] = actions(
        local(nominatedClusterNames=["a"]), copies={"a": Copy()}, blocked={"a": "is full"}
    )
    assert nominate == Nominate(())
    assert "a: is full" in tell.message


def test_decide_never_takes_an_out_of_sync_end_over():
    ended = true("Finished", "OutOfSync")
    running = actions(local(**READY), copies={"a": copied(ended, job=True)})
    racing = actions(local(nominatedClusterNames=["a"]), copies={"a": copied(ended, job=True)})
    assert isinstance(running[0], SetCheck)
    assert running[0].state == "Retry"
    assert [type(item) for item in racing] == [Tell, RemoveCopy]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"job": True}, CopyStatus("a"), id="its worker stops the job in order"),
        pytest.param({}, RemoveCopy("a", why="out-of-sync"), id="no job will tell that it stopped"),
    ],
)
def test_decide_follows_an_eviction_to_a_copy_that_ended_out_of_sync(changes, want):
    """It stays Admitted there and is never evicted: waiting for that would keep the quota."""
    ended = copied(true("Finished", "OutOfSync"), ADMITTED, spec={"active": False}, **changes)
    found = actions(local(ADMITTED, EVICTED), copies={"a": ended}, is_job_active=True)
    assert found == (want,)


def test_check_of_finds_the_first_check_that_dispatches():
    document = local(others={"budget": "Ready"})
    controllers = {CHECK: "kueue.x-k8s.io/multikueue", "budget": "portal/budget"}
    assert check_of(document, controllers=controllers) == CHECK
    assert check_of(document, controllers={"budget": "portal/budget"}) == ""


conditions = st.sampled_from([(), ("Admitted",), ("Evicted",), ("Finished",)])
copies = st.builds(
    lambda kinds, job, ours, current: copied(
        *(true(kind) for kind in kinds), job=job, is_ours=ours, is_job_ours=ours, is_current=current
    ),
    conditions,
    st.booleans(),
    st.booleans(),
    st.booleans(),
) | st.just(Copy())


@given(
    st.sampled_from(["", "Pending", "Ready", "Retry", "Rejected"]),
    conditions,
    st.booleans(),
    st.sampled_from(["", "a", "b"]),
    st.lists(st.sampled_from("ab"), unique=True),
    st.fixed_dictionaries({"a": copies, "b": copies}),
    st.booleans(),
)
def test_decide_holds_its_laws_for_any_group(
    state, kinds, has_quota, chosen, nominated, found, is_active
):
    status = {"clusterName": chosen} if chosen else {"nominatedClusterNames": nominated}
    document = local(*(true(kind) for kind in kinds), state=state, has_quota=has_quota, **status)
    verdict = decide(group(document, copies=found, is_job_active=is_active))
    kept = [item.cluster for item in verdict.actions if isinstance(item, Choose | CreateJob)]
    assert len(set(kept)) <= 1
    for action in verdict.actions:
        if isinstance(action, RemoveCopy):
            assert found[action.cluster].is_anything_ours
            assert action.cluster not in kept
        if isinstance(action, Choose):
            assert action.cluster in (*nominated, chosen)
        if isinstance(action, SetCheck):
            assert "Evicted" not in kinds
        if isinstance(action, CreateJob):
            assert chosen == action.cluster
            assert state == "Ready"


def test_ready_check_without_a_winner_is_given_one_before_its_job_is_made():
    """As somebody leaves it who sets the check by hand."""
    for nominated, want in (([], Nominate(("b",))), (["b"], Choose("b"))):
        document = local(state="Ready", nominatedClusterNames=nominated)
        copies = {"a": Copy(), "b": copied(true("Admitted"))}
        assert decide(group(document, copies=copies)).actions == (want,)


def test_finished_copy_waits_until_the_end_of_its_job_was_told():
    document = local(true("Admitted"), state="Ready", clusterName="a")
    fresh = copied(true("Admitted"), true("Finished", since=-1), job=True, is_job_open=True)
    verdict = decide(group(document, copies={"a": fresh}))
    assert verdict.actions == (CopyStatus("a"),)
    assert verdict.look_again == NOW + timedelta(seconds=59)
    told = copied(true("Admitted"), true("Finished", since=-1), job=True)
    assert decide(group(document, copies={"a": told})).actions == (
        CopyStatus("a"),
        Finish("a", "R", "m"),
    )


def test_finished_copy_does_not_wait_for_ever_for_the_end_of_its_job():
    document = local(true("Admitted"), state="Ready", clusterName="a")
    old = copied(true("Admitted"), true("Finished", since=-61), job=True, is_job_open=True)
    assert Finish("a", "R", "m") in decide(group(document, copies={"a": old})).actions


def test_job_is_marked_inactive_only_once_it_was_told_to_stop():
    document = local(true("Evicted"), state="Pending")
    away = {"is_job_active": True, "copies": {"a": Copy()}}
    assert decide(group(document, **away)).actions == (MarkJobInactive(),)
    assert decide(group(document, is_stop_due=True, **away)).actions == ()
