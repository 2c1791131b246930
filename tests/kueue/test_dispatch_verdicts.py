"""Verdicts of dispatch told whole: every rule with its words, its order and its times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.multikueue.decide import check_of, decide
from clusters.kueue.multikueue.dispatchers import (
    ALL_AT_ONCE,
    CHEAPEST_FIT,
    DISPATCHERS,
    INCREMENTAL,
    Nomination,
    Pace,
    all_at_once,
    as_stored,
    by_cheapest_fit,
    dispatcher_named,
    in_rounds,
    not_yet,
)
from clusters.kueue.multikueue.group import Copy, GroupView, Round, Siblings, since
from clusters.kueue.multikueue.offers import Fit, Offer, WorkerQuota, as_sent
from clusters.kueue.multikueue.settings import DispatchSettings, origin_of
from clusters.kueue.multikueue.steps import (
    Choose,
    CopyStatus,
    CreateCopy,
    CreateJob,
    Finish,
    FollowJob,
    MarkJobInactive,
    Nominate,
    ReadJob,
    RemoveCopy,
    SetCheck,
    StopCopy,
    Tell,
    UpdatePriority,
    Verdict,
)
from tests.kueue.test_multikueue import (
    ADMITTED,
    EVICTED,
    NOW,
    READY,
    TIMEOUT,
    at,
    copied,
    group,
    local,
    true,
)

SECOND = timedelta(seconds=1)
WAITING = {"nominatedClusterNames": ["a", "b"]}
FINISHED = true("Finished", "Succeeded", message="done")
OUT_OF_SYNC = true("Finished", "OutOfSync")
SYNC_TEXT = (
    'Remote workload on worker cluster "a" is out of sync with its user job, '
    "resetting for re-dispatch"
)
FOREIGN = (
    Tell(
        "MultiKueueForeignJob",
        'remote object is not owned by MultiKueue: a Job of this name exists on "a"',
    ),
    RemoveCopy("a", why="foreign", blocks="a Job of this name that is not ours is there"),
)


def limited(document: dict[str, Any], **spec: Any) -> dict[str, Any]:
    document["spec"] |= spec
    return document


@pytest.mark.parametrize(
    ("document", "changes", "want"),
    [
        pytest.param(
            local(has_quota=False),
            {"copies": {}, "lost": {"c": NOW}},
            Verdict((), NOW + TIMEOUT),
            id="without quota a lost worker is looked at again",
        ),
        pytest.param(
            local(FINISHED),
            {"copies": {"b": copied(), "a": copied()}},
            Verdict((RemoveCopy("a", why="released"), RemoveCopy("b", why="released"))),
            id="finished, copies go by name",
        ),
        pytest.param(
            local(has_quota=False, state=""),
            {"copies": {"a": copied(job=True), "b": copied()}, "is_handed_over": True},
            Verdict((RemoveCopy("b", why="replaced"),)),
            id="handed over, jobs stay",
        ),
        pytest.param(
            local(has_quota=False, state="Rejected"),
            {"copies": {"a": copied()}, "lost": {"c": NOW}, "is_handed_over": True},
            Verdict((RemoveCopy("a", why="replaced"),)),
            id="handed over, without a copy's job",
        ),
        pytest.param(
            local(state=""),
            {"copies": {"a": copied(is_current=False)}},
            Verdict(),
            id="somebody else's",
        ),
        pytest.param(
            local(state="Rejected"),
            {"copies": {"a": copied(is_current=False)}},
            Verdict(),
            id="rejected",
        ),
        pytest.param(
            local(),
            {
                "copies": {
                    "a": copied(),
                    "c": copied(is_current=False),
                    "b": copied(is_current=False),
                },
                "refusal": "no",
            },
            Verdict((RemoveCopy("b", why="stale"), RemoveCopy("c", why="stale"))),
            id="stale copies go first",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True)}, "refusal": "no"},
            Verdict((CopyStatus("a"),)),
            id="what runs is not refused",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(true("Finished", "OwnerNotFound"), job=True)}},
            Verdict((RemoveCopy("a", why="job-deleted"),)),
            id="a job that was deleted there is no end",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(FINISHED, job=True, is_job_ours=False)}},
            Verdict(FOREIGN),
            id="the end of a foreign job",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(true("Finished", since=-59), job=True, is_job_open=True)}},
            Verdict((CopyStatus("a"),), NOW + SECOND),
            id="an end that is not told yet",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(true("Finished", since=-60), job=True, is_job_open=True)}},
            Verdict((CopyStatus("a"), Finish("a", "R", "m"))),
            id="an end that is never told",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(true("Finished", since=-99), job=True, is_job_unread=True)}},
            Verdict((ReadJob("a"),)),
            id="an end that its job does not tell",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {
                    "a": copied({"type": "Finished", "status": "True", "lastTransitionTime": at(0)})
                }
            },
            Verdict((CopyStatus("a"), Finish("a", "", ""))),
            id="an end without words",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(OUT_OF_SYNC)}},
            Verdict(
                (
                    SetCheck("Retry", f'{SYNC_TEXT}, Previously: "Ready"'),
                    Tell("MultiKueueOutOfSync", SYNC_TEXT),
                )
            ),
            id="out of sync while it runs",
        ),
        pytest.param(
            local(**WAITING),
            {"copies": {"a": copied(OUT_OF_SYNC)}},
            Verdict(
                (
                    Tell("MultiKueueOutOfSync", SYNC_TEXT),
                    RemoveCopy(
                        "a", why="out-of-sync", blocks="its copy and its Job differed there"
                    ),
                )
            ),
            id="out of sync while it waits",
        ),
        pytest.param(
            local(state="Retry"),
            {"copies": {"a": copied(OUT_OF_SYNC)}},
            Verdict(),
            id="out of sync, and known",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(OUT_OF_SYNC, job=True)}, "is_silent": True},
            Verdict((RemoveCopy("a", why="out-of-sync"),)),
            id="out of sync, evicted, and silent",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(OUT_OF_SYNC, job=True, is_job_ours=False)}},
            Verdict((RemoveCopy("a", why="out-of-sync"),)),
            id="out of sync, evicted, beside a foreign job",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {"a": copied(ADMITTED, job=True), "b": copied(), "c": copied()},
                "left": frozenset({"a", "c"}),
            },
            Verdict((RemoveCopy("a", why="left"), RemoveCopy("c", why="left"))),
            id="workers that are dispatched to no more",
        ),
        pytest.param(
            local(**WAITING),
            {
                "copies": {"a": copied(EVICTED), "b": copied()},
                "rounds": (Round(1, NOW, ("a", "b")),),
            },
            Verdict(),
            id="evicted there before it was chosen",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(EVICTED)}},
            Verdict((RemoveCopy("a", why="evicted"),)),
            id="evicted on both sides, and no job",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(EVICTED, job=True)}, "is_silent": True},
            Verdict((RemoveCopy("a", why="evicted"),)),
            id="a silent kind that gave its quota back",
        ),
        pytest.param(
            local(EVICTED),
            {
                "copies": {"a": copied(EVICTED, true("QuotaReserved"), job=True)},
                "is_silent": True,
            },
            Verdict((CopyStatus("a"),)),
            id="a silent kind that still holds quota",
        ),
        pytest.param(
            local(**WAITING),
            {
                "copies": {
                    "b": copied(is_as_sent=False),
                    "a": copied(spec={"maximumExecutionTimeSeconds": 5}),
                }
            },
            Verdict((RemoveCopy("a", why="changed"), RemoveCopy("b", why="changed"))),
            id="changed copies go by name",
        ),
        pytest.param(
            limited(local(**WAITING), maximumExecutionTimeSeconds=5),
            {
                "copies": {
                    "a": copied(spec={"maximumExecutionTimeSeconds": "5"}),
                    "b": copied(spec={"maximumExecutionTimeSeconds": 5, "priority": 1}),
                }
            },
            Verdict((UpdatePriority("b", 0, None),)),
            id="an equal limit stays",
        ),
        pytest.param(
            local(EVICTED, **WAITING),
            {"copies": {"a": copied(ADMITTED, spec={"priority": 3})}},
            Verdict((StopCopy("a"),)),
            id="priorities follow no eviction",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True, spec={"active": False})}},
            Verdict((CopyStatus("a"),)),
            id="put out where it runs",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True, is_job_ours=False)}},
            Verdict(FOREIGN),
            id="admitted beside a foreign job",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied(ADMITTED, job=True), "b": copied(job=True)}},
            Verdict((RemoveCopy("b", why="lost"), StopCopy("a"))),
            id="an eviction takes the losers first",
        ),
        pytest.param(
            local(state="Ready", **WAITING),
            {"copies": {"a": copied(ADMITTED), "b": copied()}},
            Verdict((Choose("a"), RemoveCopy("b", why="lost"))),
            id="ready without a worker is given one",
        ),
        pytest.param(
            local(state="Ready"),
            {"copies": {"a": copied(ADMITTED), "b": copied()}},
            Verdict((Nominate(("a",)),)),
            id="ready without a worker and without nominations",
        ),
        pytest.param(
            local(clusterName="a"),
            {"copies": {"a": copied(ADMITTED), "b": copied()}},
            Verdict((Choose("a"), RemoveCopy("b", why="lost"))),
            id="chosen and still pending",
        ),
        pytest.param(
            local(state="Retry", **WAITING),
            {"copies": {"a": copied(ADMITTED), "b": copied()}},
            Verdict((RemoveCopy("b", why="lost"),)),
            id="admitted while it is started over",
        ),
        pytest.param(
            local(**READY),
            {
                "copies": {
                    "a": copied(ADMITTED, job=True, is_short=True, is_behind=True),
                    "b": copied(),
                }
            },
            Verdict((CopyStatus("a"), CreateJob("a"), RemoveCopy("b", why="lost"))),
            id="what is short is made before it follows",
        ),
        pytest.param(
            local(**READY),
            {"copies": {"a": copied(ADMITTED, job=True, is_behind=True), "b": copied()}},
            Verdict((CopyStatus("a"), FollowJob("a"), RemoveCopy("b", why="lost"))),
            id="what is behind follows",
        ),
        pytest.param(
            local(**READY),
            {"copies": {}, "lost": {"a": NOW - TIMEOUT + SECOND, "b": NOW}},
            Verdict(look_again=NOW + SECOND),
            id="its worker is lost for almost too long",
        ),
        pytest.param(
            local(**READY),
            {"copies": {}, "lost": {"a": NOW - TIMEOUT}},
            Verdict((SetCheck("Retry", 'Admitting remote lost, Previously: "Ready"'),)),
            id="its worker is lost for too long",
        ),
        pytest.param(
            local(EVICTED, **READY), {"copies": {}}, Verdict(), id="evicted, and nothing is left"
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {"a": copied()}, "is_job_active": True, "lost": {"b": NOW}},
            Verdict((RemoveCopy("a", why="evicted"),)),
            id="evicted copies go before anybody waits",
        ),
        pytest.param(
            local(EVICTED),
            {
                "copies": {},
                "is_job_active": True,
                "lost": {"a": NOW - TIMEOUT + SECOND, "b": NOW - TIMEOUT},
            },
            Verdict(look_again=NOW + SECOND),
            id="an eviction waits for the last of the lost",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {}, "is_job_active": True, "lost": {"a": NOW - TIMEOUT}},
            Verdict((MarkJobInactive(),)),
            id="an eviction waits no longer",
        ),
        pytest.param(
            local(EVICTED),
            {"copies": {}, "is_job_active": True, "is_stop_due": True, "lost": {"b": NOW}},
            Verdict(),
            id="an eviction that its job was not told of",
        ),
    ],
)
def test_verdict_is_told_whole(document, changes, want):
    assert decide(group(document, **changes)) == want


def test_priority_follows_with_its_class_and_number():
    reference = {"name": "high", "group": "g"}
    document = limited(local(priority=7, **WAITING), priorityClassRef=reference)
    copies = {
        "a": copied(spec={"priority": 7, "priorityClassRef": {"name": "high"}}),
        "b": copied(spec={"priority": 6, "priorityClassRef": {"name": "high"}}),
    }
    assert decide(group(document, copies=copies)) == Verdict((UpdatePriority("b", 7, reference),))
    gone = local(**WAITING)
    del gone["spec"]["priority"]
    found = decide(group(gone, copies={"a": copied(spec={"priority": 2}), "b": copied()}))
    assert found == Verdict((UpdatePriority("a", 0, None),))


MANY = [f"w{number:02}" for number in range(25)]


def test_at_most_twenty_workers_are_nominated():
    copies = {name: Copy() for name in MANY}
    found = decide(group(local(), copies=copies))
    assert found.actions == (Nominate(tuple(MANY[:20])),)
    assert found.opened == Round(1, NOW, tuple(MANY))
    stored = local(nominatedClusterNames=MANY[:20])
    copies["w24"] = copied(ADMITTED)
    assert decide(group(stored, copies=copies)) == Verdict((Nominate(tuple(MANY[:20])),))
    copies = {**copies, "a": copied(true("Admitted", since=-90))}
    want = Verdict((Nominate(("a", *MANY[:19])),))
    assert decide(group(stored, copies=copies)) == want


@pytest.mark.parametrize(
    ("document", "changes", "want"),
    [
        pytest.param(
            local(),
            {},
            Verdict((Nominate(("a", "b")),), opened=Round(1, NOW, ("a", "b"))),
            id="nominated with a new round",
        ),
        pytest.param(
            local(**WAITING),
            {"rounds": (Round(1, NOW, ("a", "b")),)},
            Verdict((CreateCopy("a"), CreateCopy("b"))),
            id="copies are made by name",
        ),
        pytest.param(
            local(nominatedClusterNames=["b", "a"]),
            {"copies": {"b": Copy(), "a": copied()}, "rounds": (Round(1, NOW, ("a", "b")),)},
            Verdict((CreateCopy("b"),)),
            id="the order of nominations does not matter",
        ),
        pytest.param(
            local(nominatedClusterNames=["b", "z"]),
            {"copies": {"b": copied()}, "lost": {"z": NOW}},
            Verdict(opened=Round(1, NOW, ("b",), {"z": "not connected"})),
            id="what cannot be looked at stays",
        ),
        pytest.param(
            local(**WAITING),
            {
                "copies": {"a": copied(), "b": copied(is_ours=False), "c": copied()},
                "blocked": {"b": "x", "c": "y"},
            },
            Verdict((RemoveCopy("c", why="withdrawn", only_unchanged=True),)),
            id="only what is ours is withdrawn",
        ),
        pytest.param(
            local(),
            {"copies": {}},
            Verdict(
                (
                    Tell(
                        "MultiKueueNoWorker",
                        "No worker can take the workload now (none is configured)",
                    ),
                )
            ),
            id="nobody is there",
        ),
        pytest.param(
            local(),
            {
                "copies": {"c": Copy(), "b": Copy()},
                "blocked": {"c": "no room", "b": "foreign"},
                "lost": {"e": NOW, "d": NOW},
                "offers": {
                    "g": Offer(Fit.NEVER, why_not="no flavor"),
                    "f": Offer(Fit.NEVER, why_not="too large"),
                    "h": Offer(),
                },
            },
            Verdict(
                (
                    Tell(
                        "MultiKueueNoWorker",
                        "No worker can take the workload now (b: foreign; c: no room; "
                        "d: not connected; e: not connected; f: too large; g: no flavor)",
                    ),
                )
            ),
            id="everybody's reason is told",
        ),
        pytest.param(
            local(nominatedClusterNames=["z"]),
            {"copies": {}, "lost": {"z": NOW}},
            Verdict(
                (
                    Tell(
                        "MultiKueueNoWorker",
                        "No worker can take the workload now (z: not connected)",
                    ),
                )
            ),
            id="all that is nominated cannot be looked at",
        ),
        pytest.param(
            local(others={"budget": "Ready", "else": "Ready"}),
            {"copies": {"a": Copy()}},
            Verdict((Nominate(("a",)),), opened=Round(1, NOW, ("a",))),
            id="every other check is ready",
        ),
        pytest.param(
            local(others={"budget": "Ready", "else": "Retry"}), {}, Verdict(), id="one is not"
        ),
        pytest.param(local(clusterName="a"), {}, Verdict(), id="somebody has it"),
        pytest.param(local(state="Retry"), {}, Verdict(), id="it is being started over"),
        pytest.param(
            local(),
            {"siblings": Siblings(is_complete=True, is_first=True)},
            Verdict((Nominate(("a", "b")),), opened=Round(1, NOW, ("a", "b"))),
            id="the first of several chooses",
        ),
        pytest.param(
            local(),
            {"siblings": Siblings(is_complete=True, is_first=False, chosen="b")},
            Verdict((Nominate(("b",)),)),
            id="the others follow",
        ),
        pytest.param(
            local(),
            {"siblings": Siblings(is_complete=True, is_first=False)},
            Verdict(),
            id="the others wait for the first",
        ),
        pytest.param(
            local(),
            {"siblings": Siblings(is_complete=False, is_first=True, chosen="b")},
            Verdict(),
            id="all wait for the last",
        ),
    ],
)
def test_nominations_are_told_whole(document, changes, want):
    assert decide(group(document, **changes)) == want


def test_dispatcher_in_force_is_asked_and_its_times_are_kept():
    def later(_: Any) -> Nomination:
        return Nomination(("b",), Round(3, NOW, ("b",)), NOW + SECOND)

    found = decide(group(local()), dispatcher=later)
    assert found == Verdict((Nominate(("b",)),), NOW + SECOND, Round(3, NOW, ("b",)))
    stored = group(local(nominatedClusterNames=["b"]))
    want = Verdict((CreateCopy("b"),), NOW + SECOND, Round(3, NOW, ("b",)))
    assert decide(stored, dispatcher=later) == want
    assert decide(group(None, copies={"a": copied()})) == Verdict((RemoveCopy("a", why="gone"),))


def test_first_check_that_dispatches_is_the_one():
    document = local(others={"second": "Ready", "mk2": "Ready"})
    multikueue = "kueue.x-k8s.io/multikueue"
    assert check_of(document, controllers={"mk2": multikueue, "second": "x"}) == "mk2"
    assert check_of(document, controllers={"mk2": multikueue, "second": multikueue}) == "second"
    assert check_of({"status": {"admissionChecks": None}}, controllers={"a": multikueue}) == ""
    assert check_of({}, controllers={"a": multikueue}) == ""


WORKLOAD = {"metadata": {"name": "w"}}


@pytest.mark.parametrize(
    ("copy", "want_ours", "want_foreign"),
    [
        (Copy(), False, False),
        (Copy(workload=WORKLOAD), True, False),
        (Copy(workload=WORKLOAD, is_ours=False), False, False),
        (Copy(has_job=True), True, False),
        (Copy(has_job=True, is_job_ours=False), False, True),
        (Copy(workload=WORKLOAD, has_job=True, is_job_ours=False), True, True),
        (Copy(workload=WORKLOAD, is_ours=False, has_job=True), True, False),
        (Copy(is_job_ours=False), False, False),
    ],
)
def test_what_is_ours_on_a_worker(copy, want_ours, want_foreign):
    assert (copy.is_anything_ours, copy.has_foreign_job) == (want_ours, want_foreign)


def test_workers_are_ordered_by_configuration_then_by_name():
    found = group(
        None,
        copies=dict.fromkeys("dcba", Copy()),
        order=("c", "x"),
        blocked={"b": "foreign", "y": "full"},
        lost={"x": NOW, "y": NOW},
    )
    assert found.order_or_names() == ("c", "x", "a", "b", "d")
    assert found.usable == {"a", "c", "d"}
    assert found.passed_over() == {"x": "not connected", "y": "full", "b": "foreign"}


def test_first_copy_is_the_oldest_then_the_first_by_name():
    def first(document: dict[str, Any], **copies: Copy) -> str | None:
        found = GroupView(group(document, copies=copies), document).first("Admitted")
        if found is None:
            return None
        assert found[1] == copies[found[0]].workload
        return found[0]

    older, newer = copied(true("Admitted", since=-9)), copied(true("Admitted", since=-5))
    assert first(local(), a=newer, b=older) == "b"
    assert first(local(), b=older, a=older) == "a"
    assert first(local(**READY), a=newer, b=older) == "a"
    assert first(local(), a=copied(true("Admitted", since=-9), is_ours=False), b=newer) == "b"
    assert first(local(), a=copied(true("Admitted", since=-9), is_current=False), b=newer) == "b"
    assert first(local(), a=Copy(), b=copied()) is None


def test_view_reads_the_managers_workload():
    document = local(EVICTED, state="", others={"x": "Ready"}, clusterName=None)
    view = GroupView(group(document), document)
    assert (view.state, view.chosen, view.nominated) == ("", "", ())
    assert (view.checks, view.has_quota, view.is_evicted) == ({"x": "Ready"}, True, True)
    bare = GroupView(group(None), {"metadata": {}, "status": None})
    assert (bare.status, bare.checks, bare.has_quota, bare.is_evicted) == ({}, {}, False, False)
    full = local(clusterName="a", nominatedClusterNames=["a", "b"])
    view = GroupView(group(full), full)
    assert (view.state, view.chosen, view.nominated) == ("Pending", "a", ("a", "b"))


def test_time_of_a_condition_has_to_be_told():
    assert since({"status": {"conditions": [true("Admitted", since=-3)]}}, "Admitted") == (
        NOW - timedelta(seconds=3)
    )
    for document in ({}, {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}):
        with pytest.raises(ValueError, match=r"^condition Admitted has no lastTransitionTime$"):
            since(document, "Admitted")


# Dispatchers


def test_table_of_dispatchers_is_told_whole():
    found = {
        name: (item.words, item.pace, item.is_ours, item.asks_offers)
        for name, item in DISPATCHERS.items()
    }
    assert found == {
        ALL_AT_ONCE: ("all at once", None, False, False),
        INCREMENTAL: ("incremental", Pace(3, timedelta(minutes=5)), False, False),
        CHEAPEST_FIT: ("cheapest fit", Pace(1, timedelta(seconds=30)), True, True),
    }
    outside = dispatcher_named("example.org/x")
    assert (outside.words, outside.choose, outside.pace) == (
        "external (example.org/x)",
        as_stored,
        None,
    )
    assert dispatcher_named(ALL_AT_ONCE) is DISPATCHERS[ALL_AT_ONCE]


def test_nominations_that_are_stored_stay_while_others_decide():
    found = group(local(**WAITING))
    assert as_stored(found) == Nomination(("a", "b"), is_undecided=True)
    in_a_moment = NOW + timedelta(milliseconds=200)
    assert not_yet(found) == Nomination(("a", "b"), look_again=in_a_moment, is_undecided=True)
    nothing = group(None)
    assert as_stored(nothing) == Nomination((), is_undecided=True)
    assert as_stored(group({"metadata": {}, "status": None})).clusters == ()
    assert as_stored(group(local(nominatedClusterNames=None))).clusters == ()


def test_all_at_once_begins_no_round_for_nobody_and_for_whom_it_knows():
    rounds = (Round(1, NOW, ("a",)), Round(2, NOW, ("b", "c")))
    known = group(local(), rounds=rounds)
    assert all_at_once(known) == Nomination(("a", "b"))
    more = group(local(), rounds=rounds, copies=dict.fromkeys("dcba", Copy()))
    assert all_at_once(more) == Nomination(("a", "b", "c", "d"), Round(3, NOW, ("d",)))
    blocked = group(local(), blocked={"a": "x", "b": "y"})
    assert all_at_once(blocked) == Nomination(())


def test_cheapest_fit_ranks_only_who_may_be_nominated():
    offers = {
        "a": Offer(Fit.FULL, times=0),
        "b": Offer(Fit.RECLAIM),
        "c": Offer(Fit.FLOOR),
        "d": Offer(Fit.NEVER, why_not="never"),
    }
    found = by_cheapest_fit(
        group(
            local(),
            copies=dict.fromkeys("abcde", Copy()),
            offers=offers,
            blocked={"c": "blocked"},
        )
    )
    assert found.names == ("b", "a", "e")
    assert found.why == {
        "b": "1. its own quota there is lent out, no price, room for 0",
        "a": "2. no room now, no price, room for 0",
        "e": "3. quota there is not known",
        "d": "4. never",
    }
    chosen = in_rounds(by_cheapest_fit)(
        group(local(), copies={"a": Copy(), "b": Copy()}, offers=offers), Pace(1, SECOND)
    )
    why = {
        "b": "1. its own quota there is lent out, no price, room for 0",
        "a": "2. no room now, no price, room for 0",
    }
    assert chosen == Nomination(("b",), Round(1, NOW, ("b",), why), NOW + SECOND)


# Offers

FREE = Offer(Fit.FLOOR, hourly_price=Decimal(2), times=5, locality=1, failures=1)


@pytest.mark.parametrize(
    "worse",
    [
        Offer(Fit.BURST, hourly_price=Decimal(1), times=9, locality=9),
        Offer(Fit.FLOOR, hourly_price=Decimal(3), times=9, locality=9),
        Offer(Fit.FLOOR, hourly_price=None, times=9, locality=9),
        Offer(Fit.FLOOR, hourly_price=Decimal(2), times=4, locality=9),
        Offer(Fit.FLOOR, hourly_price=Decimal(2), times=5, locality=0),
        Offer(Fit.FLOOR, hourly_price=Decimal(2), times=5, locality=1, failures=2),
    ],
)
def test_offers_are_ranked_by_one_thing_after_the_other(worse):
    assert FREE.rank("z") < worse.rank("a")
    assert FREE.rank("a") < FREE.rank("b")


def test_rank_of_an_offer_is_told_whole():
    assert FREE.rank("n") == (Fit.FLOOR, False, Decimal(2), -5, -1, 1, "n")
    assert Offer().rank("n") == (Fit.UNKNOWN, True, Decimal(0), 0, 0, 0, "n")
    assert [int(item) for item in Fit] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("offer", "want"),
    [
        (
            Offer(Fit.FLOOR, ("a", "b"), Decimal("12.50"), 3, 2, 1),
            "fits in the workspace's own quota, flavor a, b, 12.5 per hour, room for 3, "
            "2 wished labels, 1 recent failures",
        ),
        (Offer(Fit.BURST, times=1), "fits by borrowing, no price, room for 1"),
        (
            Offer(Fit.RECLAIM, hourly_price=Decimal(100)),
            "its own quota there is lent out, 100 per hour, room for 0",
        ),
        (
            Offer(Fit.FULL, hourly_price=Decimal("0.000001")),
            "no room now, 0.000001 per hour, room for 0",
        ),
        (Offer(), "quota there is not known"),
        (Offer(Fit.NEVER), "cannot run there"),
        (Offer(Fit.NEVER, why_not="too large", failures=4), "too large, 4 recent failures"),
        (Offer(Fit.UNKNOWN, locality=1), "quota there is not known, 1 wished labels"),
    ],
)
def test_offer_says_why_it_stands_where_it_stands(offer, want):
    assert offer.words() == want


GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig"


def flavored(
    name: str,
    *quotas: tuple[str, str, int],
    used: tuple[tuple[str, str, str], ...] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A ClusterQueue with one group for each resource, and what its status says is reserved."""
    groups = [
        {
            "coveredResources": [resource],
            "flavors": [
                {
                    "name": flavor,
                    "resources": [{"name": resource, "nominalQuota": str(nominal)}],
                }
            ],
        }
        for flavor, resource, nominal in quotas
    ]
    reserved = [
        {"name": flavor, "resources": [{"name": resource, "total": total}]}
        for flavor, resource, total in used
    ]
    return {
        "metadata": {"name": name},
        "spec": {"resourceGroups": groups, **spec},
        "status": {"flavorsReservation": reserved},
    }


