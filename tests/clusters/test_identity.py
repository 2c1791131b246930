"""One cluster is registered once, whatever road leads to it, and stays the one that it was."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from budgets.errors import Rejected
from budgets.models import AuditEntry
from clusters import services
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.models import Cluster
from clusters.reconcile.identity import OtherCluster, switches_now
from clusters.reconcile.shift import Ending, run_shift
from clusters.vault import seal
from tests.builders import SmallFleet
from tests.clusters.test_registration import codes, enrol
from tests.reconcile.fleet_rows import dev_server, register

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]


def by_another_context(server: DevServer) -> str:
    document = json.loads(server.kubeconfig)
    document["contexts"][0]["name"] = document["current-context"] = "somewhere-else"
    return json.dumps(document)


def by_another_address(server: DevServer) -> str:
    return server.kubeconfig.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize(
    "road", [lambda server: server.kubeconfig, by_another_context, by_another_address]
)
def test_a_cluster_is_registered_once_by_whatever_road(
    fleet: SmallFleet, east: DevServer, road
) -> None:
    first = enrol(fleet, east)
    with pytest.raises(Rejected) as rejected:
        enrol(fleet, east, slug="gpu-west", name="West", kubeconfig=road(east))
    assert codes(rejected) == {"registered_already"}
    assert "East (gpu-east)" in str(rejected.value.faults[0].message)
    assert list(Cluster.objects.values_list("slug", "uid")) == [("gpu-east", first.uid)]


def test_a_restored_backup_of_a_cluster_is_that_cluster(fleet: SmallFleet, tmp_path: Path) -> None:
    kept, restored = tmp_path / "kept.sqlite3", tmp_path / "restored.sqlite3"
    with dev_server("gpu-east", file=kept) as east:
        enrol(fleet, east)
    with closing(sqlite3.connect(kept)) as source, closing(sqlite3.connect(restored)) as target:
        source.backup(target)
    with dev_server("gpu-west", file=restored) as west, pytest.raises(Rejected) as rejected:
        enrol(fleet, west, slug="gpu-west", name="West")
    assert codes(rejected) == {"registered_already"}


def test_a_cluster_that_was_never_asked_is_known_by_its_address(
    fleet: SmallFleet, east: DevServer
) -> None:
    enrol(fleet, east)
    Cluster.objects.update(uid="")
    with pytest.raises(Rejected) as rejected:
        enrol(fleet, east, slug="gpu-west", name="West")
    assert codes(rejected) == {"registered_already"}


def test_a_cluster_comes_back_after_it_was_removed(fleet: SmallFleet, east: DevServer) -> None:
    first = enrol(fleet, east)
    services.deregister_cluster(fleet.admin, cluster=first, reason="rebuilt", abandon=True)
    assert enrol(fleet, east, slug="gpu-again", name="Again").uid == first.uid


def test_a_new_kubeconfig_leads_to_the_same_cluster(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    with dev_server("gpu-west") as west:
        with pytest.raises(Rejected) as rejected:
            services.rotate_kubeconfig(fleet.admin, cluster=cluster, kubeconfig=west.kubeconfig)
        assert codes(rejected) == {"other_cluster"}
        enrol(fleet, west, slug="gpu-west", name="West")
        with pytest.raises(Rejected) as rejected:
            services.rotate_kubeconfig(fleet.admin, cluster=cluster, kubeconfig=west.kubeconfig)
    assert codes(rejected) == {"registered_already"}
    assert "West (gpu-west)" in rejected.value.faults[0].message
    assert not AuditEntry.objects.filter(action="cluster.rotate").exists()


def shift_of(slug: str):
    return run_shift(slug, "quota", stop=threading.Event(), seconds=20, holder="test")


@pytest.mark.django_db(transaction=True)
def test_a_shift_does_nothing_on_another_cluster(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    with dev_server("gpu-west") as west, KubeClient.from_kubeconfig(west.kubeconfig) as kube:
        Cluster.objects.update(kubeconfig_sealed=seal(west.kubeconfig))
        outcome = shift_of("gpu-east")
        assert outcome.ending is Ending.OTHER_CLUSTER
        assert cluster.uid in outcome.message
        assert kube.list(r.LEASE).items == []
        assert services.check_health() == {"gpu-east": False}
    cluster.health.refresh_from_db()
    assert cluster.health.reason == "OtherCluster"
    assert cluster.health.message == outcome.message


def test_no_token_is_made_on_another_cluster(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    with dev_server("gpu-west") as west, KubeClient.from_kubeconfig(west.kubeconfig) as kube:
        Cluster.objects.update(
            kubeconfig_sealed=seal(west.kubeconfig), multikueue_token_expires_at=None
        )
        with pytest.raises(ExceptionGroup) as group:
            services.rotate_due_tokens()
        with pytest.raises(Rejected, match=cluster.uid):
            cluster.refresh_from_db()
            services.rotate_multikueue_token(fleet.admin, cluster=cluster)
        assert kube.list(r.SERVICE_ACCOUNT).items == []
    assert [type(error) for error in group.value.exceptions] == [OtherCluster]
    assert cluster.multikueue_token_expires_at is None


def test_a_preflight_that_finds_another_cluster_says_so_to_everybody(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east)
    assert switches_now() == {"gpu-east": True}
    with dev_server("gpu-west") as west:
        Cluster.objects.update(kubeconfig_sealed=seal(west.kubeconfig))
        cluster.refresh_from_db()
        services.run_preflight(fleet.admin, cluster=cluster)
    assert switches_now() == {"gpu-east": False}
    Cluster.objects.update(kubeconfig_sealed=seal(east.kubeconfig))
    assert services.check_health() == {"gpu-east": True}
    assert switches_now() == {"gpu-east": True}


@pytest.mark.django_db(transaction=True)
def test_of_two_registrations_from_before_only_one_works(
    fleet: SmallFleet, east: DevServer
) -> None:
    enrol(fleet, east)
    register("gpu-copy", east.kubeconfig)
    outcome = shift_of("gpu-copy")
    assert outcome.ending is Ending.OTHER_CLUSTER
    assert "East (gpu-east)" in outcome.message
