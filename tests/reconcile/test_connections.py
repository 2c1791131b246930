"""A worker's credential is rotated, deleted, broken; its API server goes away and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
import yaml
from django.db import DatabaseError
from django.utils import timezone

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.errors import NotFound, Refusal
from clusters.kube.client import KubeClient
from clusters.models import Cluster
from clusters.reconcile.configured import settings_of
from clusters.reconcile.health import Contact, record_contact
from clusters.reconcile.identity import OtherCluster
from clusters.reconcile.multikueue import links
from clusters.reconcile.multikueue import workers as workers_module
from clusters.reconcile.multikueue.links import Link
from clusters.reconcile.multikueue.workers import LinkedWorkers
from clusters.reconcile.runtime.job_cache import JobCache
from tests.reconcile.admission_harness import INSTALLATION
from tests.reconcile.fleet_rows import register
from tests.reconcile.test_admission_jobs import NOW
from tests.waiting import eventually

pytestmark = pytest.mark.embedded


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, True, id="nothing stops it"),
        pytest.param({"writes_enabled": False}, False, id="an admin has stopped writing"),
        pytest.param({"blocked_reason": "a backup"}, False, id="a decision is waited for"),
    ],
)
def test_dispatch_writes_to_no_worker_that_is_stopped_or_waits(changes, want):
    row = register("gpu-east", "{}")
    Cluster.objects.filter(pk=row.pk).update(**changes)
    assert linked_workers()._may_write_on("gpu-east") is want


@pytest.mark.django_db
def test_dispatch_writes_to_no_worker_at_whose_address_another_cluster_answers(monkeypatch):
    row, now = register("gpu-east", "{}"), timezone.now()
    monkeypatch.setattr(workers_module, "KNOWN_FOR_S", 0)
    workers = linked_workers()
    record_contact(row.pk, Contact(now, OtherCluster("another cluster answers")))
    assert workers._may_write_on("gpu-east") is False
    record_contact(row.pk, Contact(now))
    assert workers._may_write_on("gpu-east") is True


@pytest.mark.django_db
def test_switches_of_all_workers_are_read_together_and_kept_while_the_database_fails(
    monkeypatch, django_assert_num_queries
):
    for name, is_on in (("gpu-east", True), ("gpu-west", False)):
        Cluster.objects.filter(pk=register(name, "{}").pk).update(writes_enabled=is_on)
    workers, names = linked_workers(), ("gpu-east", "gpu-west", "unknown")
    with django_assert_num_queries(1):
        assert [workers._may_write_on(name) for name in names] == [True, False, False]

    def fails() -> dict[str, bool]:
        raise DatabaseError("gone away")

    monkeypatch.setattr(workers_module, "KNOWN_FOR_S", 0)
    monkeypatch.setattr(workers._switches, "_read", fails)
    assert [workers._may_write_on(name) for name in names] == [True, False, False]


@pytest.mark.django_db
def test_nothing_is_written_on_a_worker_before_the_database_has_answered(monkeypatch):
    def fails() -> dict[str, bool]:
        raise DatabaseError("gone away")

    monkeypatch.setattr(workers_module, "switches_now", fails)
    workers = linked_workers()
    monkeypatch.setattr(workers, "_has_no_switch", lambda worker: True)
    assert [workers._may_write_on(name) for name in ("gpu-east", "gpu-west")] == [False, False]


def linked_workers() -> LinkedWorkers:
    return LinkedWorkers(
        SimpleNamespace(cluster=SimpleNamespace(pk=7)),
        manager=JobCache(()),
        settings=settings_of({}),
        origin=INSTALLATION,
        sink=lambda seen: None,
    )


class Stored:
    """What is stored as the worker's credential, and the clients that were made of it."""

    def __init__(self, text: str) -> None:
        self.text, self.made = text, 0
        self._known: tuple[str, KubeClient] | None = None
        self.open: list[KubeClient] = []

    def client(self, name: str) -> KubeClient:
        if not self.text:
            raise NotFound(Refusal(f"no multikueue credential of cluster {name} is stored"))
        if self._known is None or self._known[0] != self.text:
            made = KubeClient.from_kubeconfig(self.text)
            self.made += 1
            self.open.append(made)
            self._known = self.text, made
        return self._known[1]