def asking(queue: str | None = "lq", pods: int = 1, **requests: str) -> dict[str, Any]:
    amounts = {{"gpu": GPU, "mig": MIG}.get(name, name): text for name, text in requests.items()}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}}
    spec: dict[str, Any] = {"podSets": [{"name": "main", "count": pods, "template": template}]}
    if queue is not None:
        spec["queueName"] = queue
    return {"metadata": {"name": "w", "namespace": "team"}, "spec": spec}


def worker(*queues: dict[str, Any], **objects: Any) -> WorkerQuota:
    flavors = [
        {"metadata": {"name": name}, "spec": {"nodeLabels": {"zone": name, name: "yes"}}}
        for name in ("f", "g", "h")
    ]
    place = {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}}
    return WorkerQuota(queues=queues, flavors=flavors, local_queues=[place], **objects)


PRICES = {"f": Decimal("2.5"), "g": Decimal("0.5")}


def test_offer_of_several_flavors_is_told_whole():
    queue = flavored(
        "cq",
        ("g", MIG, 12),
        ("f", GPU, 9),
        ("h", "cpu", 10),
        used=(("f", GPU, "1"), ("g", MIG, "3"), ("h", "cpu", "1500m")),
    )
    found = worker(queue)
    asked = asking(pods=2, gpu="2", mig="1", cpu="500m")
    want = Offer(
        Fit.FLOOR,
        flavors=("f", "g"),
        hourly_price=Decimal(11),
        times=2,
        usage={
            FlavorResource("f", GPU): 4,
            FlavorResource("g", MIG): 2,
            FlavorResource("h", "cpu"): 1000,
        },
    )
    assert found.offer(as_sent(asked), prices=PRICES) == want
    some = found.offer(as_sent(asked), prices={"f": Decimal(1)})
    assert (some.hourly_price, some.times) == (None, 2)
    only = found.offer(as_sent(asking(cpu="1")), prices=PRICES)
    assert only == Offer(Fit.FLOOR, usage={FlavorResource("h", "cpu"): 1000})
    found.book("cq", {FlavorResource("f", GPU): 3})
    found.book("unknown", {FlavorResource("f", GPU): 3})
    assert found.offer(as_sent(asked), prices=PRICES).times == 1
    found.book("cq", {FlavorResource("f", GPU): 2})
    full = found.offer(as_sent(asked), prices=PRICES)
    assert (full.fit, full.times, full.hourly_price) == (Fit.FULL, 0, Decimal(11))


