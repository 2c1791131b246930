"""What is billed under a real Kueue and MultiKueue, against an observer of the API servers.

The observer shares no code with the product: it lists Workloads, keeps what it saw, and counts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import urllib3

from budgets import services
from budgets.models import Discrepancy, Interval, UsageRecord
from clusters.errors import Retryable
from clusters.kube import resources as r
from clusters.models import WorkloadState
from clusters.reconcile.usage.states import HOLDING
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import GPU, NodeShape
from tests.controlplane.queues import condition_of
from tests.controlplane.rest import ApiError
from tests.reconcile.real_road import NAMESPACE, WORKERS, Road
from tests.reconcile.usage_hand import UsageHand, usage_hand

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.django_db]
# The shift looks once a minute; so often, what lags for a quarter of a minute would be told.
LOOK_S = 5.0
PATH = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"


@dataclass
class Copy:
    """One Workload on a worker as the observer saw it; a list of (start, end, GPUs)."""

    name: str
    held: list[tuple[datetime, datetime | None, int]] = field(default_factory=list)
    is_gone: bool = False
    is_ended_by_deletion: bool = False


@dataclass
class Observer:
    """Polls the API servers as an administrator; what cannot be asked now is asked later."""

    fleet: Fleet
    copies: dict[tuple[str, str], Copy] = field(default_factory=dict)
    # (worker, name) → the seconds in which the manager named that worker.
    chosen: dict[tuple[str, str], set[datetime]] = field(default_factory=dict)
    blind: set[tuple[str, str]] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
                self._look_at_manager()
            for slug, plane in zip(WORKERS, self.fleet.workers, strict=True):
                try:
                    self._look_at_worker(slug, plane)
                except (ApiError, urllib3.exceptions.HTTPError):
                    self.blind |= {key for key in self.copies if key[0] == slug}
            stop.wait(0.05)

    def _look_at_manager(self) -> None:
        for found in self.fleet.manager.rest.items(PATH):
            worker = found.get("status", {}).get("clusterName")
            if worker:
                now = datetime.now(UTC).replace(microsecond=0)
                self.chosen.setdefault((worker, found["metadata"]["name"]), set()).add(now)

    def _look_at_worker(self, slug: str, plane: ControlPlane) -> None:
        seen = set()
        for found in plane.rest.items(PATH):
            key = slug, found["metadata"]["uid"]
            seen.add(key)
            self._note(self.copies.setdefault(key, Copy(found["metadata"]["name"])), found)
        now = datetime.now(UTC).replace(microsecond=0)
        for key, copy in self.copies.items():
            if key[0] == slug and key not in seen and not copy.is_gone:
                copy.is_gone = True
                if copy.held and copy.held[-1][1] is None:
                    copy.is_ended_by_deletion = True
                    copy.held[-1] = (copy.held[-1][0], now, copy.held[-1][2])

    @staticmethod
    def _note(copy: Copy, found: dict[str, Any]) -> None:
        status = found.get("status", {})
        times = {
            row["type"]: datetime.fromisoformat(row["lastTransitionTime"])
            for row in status.get("conditions", [])
        }
        if condition_of(found, "Admitted") == "True" and status.get("admission"):
            usage = status["admission"]["podSetAssignments"][0]["resourceUsage"]
            start, gpus = times["Admitted"], int(usage.get(GPU, 0))
            if not copy.held or copy.held[-1][0] != start:
                copy.held.append((start, None, gpus))
        end = None
        if condition_of(found, "Finished") == "True":
            end = times["Finished"]
        elif condition_of(found, "QuotaReserved") == "False":
            end = times["QuotaReserved"]
        if end is not None and copy.held and copy.held[-1][1] is None:
            copy.held[-1] = (copy.held[-1][0], end, copy.held[-1][2])

    def held_uids(self) -> set[str]:
        return {uid for (_, uid), copy in list(self.copies.items()) if copy.held}

    def has_seen_the_end(self) -> bool:
        """Whether nothing that was admitted holds anything any more."""
        copies = [copy for copy in list(self.copies.values()) if copy.held]
        return all(end is not None for copy in copies for _, end, _ in copy.held)

    def counted(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(worker, uid) of the chosen copies → GPU-seconds, and their GPUs."""
        found = {}
        for (slug, uid), copy in self.copies.items():
            if not self._was_chosen(slug, copy):
                continue
            seconds = sum(
                gpus * int((end - start).total_seconds())
                for start, end, gpus in copy.held
                if end is not None
            )
            found[slug, uid] = seconds, max(gpus for _, _, gpus in copy.held)
        return found

    def _was_chosen(self, slug: str, copy: Copy) -> bool:
        """Whether the manager named the worker while this copy held: not before, not later."""
        times = self.chosen.get((slug, copy.name), set())
        return any(
            start <= at and (end is None or at <= end + timedelta(seconds=1))
            for at in times
            for start, end, _ in copy.held
        )


