"""Credentials whose key is lost: what is told, what goes on, and the way back."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from budgets import services as promises
from budgets.errors import Rejected
from clusters import services
from clusters.devcluster.server import DevServer
from clusters.models import AppliedGeneration, Cluster, ClusterHealth, ObjectState, ShiftRun
from clusters.reconcile.context import Clients, Identity
from clusters.reconcile.multikueue.links import Link
from clusters.reconcile.shift import Ending, run_shift
from clusters.vault import seal, unseal
from tests.builders import SmallFleet
from tests.clusters.test_registration import enrol
from tests.reconcile.fleet_rows import dev_server, quota_hand, register

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
SAYS = "cannot be opened with the keys in PORTAL_CREDENTIAL_KEYS"


def lose_the_keys(settings) -> None:
    settings.PORTAL_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]


def checked() -> str:
    told = StringIO()
    call_command("check_settings", stdout=told)
    return told.getvalue()


def test_cluster_is_registered_again_under_new_keys(
    fleet: SmallFleet, east: DevServer, settings, client: Client
) -> None:
    cluster = enrol(fleet, east)
    AppliedGeneration.objects.create(
        cluster=cluster, subject="budget:x", observed_generation=7, applied_at=timezone.now()
    )
    assert "gpu-east" not in checked()
    lose_the_keys(settings)
    # 1. It is told, everywhere that people look.
    assert "do not open the credentials of gpu-east. Add the key" in checked()
    assert services.check_health() == {"gpu-east": False}
    client.force_login(fleet.admin)
    for address in ("/clusters/", "/clusters/gpu-east/"):
        text = client.get(address).content.decode()
        assert "no key opens its credential" in text and SAYS in text, address
    assert "cannot be reached: no key opens its credential." in client.get("/").content.decode()
    # 2. The kubeconfig is given anew, and the worker's token is minted anew.
    services.rotate_kubeconfig(fleet.admin, cluster=cluster, kubeconfig=east.kubeconfig)
    cluster.refresh_from_db()
    assert "gpu-east" in unseal(cluster.kubeconfig_sealed)
    assert "gpu-east" in unseal(cluster.multikueue_kubeconfig_sealed)
    # 3. It is the same cluster, and nothing is wrong any more.
    assert AppliedGeneration.objects.get().observed_generation == 7
    assert "gpu-east" not in checked()
    assert services.check_health() == {"gpu-east": True}
    assert "no key opens" not in client.get("/clusters/gpu-east/").content.decode()


@pytest.mark.parametrize("deed", ["token", "mode", "block"])
def test_what_needs_the_credential_is_refused_with_the_way_out(
    fleet: SmallFleet, east: DevServer, settings, deed: str
) -> None:
    cluster = enrol(fleet, east)
    Cluster.objects.update(writes_enabled=False, blocked_reason="a backup")
    cluster.refresh_from_db()
    lose_the_keys(settings)
    deeds = {
        "token": lambda: services.rotate_multikueue_token(fleet.admin, cluster=cluster),
        "mode": lambda: services.set_mode(fleet.admin, cluster=cluster, mode="kueue", reason="x"),
        "block": lambda: services.resolve_block(
            fleet.admin, cluster=cluster, apply_ours=True, reason="x"
        ),
    }
    with pytest.raises(Rejected, match=SAYS):
        deeds[deed]()


def test_one_unreadable_credential_stops_nobody_else(
    fleet: SmallFleet, east: DevServer, settings
) -> None:
    own = settings.PORTAL_CREDENTIAL_KEYS
    lose_the_keys(settings)
    lost = register("gpu-east", east.kubeconfig)
    lost.multikueue_kubeconfig_sealed = seal(east.kubeconfig)
    lost.save()
    settings.PORTAL_CREDENTIAL_KEYS = own
    with dev_server("gpu-west") as west, dev_server("manager") as hub:
        enrol(fleet, west, slug="gpu-west")
        register("hub", hub.kubeconfig, role="manager")
        Cluster.objects.update(multikueue_token_expires_at=None)
        # Health and tokens.
        assert services.check_health() == {"gpu-east": False, "gpu-west": True, "hub": True}
        with pytest.raises(ExceptionGroup):
            services.rotate_due_tokens()
        assert Cluster.objects.get(slug="gpu-west").multikueue_token_expires_at is not None
        # Dispatch on the manager goes on without that worker.
        clients = Clients()
        link = Link(
            "gpu-east",
            origin="portal",
            client_for=lambda slug: clients.of(slug, identity=Identity.MULTIKUEUE),
            sink=lambda seen: None,
            may_write=lambda slug: True,
        )
        link.look(timezone.now())
        assert link.state.reason == "BadKubeConfig" and SAYS in link.state.message
        # The manager's quota shift hands over every other token.
        with quota_hand("hub") as hand:
            hand.settle()
        secrets = ObjectState.objects.filter(kind="Secret").order_by("name")
        assert [row.state for row in secrets] == ["failed", "synced"]
        assert SAYS in secrets[0].message


def test_shift_of_an_unreadable_credential_says_so(
    transactional_db: None, east: DevServer, settings
) -> None:
    import threading

    register("gpu-east", east.kubeconfig)
    lose_the_keys(settings)
    outcome = run_shift("gpu-east", "quota", stop=threading.Event(), seconds=5, holder="a")
    assert outcome.ending is Ending.FAILED and SAYS in outcome.message
    assert SAYS in ShiftRun.objects.get().outcome
    assert ClusterHealth.objects.get().reason == "CredentialNotReadable"


def test_nothing_is_sealed_anew_while_one_credential_cannot_be_opened(
    fleet: SmallFleet, east: DevServer, settings
) -> None:
    cluster = enrol(fleet, east)
    own = settings.PORTAL_CREDENTIAL_KEYS
    lose_the_keys(settings)
    register("gpu-west", "{}")
    settings.PORTAL_CREDENTIAL_KEYS = [Fernet.generate_key().decode(), *own]
    with pytest.raises(CommandError, match=r"Nothing was changed.* credentials of gpu-west\."):
        call_command("reseal_credentials")
    before, cluster = cluster, Cluster.objects.get(pk=cluster.pk)
    assert bytes(cluster.kubeconfig_sealed) == bytes(before.kubeconfig_sealed)


def test_new_secret_key_signs_everybody_out_and_no_token(
    fleet: SmallFleet, east: DevServer, settings, client: Client
) -> None:
    cluster = enrol(fleet, east)
    client.force_login(fleet.admin)
    until = promises.utc_now() + timedelta(days=1)
    _, token = promises.create_api_token(
        fleet.admin, user=fleet.admin, name="ci", scope="read", expires_at=until
    )
    assert client.get("/").status_code == 200
    settings.SECRET_KEY = "another-" + "k" * 50
    assert client.get("/")["Location"].startswith("/login/")
    answer = Client().get("/api/v1/clusters", headers={"Authorization": f"Token {token}"})
    assert answer.status_code == 200
    cluster.refresh_from_db()
    assert "gpu-east" in unseal(cluster.kubeconfig_sealed)
