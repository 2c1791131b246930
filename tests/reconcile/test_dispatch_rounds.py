"""Dispatch in rounds on embedded clusters: incremental and cheapest fit, and what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from clusters.jobs.remote import CopyMarks
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT, INCREMENTAL
from clusters.kueue.multikueue.group import Round
from clusters.kueue.multikueue.offers import UNKNOWN_OFFER
from clusters.models import Cluster, DispatchRound
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.multikueue import links as links_module
from clusters.reconcile.multikueue import nominating as trail_module
from clusters.reconcile.multikueue import offers as offers_module
from clusters.reconcile.multikueue.local import Local, attempt_of
from clusters.reconcile.multikueue.nominating import Trail, prune
from clusters.reconcile.multikueue.offers import Bidding, current_prices, no_prices
from clusters.reconcile.multikueue.workers import DispatchFleet
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.job_cache import JobCache
from tests.billing.conftest import AFTER, active_card, price
from tests.builders import SmallFleet, small_fleet
from tests.reconcile.admission_harness import (
    INSTALLATION,
    NS,
    Embedded,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.fleet_rows import register
from tests.reconcile.kill_points import Reaper
from tests.waiting import eventually

WORKERS = ("w1", "w2")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Outcome = DispatchRound.Outcome


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """A manager and two workers with quota of their own, watched; nobody works on them yet."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        # The configured order is not that of the names.
        fleet["manager"].create(*multikueue_objects("w2", "w1"), *quota_objects(32, check=True))
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8, flavor=f"gpu-{worker}"))
        with Watcher(fleet, origin=INSTALLATION) as watcher:
            yield fleet
        watcher.judge()


@pytest.fixture
def small(db) -> SmallFleet:
    """Accounts and workspaces; the name ``fleet`` is taken by clusters here."""
    return small_fleet()


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """However slow the machine is, no worker is given up before it has answered or refused."""
    monkeypatch.setattr(links_module, "SETTLE_S", 60.0)
    monkeypatch.setattr(offers_module, "SETTLE_S", 60.0)


def start(fleet: Embedded, dispatcher: str, *, seconds: str = "1s", prices=None, **changes) -> None:
    for cluster in ("manager", *WORKERS):
        fleet.start(cluster, "admission")
    start_dispatch(fleet, dispatcher, seconds=seconds, prices=prices, **changes)


def start_dispatch(fleet: Embedded, dispatcher: str, *, seconds: str, prices, **changes) -> None:
    section = {
        "dispatcherName": dispatcher,
        "incrementalDispatcherConfig": {"stepSize": 1, "timeout": seconds},
    }
    fleet.start(
        "manager",
        "dispatch",
        workers=WORKERS,
        kueue_configuration={"multiKueue": section},
        body=lambda context: DispatchBody(context, prices=lambda namespace, now: prices or {}),
        **changes,
    )


def placed(fleet: Embedded, name: str) -> str:
    workload = fleet["manager"].workload_of(name) or {}
    return (workload.get("status") or {}).get("clusterName") or ""


def nominated(fleet: Embedded, name: str) -> list[str]:
    workload = fleet["manager"].workload_of(name) or {}
    return (workload.get("status") or {}).get("nominatedClusterNames") or []


def reserved(fleet: Embedded, worker: str) -> str:
    """GPUs that the workspace's queue on a worker says it has reserved."""
    status = fleet[worker].get(r.CLUSTER_QUEUE, NS).get("status") or {}
    totals = [
        item["total"]
        for flavor in status.get("flavorsReservation") or []
        for item in flavor["resources"]
        if flavor["name"].startswith("gpu-")
    ]
    return str(totals[0]) if totals else ""


@pytest.mark.embedded
def test_incremental_tries_the_first_worker_and_adds_the_next_after_the_time_out(fleet):
    start(fleet, INCREMENTAL)
    fleet["manager"].create(job("first", gpus=8, run_s=60, managed=True))
    assert eventually(lambda: placed(fleet, "first")) == "w2"
    fleet["manager"].create(job("second", gpus=8, run_s=60, managed=True))
    # It waits on w2 alone for a round, then w1 takes it.
    eventually(lambda: nominated(fleet, "second") == ["w2"])
    assert eventually(lambda: placed(fleet, "second")) == "w1"


