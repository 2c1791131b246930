"""Shifts: one worker per role, handed over, taken over, and never two at once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.db import OperationalError
from django.db.models.functions import Now
from django.utils import timezone

from clusters.devcluster.server import DevServer
from clusters.errors import Forbidden, LeaseLost
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.lease import LeaseName, LeaseSettings
from clusters.kube.pulse import Pulse
from clusters.models import Cluster, ClusterHealth, ShiftRun
from clusters.reconcile import claims
from clusters.reconcile.claims import LeaseEvidence, ShiftLease
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.heartbeats import TICK_S
from clusters.reconcile.shift import BODIES, Ending, lease_name, run_shift
from tests.reconcile.fleet_rows import dev_server, register
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.embedded
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def cluster(transactional_db: None, east: DevServer) -> Cluster:
    """Gpu-east without promises; threads see the row."""
    return register("gpu-east", east.kubeconfig)


class Body:
    """Notes that it ran, then does what a test wants."""

    def __init__(self, context: ShiftContext, work: Callable[[ShiftContext], None]) -> None:
        self.context, self.work = context, work

    def run(self) -> None:
        self.work(self.context)


def use_body(monkeypatch: pytest.MonkeyPatch, work: Callable[[ShiftContext], None]) -> None:
    monkeypatch.setitem(BODIES, "quota", lambda context: Body(context, work))


def work(stop: threading.Event | None = None, seconds: float = 30, holder: str = "a"):
    return run_shift(
        "gpu-east", "quota", stop=stop or threading.Event(), seconds=seconds, holder=holder
    )


def test_shift_holds_the_lease_while_its_body_runs_and_gives_it_back(
    cluster: Cluster, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lease_name("quota", "portal")
    seen: list[str] = []

    def body(context: ShiftContext) -> None:
        context.fence()
        lease = kube.get(r.LEASE, name.name, namespace=name.namespace)
        seen.append(lease["spec"]["holderIdentity"])

    use_body(monkeypatch, body)
    outcome = work(holder="first")
    assert (seen, outcome.ending) == (["first"], Ending.STOPPED)
    lease = kube.get(r.LEASE, name.name, namespace=name.namespace)
    assert lease["spec"].get("holderIdentity", "") == ""
    assert ShiftRun.objects.get().ended_at is not None


@pytest.mark.parametrize("set_by_s", [600, -600])
def test_a_shift_goes_by_the_clusters_clock_from_its_first_moment_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, set_by_s: int
) -> None:
    """The wall clock was wrong before it began, and the pulse comes late."""

    class Wrong:
        @staticmethod
        def now() -> datetime:
            return timezone.now() + timedelta(seconds=set_by_s)

    monkeypatch.setattr("clusters.reconcile.context.timezone", Wrong)
    monkeypatch.setattr(Pulse, "run", lambda pulse, stop: stop.wait(PATIENCE_S))
    off: list[float] = []
    use_body(
        monkeypatch, lambda context: off.append((context.now() - timezone.now()).total_seconds())
    )
    work()
    assert [abs(seconds) < PATIENCE_S for seconds in off] == [True], off


def test_dispatch_alone_reads_other_clusters_each_within_its_part(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    settings.SHIFT_MEMORY_MB = 1_000
    found: dict[str, bool] = {}
    for role in ("quota", "dispatch"):

        def body(context: ShiftContext, role: str = role) -> None:
            found[role] = context.clients.shares is not None

        monkeypatch.setitem(BODIES, role, lambda context, body=body: Body(context, body))
        run_shift("gpu-east", role, stop=threading.Event(), seconds=30, holder=role)
    assert found == {"quota": False, "dispatch": True}


def test_shift_hands_over_when_its_time_is_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_body(monkeypatch, lambda context: context.stop.wait(10 * PATIENCE_S))
    begun = time.monotonic()
    assert work(seconds=0.5).ending is Ending.HANDED_OVER
    assert time.monotonic() - begun < PATIENCE_S


def test_shift_ends_when_it_is_told_to(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    use_body(monkeypatch, lambda context: context.stop.wait(10))
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert work(stop).ending is Ending.STOPPED


def test_row_of_a_living_shift_is_not_claimed(cluster: Cluster) -> None:
    first = claims.take(cluster.pk, "quota", holder="a")
    assert first is not None
    assert claims.take(cluster.pk, "quota", holder="b") is None
    assert work(holder="b").ending is Ending.HELD_ELSEWHERE
    first.end("over")
    assert claims.take(cluster.pk, "quota", holder="b") is not None


def test_row_without_heartbeat_is_claimed_and_the_old_holder_notices(cluster: Cluster) -> None:
    first = claims.take(cluster.pk, "quota", holder="a")
    assert first is not None
    ShiftRun.objects.update(heartbeat_at=Now() - timedelta(seconds=7))
    assert claims.take(cluster.pk, "quota", holder="b") is not None
    assert not first.beat(lease_version="9", watch_age_s=None)
    assert ShiftRun.objects.get().holder == "b"


def test_unfilled_names_what_nobody_alive_works_on(cluster: Cluster) -> None:
    wanted = [(cluster.pk, "quota"), (cluster.pk, "usage")]
    assert claims.take(cluster.pk, "quota", holder="a") is not None
    assert claims.unfilled(wanted) == [(cluster.pk, "usage")]
    ShiftRun.objects.update(heartbeat_at=Now() - timedelta(seconds=7))
    assert claims.unfilled(wanted) == wanted


def test_failed_shift_is_not_offered_again_at_once(cluster: Cluster) -> None:
    claim = claims.take(cluster.pk, "quota", holder="a")
    assert claim is not None
    claim.end("failed: no")
    assert claims.unfilled([(cluster.pk, "quota")]) == []
    ShiftRun.objects.update(ended_at=Now() - timedelta(seconds=6))
    assert claims.unfilled([(cluster.pk, "quota")]) == [(cluster.pk, "quota")]


def leases(
    kube: KubeClient, clock: list[float], evidence: LeaseEvidence | None
) -> tuple[ShiftLease, ShiftLease]:
    settings = LeaseSettings(duration_s=15, monotonic=lambda: clock[0])
    name = LeaseName("kube-system", "test")
    return (
        ShiftLease(kube, name, holder="a", settings=settings),
        ShiftLease(kube, name, holder="b", settings=settings, evidence=evidence),
    )


def test_abandoned_lease_is_taken_on_the_evidence_of_the_row(kube: KubeClient) -> None:
    clock = [100.0]
    first, _ = leases(kube, clock, None)
    assert first.try_acquire()
    _, second = leases(kube, clock, LeaseEvidence(first.version, since=100.0))
    clock[0] = 114.0
    assert not second.try_acquire(), "taken while the holder may still write"
    clock[0] = 115.5
    assert second.try_acquire()
    with pytest.raises(LeaseLost):
        first.check()


def test_evidence_of_a_lease_that_was_renewed_since_counts_nothing(kube: KubeClient) -> None:
    clock = [100.0]
    first, _ = leases(kube, clock, None)
    assert first.try_acquire()
    _, second = leases(kube, clock, LeaseEvidence(first.version, since=100.0))
    clock[0] = 110.0
    first.renew()
    clock[0] = 116.0
    assert not second.try_acquire()
    first.check()


def test_without_evidence_a_foreign_lease_is_watched_from_zero(kube: KubeClient) -> None:
    clock = [100.0]
    first, second = leases(kube, clock, None)
    assert first.try_acquire()
    clock[0] = 200.0
    assert not second.try_acquire()
    clock[0] = 215.5
    assert second.try_acquire()


def test_writing_after_the_lease_was_taken_is_refused(
    cluster: Cluster, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lease_name("quota", "portal")
    refused: list[str] = []

    def body(context: ShiftContext) -> None:
        lease = kube.get(r.LEASE, name.name, namespace=name.namespace)
        lease["spec"]["holderIdentity"] = "thief"
        kube.replace(r.LEASE, lease)
        context.stop.wait(10)
        try:
            context.fence()
        except LeaseLost as error:
            refused.append(error.reason)
            raise

    use_body(monkeypatch, body)
    monkeypatch.setattr("django.conf.settings.LEASE_SECONDS", 2)
    assert work().ending is Ending.LEASE_LOST
    assert refused == ["LeaseLost"]
    lease = kube.get(r.LEASE, name.name, namespace=name.namespace)
    assert lease["spec"]["holderIdentity"] == "thief"


def test_error_of_a_body_ends_its_shift_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(context: ShiftContext) -> None:
        raise Forbidden("no")

    use_body(monkeypatch, body)
    outcome = work()
    assert (outcome.ending, outcome.message) == (Ending.FAILED, "Forbidden: no")
    assert "Forbidden" in ShiftRun.objects.get().outcome


def test_rotated_credential_ends_the_shift(
    cluster: Cluster, east: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clusters.vault import seal

    def body(context: ShiftContext) -> None:
        sealed = seal(f"{east.kubeconfig}\n# renewed")
        Cluster.objects.filter(pk=cluster.pk).update(kubeconfig_sealed=sealed)
        context.stop.wait(PATIENCE_S)

    use_body(monkeypatch, body)
    assert work(seconds=3 * PATIENCE_S).ending is Ending.CHANGED


def test_credentials_are_sealed_anew_while_shifts_run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    from clusters import services

    old = settings.PORTAL_CREDENTIAL_KEYS
    found: list[bool] = []

    def body(context: ShiftContext) -> None:
        before, client = context.registration.sealed, context.clients.of("gpu-east")
        settings.PORTAL_CREDENTIAL_KEYS = [Fernet.generate_key().decode(), *old]
        services.reseal_credentials(None)
        eventually(lambda: context.registration.sealed != before or context.stop.is_set())
        found.extend((not context.stop.is_set(), context.clients.of("gpu-east") is client))
        settings.PORTAL_CREDENTIAL_KEYS = settings.PORTAL_CREDENTIAL_KEYS[:1]
        found.append(context.clients.of("gpu-east") is client)
        context.fence()

    monkeypatch.setattr("clusters.reconcile.context._CREDENTIAL_CHECK_S", 0.0)
    use_body(monkeypatch, body)
    outcome = work()
    assert (outcome.ending, found) == (Ending.STOPPED, [True, True, True])


def test_shift_whose_heartbeat_breaks_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold its Lease for ever, and never hear that it may write again."""

    def body(context: ShiftContext) -> None:
        context.report_watch_age(lambda: 1 / 0)
        context.stop.wait(PATIENCE_S)

    use_body(monkeypatch, body)
    assert work(seconds=3 * PATIENCE_S).ending is Ending.FAILED
    assert ShiftRun.objects.get().ended_at is not None


