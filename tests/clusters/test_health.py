"""The health of one cluster says nothing about the next, whatever the first one answers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from django.utils import timezone

from clusters import services
from clusters.devcluster.server import DevServer
from clusters.kube.client import KubeClient, Probe
from clusters.models import ClusterHealth
from clusters.reconcile.health import Contact, record_contact
from tests.builders import SmallFleet
from tests.clusters.test_registration import enrol
from tests.kube.test_hostile_server import drip, server
from tests.reconcile.fleet_rows import register

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
