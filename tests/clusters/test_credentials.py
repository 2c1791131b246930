"""Credentials are sealed, rotated, and never told to anybody."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.utils import timezone

from budgets.errors import Rejected
from budgets.models import AuditEntry, Operation
from clusters import selectors, services, tasks
from clusters.devcluster.server import DevServer
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.kubeconfig import connection_of
from clusters.models import Cluster, ClusterHealth, ObjectState
from clusters.reconcile.context import Clients, Identity, registered
from clusters.services import tokens
from clusters.vault import SealBroken, seal, unseal
from tests.builders import SmallFleet
from tests.clusters.test_registration import enrol
from tests.kube.test_hostile_server import server
from tests.reconcile.fleet_rows import dev_server, quota_hand, register
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]


def test_sealed_text_opens_with_any_key_that_is_set(settings) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.PORTAL_CREDENTIAL_KEYS = [old]
    sealed = seal("open sesame")
    settings.PORTAL_CREDENTIAL_KEYS = [new, old]
    assert unseal(sealed) == "open sesame"
    settings.PORTAL_CREDENTIAL_KEYS = [new]
    with pytest.raises(SealBroken) as broken:
        unseal(sealed)
    assert "sesame" not in str(broken.value)


@pytest.mark.parametrize("keys", [[], ["short"]])
def test_missing_keys_are_told(settings, keys: list[str]) -> None:
    settings.PORTAL_CREDENTIAL_KEYS = keys
    with pytest.raises(ImproperlyConfigured, match="PORTAL_CREDENTIAL_KEYS"):
        seal("x")


def test_key_rotation_reseals_everything_and_the_old_key_can_go(
    fleet: SmallFleet, east: DevServer, settings
) -> None:
    cluster = enrol(fleet, east)
    new = Fernet.generate_key().decode()
    settings.PORTAL_CREDENTIAL_KEYS = [new, *settings.PORTAL_CREDENTIAL_KEYS]
    call_command("reseal_credentials", verbosity=0)
    settings.PORTAL_CREDENTIAL_KEYS = [new]
    cluster.refresh_from_db()
    assert "gpu-east" in unseal(cluster.kubeconfig_sealed)
    assert unseal(cluster.multikueue_kubeconfig_sealed)


def test_held_kubeconfig_comes_back_for_a_quarter_of_an_hour(
    fleet: SmallFleet, time_machine
) -> None:
    time_machine.move_to("2026-03-01T00:00:00Z", tick=False)
    held = services.hold_kubeconfig(fleet.admin, text="text")
    assert services.held_kubeconfig(fleet.admin, held=held) == "text"
    time_machine.move_to("2026-03-01T00:15:02Z", tick=False)
    with pytest.raises(Rejected):
        services.held_kubeconfig(fleet.admin, held=held)


def test_token_is_minted_for_the_multikueue_account_alone(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east)
    own = connection_of(unseal(cluster.kubeconfig_sealed))
    minted = connection_of(unseal(cluster.multikueue_kubeconfig_sealed))
    assert minted.server == own.server
    assert minted.token != own.token
    user = east.cluster.access.user_of(f"Bearer {minted.token}")
    assert user == "system:serviceaccount:kueue-system:multikueue"


def test_tokens_are_rotated_before_they_end(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    assert services.rotate_due_tokens() == []
    Cluster.objects.update(multikueue_token_expires_at=timezone.now() + timedelta(hours=7))
    before = bytes(cluster.multikueue_kubeconfig_sealed)
    assert tasks.rotate_tokens() == ["gpu-east"]
    cluster.refresh_from_db()
    assert bytes(cluster.multikueue_kubeconfig_sealed) != before
    assert cluster.multikueue_token_expires_at > timezone.now() + timedelta(hours=23)


def test_one_worker_without_token_does_not_stop_the_others(
    fleet: SmallFleet, east: DevServer
) -> None:
    enrol(fleet, east)
    with dev_server("gpu-west") as west:
        register("gpu-west", west.kubeconfig)
    Cluster.objects.update(multikueue_token_expires_at=None)
    with pytest.raises(ExceptionGroup) as group:
        services.rotate_due_tokens()
    assert len(group.value.exceptions) == 1
    assert Cluster.objects.get(slug="gpu-east").multikueue_token_expires_at is not None


BAD_TOKENS = [
    {}, {"status": None}, {"status": {}}, {"status": {"token": "x"}},
    {"status": {"token": "x", "expirationTimestamp": "soon"}},
    {"status": {"token": "x", "expirationTimestamp": "2026-11-22T10:00:00"}},
    {"status": {"token": ["x"], "expirationTimestamp": "2026-11-22T10:00:00Z"}},
    {"status": {"token": "", "expirationTimestamp": 7}},
]  # fmt: skip


@pytest.mark.parametrize("answer", BAD_TOKENS)
def test_a_worker_with_a_bad_answer_keeps_no_other_from_its_token(
    fleet: SmallFleet, east: DevServer, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    enrol(fleet, east)
    apart = east.kubeconfig.replace("127.0.0.1", "localhost")
    register("gpu-apart", apart)  # before gpu-east in the alphabet
    whole = KubeClient.create

    def create(self: KubeClient, resource: r.Resource, *given: object, **more: object) -> object:
        if resource == r.SERVICE_ACCOUNT and "localhost" in self.server:
            return answer
        return whole(self, resource, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(KubeClient, "create", create)
    Cluster.objects.update(multikueue_token_expires_at=None)
    with pytest.raises(ExceptionGroup):
        services.rotate_due_tokens()
    ends = dict(Cluster.objects.values_list("slug", "multikueue_token_expires_at"))
    assert ends["gpu-apart"] is None and ends["gpu-east"] is not None


def test_whatever_goes_wrong_with_one_worker_the_next_gets_its_token(
    fleet: SmallFleet, east: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrol(fleet, east)
    register("gpu-apart", east.kubeconfig)  # before gpu-east in the alphabet
    whole = tokens._new_token

    def new_token(worker: Cluster) -> object:
        if worker.slug == "gpu-apart":
            raise RuntimeError("nobody thought of this")
        return whole(worker)

    monkeypatch.setattr(tokens, "_new_token", new_token)
    Cluster.objects.update(multikueue_token_expires_at=None)
    with pytest.raises(ExceptionGroup):
        services.rotate_due_tokens()
    ends = dict(Cluster.objects.values_list("slug", "multikueue_token_expires_at"))
    assert ends["gpu-apart"] is None and ends["gpu-east"] is not None


def test_a_worker_that_drips_holds_up_no_others_token(
    fleet: SmallFleet, east: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrol(fleet, east)
    done, kept, known = threading.Event(), list[str](), list[int]()
    keep, new_token = tokens._keep, tokens._new_token

    def noted(worker: Cluster, *token: object) -> object:
        kept.append(worker.slug)
        if len(kept) == 2:
            done.set()
        return keep(worker, *token)  # type: ignore[arg-type]

    def asked(worker: Cluster) -> object:
        try:
            return new_token(worker)
        finally:
            if worker.slug == "gpu-apart":
                known.append(len(kept))

    def silent(peer: socket.socket, _: bytes) -> None:
        done.wait(PATIENCE_S)
        peer.close()

    monkeypatch.setattr(tokens, "_keep", noted)
    monkeypatch.setattr(tokens, "_new_token", asked)
    with server(silent) as slow, dev_server("gpu-west") as west:
        register("gpu-apart", east.kubeconfig.replace(east.url, slow.server))
        enrol(fleet, west, slug="gpu-west", name="West")
        kept.clear()
        Cluster.objects.update(multikueue_token_expires_at=None)
        with pytest.raises(ExceptionGroup) as group:
            services.rotate_due_tokens()
    assert len(group.value.exceptions) == 1
    assert sorted(kept) == ["gpu-east", "gpu-west"]
    assert known == [2], "the others have theirs before it has said anything"


def test_rotated_credential_gives_a_new_client(fleet: SmallFleet, east: DevServer) -> None:
    enrol(fleet, east)
    clock = [0.0]
    clients = Clients(monotonic=lambda: clock[0])
    first = clients.of("gpu-east", identity=Identity.MULTIKUEUE)
    clock[0] = 6.0
    assert clients.of("gpu-east", identity=Identity.MULTIKUEUE) is first
    row = Cluster.objects.get()
    # Two tokens of one second may be the same; this is another credential in any case.
    row.multikueue_kubeconfig_sealed = seal(f"{unseal(row.multikueue_kubeconfig_sealed)}# new")
    row.save()
    clock[0] = 12.0
    assert clients.of("gpu-east", identity=Identity.MULTIKUEUE) is not first
    clients.close()


def test_secret_reaches_the_manager_follows_the_token_and_leaves_with_the_worker(
    fleet: SmallFleet, east: DevServer
) -> None:
    worker = register("gpu-east", east.kubeconfig)
    services.rotate_multikueue_token(fleet.admin, cluster=worker)
    with dev_server("manager") as server:
        register("manager", server.kubeconfig, role="manager", mode="kueue")
        with (
            KubeClient.from_kubeconfig(server.kubeconfig) as kube,
            quota_hand("manager") as hand,
        ):
            hand.settle()

            def stored() -> str:
                secret = kube.get(r.SECRET, "multikueue-gpu-east", namespace="kueue-system")
                return base64.b64decode(secret["data"]["kubeconfig"]).decode()

            worker.refresh_from_db()
            assert stored() == unseal(worker.multikueue_kubeconfig_sealed)
            config = kube.get(r.MULTIKUEUE_CONFIG, "gpu-budget-portal")
            assert config["spec"]["clusters"] == ["gpu-east"]
            services.rotate_multikueue_token(fleet.admin, cluster=worker)
            hand.settle()
            assert stored() == unseal(worker.multikueue_kubeconfig_sealed)
            services.deregister_cluster(fleet.admin, cluster=worker, reason="over", abandon=True)
            hand.settle()
            names = [item["metadata"]["name"] for item in kube.list(r.SECRET).items]
            assert names == []
            assert kube.list(r.MULTIKUEUE_CLUSTER).items == []
    rows = ObjectState.objects.filter(kind="Secret")
    assert not rows.exists()


def secrets_of(server: DevServer) -> list[str]:
    """Everything of a kubeconfig that opens a door."""
    user = json.loads(server.kubeconfig)["users"][0]["user"]
    return [str(value) for value in user.values()]


def test_no_credential_is_ever_told(
    fleet: SmallFleet, east: DevServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = enrol(fleet, east)
    services.rotate_kubeconfig(fleet.admin, cluster=cluster, kubeconfig=east.kubeconfig)
    services.rotate_multikueue_token(fleet.admin, cluster=cluster)
    with quota_hand("gpu-east") as hand:
        hand.settle()
        told = [repr(hand.context.client), repr(hand.context.registration), repr(hand.body)]
    east.cluster.faults.fail(500, count=3)
    services.check_health()
    broken = east.kubeconfig.replace('"token"', '"tokenFile"')
    with pytest.raises(Rejected) as rejected:
        services.rotate_kubeconfig(fleet.admin, cluster=cluster, kubeconfig=broken)
    cluster.refresh_from_db()
    minted = connection_of(unseal(cluster.multikueue_kubeconfig_sealed)).token
    detail = selectors.cluster_detail(fleet.admin, "gpu-east")
    told += [
        caplog.text,
        str(rejected.value),
        repr(detail),
        repr(registered("gpu-east")),
        repr(vars(cluster)["preflight"]),
        *(repr(vars(row)) for row in AuditEntry.objects.all()),
        *(repr(vars(row)) for row in Operation.objects.all()),
        *(repr(vars(row)) for row in ObjectState.objects.all()),
        *(repr(vars(row)) for row in ClusterHealth.objects.all()),
    ]
    everything = "\n".join(told)
    for secret in [*secrets_of(east), minted]:
        assert secret not in everything


def test_refused_cluster_error_names_no_header(fleet: SmallFleet, east: DevServer) -> None:
    east.cluster.faults.fail(401, count=1)
    with (
        KubeClient.from_kubeconfig(east.kubeconfig) as client,
        pytest.raises(ClusterError) as caught,
    ):
        client.list(r.CLUSTER_QUEUE)
    for secret in secrets_of(east):
        assert secret not in repr(caught.value) + str(caught.value)
