"""Time in which no usage shift watched: what is made up for, and what finance is told of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from budgets.models import Discrepancy, Interval, MeterState
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import EVERYTHING, KubeClient, WriteOptions
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.unwatched import replay
from tests.builders import SmallFleet
from tests.reconcile.fleet_rows import dev_server, register
from tests.reconcile.usage_hand import Kueue, UsageHand, ago, kueue_on, usage_hand

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]
UNWATCHED = Discrepancy.Kind.UNWATCHED


@pytest.fixture
def kueue(kube: KubeClient) -> Kueue:
    return kueue_on(kube)


@pytest.fixture
def hub(fleet: SmallFleet) -> Iterator[Kueue]:
    with dev_server("hub") as server:
        register("hub", server.kubeconfig, role="manager")
        with KubeClient.from_kubeconfig(server.kubeconfig) as client:
            yield kueue_on(client)


def has_phase(uid: str, phase: str):
    return lambda: WorkloadState.objects.filter(uid=uid, phase=phase).exists()


def knows_where_it_was(slug: str = "gpu-east"):
    return lambda: MeterState.objects.filter(cluster=slug).exclude(watched_version="").exists()


def turn_until_known(hand: UsageHand) -> None:
    hand.listed()
    hand.until(knows_where_it_was())


def come_and_gone(kueue: Kueue, *, origin: str = "") -> str:
    uid = kueue.submit("short", origin=origin)
    kueue.admit("short", ago(60))
    kueue.finish("short", ago(20))
    kueue.delete("short")
    return uid


def test_what_came_and_went_between_two_shifts_is_billed_to_the_second(
    worker: Cluster, kueue: Kueue
) -> None:
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    uid = come_and_gone(kueue)
    with usage_hand("gpu-east") as hand:
        hand.until(has_phase(uid, "finished"))
        turn_until_known(hand)
    row = Interval.objects.get(uid=uid, kind="billable")
    assert (row.start, row.end, row.state) == (
        row.start,
        row.start + timedelta(seconds=40),
        "closed",
    )
    assert not Discrepancy.objects.filter(kind=UNWATCHED).exists()


def test_deletion_between_two_shifts_ends_when_it_was_asked_for_at_the_latest(
    worker: Cluster, kueue: Kueue
) -> None:
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    uid = kueue.submit("short")
    kueue.admit("short", ago(60))
    kueue.delete("short")
    deleted_by = ago(0)
    time.sleep(2.1)
    with usage_hand("gpu-east") as hand:
        hand.until(has_phase(uid, "gone"))
    row = Interval.objects.get(uid=uid, kind="billable")
    assert row.state == "estimated"
    assert row.end is not None
    assert row.end <= deleted_by


def test_what_the_cluster_tells_of_the_time_before_is_no_older_than_what_was_told_last(
    worker: Cluster, kueue: Kueue, kube: KubeClient
) -> None:
    since = kube.newest_version(r.WORKLOAD, EVERYTHING)
    uid = kueue.submit("short")
    kueue.admit("short", ago(60))
    time.sleep(2.1)
    told_until = ago(1)
    found = replay(kube, since=since, floor=told_until, now=lambda: ago(0))
    assert found is not None
    told = [(state.document["metadata"]["uid"], state.at) for state in found.states]
    assert told == [(uid, told_until)] * 2


def test_what_ends_while_the_cluster_tells_of_the_time_before_ends_when_it_ended(
    worker: Cluster, kueue: Kueue, kube: KubeClient
) -> None:
    """The shift before was lost; the next one asks what happened, and meanwhile a job goes."""
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    state = MeterState.objects.get(cluster="gpu-east")
    uid = kueue.submit("short")
    kueue.admit("short", ago(60))
    gone: list[datetime] = []

    def now() -> datetime:
        if not gone:
            gone.append(ago(0))
            time.sleep(1.1)
            kueue.delete("short")
        return ago(0)

    assert state.complete_until is not None
    found = replay(
        kube, since=state.watched_version, floor=state.complete_until - timedelta(days=1), now=now
    )
    assert found is not None
    last = found.states[-1]
    assert (last.document["metadata"]["uid"], last.type) == (uid, WorkloadEvent.Type.DELETED)
    assert (last.after_gap, last.at > gone[0]) == (False, True)
    assert all(state.after_gap and state.at <= gone[0] for state in found.states[:-1])
    assert len(found.states) > 1


def test_restart_that_misses_nothing_tells_nobody(worker: Cluster, kueue: Kueue) -> None:
    for _ in range(2):
        with usage_hand("gpu-east") as hand:
            turn_until_known(hand)
    assert not Discrepancy.objects.exists()


def test_history_that_is_forgotten_between_two_shifts_is_told_to_finance(
    worker: Cluster, kueue: Kueue, east: DevServer
) -> None:
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    since = ago(300)
    MeterState.objects.update(complete_until=since)
    come_and_gone(kueue)
    east.cluster.store.compact()
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    row = Discrepancy.objects.get(kind=UNWATCHED)
    assert (row.cluster, row.start, row.state) == ("gpu-east", since, "open")
    assert row.end is not None
    assert row.end >= ago(30)


def test_history_that_was_undone_between_two_shifts_is_told_to_finance(
    worker: Cluster, kueue: Kueue, east: DevServer
) -> None:
    """The cluster has not come to the version that was told of it: its etcd is an older one."""
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    since = ago(300)
    MeterState.objects.update(complete_until=since, watched_version="1000000")
    come_and_gone(kueue)
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    row = Discrepancy.objects.get(kind=UNWATCHED)
    assert (row.cluster, row.start, row.state) == ("gpu-east", since, "open")


def test_history_that_is_forgotten_under_a_shift_is_told_to_finance(
    worker: Cluster, kueue: Kueue, east: DevServer
) -> None:
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
        lists = hand.watch.relists
        east.cluster.faults.is_refusing = True
        east.drop_connections()
        east.cluster.store.end_subscriptions()
        east.cluster.store.compact()
        hand.body._contact._until = ago(30)
        east.cluster.faults.clear()
        hand.until(lambda: hand.watch.relists > lists and not hand.body._waiting)
        hand.until(Discrepancy.objects.filter(kind=UNWATCHED).exists)


def complete(hub: Kueue, job: str, at: datetime) -> None:
    done = {"status": "True", "lastTransitionTime": at.isoformat()}
    status = {
        "startTime": ago(600).isoformat(),
        "completionTime": at.isoformat(),
        "succeeded": 1,
        "conditions": [{"type": kind, **done} for kind in ("SuccessCriteriaMet", "Complete")],
    }
    options = WriteOptions(subresource="status")
    body = {"status": status}
    hub.client.patch(r.JOB, job, body, namespace=hub.namespace, options=options)


@pytest.mark.parametrize(
    ("is_told", "want_s"),
    [
        pytest.param(True, 38, id="until its Job ended, as the worker's did"),
        pytest.param(False, 43, id="until the manager heard of it, where no Job tells"),
    ],
)
def test_what_the_manager_knows_of_an_unwatched_time_is_counted_as_estimated(
    worker: Cluster, kueue: Kueue, hub: Kueue, east: DevServer, is_told: bool, want_s: int
) -> None:
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    with usage_hand("hub") as above:
        above.listed()
        uid = hub.submit("short", job="short-job")
        admitted = ago(60)
        hub.reserve_on_manager("short", admitted, worker="gpu-east")
        come_and_gone(kueue, origin="test")
        hub.finish("short", admitted + timedelta(seconds=45))
        if is_told:
            complete(hub, "short-job", admitted + timedelta(seconds=40))
        above.until(has_phase(uid, "finished"))
        MeterState.objects.filter(cluster="gpu-east").update(complete_until=ago(300))
        MeterState.objects.filter(cluster="hub").update(complete_until=ago(-3600))
    east.cluster.store.compact()
    with usage_hand("gpu-east") as hand:
        hand.until(Interval.objects.filter(cluster="gpu-east", kind="billable").exists)
        turn_until_known(hand)
    row = Interval.objects.get(kind="billable")
    assert (row.state, row.gpus) == ("estimated", 8)
    assert row.end == row.start + timedelta(seconds=want_s)
    assert Discrepancy.objects.get(kind=UNWATCHED).samples == ["manager asked"]
    before = Interval.objects.count()
    with usage_hand("gpu-east") as hand:
        turn_until_known(hand)
    assert Interval.objects.count() == before


def test_a_copy_that_ended_before_the_unwatched_time_is_not_told_of_again_by_a_late_manager(
    worker: Cluster, kueue: Kueue, hub: Kueue, east: DevServer
) -> None:
    with usage_hand("hub") as above, usage_hand("gpu-east") as hand:
        above.listed()
        uid = hub.submit("short", job="short-job")
        admitted = ago(600)
        hub.reserve_on_manager("short", admitted, worker="gpu-east")
        copy = kueue.submit("short", origin="test")
        kueue.admit("short", admitted)
        kueue.finish("short", admitted + timedelta(seconds=20))
        hand.until(has_phase(copy, "finished"))
        turn_until_known(hand)
        hub.finish("short", ago(60))
        above.until(has_phase(uid, "finished"))
    kueue.delete("short")
    MeterState.objects.filter(cluster="gpu-east").update(complete_until=ago(300))
    MeterState.objects.filter(cluster="hub").update(complete_until=ago(-3600))
    east.cluster.store.compact()
    with usage_hand("gpu-east") as hand:
        hand.until(Discrepancy.objects.filter(samples=["manager asked"]).exists)
        turn_until_known(hand)
    assert not WorkloadState.objects.filter(cluster__slug="gpu-east", uid=uid).exists()
    assert [row.uid for row in Interval.objects.filter(kind="billable")] == [copy]
