"""Leases under hand-driven clocks: expiry by own observation, the fence, and life without it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from clusters import errors
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.lease import ClusterLease, LeaseName, LeaseSettings
from tests.kube.apply import apply_documents, no_fence, prune
from tests.kube.documents import config_map
from tests.waiting import PATIENCE_S, eventually

NAME = LeaseName("kube-system", "gpu-budget-quota")


@dataclass
class Clock:
    """Monotonic seconds that a test moves; `skew` is what the wall clock is wrong by."""

    seconds: float = 1000.0
    skew: timedelta = timedelta()

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        return start + timedelta(seconds=self.seconds) + self.skew


def contender(client: KubeClient, holder: str, clock: Clock) -> ClusterLease:
    settings = LeaseSettings(duration_s=10, wall=clock.wall, monotonic=clock.monotonic)
    return ClusterLease(client, NAME, holder=holder, settings=settings)


def holder_of(client: KubeClient) -> str:
    lease = client.get(r.LEASE, NAME.name, namespace=NAME.namespace)
    return str(lease["spec"]["holderIdentity"])


def test_lease_is_taken_over_only_after_its_duration_unchanged(client: KubeClient) -> None:
    clock = Clock()
    first, second = contender(client, "first", clock), contender(client, "second", clock)
    assert first.try_acquire()
    assert not second.try_acquire()
    clock.seconds += 9
    assert not second.try_acquire()
    first.renew()
    clock.seconds += 9
    assert not second.try_acquire()
    clock.seconds += 9
    assert not second.try_acquire()
    clock.seconds += 2
    assert second.try_acquire()
    assert holder_of(client) == "second"


@pytest.mark.parametrize("skew", [timedelta(hours=-5), timedelta(hours=5)])
def test_lease_expiry_does_not_trust_the_holders_clock(client: KubeClient, skew: timedelta) -> None:
    clock = Clock()
    wrong = Clock(skew=skew)
    first, second = contender(client, "first", wrong), contender(client, "second", clock)
    assert first.try_acquire()
    assert not second.try_acquire()
    clock.seconds += 9.9
    assert not second.try_acquire()
    clock.seconds += 0.2
    assert second.try_acquire()


def test_lease_a_late_observer_waits_its_own_full_duration(client: KubeClient) -> None:
    clock = Clock()
    assert contender(client, "first", clock).try_acquire()
    clock.seconds += 1000
    late = contender(client, "late", clock)
    assert not late.try_acquire()
    clock.seconds += 10.1
    assert late.try_acquire()


def test_lease_check_raises_after_half_the_duration(client: KubeClient) -> None:
    clock = Clock()
    lease = contender(client, "first", clock)
    with pytest.raises(errors.LeaseLost):
        lease.check()
    assert lease.try_acquire()
    clock.seconds += 5
    lease.check()
    clock.seconds += 0.1
    with pytest.raises(errors.LeaseLost):
        lease.check()
    lease.renew()
    lease.check()


def taken_over(client: KubeClient) -> tuple[ClusterLease, ClusterLease]:
    """A holder, and who took the lease over once it had ended."""
    clock = Clock()
    first, second = contender(client, "first", clock), contender(client, "second", clock)
    assert first.try_acquire()
    assert not second.try_acquire()
    clock.seconds += 11
    assert second.try_acquire()
    return first, second


def test_lease_loser_learns_it_at_the_next_renewal(client: KubeClient) -> None:
    first, _ = taken_over(client)
    with pytest.raises(errors.LeaseLost):
        first.renew()
    assert not first.is_held
    assert holder_of(client) == "second"
    first.release()
    assert holder_of(client) == "second"


def test_lease_that_somebody_else_had_in_between_is_lost(client: KubeClient) -> None:
    first, second = taken_over(client)
    second.release()
    with pytest.raises(errors.LeaseLost):
        first.renew()
    with pytest.raises(errors.LeaseLost):
        first.check()


def test_lease_survives_a_label_by_somebody_else(client: KubeClient) -> None:
    lease = contender(client, "first", Clock())
    assert lease.try_acquire()
    body = {"metadata": {"labels": {"looked-at": "yes"}}}
    client.patch(r.LEASE, NAME.name, body, namespace=NAME.namespace)
    lease.renew()
    assert lease.is_held
    found = client.get(r.LEASE, NAME.name, namespace=NAME.namespace)
    assert found["metadata"]["labels"] == {"looked-at": "yes"}


def test_lease_deleted_by_hand_is_lost(client: KubeClient) -> None:
    lease = contender(client, "first", Clock())
    assert lease.try_acquire()
    client.delete(r.LEASE, NAME.name, namespace=NAME.namespace)
    with pytest.raises(errors.LeaseLost):
        lease.renew()
    with pytest.raises(errors.LeaseLost):
        lease.check()


def test_lease_keep_gives_up_when_the_cluster_is_gone(dev: DevServer, client: KubeClient) -> None:
    clock = Clock()
    settings = LeaseSettings(duration_s=1, wall=clock.wall, monotonic=clock.monotonic)
    lease = ClusterLease(client, NAME, holder="first", settings=settings)
    assert lease.try_acquire()
    lost, versions = threading.Event(), set[str]()
    keeping = (threading.Event(), lost.set)
    keeper = threading.Thread(target=lease.keep, args=keeping, daemon=True)
    keeper.start()
    dev.cluster.faults.fail(503, count=1, method="PUT")

    def is_renewed_again() -> bool:
        """Twice since: the first may have been under way before the failure."""
        clock.seconds += 0.0001  # without which nothing changes
        found = client.get(r.LEASE, NAME.name, namespace=NAME.namespace)
        versions.add(found["metadata"]["resourceVersion"])
        return len(versions) == 3

    eventually(is_renewed_again)
    assert not lost.is_set()
    lease.check()
    dev.cluster.faults.fail(503, count=1000, method="PUT")
    clock.seconds += settings.given_up_s - 0.1
    assert not lost.wait(4 * settings.renew_every_s)
    clock.seconds += 0.2
    assert lost.wait(PATIENCE_S)
    keeper.join(timeout=PATIENCE_S)
    with pytest.raises(errors.LeaseLost):
        lease.check()


@pytest.mark.parametrize(
    "comes_s", [2.9, 8.9, 9.1], ids=["before its end", "after its end", "given up"]
)
def test_lease_check_waits_for_a_renewal_that_is_late(
    dev: DevServer, client: KubeClient, comes_s: float
) -> None:
    clock = Clock()
    settings = LeaseSettings(duration_s=3, wall=clock.wall, monotonic=clock.monotonic)
    lease = ClusterLease(client, NAME, holder="first", settings=settings)
    assert lease.try_acquire()
    dev.cluster.faults.fail(503, count=1000, method="PUT")
    stop = threading.Event()
    keeper = threading.Thread(target=lease.keep, args=(stop, stop.set))
    keeper.start()
    clock.seconds += 1.6
    with ThreadPoolExecutor(1) as pool:
        try:
            writes = pool.submit(lease.check)
            assert not wait([writes], timeout=0.5).done, "nothing is written meanwhile"
            clock.seconds += comes_s - 1.6
            if comes_s < settings.given_up_s:
                dev.cluster.faults.clear()
                writes.result(PATIENCE_S)
            else:
                with pytest.raises(errors.LeaseLost):
                    writes.result(PATIENCE_S)
        finally:
            stop.set()
            keeper.join()


def _two_writers(client: KubeClient, *, fenced: bool) -> str:
    """An old holder stalls in the middle of its writes, a new one takes over; who wrote last?"""
    old, new = taken_over(client)
    apply_documents(client, [config_map("default", "quota", by="new")], fence=new.check)
    try:
        apply_documents(
            client,
            [config_map("default", "quota", by="old")],
            fence=old.check if fenced else no_fence,
        )
    except errors.LeaseLost:
        assert fenced
    return str(client.get(r.CONFIG_MAP, "quota", namespace="default")["data"]["by"])


def test_fence_keeps_a_late_writer_out(client: KubeClient) -> None:
    assert _two_writers(client, fenced=True) == "new"


def test_without_the_fence_a_late_writer_overwrites(client: KubeClient) -> None:
    # The negative control: what the fence is there to prevent.
    assert _two_writers(client, fenced=False) == "old"


def test_fence_is_asked_before_each_write(client: KubeClient) -> None:
    allowed = [2]

    def fence() -> None:
        if not allowed[0]:
            raise errors.LeaseLost("over")
        allowed[0] -= 1

    documents = [config_map("default", f"c{i}", a="1") for i in range(4)]
    for document in documents:
        document["metadata"]["labels"] = {"fenced": "yes"}
    with pytest.raises(errors.LeaseLost):
        apply_documents(client, documents, fence=fence)
    written = [i["metadata"]["name"] for i in client.list(r.CONFIG_MAP).items]
    assert [name for name in written if name.startswith("c")] == ["c0", "c1"]
    allowed[0] = 1
    with pytest.raises(errors.LeaseLost):
        prune(client, [r.CONFIG_MAP], labels="fenced=yes", keep=(), fence=fence)
    assert len([i for i in client.list(r.CONFIG_MAP).items if i["metadata"].get("labels")]) == 1