@pytest.mark.embedded
def test_incremental_does_not_hang_on_a_first_worker_that_is_away(fleet):
    fleet["w2"].server.cluster.faults.is_refusing = True
    start(fleet, INCREMENTAL, seconds="10m")
    fleet["manager"].create(job("train", gpus=8, run_s=60, managed=True))
    assert eventually(lambda: placed(fleet, "train")) == "w1"


@pytest.mark.embedded
def test_cheapest_fit_goes_to_the_cheaper_flavor_while_it_has_room(fleet):
    prices = {"gpu-w1": Decimal("1.5"), "gpu-w2": Decimal(4)}
    start(fleet, CHEAPEST_FIT, seconds="10m", prices=prices)
    for name in ("a", "b"):
        fleet["manager"].create(job(name, gpus=8, run_s=60, managed=True))
    eventually(lambda: placed(fleet, "a") and placed(fleet, "b"), why=lambda: str(fleet.shifts))
    # The second sees at once that the cheap one is taken: no round is lost on it.
    assert sorted((placed(fleet, "a"), placed(fleet, "b"))) == ["w1", "w2"]


@pytest.mark.embedded
def test_cheapest_fit_waits_for_the_cheap_worker_that_is_just_being_connected(fleet):
    manager, cheap = fleet["manager"], fleet["w2"]
    for cluster in ("manager", *WORKERS):
        fleet.start(cluster, "admission")
    for worker in WORKERS:
        eventually(lambda place=fleet[worker]: is_true(place.get(r.CLUSTER_QUEUE, NS), "Active"))
    # It answers the pulse, and cannot list its workloads yet.
    cheap.server.cluster.faults.fail(503, count=10**6, method="GET", path="/workloads")
    prices = {"gpu-w1": Decimal(4), "gpu-w2": Decimal("1.5")}
    start_dispatch(fleet, CHEAPEST_FIT, seconds="10m", prices=prices)
    manager.create(job("train", gpus=8, run_s=60, managed=True))
    eventually(lambda: is_true(manager.get(r.MULTIKUEUE_CLUSTER, "w1"), "Active"))
    eventually(lambda: is_true(manager.workload_of("train"), "QuotaReserved"))
    time.sleep(1.0)  # long enough for the dear one to be nominated
    assert nominated(fleet, "train") == []
    cheap.server.cluster.faults.clear()
    assert eventually(lambda: placed(fleet, "train")) == "w2"


@pytest.mark.embedded
def test_cheapest_fit_prefers_free_floor_to_a_lower_price(fleet):
    w1 = fleet["w1"]
    w1.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"cohortName": "all"}})
    lender = quota_objects(8, namespace="lender", flavor="gpu-w1", cohort="all")
    w1.create(*[item for item in lender if item["metadata"]["name"] == "lender"])
    w1.create(job("local", gpus=4, run_s=60))
    start(fleet, CHEAPEST_FIT, seconds="10m", prices={"gpu-w1": Decimal(1), "gpu-w2": Decimal(9)})
    eventually(lambda: reserved(fleet, "w1") == "4")
    fleet["manager"].create(job("train", gpus=8, run_s=60, managed=True))
    assert eventually(lambda: placed(fleet, "train")) == "w2"


@pytest.mark.embedded
def test_cheapest_fit_follows_the_data_where_prices_are_equal(fleet):
    start(fleet, CHEAPEST_FIT, seconds="10m")
    fleet["manager"].client.patch(
        r.MULTIKUEUE_CLUSTER, "w2", {"metadata": {"labels": {"dataset": "imagenet"}}}
    )
    train = job("train", gpus=1, run_s=60, managed=True)
    train["metadata"]["annotations"]["gpu-budget-portal.dev/data-locality"] = "dataset=imagenet"
    fleet["manager"].create(train)
    assert eventually(lambda: placed(fleet, "train")) == "w2"


