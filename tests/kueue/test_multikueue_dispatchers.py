"""Who is nominated when: the dispatchers as tables, offers from quota objects, settings."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.documents.resources import Resource
from clusters.documents.times import stamp
from clusters.kueue.amounts import FlavorResource
from clusters.kueue.multikueue.decide import Copy, Group, decide
from clusters.kueue.multikueue.dispatchers import (
    ALL_AT_ONCE,
    CHEAPEST_FIT,
    DISPATCHERS,
    INCREMENTAL,
    Dispatcher,
    Nomination,
    Pace,
    all_at_once,
    by_cheapest_fit,
    by_configuration,
    in_rounds,
    not_yet,
)
from clusters.kueue.multikueue.group import Round
from clusters.kueue.multikueue.offers import Fit, Offer, WorkerQuota, as_sent
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.kueue.multikueue.steps import CreateCopy, Nominate
from clusters.reconcile.external.ways import WayFacts, choose

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
FIVE = timedelta(minutes=5)


def settings(name: str = INCREMENTAL, **section: Any) -> DispatchSettings:
    return DispatchSettings.from_document({"multiKueue": {"dispatcherName": name, **section}})


def waiting(*workers: str, **changes: Any) -> Group:
    """A workload with quota that nobody has, and connected workers in this configured order."""
    nominated = changes.pop("nominated", ())
    status = {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admissionChecks": [{"name": "mk", "state": "Pending"}],
        **({"nominatedClusterNames": list(nominated)} if nominated else {}),
    }
    local = {"metadata": {"name": "w", "namespace": "ns", "uid": "u"}, "status": status}
    values: dict[str, Any] = {
        "local": local,
        "check": "mk",
        "now": NOW,
        "order": workers,
        "copies": {name: Copy() for name in workers},
    }
    return Group(**{**values, **changes})


def sent_at(moment: datetime) -> Copy:
    return Copy(workload={"metadata": {"name": "w", "creationTimestamp": stamp(moment)}})


def play(group: Group, chosen: DispatchSettings, rounds: int) -> list[tuple[str, ...]]:
    """What each round adds when each waits its whole length, and copies are made at once."""
    nominate = chosen.nominate
    added = []
    for _ in range(rounds):
        found = nominate(group)
        if found.opened is not None:
            added.append(found.opened.nominated)
            group = replace(group, rounds=(*group.rounds, found.opened))
            sent = dict.fromkeys(found.opened.nominated, sent_at(group.now))
            group = replace(group, copies={**group.copies, **sent})
        group = replace(group, now=group.now + chosen.round_length)
    return added


@pytest.mark.parametrize(
    ("step", "want_added"),
    [
        pytest.param(1, [("c",), ("a",), ("b",)], id="one by one, in the configured order"),
        pytest.param(2, [("c", "a"), ("b",)], id="two, then the one that is left"),
        pytest.param(3, [("c", "a", "b")], id="all in one round"),
    ],
)
def test_incremental_adds_the_next_workers_in_every_round(step, want_added):
    chosen = settings(incrementalDispatcherConfig={"stepSize": step})
    assert play(waiting("c", "a", "b"), chosen, rounds=5) == want_added


def test_incremental_waits_while_a_round_is_under_way():
    first = Round(1, NOW - timedelta(minutes=4), ("a",))
    group = waiting("a", "b", nominated=("a",), rounds=(first,))
    found = settings(incrementalDispatcherConfig={"stepSize": 1}).nominate(group)
    assert found == Nomination(("a",), look_again=NOW + timedelta(minutes=1))


def test_incremental_opens_a_round_at_once_when_nobody_of_the_last_can_take_anything():
    first = Round(1, NOW, ("a",))
    chosen = settings(incrementalDispatcherConfig={"stepSize": 1})
    lost = waiting(
        "a", "b", rounds=(first,), nominated=("a",), copies={"b": Copy()}, lost={"a": NOW}
    )
    found = chosen.nominate(lost)
    assert found.opened is not None
    assert found.opened.nominated == ("b",)
    assert found.opened.why["a"] == "not connected"
    # What cannot be looked at stays nominated all the same.
    assert decide(lost, dispatcher=chosen.nominate).actions == (Nominate(("a", "b")),)


def test_incremental_begins_a_round_anew_when_its_memory_was_lost():
    group = waiting("a", "b", "c", nominated=("b",))
    chosen = settings(incrementalDispatcherConfig={"stepSize": 1})
    found = chosen.nominate(group)
    assert found.clusters == ("b",)
    assert found.opened is not None
    assert (found.opened.nominated, found.look_again) == (("b",), NOW + FIVE)


@pytest.mark.parametrize("dispatcher", [INCREMENTAL, CHEAPEST_FIT])
def test_no_round_opens_while_a_worker_is_just_being_connected(dispatcher):
    nominate = settings(dispatcher).nominate
    group = waiting("b", lost={"a": NOW}, opening=frozenset("a"))
    found = nominate(group)
    assert (found.clusters, found.opened, found.is_undecided) == ((), None, True)
    assert NOW < found.look_again < NOW + timedelta(seconds=1)
    # Whoever waits for nothing: a worker that takes nothing new, or one that is known to be lost.
    assert nominate(replace(group, blocked={"a": "cordoned"})).clusters == ("b",)
    assert nominate(replace(group, opening=frozenset())).clusters == ("b",)


def test_nobody_is_added_to_a_nominated_worker_that_a_new_shift_has_not_connected_yet():
    begun = Round(1, NOW, ("a",))
    group = waiting("b", nominated=("a",), rounds=(begun,), lost={"a": NOW})
    nominate = settings().nominate
    assert nominate(replace(group, opening=frozenset("a"))).clusters == ("a",)
    assert nominate(group).clusters == ("b",)


FOUR_MINUTES_AGO = NOW - timedelta(minutes=4)
LONG_AGO = NOW - timedelta(minutes=5)


@pytest.mark.parametrize(
    ("group", "want"),
    [
        pytest.param(
            waiting("c", "a", "b"),
            Nomination(("c", "a"), Round(1, NOW, ("c", "a")), NOW + FIVE),
            id="the first round",
        ),
        pytest.param(
            waiting("c", "a", "b", nominated=("b",), blocked={"a": "no room"}, lost={"d": NOW}),
            Nomination(
                ("b",), Round(1, NOW, ("b",), {"a": "no room", "d": "not connected"}), NOW + FIVE
            ),
            id="a memory that was lost",
        ),
        pytest.param(
            waiting("c", "a", "b", nominated=("c",), rounds=(Round(1, FOUR_MINUTES_AGO, ("c",)),)),
            Nomination(("c",), look_again=NOW + timedelta(minutes=1)),
            id="a round is under way",
        ),
        pytest.param(
            waiting("c", "a", "b", nominated=("c",), rounds=(Round(1, LONG_AGO, ("c",)),)),
            Nomination(("c", "a", "b"), Round(2, NOW, ("a", "b")), NOW + FIVE),
            id="it is over",
        ),
        pytest.param(
            waiting(
                "c", "a", "b", nominated=("c",), blocked={"c": "full"},
                rounds=(Round(1, NOW, ("c",)),),
            ),
            Nomination(("a", "b"), Round(2, NOW, ("a", "b"), {"c": "full"}), NOW + FIVE),
            id="nobody of it can take anything",
        ),
        pytest.param(
            waiting("c", nominated=("c",), rounds=(Round(1, LONG_AGO, ("c",)),)),
            Nomination(("c",), look_again=NOW + FIVE),
            id="nobody is left",
        ),
        pytest.param(
            waiting("c", opening=frozenset({"z"})),
            Nomination((), look_again=NOW + timedelta(milliseconds=200), is_undecided=True),
            id="somebody is just being connected",
        ),
        pytest.param(
            waiting("c", opening=frozenset({"z"}), blocked={"z": "gone"}),
            Nomination(("c",), Round(1, NOW, ("c",), {"z": "gone"}), NOW + FIVE),
            id="somebody who is connected in vain",
        ),
    ],
)  # fmt: skip
def test_rounds_of_two_follow_the_configuration(group, want):
    assert in_rounds(by_configuration)(group, Pace(step=2)) == want


def test_cheapest_fit_orders_and_says_why():
    offers = {
        "a": Offer(Fit.BURST, times=1),
        "b": Offer(Fit.FLOOR, hourly_price=Decimal("2.50"), times=2),
        "c": Offer(Fit.NEVER, why_not="no flavor takes it"),
    }
    chosen = in_rounds(by_cheapest_fit)
    group = waiting("a", "b", "c", "d", "e", offers=offers, blocked={"e": "foreign"})
    why = {
        "b": "1. fits in the workspace's own quota, 2.5 per hour, room for 2",
        "a": "2. fits by borrowing, no price, room for 1",
        "d": "3. quota there is not known",
        "c": "4. no flavor takes it",
        "e": "foreign",
    }
    assert chosen(group, Pace(step=5)) == Nomination(
        ("b", "a", "d"), Round(1, NOW, ("b", "a", "d"), why), NOW + FIVE
    )


def test_all_at_once_opens_a_round_for_who_is_new():
    first = Round(1, LONG_AGO, ("a",))
    group = waiting("b", "a", rounds=(first,), blocked={"c": "x"}, lost={"d": NOW})
    assert all_at_once(group) == Nomination(
        ("a", "b"), Round(2, NOW, ("b",), {"c": "x", "d": "not connected"})
    )
    assert all_at_once(waiting("a", rounds=(first,))) == Nomination(("a",))
    assert all_at_once(waiting()) == Nomination(())


def test_incremental_rests_when_everybody_is_nominated():
    first = Round(1, NOW - timedelta(hours=1), ("a", "b"))
    group = waiting("a", "b", nominated=("a", "b"), rounds=(first,))
    found = settings().nominate(group)
    assert (found.clusters, found.opened) == (("a", "b"), None)


def test_external_nominations_are_only_read():
    nominate = settings("example.org/mine").nominate
    verdict = decide(waiting("a", "b", nominated=("b",)), dispatcher=nominate)
    assert verdict.actions == (CreateCopy("b"),)
    assert nominate(waiting("a", "b")).clusters == ()


def test_all_at_once_keeps_one_round_and_adds_one_for_a_worker_that_comes_later():
    nominate = DispatchSettings().nominate
    found = nominate(waiting("b", "a", blocked={"a": "writing is switched off"}))
    assert found.opened is not None
    assert found.opened.nominated == ("b",)
    assert found.opened.why == {"a": "writing is switched off"}
    group = waiting("b", "a", rounds=(found.opened,))
    later = nominate(group).opened
    assert later is not None
    assert (later.number, later.nominated) == (2, ("a",))
    assert nominate(replace(group, rounds=(found.opened, later))).opened is None


OFFERS = {
    "dear-floor": Offer(Fit.FLOOR, hourly_price=Decimal(9), times=1),
    "cheap-floor": Offer(Fit.FLOOR, hourly_price=Decimal(2), times=1),
    "cheap-burst": Offer(Fit.BURST, hourly_price=Decimal(1), times=9),
    "full": Offer(Fit.FULL, hourly_price=Decimal(1)),
    "never": Offer(Fit.NEVER, why_not="it has no LocalQueue default with a ClusterQueue"),
}


def test_cheapest_fit_takes_the_free_floor_first_and_leaves_out_who_can_never():
    group = waiting(*sorted(OFFERS), offers=OFFERS)
    added = play(group, settings(CHEAPEST_FIT), rounds=9)
    assert added == [("cheap-floor",), ("dear-floor",), ("cheap-burst",), ("full",)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            {"hourly_price": Decimal(1)}, {"hourly_price": Decimal(2), "times": 9}, id="price"
        ),
        pytest.param({"hourly_price": Decimal(5)}, {"times": 9}, id="a price before none"),
        pytest.param({"times": 2}, {"times": 1, "locality": 1}, id="then free quota"),
        pytest.param({"locality": 1, "failures": 3}, {}, id="then locality"),
        pytest.param({}, {"failures": 1}, id="then failures"),
    ],
)
def test_cheapest_fit_orders_equals_by(first, second):
    base = Offer(Fit.FLOOR, times=1)
    offers = {"z": replace(base, **first), "a": replace(base, **second)}
    group = waiting("a", "z", offers=offers)
    assert play(group, settings(CHEAPEST_FIT), rounds=1) == [("z",)]


@pytest.mark.parametrize(
    ("sent_after_s", "ends_after_s"),
    [
        pytest.param(0, 30, id="a copy that was made at once"),
        pytest.param(200, 230, id="one that was made late"),
        pytest.param(None, 300, id="one that could not be made yet"),
        pytest.param(290, 300, id="one that was made in the end"),
        pytest.param(-100, 30, id="a worker whose clock is late"),
        pytest.param(9_999, 300, id="a worker whose clock is early"),
    ],
)
def test_cheapest_fit_gives_a_worker_its_time_from_when_it_has_the_copy(sent_after_s, ends_after_s):
    """In a rush, jobs that nobody was asked about yet were offered to one worker after another."""
    chosen, began = settings(CHEAPEST_FIT), NOW - timedelta(seconds=299)
    copy = Copy() if sent_after_s is None else sent_at(began + timedelta(seconds=sent_after_s))
    group = waiting(
        "a",
        "b",
        nominated=("a",),
        rounds=(Round(1, began, ("a",)),),
        copies={"a": copy, "b": Copy()},
    )
    ends = began + timedelta(seconds=ends_after_s)
    before = chosen.nominate(replace(group, now=ends - timedelta(seconds=1)))
    assert before == Nomination(("a",), look_again=ends)
    after = chosen.nominate(replace(group, now=ends))
    assert after.opened is not None
    assert after.opened.nominated == ("b",)


@pytest.mark.parametrize("told", ["9" * 40, "yesterday", 7, {}])
def test_a_worker_that_tells_no_time_keeps_the_job_from_no_other(told):
    copy = Copy(workload={"metadata": {"name": "w", "creationTimestamp": told}})
    group = waiting(
        "a",
        "b",
        nominated=("a",),
        rounds=(Round(1, NOW - timedelta(seconds=30), ("a",)),),
        copies={"a": copy, "b": Copy()},
    )
    found = settings(CHEAPEST_FIT).nominate(group)
    assert found.opened is not None
    assert found.opened.nominated == ("b",)


def test_a_round_does_not_wait_for_a_worker_that_takes_nothing():
    first = Round(1, NOW, ("a",))
    group = waiting("a", "b", nominated=("a",), rounds=(first,), blocked={"a": "no"})
    found = settings(CHEAPEST_FIT).nominate(group)
    assert found.opened is not None
    assert found.opened.nominated == ("b",)


def test_cheapest_fit_says_why():
    found = settings(CHEAPEST_FIT).nominate(waiting(*sorted(OFFERS), offers=OFFERS))
    assert found.opened is not None
    assert found.opened.why["cheap-floor"] == (
        "1. fits in the workspace's own quota, 2 per hour, room for 1"
    )
    assert "LocalQueue" in found.opened.why["never"]


@given(
    st.lists(st.sampled_from("abcdef"), unique=True, min_size=1),
    st.integers(1, 4),
    st.sampled_from((INCREMENTAL, CHEAPEST_FIT)),
    st.sets(st.sampled_from("abcdef")),
)
def test_rounds_never_repeat_a_worker_and_reach_everybody_usable(workers, step, name, blocked):
    chosen = settings(name, incrementalDispatcherConfig={"stepSize": step})
    group = waiting(*workers, blocked=dict.fromkeys(blocked, "no"))
    added = [name for part in play(group, chosen, rounds=8) for name in part]
    assert len(added) == len(set(added))
    assert set(added) == set(workers) - blocked


@given(st.integers(0, 400))
def test_a_question_asked_twice_gets_the_same_answer(seconds):
    chosen = settings(incrementalDispatcherConfig={"stepSize": 1})
    first = Round(1, NOW - timedelta(seconds=seconds), ("a",))
    group = waiting("a", "b", nominated=("a",), rounds=(first,))
    found = chosen.nominate(group)
    after = replace(group, rounds=(first, *([found.opened] if found.opened else [])))
    again = chosen.nominate(after)
    assert again.opened is None
    assert again.clusters == found.clusters


# Offers


def queue(name: str, nominal: int, used: int = 0, **spec: Any) -> dict[str, Any]:
    gpu = {"name": GPU, "nominalQuota": str(nominal), **spec.pop("limits", {})}
    groups = [
        {"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [gpu]}]},
    ]
    return {
        "metadata": {"name": name},
        "spec": {"resourceGroups": groups, **spec},
        "status": {
            "flavorsReservation": [
                {"name": "h100", "resources": [{"name": GPU, "total": str(used)}]}
            ]
        },
    }


def workload(gpus: int, pods: int = 1, **pod: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [container], **pod}}
    return {
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {
            "queueName": "default",
            "podSets": [{"name": "main", "count": pods, "template": template}],
        },
    }


LOCAL = {"metadata": {"name": "default", "namespace": "team"}, "spec": {"clusterQueue": "team"}}
FLAVOR = {"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"zone": "eu-1"}}}


def quota(*queues: dict[str, Any]) -> WorkerQuota:
    return WorkerQuota(queues=queues, flavors=[FLAVOR], local_queues=[LOCAL])


@pytest.mark.parametrize(
    ("queues", "want_fit", "want_times"),
    [
        pytest.param([queue("team", 16)], Fit.FLOOR, 4, id="free floor"),
        pytest.param([queue("team", 16, used=9)], Fit.FLOOR, 1, id="some of it used"),
        pytest.param([queue("team", 4, used=4)], Fit.FULL, 0, id="full, nobody lends"),
        pytest.param([queue("team", 2)], Fit.NEVER, 0, id="more than it could ever have"),
        pytest.param(
            [queue("team", 4, used=4, cohortName="all"), queue("o", 8, cohortName="all")],
            Fit.BURST, 2, id="others lend",
        ),
        pytest.param(
            [queue("team", 4, cohortName="all"), queue("o", 8, used=12, cohortName="all")],
            Fit.RECLAIM, 0, id="its floor is lent out",
        ),
    ],
)  # fmt: skip
def test_offer_reads_the_workers_quota(queues, want_fit, want_times):
    offer = quota(*queues).offer(as_sent(workload(2, pods=2)), prices={"h100": Decimal("2.5")})
    assert (offer.fit, offer.times) == (want_fit, want_times)
    if want_fit is not Fit.NEVER:
        assert (offer.flavors, offer.hourly_price) == (("h100",), Decimal(10))


def test_offer_is_told_whole():
    labelled = quota(queue("team", 16, used=1))
    found = labelled.offer(as_sent(workload(2, pods=2)), prices={"h100": Decimal("2.5")})
    assert found == Offer(
        Fit.FLOOR,
        flavors=("h100",),
        hourly_price=Decimal("10.0"),
        times=3,
        usage={FlavorResource("h100", GPU): 4},
    )
    assert labelled.labels_of(["h100", "gone"]) == {"zone": "eu-1"}


def test_offer_that_can_never_be_says_why():
    no_flavor = WorkerQuota(queues=[queue("team", 8)], local_queues=[LOCAL])
    assert no_flavor.offer(as_sent(workload(1)), prices={}) == Offer(
        Fit.NEVER,
        why_not="couldn't assign flavors to pod set main: flavor h100 not found",
    )
    assert quota(queue("other", 8)).offer(as_sent(workload(1)), prices={}) == Offer(
        Fit.NEVER, why_not="it has no LocalQueue default with a ClusterQueue"
    )
    assert quota(queue("team", 2)).offer(as_sent(workload(4)), prices={}) == Offer(
        Fit.NEVER,
        why_not=(
            "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in "
            "flavor h100, previously considered podsets requests (0) + current podset request (4) "
            "> maximum capacity (2)"
        ),
    )


@pytest.mark.parametrize(("asked", "want_fit"), [("500m", Fit.FLOOR), ("501m", Fit.FULL)])
def test_offer_counts_what_the_worker_reports_of_every_resource(asked, want_fit):
    cpu = {"name": "cpu", "nominalQuota": "2"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "h100", "resources": [cpu]}]}]
    reserved = [{"name": "h100", "resources": [{"name": "cpu", "total": "1500m"}]}, {"name": "x"}]
    document = {
        "metadata": {"name": "team"},
        "spec": {"resourceGroups": groups},
        "status": {"flavorsReservation": reserved},
    }
    asking = workload(0)
    container = asking["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": asked}}
    assert quota(document).offer(as_sent(asking), prices={}) == Offer(
        want_fit, usage={FlavorResource("h100", "cpu"): int(asked[:-1])}
    )


def test_offer_without_a_price_says_so():
    offer = quota(queue("team", 8)).offer(as_sent(workload(1)), prices={"a100": Decimal(1)})
    assert offer.hourly_price is None
    assert "no price" in offer.words()


def test_offer_counts_what_was_booked():
    found = quota(queue("team", 8))
    first = found.offer(as_sent(workload(8)), prices={})
    assert first.fit is Fit.FLOOR
    assert first.usage
    found.book(found.queue_of(workload(8)), first.usage)
    assert found.offer(as_sent(workload(8)), prices={}).fit is Fit.FULL


def test_offer_needs_a_queue_and_a_matching_flavor():
    other = workload(1)
    other["metadata"]["namespace"] = "elsewhere"
    assert (
        "no LocalQueue default" in quota(queue("team", 8)).offer(as_sent(other), prices={}).why_not
    )
    picky = workload(1, nodeSelector={"zone": "us-1"})
    assert quota(queue("team", 8)).offer(as_sent(picky), prices={}).fit is Fit.NEVER


# Settings


def test_settings_have_kueues_defaults():
    assert DispatchSettings.from_document({}) == DispatchSettings(ALL_AT_ONCE)
    assert (settings().step, settings().round_length) == (3, FIVE)
    assert settings(CHEAPEST_FIT).step == 1
    assert settings("example.org/mine").words == "external (example.org/mine)"


def test_settings_tell_every_fault_at_once():
    with pytest.raises(ValueError) as caught:
        settings(
            workerLostTimeout="soon",
            incrementalDispatcherConfig={"stepSize": 0, "timeout": "5 minutes"},
            externalFrameworks=[
                {"name": "PipelineRun"},
                {"name": "A.v1.b.c"},
                {"name": "A.v1.b.c"},
            ],
        )
    for part in ("workerLostTimeout", "stepSize", "timeout", "'PipelineRun'", "A.v1.b.c is named"):
        assert part in str(caught.value)


def test_settings_refuse_rounds_for_a_dispatcher_without_them():
    with pytest.raises(ValueError, match="only for the dispatchers that work in rounds"):
        settings(ALL_AT_ONCE, incrementalDispatcherConfig={"stepSize": 2})


@pytest.mark.parametrize("is_on", [True, False])
def test_settings_follow_the_gate_of_finer_conditions(is_on):
    gates = {"UnadmittedWorkloadsObservability": is_on}
    found = DispatchSettings.from_document({"featureGates": gates})
    assert found == DispatchSettings(is_fine=is_on)


def test_settings_are_read_whole():
    found = settings(
        CHEAPEST_FIT,
        workerLostTimeout="90s",
        incrementalDispatcherConfig={"stepSize": 4, "timeout": "2m"},
    )
    assert found == DispatchSettings(
        CHEAPEST_FIT,
        step=4,
        round_length=timedelta(minutes=2),
        worker_lost_timeout=timedelta(seconds=90),
    )
    assert (found.words, found.worker_lost_s) == ("cheapest fit", 90)


def test_settings_read_frameworks():
    found = settings(externalFrameworks=[{"name": "PipelineRun.v1.tekton.dev"}]).frameworks
    assert found == (Resource.guessed("PipelineRun", "v1", "tekton.dev"),)


def test_an_undecided_dispatcher_neither_withdraws_nor_complains():
    assert decide(waiting("a"), dispatcher=not_yet).actions == ()
    kept = decide(waiting("a", nominated=("a",)), dispatcher=not_yet)
    assert kept.actions == (CreateCopy("a"),)
    assert kept.look_again is not None


def test_a_further_dispatcher_is_one_row(monkeypatch):
    def backwards(group: Group, pace: Pace) -> Nomination:
        return Nomination(tuple(sorted(group.usable, reverse=True))[: pace.step])

    row = Dispatcher("backwards", backwards, Pace(step=2), is_ours=True)
    monkeypatch.setitem(DISPATCHERS, "example.org/backwards", row)
    chosen = settings("example.org/backwards", incrementalDispatcherConfig={"timeout": "1m"})
    assert (chosen.words, chosen.round_length) == ("backwards", timedelta(minutes=1))
    assert chosen.in_force.pace is not None
    assert chosen.nominate(waiting("a", "b", "c")).clusters == ("c", "b")
    with pytest.raises(ValueError, match=r"cheapest-fit, example\.org/backwards"):
        settings(ALL_AT_ONCE, incrementalDispatcherConfig={"stepSize": 2})
    told = choose(WayFacts(DispatchSettings(), False, "", False, False, False))
    assert "gpu-budget-portal.dev/cheapest-fit or example.org/backwards" in told.why


def test_no_other_module_asks_for_one_dispatcher_by_name():
    root = Path(__file__).parents[2]
    home = {"dispatchers.py", "settings.py"}  # the table, and what holds without a name
    naming = re.compile(r"\b(ALL_AT_ONCE|INCREMENTAL|CHEAPEST_FIT)\b|dispatcher-|cheapest-fit")
    found = [
        path
        for package in ("budgets", "clusters", "portal")
        for path in (root / package).rglob("*.py")
        if naming.search(path.read_text())
        and not (path.parent.name == "multikueue" and path.name in home)
    ]
    assert found == []