class Rig:
    """One link that is looked at by hand."""

    def __init__(self, server: DevServer) -> None:
        self.server, self.now = server, NOW
        self.stored = Stored(server.kubeconfig)
        self.link = Link(
            "east",
            origin=INSTALLATION,
            client_for=self.stored.client,
            sink=lambda seen: None,
            may_write=lambda name: True,
        )

    def look(self) -> Link:
        self.now += timedelta(milliseconds=1)
        self.link.look(self.now)
        return self.link

    def until(self, reason: str) -> str:
        """The message, once the state has this reason."""
        found = eventually(
            lambda: (link := self.look()).state.reason == reason and link.state.message,
            why=lambda: str(self.link.state),
        )
        return str(found)


@pytest.fixture
def rig(monkeypatch) -> Iterator[Rig]:
    monkeypatch.setattr(links, "CREDENTIAL_EVERY_S", 0.0)
    monkeypatch.setattr(links, "SETTLE_S", 0.0)
    with DevServer(DevCluster(ClusterOptions(name="east", bookmark_every_s=0.5))) as server:
        made = Rig(server)
        made.until("Active")
        yield made
        made.link.close()
        for client in made.stored.open:
            client.close()


def with_user(text: str, **fields: object) -> str:
    """A kubeconfig whose user says more."""
    document = yaml.safe_load(text)
    document["users"][0]["user"] |= fields
    return yaml.safe_dump(document)


def lost_since(rig: Rig) -> datetime | None:
    return rig.look().lost_since


def test_rotated_credential_gives_another_client_and_the_same_worker(rig):
    first = rig.link.client
    document = yaml.safe_load(rig.server.kubeconfig)
    document["current-context"] = document["contexts"][0]["name"] = "renewed"
    rig.stored.text = yaml.safe_dump(document)
    eventually(lambda: rig.look().client is not first)
    assert rig.until("Active") == "Connected"
    assert rig.stored.made == 2
    assert lost_since(rig) is None


def test_deleted_credential_is_told_and_a_new_one_heals(rig):
    text, rig.stored.text = rig.stored.text, ""
    told = rig.until("BadKubeConfig")
    assert told == "load client config failed: no multikueue credential of cluster east is stored"
    since = lost_since(rig)
    assert since is not None
    # The time of loss stays that of the first look, however often it is looked at.
    assert lost_since(rig) == since
    rig.stored.text = text
    rig.until("Active")
    assert lost_since(rig) is None


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(lambda text: "%", "This is not YAML", id="no YAML"),
        pytest.param(lambda text: "a: 1", "context", id="no kubeconfig"),
        pytest.param(
            lambda text: with_user(text, exec={"command": "/bin/sh"}),
            "starts a program",
            id="a program",
        ),
        pytest.param(
            lambda text: with_user(text, tokenFile="/etc/passwd"), "names a token file", id="a file"
        ),
    ],
)
def test_malformed_credential_is_refused_and_a_good_one_heals(rig, change, want):
    text = rig.stored.text
    rig.stored.text = change(text)
    told = rig.until("BadKubeConfig")
    assert told.startswith("load client config failed: ")
    assert want in told
    assert rig.look().client is None
    rig.stored.text = text
    rig.until("Active")


def test_lost_api_server_is_tried_again_until_it_answers(rig):
    rig.server.cluster.faults.is_refusing = True
    rig.server.drop_connections()
    rig.until("ClientConnectionFailed")
    since = lost_since(rig)
    assert since is not None
    rig.server.cluster.faults.clear()
    assert rig.until("Active") == "Connected"
    assert lost_since(rig) is None
