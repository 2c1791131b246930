"""The health of one cluster says nothing about the next, whatever the first one answers."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from clusters import services
from clusters.devcluster.server import DevServer
from clusters.errors import AnswerTooLarge
from clusters.kube.client import KubeClient, Probe
from clusters.models import Cluster, ClusterHealth, WorkloadAction
from clusters.reconcile.health import Contact, record_contact
from clusters.services import health
from tests.builders import SmallFleet
from tests.clusters.test_registration import enrol
from tests.kube.test_hostile_server import MIB, brackets, drip, server, whole
from tests.reconcile.fleet_rows import register
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_a_clock_of_another_age_is_stored_as_a_year_wrong(fleet: SmallFleet, east: DevServer, year):
    cluster = enrol(fleet, east)
    probe = Probe("v1.33.0", 0.01, datetime(year, 6, 1, tzinfo=UTC))
    record_contact(cluster.pk, Contact(timezone.now(), probe=probe))
    skew = ClusterHealth.objects.get(cluster=cluster).clock_skew_s
    assert abs(skew) == 365 * 86_400


def test_a_cluster_whose_look_fails_keeps_no_other_from_its_own(
    fleet: SmallFleet, east: DevServer, monkeypatch: pytest.MonkeyPatch
):
    enrol(fleet, east)
    apart = east.kubeconfig.replace("127.0.0.1", "localhost")
    register("gpu-apart", apart)  # before gpu-east in the alphabet, and asked beside it
    ClusterHealth.objects.all().delete()
    whole = KubeClient.probe

    def probe(self: KubeClient, **more: float) -> Probe:
        if "localhost" in self.server:
            raise RuntimeError("nobody thought of this")
        return whole(self, **more)

    monkeypatch.setattr(KubeClient, "probe", probe)
    assert services.check_health() == {"gpu-apart": False, "gpu-east": True}


def test_clusters_that_answer_a_byte_at_a_time_hold_up_no_look_at_the_next(
    fleet: SmallFleet, east: DevServer
):
    enrol(fleet, east)
    ClusterHealth.objects.all().delete()
    with ExitStack() as stack:
        for number in range(4):
            slow = stack.enter_context(server(drip(b"HTTP/1.1 200 OK\r\nX-Slow: ")))
            kubeconfig = east.kubeconfig.replace(east.url, slow.server)
            register(f"gpu-apart-{number}", kubeconfig)  # before gpu-east in the alphabet
        began = time.monotonic()
        found = services.check_health()
    assert found == {**{f"gpu-apart-{number}": False for number in range(4)}, "gpu-east": True}
    assert time.monotonic() - began < 4 * 6.0  # one after the other they take so long at least


def test_what_the_others_answer_is_written_down_while_one_still_drips(
    fleet: SmallFleet, east: DevServer, monkeypatch: pytest.MonkeyPatch
):
    enrol(fleet, east)
    ClusterHealth.objects.all().delete()
    written, order = threading.Event(), list[bool]()

    def record(cluster_id: int, contact: Contact) -> None:
        record_contact(cluster_id, contact)
        order.append(contact.error is None)
        written.set()

    def silent(peer: socket.socket, _: bytes) -> None:
        written.wait(PATIENCE_S)
        peer.close()

    monkeypatch.setattr(health, "record_contact", record)
    monkeypatch.setattr(health, "TIMEOUT_S", PATIENCE_S)
    with server(silent) as slow:
        register("gpu-apart", east.kubeconfig.replace(east.url, slow.server))  # before gpu-east
        assert services.check_health() == {"gpu-apart": False, "gpu-east": True}
    assert order == [True, False]


def test_a_version_of_sixty_mebibytes_is_not_read(fleet: SmallFleet, east: DevServer):
    enrol(fleet, east)
    ClusterHealth.objects.all().delete()
    sent = [0]
    with server(brackets(sent)) as large:
        apart = register("gpu-apart", east.kubeconfig.replace(east.url, large.server))
        assert services.check_health() == {"gpu-apart": False, "gpu-east": True}
    apart.health.refresh_from_db()
    assert apart.health.reason == "AnswerTooLarge"
    assert sent[0] < 30 * MIB


def test_every_short_task_reads_a_cluster_within_its_share(fleet: SmallFleet, east: DevServer):
    """Few enough bytes for any answer, and 65 MiB once they are read."""
    body = whole(b"[" + b"[]," * 349_000 + b"[]]")
    with server(lambda peer, _: peer.sendall(body)) as heavy:
        cluster = register("gpu-apart", east.kubeconfig.replace(east.url, heavy.server))
        services.check_health()
        cluster.health.refresh_from_db()
        assert cluster.health.reason == "AnswerTooLarge"
        with pytest.raises(ExceptionGroup) as group:
            services.rotate_due_tokens()
        assert [type(error) for error in group.value.exceptions] == [AnswerTooLarge]
        (row,) = services.run_preflight(fleet.admin, cluster=cluster).rows
        assert row.found.startswith("AnswerTooLarge")
        action = WorkloadAction.objects.create(
            cluster=Cluster.objects.get(),
            uid="7",
            namespace="acme-vision",
            name="job-train",
            verb="deactivate",
            reason="wrong data",
            next_attempt_at=timezone.now(),
        )
        services.run_workload_actions(now=timezone.now() + timedelta(hours=1))
    action.refresh_from_db()
    assert "MiB of memory" in action.message