def test_offer_reads_cohorts_and_done_pods_and_no_holdings():
    cohort = {
        "metadata": {"name": "all"},
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": "f", "resources": [{"name": GPU, "nominalQuota": "6"}]}],
                }
            ]
        },
    }
    found = worker(flavored("cq", ("f", GPU, 2), cohortName="all"), cohorts=[cohort])
    document = asking(pods=4, gpu="2")
    offer = found.offer(as_sent(document), prices=PRICES)
    assert (offer.fit, offer.times, offer.hourly_price) == (Fit.BURST, 1, Decimal(20))
    document["status"] = {
        "reclaimablePods": [{"name": "main", "count": 3}],
        "conditions": [true("QuotaReserved"), true("Admitted")],
        "admission": {"clusterQueue": "elsewhere", "podSetAssignments": []},
    }
    rest = found.offer(as_sent(document), prices=PRICES)
    assert rest == Offer(
        Fit.FLOOR,
        flavors=("f",),
        hourly_price=Decimal(5),
        times=4,
        usage={FlavorResource("f", GPU): 2},
    )


def test_queue_of_a_workload_is_that_of_its_local_queue():
    def at_place(name: str, namespace: str | None, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        return {"metadata": metadata, "spec": spec or None}

    found = WorkerQuota(
        queues=[],
        local_queues=[
            at_place("lq", "team", clusterQueue="one"),
            at_place("lq", "other", clusterQueue="two"),
            at_place("bare", "team"),
            at_place("empty", "team", clusterQueue=None),
            at_place("alone", None, clusterQueue="three"),
        ],
    )
    assert found.queue_of(asking("lq")) == "one"
    assert found.queue_of(asking("bare")) == ""
    assert found.queue_of(asking("empty")) == ""
    assert found.queue_of(asking("alone")) == ""
    assert found.queue_of(asking(None)) == ""
    elsewhere = asking("lq")
    elsewhere["metadata"]["namespace"] = "other"
    assert found.queue_of(elsewhere) == "two"
    nowhere = asking("alone")
    del nowhere["metadata"]["namespace"]
    assert found.queue_of(nowhere) == "three"
    want = Offer(Fit.NEVER, why_not="it has no LocalQueue  with a ClusterQueue")
    assert found.offer(as_sent(asking(None)), prices={}) == want


def test_what_queues_reserve_is_counted_as_if_all_were_read_anew():
    """Two queues of a cohort with burst, whose usage goes up and down, beside what was booked."""
    random = Random(7)
    asked, booked = asking(pods=2, gpu="1"), {FlavorResource("f", GPU): 2}

    def queues(mine: int, theirs: int) -> list[dict[str, Any]]:
        return [
            flavored(name, ("f", GPU, 4), used=(("f", GPU, str(used)),), cohortName="all")
            for name, used in (("cq", mine), ("beside", theirs))
        ]

    found = worker(*queues(0, 0))
    for _ in range(200):
        mine, theirs = random.randint(0, 6), random.randint(0, 6)
        told = queues(mine, theirs)
        random.shuffle(told)
        is_booked = random.random() < 0.5
        if is_booked:
            found.book("cq", booked)
        assert all(found.count("queues", document) for document in told)
        fresh = worker(*told)
        if is_booked:
            fresh.book("cq", booked)
        assert found.offer(as_sent(asked), prices=PRICES) == fresh.offer(
            as_sent(asked), prices=PRICES
        )
        if is_booked:
            found.unbook("cq", booked)
            found.unbook("gone", booked)


def test_what_asks_for_something_else_than_was_read_is_not_counted():
    queue = flavored("cq", ("f", GPU, 4))
    cohort = {"metadata": {"name": "all"}, "spec": {"parentName": "top"}}
    found = worker(queue, cohorts=[cohort])
    place = {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}}
    flavor = {"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "f", "f": "yes"}}}
    same = {"queues": queue, "cohorts": cohort, "flavors": flavor, "local_queues": place}
    for kind, document in same.items():
        assert found.count(kind, document | {"status": {"conditions": []}}), kind
        assert not found.count(kind, document | {"spec": {"other": "x"}}), kind
        assert not found.count(kind, document | {"metadata": {"name": "new"}}), kind
    ends = queue["metadata"] | {"deletionTimestamp": "2026-05-04T10:00:00Z"}
    assert not found.count("queues", queue | {"metadata": ends})


def test_labels_of_flavors_are_joined():
    found = worker()
    assert found.labels_of(["f", "gone", "g"]) == {"zone": "g", "f": "yes", "g": "yes"}
    assert found.labels_of([]) == {}


# Settings


def test_origin_is_the_configured_one():
    assert origin_of({}) == "multikueue"
    assert origin_of({"multiKueue": None}) == "multikueue"
    assert origin_of({"multiKueue": {"origin": ""}}) == "multikueue"
    assert origin_of({"multiKueue": {"origin": "mine"}}) == "mine"


def read(**section: Any) -> DispatchSettings:
    return DispatchSettings.from_document({"multiKueue": section})


def test_settings_that_are_not_given_are_those_of_the_dispatcher():
    assert DispatchSettings.from_document(None) == DispatchSettings()
    assert DispatchSettings() == DispatchSettings(
        ALL_AT_ONCE, 3, timedelta(minutes=5), timedelta(minutes=15), (), (), False
    )
    assert read(dispatcherName=CHEAPEST_FIT) == DispatchSettings(
        CHEAPEST_FIT, step=1, round_length=timedelta(seconds=30)
    )
    assert read(dispatcherName=INCREMENTAL, incrementalDispatcherConfig={"stepSize": 1}) == (
        DispatchSettings(INCREMENTAL, step=1)
    )
    assert read(dispatcherName="x.org/y") == DispatchSettings("x.org/y")
    everything = {"multiKueue": None, "integrations": None, "featureGates": None}
    assert DispatchSettings.from_document(everything) == DispatchSettings()


def test_kinds_are_those_of_frameworks_and_those_that_an_admin_named():
    found = DispatchSettings.from_document(
        {
            "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
            "multiKueue": {"externalFrameworks": [{"name": "PipelineRun.v1.tekton.dev"}]},
        }
    )
    assert [item.kind for item in found.integrations] == ["JobSet"]
    assert [item.kind for item in found.frameworks] == ["PipelineRun"]
    assert found.kinds == (*found.integrations, *found.frameworks)


DURATION = "is no duration, as 15m or 90s"


@pytest.mark.parametrize(
    ("section", "want"),
    [
        pytest.param(
            {"workerLostTimeout": "soon"},
            f"multiKueue.workerLostTimeout: 'soon' {DURATION}",
            id="no duration",
        ),
        pytest.param(
            {
                "dispatcherName": INCREMENTAL,
                "incrementalDispatcherConfig": {"timeout": "5 minutes", "stepSize": 0},
            },
            f"multiKueue.incrementalDispatcherConfig.timeout: '5 minutes' {DURATION}; "
            "multiKueue.incrementalDispatcherConfig.stepSize: 0 is no number from 1 on",
            id="both of rounds",
        ),
        pytest.param(
            {"dispatcherName": INCREMENTAL, "incrementalDispatcherConfig": {"stepSize": True}},
            "multiKueue.incrementalDispatcherConfig.stepSize: True is no number from 1 on",
            id="a step that is a truth",
        ),
        pytest.param(
            {"dispatcherName": INCREMENTAL, "incrementalDispatcherConfig": {"stepSize": "2"}},
            "multiKueue.incrementalDispatcherConfig.stepSize: '2' is no number from 1 on",
            id="a step that is a text",
        ),
        pytest.param(
            {"incrementalDispatcherConfig": {"stepSize": 2}},
            "multiKueue.incrementalDispatcherConfig is only for the dispatchers that work in "
            f"rounds ({INCREMENTAL}, {CHEAPEST_FIT}), not for {ALL_AT_ONCE}",
            id="rounds without a dispatcher that has them",
        ),
        pytest.param(
            {"dispatcherName": "x.org/y", "incrementalDispatcherConfig": {"stepSize": 2}},
            "multiKueue.incrementalDispatcherConfig is only for the dispatchers that work in "
            f"rounds ({INCREMENTAL}, {CHEAPEST_FIT}), not for x.org/y",
            id="rounds of somebody outside",
        ),
        pytest.param(
            {"externalFrameworks": [{"name": "JobSet.v1alpha2.jobset.x-k8s.io"}]},
            "multiKueue.externalFrameworks: JobSet.v1alpha2.jobset.x-k8s.io is known; "
            "name it in integrations.frameworks instead",
            id="a kind that is known",
        ),
        pytest.param(
            {
                "externalFrameworks": [
                    {"name": "B.v1.b.c"},
                    {"name": "A.v1.b.c"},
                    {"name": "B.v1.b.c"},
                    {"name": "A.v1.b.c"},
                    {"name": "C.v1.b.c"},
                ]
            },
            "multiKueue.externalFrameworks: A.v1.b.c is named twice; "
            "multiKueue.externalFrameworks: B.v1.b.c is named twice",
            id="kinds that are named twice",
        ),
    ],
)
def test_settings_that_cannot_be_used_say_why(section, want):
    with pytest.raises(ValueError) as caught:
        read(**section)
    assert str(caught.value) == want


def test_smallest_settings_are_taken():
    found = read(
        dispatcherName=INCREMENTAL,
        workerLostTimeout="0s",
        incrementalDispatcherConfig={"stepSize": 1, "timeout": "0s"},
    )
    assert found == DispatchSettings(INCREMENTAL, 1, timedelta(0), timedelta(0))
    assert found.worker_lost_s == 0
    assert read(workerLostTimeout="1500ms").worker_lost_s == 1
    assert read(workerLostTimeout="1h").worker_lost_s == 3600


def test_settings_nominate_at_their_own_pace():
    found = read(
        dispatcherName=INCREMENTAL, incrementalDispatcherConfig={"stepSize": 1, "timeout": "7s"}
    )
    assert found.in_force is DISPATCHERS[INCREMENTAL]
    later = datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
    assert found.nominate(group(local())) == Nomination(("a",), Round(1, NOW, ("a",)), later)