def test_health_that_cannot_be_stored_stops_no_heartbeat(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OperationalError("no room")

    monkeypatch.setattr("clusters.reconcile.shift.record_contact", refused)

    def body(context: ShiftContext) -> None:
        begun = ShiftRun.objects.get().heartbeat_at
        eventually(lambda: ShiftRun.objects.get().heartbeat_at > begun + ShiftRun.STALE)

    use_body(monkeypatch, body)
    assert work(seconds=3 * PATIENCE_S).ending is Ending.STOPPED


def test_a_renewal_of_the_lease_is_noted_before_the_next_heartbeat_is_due(
    cluster: Cluster, kube: KubeClient, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    """A successor knows of the end of a Lease only if the row has the Lease's last version."""
    settings.LEASE_SECONDS = 6  # renewed each second
    name, late = lease_name("quota", "portal"), list[float]()

    def version() -> int:
        lease = kube.get(r.LEASE, name.name, namespace=name.namespace)
        return int(lease["metadata"]["resourceVersion"])

    def once() -> float:
        before = version()
        eventually(lambda: version() > before)
        renewed, begun = version(), time.monotonic()
        eventually(lambda: int(ShiftRun.objects.get().lease_version or 0) >= renewed)
        return time.monotonic() - begun

    def body(context: ShiftContext) -> None:
        late.extend(once() for _ in range(4))

    use_body(monkeypatch, body)
    assert work(seconds=3 * PATIENCE_S).ending is Ending.STOPPED
    assert max(late) < claims.HEARTBEAT_S / 2, late


def test_a_heartbeat_without_a_renewal_puts_no_successor_off(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    """It would wait for the end of a Lease that nobody has renewed for long."""
    settings.LEASE_SECONDS = 6 * PATIENCE_S  # so it is not renewed meanwhile
    monkeypatch.setattr(claims, "HEARTBEAT_S", 0.1)
    rows = list[ShiftRun]()

    def body(context: ShiftContext) -> None:
        rows.append(eventually(lambda: ShiftRun.objects.exclude(lease_version="").first()))
        later = ShiftRun.objects.filter(heartbeat_at__gt=rows[0].heartbeat_at)
        rows.append(eventually(later.first))

    use_body(monkeypatch, body)
    assert work(seconds=3 * PATIENCE_S).ending is Ending.STOPPED
    first, second = rows
    assert first.lease_version == second.lease_version
    assert first.lease_renewed_at == second.lease_renewed_at


def test_lost_cluster_is_shown_in_time_and_heals(
    cluster: Cluster, east: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []

    def until(reachable: bool) -> None:
        begun = time.monotonic()
        while ClusterHealth.objects.get(cluster=cluster).reachable is not reachable:
            assert time.monotonic() - begun < PATIENCE_S
            time.sleep(0.05)
        found.append(time.monotonic() - begun)

    def body(context: ShiftContext) -> None:
        until(True)
        east.cluster.faults.freeze()
        until(False)
        assert ClusterHealth.objects.get(cluster=cluster).lost_since is not None
        east.cluster.faults.thaw()
        until(True)

    use_body(monkeypatch, body)
    work(seconds=3 * PATIENCE_S)
    assert len(found) == 3


def test_start_up_fails_with_fewer_slots_than_shifts(cluster: Cluster, settings) -> None:
    register("gpu-west", "{}", mode="portal")
    assert claims.slot_fault(slots=6) == ""
    assert "5 slots for 6 shifts" in claims.slot_fault(slots=5)
    settings.SHIFT_WORKERS = 2
    assert claims.slot_fault(slots=3) == ""


HOLD = """
import sys, threading, time, django
django.setup()
from clusters.reconcile import shift
from clusters.reconcile.shift import run_shift
class Body:
    def __init__(self, context): self.context = context
    def run(self):
        print("holding", flush=True)
        while not self.context.stop.wait(0.1):
            self.context.fence()
shift.BODIES["quota"] = Body
print("begins", flush=True)
while True:
    run_shift("gpu-east", "quota", stop=threading.Event(), seconds=60, holder=sys.argv[1])
    time.sleep(0.2)
"""
LEASE_S = 6


@pytest.fixture
def outside(tmp_path: Path, east: DevServer) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts shift workers as processes on a database of their own."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
        "PORTAL_SECRET_KEY": "test-only-" + "k" * 50,
        "CELERY_BROKER_URL": "memory://",
        "LEASE_SECONDS": str(LEASE_S),
        "PYTHONPATH": str(ROOT),
    }
    (tmp_path / "config").write_text(east.kubeconfig)
    prepare = (
        "import django; django.setup()\n"
        "from django.core.management import call_command\n"
        "call_command('migrate', verbosity=0)\n"
        "from tests.reconcile.fleet_rows import register\n"
        f"register('gpu-east', open({str(tmp_path / 'config')!r}).read())\n"
    )
    subprocess.run([sys.executable, "-c", prepare], env=environment, check=True, cwd=ROOT)
    running: list[subprocess.Popen[str]] = []

    def start(holder: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, holder],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_killed_holder_is_taken_over_within_the_lease_time(
    outside: Callable[[str], subprocess.Popen[str]], kube: KubeClient, tmp_path: Path
) -> None:
    def noted() -> list[tuple[str]]:
        with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as database:
            return database.execute("SELECT heartbeat_at FROM clusters_shiftrun").fetchall()

    first, second = outside("first"), None
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["begins\n", "holding\n"]
    time.sleep(claims.HEARTBEAT_S + 0.5)
    second = outside("second")
    assert second.stdout is not None
    assert second.stdout.readline() == "begins\n", "to load everything takes its own time"
    # Between renewing the Lease and noting that, its end is not known: that costs a Lease more.
    before = noted()
    eventually(lambda: noted() != before)
    first.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    assert second.stdout.readline() == "holding\n"
    took = time.monotonic() - killed_at
    name = lease_name("quota", "portal")
    lease = kube.get(r.LEASE, name.name, namespace=name.namespace)
    assert lease["spec"]["holderIdentity"] == "second"
    # The claim needs a stale row; the Lease may not be taken before it ends.
    assert LEASE_S - LEASE_S / 6 - TICK_S - 1 < took < LEASE_S + 4


def test_page_calls_a_shift_dead_when_its_heart_stopped(cluster: Cluster) -> None:
    claims.take(cluster.pk, "quota", holder="a")
    run = ShiftRun.objects.get()
    assert run.is_alive(now=timezone.now())
    assert not run.is_alive(now=timezone.now() + timedelta(seconds=7))


def test_cluster_that_is_gone_is_told_and_holds_up_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dev_server("gpu-west") as west:
        gone = register("gpu-west", west.kubeconfig)
    ran: list[str] = []
    use_body(monkeypatch, lambda context: ran.append(context.cluster.slug))
    outcome = run_shift("gpu-west", "quota", stop=threading.Event(), seconds=1.0, holder="w")
    assert outcome.ending is Ending.HANDED_OVER
    health = ClusterHealth.objects.get(cluster=gone)
    assert not health.reachable
    assert health.reason in ("Unreachable", "Timeout")
    work()
    assert ran == ["gpu-east"]