@pytest.mark.embedded
def test_rounds_are_kept_with_reasons_winner_and_end(transactional_db, fleet):
    rows = {
        name: register(name, fleet[name].kubeconfig, role=role, mode="portal")
        for name, role in (("manager", "manager"), ("w1", "worker"), ("w2", "worker"))
    }
    start(fleet, CHEAPEST_FIT, prices={"gpu-w2": Decimal(2)}, pk=rows["manager"].pk)
    fleet["manager"].create(job("train", gpus=8, run_s=1, managed=True))
    eventually(lambda: is_true(fleet["manager"].workload_of("train"), "Finished"))
    row = eventually(lambda: DispatchRound.objects.exclude(ended_at=None).first())
    assert DispatchRound.objects.count() == 1
    assert (row.number, row.nominated, row.winner, row.outcome) == (1, ["w2"], "w2", Outcome.WON)
    assert row.why["w2"].startswith("1. fits in the workspace's own quota, flavor gpu-w2, 16 per")
    assert "no price" in row.why["w1"]
    assert row.ending.startswith("finished: Succeeded")
    assert row.started_at <= row.decided_at <= row.ended_at


@pytest.mark.embedded
@pytest.mark.slow
@pytest.mark.parametrize("dispatcher", [INCREMENTAL, CHEAPEST_FIT])
def test_rounds_heal_when_the_shift_is_killed_between_any_two_writes(fleet, dispatcher):
    manager = fleet["manager"]
    section = {
        "dispatcherName": dispatcher,
        "incrementalDispatcherConfig": {"stepSize": 1, "timeout": "1s"},
    }
    configuration = {"kueue_configuration": {"multiKueue": section}}
    fleet.start("manager", "admission")
    for worker in WORKERS:
        fleet.start(worker, "admission")
    with Reaper(fleet) as reaper:
        reaper.keep_alive("manager", "dispatch", DispatchBody, workers=WORKERS, **configuration)
        for name in ("a", "b", "c"):
            manager.create(job(name, gpus=8, run_s=0.5, managed=True))
        eventually(
            lambda: all(is_true(manager.workload_of(name), "Finished") for name in "abc"),
            why=lambda: str((reaper.killed_at, manager.all(r.WORKLOAD))),
        )
        eventually(lambda: not any(fleet[w].all(r.WORKLOAD) for w in WORKERS))
        eventually(lambda: not any(fleet[w].all(r.JOB) for w in WORKERS))
    steps = {step for _, _, step in reaper.killed_at}
    assert {"nominate", "create-copy", "choose", "create-job", "finish"} <= steps


def test_prices_are_those_of_the_workspaces_own_account(small: SmallFleet) -> None:
    active_card(small, price(burst="3.00"))
    assert current_prices("acme-vision", AFTER) == {"h100": Decimal(3)}
    active_card(small, price(burst="2.50"), account=small.acme)
    assert current_prices("acme-vision", AFTER) == {"h100": Decimal("2.5")}
    assert current_prices("globex-search", AFTER) == {"h100": Decimal(3)}
    assert current_prices("nobody", AFTER) == {}


# The trail by itself


def local(*conditions: str, winner: str = "") -> dict:
    return {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
        "status": {
            "conditions": [
                {"type": kind, "status": "True", "reason": "R", "message": "m"}
                for kind in conditions
            ],
            **({"clusterName": winner} if winner else {}),
        },
    }


@pytest.fixture
def hub(db) -> Cluster:
    return register("hub", "kubeconfig", role="manager", mode="portal")


def make(hub: Cluster) -> Trail:
    found = Trail(hub.pk, dispatcher=INCREMENTAL)
    found.load()
    return found


def rounds(number: int, *workers: str) -> Round:
    return Round(number, NOW + timedelta(minutes=5 * (number - 1)), workers, {"x": "closed"})


def test_trail_survives_a_restart_and_goes_on_with_the_same_round(hub):
    first = make(hub)
    first.open("ns/w", local(), attempt="u@1", opened=rounds(1, "a"))
    first.flush(NOW, is_last=True)
    second = make(hub)
    assert second.rounds("ns/w", "u@1") == (rounds(1, "a"),)
    assert second.rounds("ns/w", "u@2") == ()
    second.open("ns/w", local(), attempt="u@1", opened=rounds(2, "b"))
    second.flush(NOW, is_last=True)
    found = DispatchRound.objects.order_by("number")
    assert [(row.number, row.outcome) for row in found] == [(1, Outcome.PASSED), (2, Outcome.OPEN)]