@contextmanager
def observing(fleet: Fleet) -> Iterator[Observer]:
    observer, stop = Observer(fleet), threading.Event()
    thread = threading.Thread(target=observer.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield observer
    finally:
        stop.set()
        thread.join(10)


@dataclass
class Meter:
    """The road and the usage bodies of all three clusters, turned together."""

    road: Road
    hands: list[UsageHand]
    looks: int = 0
    _looked_at: float = 0.0

    def until(self, check: Callable[[], object], *, seconds: float = 120.0) -> None:
        ends = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < ends, "it did not come to that in time"
            self.turn()

    def turn(self) -> None:
        for hand in self.hands:
            hand.body._reported_at = 0.0
            hand.body.turn()
        if time.monotonic() - self._looked_at >= LOOK_S:
            self.look_at_queues()
        time.sleep(0.05)

    def look_at_queues(self) -> None:
        """Compare the ledger with what the workers' queues say, as their shifts do."""
        self._looked_at = time.monotonic()
        for hand in self.hands[1:]:
            with contextlib.suppress(Retryable):
                hand.body.counting.look_at_queues()
                self.looks += 1

    def worker_of(self, name: str) -> str:
        return str(self.road.workload(name).get("status", {}).get("clusterName") or "")

    def is_finished(self, name: str) -> bool:
        return condition_of(self.road.workload(name), "Finished") == "True"

    def is_released(self, name: str) -> bool:
        """Whether its eviction is over: nothing is reserved, and no worker has a copy."""
        if condition_of(self.road.workload(name), "QuotaReserved") == "True" or self.worker_of(
            name
        ):
            return False
        key = self.road.workload(name)["metadata"]["name"]
        return not any(
            found["metadata"]["name"] == key
            for client in self.road.workers
            for found in client.list(r.WORKLOAD).items
        )

    def set_active(self, name: str, active: bool) -> None:
        key = self.road.workload(name)["metadata"]["name"]
        self.road.manager.patch(r.WORKLOAD, key, {"spec": {"active": active}}, namespace=NAMESPACE)


def recorded_uids() -> set[str]:
    return set(Interval.objects.filter(namespace=NAMESPACE).values_list("uid", flat=True))


def kinds() -> list[tuple[Any, ...]]:
    rows = Interval.objects.filter(namespace=NAMESPACE)
    return list(rows.values_list("cluster", "uid", "workload", "kind", "state", "start", "end"))


def is_everything_closed() -> bool:
    rows = Interval.objects.filter(namespace=NAMESPACE).exclude(kind="manager_wait")
    return rows.exists() and not rows.filter(end=None).exclude(state="superseded").exists()


def disagreements() -> list[tuple[Any, ...]]:
    """What the ledger and its checks disagree on, and would block the close."""
    rows = Discrepancy.objects.filter(state=Discrepancy.State.OPEN)
    return list(rows.values_list("kind", "cluster", "subject", "flavor", "message"))


def test_billed_seconds_are_those_that_an_observer_of_the_clusters_counted(
    kueue_road: Road, fleet: SmallFleet, kueue_fleet: Fleet
) -> None:
    for plane in kueue_fleet.workers:
        plane.create_nodes(2, shape=NodeShape(labels={"gpu": "h100"}), prefix=f"h100-{plane.name}")
    fleet.revise(fleet.vision, line("h100", 16, 32))
    kueue_road.until(kueue_road.is_settled)
    with ExitStack() as stack:
        observer = stack.enter_context(observing(kueue_fleet))
        slugs = ("manager", *WORKERS)
        meter = Meter(kueue_road, [stack.enter_context(usage_hand(slug)) for slug in slugs])
        for number in range(4):
            meter.road.submit(f"short-{number}", gpus=2, run_for=f"{3 + number}s")
        meter.road.submit("evicted", gpus=4, run_for="600s")
        meter.road.submit("cut-off", gpus=2, run_for="20s")
        meter.until(lambda: meter.worker_of("evicted") and meter.worker_of("cut-off"))

        # One job is stopped, comes back, and is stopped for good.
        meter.set_active("evicted", False)
        meter.until(lambda: meter.is_released("evicted"))
        meter.set_active("evicted", True)
        meter.until(lambda: meter.worker_of("evicted"))
        meter.set_active("evicted", False)
        meter.until(lambda: meter.is_released("evicted"))

        # A worker is out of reach for a while, while a job ends there.
        lost = kueue_fleet.workers[WORKERS.index(meter.worker_of("cut-off"))]
        lost.pause_api_server()
        ends = time.monotonic() + 6
        while time.monotonic() < ends:
            meter.turn()
        lost.resume_api_server()

        meter.until(lambda: all(meter.is_finished(f"short-{n}") for n in range(4)))
        meter.until(lambda: meter.is_finished("cut-off"))
        meter.until(observer.has_seen_the_end)
        meter.until(lambda: observer.held_uids() <= recorded_uids() and is_everything_closed())

        def has_metered() -> bool:
            services.meter_usage(services.utc_now())
            rows = UsageRecord.objects.filter(workspace=fleet.vision)
            return sum(row.committed_used + row.burst for row in rows) == sum(billed().values())

        def billed() -> dict[tuple[str, str], int]:
            sums: dict[tuple[str, str], int] = {}
            rows = Interval.objects.filter(workspace=fleet.vision, kind="billable")
            for row in rows.exclude(state="superseded"):
                assert row.end is not None
                seconds = row.gpus * int((row.end - row.start).total_seconds())
                sums[row.cluster, row.uid] = sums.get((row.cluster, row.uid), 0) + seconds
            return sums

        meter.until(has_metered)
        # Nothing that happened here is a disagreement: a close may go on.
        meter.look_at_queues()
        assert meter.looks >= 2 * len(WORKERS)
        assert not disagreements()
        counted = observer.counted()
        kueue_road.clear()
        # Queues stay as long as a row holds quota, and no body follows these rows any more.
        holding = WorkloadState.objects.filter(namespace=NAMESPACE, phase__in=HOLDING)
        meter.until(lambda: not holding.exists())

    assert len(counted) == 7  # four short ones, the one cut off, the evicted one twice
    estimated = set(Interval.objects.filter(state="estimated").values_list("cluster", "uid"))
    found = billed()
    missing = set(found) ^ set(counted)
    assert not missing, [row for row in kinds() if (row[0], row[1]) in missing]
    for key, (seconds, gpus) in counted.items():
        off = found[key] - seconds
        if key in estimated or key in observer.blind:
            assert off <= 0, (key, "an estimate is never longer")
        elif observer.copies[key].is_ended_by_deletion:
            # A deletion is seen, not dated: the two saw it in the same second or the next.
            assert abs(off) <= gpus, (key, found[key], seconds)
        else:
            assert off == 0, (key, found[key], seconds)
    losers = {key for key, copy in observer.copies.items() if copy.held} - set(counted)
    billable = Interval.objects.filter(uid__in=[uid for _, uid in losers], kind="billable")
    assert not billable.exists()