def test_trail_tells_winner_losers_and_the_dispatchers_own_reason(hub):
    trail = make(hub)
    trail.open("ns/w", local(), attempt="u@1", opened=rounds(1, "a", "b"))
    trail.open("ns/w", local(), attempt="u@1", opened=rounds(2, "c"))
    trail.observe("ns/w", local(winner="b"), attempt="u@1", now=NOW)
    trail.lost_race("ns/w", "a", NOW)
    trail.because("ns/w", "Admitting remote lost")
    trail.observe("ns/w", local("Evicted", winner="b"), attempt="u@1", now=NOW)
    trail.flush(NOW, is_last=True)
    one, two = DispatchRound.objects.order_by("number")
    assert (one.winner, one.outcome, list(one.losers)) == ("b", Outcome.WON, ["a"])
    assert (two.winner, two.outcome, two.losers) == ("", Outcome.PASSED, {})
    assert {one.ending, two.ending} == {"Admitting remote lost"}
    assert make(hub).keys() == ()


@pytest.mark.parametrize(
    ("then", "attempt", "want_ending"),
    [
        pytest.param(None, "", "deleted", id="deleted"),
        pytest.param(local("Finished"), "u@1", "finished: R: m", id="finished elsewhere"),
        pytest.param(local(), "u@2", "quota was given back", id="reserved anew"),
    ],
)
def test_trail_ends_with_the_reservation(hub, then, attempt, want_ending):
    trail = make(hub)
    trail.open("ns/w", local(), attempt="u@1", opened=rounds(1, "a"))
    trail.observe("ns/w", then, attempt=attempt, now=NOW)
    trail.flush(NOW, is_last=True)
    row = DispatchRound.objects.get()
    assert (row.outcome, row.ending, row.ended_at) == (Outcome.ENDED, want_ending, NOW)


def test_trail_is_bounded(hub, monkeypatch):
    trail = make(hub)
    for number in range(1, trail_module.ROUNDS_MOST + 20):
        trail.open("ns/w", local(), attempt="u@1", opened=rounds(number, "a"))
    trail.flush(NOW, is_last=True)
    assert DispatchRound.objects.count() == trail_module.ROUNDS_MOST
    monkeypatch.setattr(trail_module, "MOST_ROWS", 10)
    prune(hub.pk, NOW)
    assert DispatchRound.objects.count() == 10
    DispatchRound.objects.update(ended_at=NOW)
    assert prune(hub.pk, NOW + trail_module.KEPT + timedelta(seconds=1)) == 10


def reserved_at(second: int, *, evictions: int = 0, evicted: bool = False) -> dict:
    found = local("QuotaReserved", *(["Evicted"] if evicted else []))
    found["status"]["conditions"][0]["lastTransitionTime"] = f"2026-03-01T12:00:{second:02}Z"
    if evictions:
        found["status"]["schedulingStats"] = {"evictions": [{"reason": "R", "count": evictions}]}
    return found


def test_attempt_names_one_reservation_until_the_next_one():
    first = attempt_of(reserved_at(1))
    assert attempt_of(reserved_at(1, evictions=1, evicted=True)) == first
    # Evicted and reserved again within the same second.
    assert attempt_of(reserved_at(1, evictions=1)) != first
    assert attempt_of(reserved_at(2)) != first


def test_a_workload_that_nobody_can_read_has_an_unknown_offer_of_every_worker():
    unread = {"metadata": {"namespace": NS, "name": "w"}, "spec": {"podSets": [{"count": "many"}]}}
    asked = Local(f"{NS}/w", unread, None, None, check="", marks=CopyMarks("o", "u@1"))
    caches = dict.fromkeys(WORKERS, JobCache())
    fleet = DispatchFleet(caches, lost={}, closed={}, worker_lost_timeout=timedelta(0))
    bidding = Bidding(lambda _: KubeClient.from_kubeconfig(""), prices=no_prices)
    found = bidding.offers(asked, fleet, Cache(), NOW)
    assert dict(found) == dict.fromkeys(WORKERS, UNKNOWN_OFFER)
