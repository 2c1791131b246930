"""The cluster that the portal runs in: registered without a kubeconfig, by its own account."""

from __future__ import annotations

import threading
from io import StringIO
from pathlib import Path

import pytest
import yaml
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.test import Client

from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry
from clusters import selectors, services
from clusters.devcluster.problems import Failure
from clusters.devcluster.server import DevServer
from clusters.errors import Unauthenticated
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.kubeconfig import Connection, connection_of
from clusters.kube.own_account import TOKEN
from clusters.models import Cluster, ClusterHealth, ShiftRun
from clusters.reconcile.context import ShiftContext, registered
from clusters.reconcile.shift import Ending, lease_name, run_shift
from clusters.vault import OWN_ACCOUNT, unseal
from tests.builders import SmallFleet
from tests.clusters.test_registration import enrol
from tests.own_account import USER, OwnFolder
from tests.reconcile.fleet_rows import dev_server
from tests.reconcile.test_shift import use_body
from tests.waiting import eventually

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
NAMESPACE, ACCOUNT = USER.split(":")[2:]


def new_token(server: DevServer) -> str:
    """Another one than those of before."""
    new_token.life += 1
    return server.cluster.access.mint(NAMESPACE, ACCOUNT, new_token.life)[0]


new_token.life = 3600


@pytest.fixture
def home(tmp_path: Path, settings) -> DevServer:
    """A cluster that the portal runs in."""
    with dev_server("home") as server:
        settings.PORTAL_OWN_CLUSTER_FOLDER = str(tmp_path)
        settings.PORTAL_OWN_CLUSTER_ADDRESS = server.url
        yield server


@pytest.fixture
def folder(home: DevServer, tmp_path: Path) -> OwnFolder:
    made = OwnFolder(tmp_path)
    made.write(new_token(home))
    return made


def registers(actor=None, **changes: str) -> services.OwnRegistration:
    wish = {"slug": "home", "name": "Home", "role": "single", "mode": "portal"}
    return services.ensure_own_cluster(actor, **{**wish, **changes})


def test_it_is_registered_examined_and_audited_and_no_secret_is_stored(
    fleet: SmallFleet, folder: OwnFolder, home: DevServer
) -> None:
    made = registers().cluster
    assert made is not None
    row = Cluster.objects.get()
    assert (bytes(row.kubeconfig_sealed), row.is_own) == (OWN_ACCOUNT, True)
    assert (row.server, row.context, row.user_kind) == (home.url, USER, "own service account")
    assert row.uid and row.ca_fingerprint
    states = {each["name"]: each["state"] for each in row.preflight["rows"]}
    assert states["Reachable"] == states["Rights"] == "ok"
    entry = AuditEntry.objects.get(action="cluster.register")
    assert (entry.actor, entry.cluster) == (None, "home")
    token = (folder.place / TOKEN).read_text()
    assert token not in repr(vars(row)) + repr(vars(entry))


def test_it_is_registered_once_and_not_against_an_admins_will(
    fleet: SmallFleet, folder: OwnFolder
) -> None:
    registers()
    again = registers(slug="other")
    assert (again.cluster, again.why_not) == (None, "It is registered already, as home.")
    services.deregister_cluster(
        fleet.admin, cluster=Cluster.objects.get(), reason="moved", abandon=True
    )
    later = registers(slug="other")
    assert later.cluster is None and "an admin de-registered it" in later.why_not
    assert Cluster.objects.count() == 1


def test_it_may_be_registered_with_a_kubeconfig_already(
    fleet: SmallFleet, folder: OwnFolder, home: DevServer
) -> None:
    known = enrol(fleet, home, slug="by-hand", role="single")
    done = registers()
    assert done.cluster is None and "by-hand" in done.why_not
    # The kubeconfig is given up, and no shift has to know.
    services.rotate_kubeconfig(fleet.admin, cluster=known, own_account=True)
    known.refresh_from_db()
    assert (bytes(known.kubeconfig_sealed), known.context) == (OWN_ACCOUNT, USER)
    assert services.check_health() == {"by-hand": True}
    # And back, before the portal moves elsewhere.
    services.rotate_kubeconfig(fleet.admin, cluster=known, kubeconfig=home.kubeconfig)
    known.refresh_from_db()
    assert not known.is_own and "home" in unseal(known.kubeconfig_sealed)


def test_another_cluster_is_not_given_the_portals_own_account(
    fleet: SmallFleet, folder: OwnFolder, east: DevServer
) -> None:
    known = enrol(fleet, east)
    with pytest.raises(Rejected, match="It leads to a cluster with UID"):
        services.rotate_kubeconfig(fleet.admin, cluster=known, own_account=True)
    with pytest.raises(Rejected, match="but not both"):
        services.rotate_kubeconfig(
            fleet.admin, cluster=known, kubeconfig=east.kubeconfig, own_account=True
        )
    assert not Cluster.objects.get().is_own


def test_only_an_admin_registers_it(fleet: SmallFleet, folder: OwnFolder) -> None:
    for attempt in (
        lambda: registers(fleet.owner),
        lambda: services.own_cluster_offer(fleet.owner),
        lambda: services.register_cluster(
            fleet.owner, slug="x", name="X", role="single", mode="portal", own_account=True
        ),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert not Cluster.objects.exists()


def test_it_is_offered_where_the_portal_runs_in_one_that_is_not_registered(
    fleet: SmallFleet, folder: OwnFolder, home: DevServer, settings
) -> None:
    offer = services.own_cluster_offer(fleet.admin)
    assert offer == services.OwnOffer(server=home.url, user=USER)
    (folder.place / TOKEN).unlink()
    broken = services.own_cluster_offer(fleet.admin)
    assert broken is not None and str(folder.place / TOKEN) in broken.problem
    (folder.place / TOKEN).symlink_to("..data/token")
    registers()
    assert services.own_cluster_offer(fleet.admin) is None
    Cluster.objects.all().delete()
    settings.PORTAL_OWN_CLUSTER_FOLDER = ""
    assert services.own_cluster_offer(fleet.admin) is None
    with pytest.raises(Rejected, match="PORTAL_OWN_CLUSTER_FOLDER is not set"):
        registers()


def test_command_registers_says_so_and_may_run_again(
    fleet: SmallFleet, folder: OwnFolder, settings
) -> None:
    def run(*more: str) -> str:
        told = StringIO()
        call_command("register_own_cluster", "--slug=home", "--mode=portal", *more, stdout=told)
        return told.getvalue()

    with pytest.raises(CommandError, match="slug: "):
        call_command("register_own_cluster", "--slug=No Good", "--mode=portal")
    with pytest.raises(CommandError, match="mode: Nobody served"):
        call_command("register_own_cluster", "--slug=home", "--mode=kueue")
    assert "is registered as home" in run("--name=Our own")
    assert Cluster.objects.get().name == "Our own"
    assert "Nothing to do. It is registered already" in run()


def test_shift_goes_on_while_the_token_is_renewed_and_the_old_one_is_refused(
    transactional_db: None,
    fleet: SmallFleet,
    folder: OwnFolder,
    home: DevServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registers()
    access, refused = home.cluster.access, set()
    known = access.user_of

    def user_of(header: str) -> str:
        if header.partition(" ")[2] in refused:
            raise Failure(401, "Unauthorized", "Unauthorized")
        return known(header)

    monkeypatch.setattr(access, "user_of", user_of)
    found: list[object] = []

    def body(context: ShiftContext) -> None:
        old = (folder.place / TOKEN).read_text()
        context.client.get(r.NAMESPACE, "kube-system")
        folder.write(new_token(home))
        refused.add(old)
        with (
            KubeClient.from_connection(Connection(home.url, token=old)) as stale,
            pytest.raises(Unauthenticated),
        ):
            stale.get(r.NAMESPACE, "kube-system")
        found.append(context.client.get(r.NAMESPACE, "kube-system")["metadata"]["name"])
        found.append(context.clients.of("home").get(r.NAMESPACE, "default")["metadata"]["name"])
        # The Lease is held with the new token, too.
        name = lease_name("quota", "portal")

        def version() -> str:
            lease = context.client.get(r.LEASE, name.name, namespace=name.namespace)
            return str(lease["metadata"]["resourceVersion"])

        before = version()
        eventually(lambda: version() != before)
        context.fence()

    monkeypatch.setattr("django.conf.settings.LEASE_SECONDS", 2)
    use_body(monkeypatch, body)
    outcome = run_shift("home", "quota", stop=threading.Event(), seconds=30, holder="a")
    assert (outcome.ending, found) == (Ending.STOPPED, ["kube-system", "default"])
    assert services.check_health() == {"home": True}


def test_a_file_that_is_missing_is_told_on_its_page_and_ends_nothing_else(
    transactional_db: None, fleet: SmallFleet, folder: OwnFolder, east: DevServer, client: Client
) -> None:
    registers()
    enrol(fleet, east, role="single")
    (folder.place / TOKEN).unlink()
    assert services.check_health() == {"gpu-east": True, "home": False}
    outcome = run_shift("home", "quota", stop=threading.Event(), seconds=5, holder="a")
    assert outcome.ending is Ending.FAILED
    assert str(folder.place / TOKEN) in ShiftRun.objects.get(cluster__slug="home").outcome
    health = ClusterHealth.objects.get(cluster__slug="home")
    assert health.reason == "OwnAccountNotReadable"
    client.force_login(fleet.admin)
    for address in ("/clusters/", "/clusters/home/", "/"):
        text = client.get(address).content.decode()
        assert str(folder.place / TOKEN) in text and "ownCluster.enabled" in text, address
        assert "own service account cannot be used" in text.replace("&#x27;", "'"), address
    with pytest.raises(Rejected, match="cannot be read"):
        services.change_role(
            fleet.admin, cluster=registered_row(), role="manager_runs_jobs", reason="x"
        )
    table = services.run_preflight(fleet.admin, cluster=registered_row())
    assert [(row.name, row.advice) for row in table.rows] == [("Credential", "")]


def registered_row() -> Cluster:
    return Cluster.objects.get(slug="home")


def test_keys_that_are_lost_are_nothing_to_it(
    fleet: SmallFleet, folder: OwnFolder, settings
) -> None:
    registers()
    settings.PORTAL_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert services.broken_credentials() == []
    services.reseal_credentials(None)
    assert services.check_health() == {"home": True}
    registration = registered("home")
    assert registration is not None and registration.sealed == OWN_ACCOUNT


def test_pages_say_that_there_is_nothing_to_renew(
    fleet: SmallFleet, folder: OwnFolder, client: Client
) -> None:
    registers()
    client.force_login(fleet.admin)
    page = client.get("/clusters/home/").content.decode()
    assert "there is nothing to rotate" in page and "Renew the kubeconfig" not in page
    assert "There is nothing to renew" in client.get("/clusters/home/kubeconfig/").content.decode()


def test_generated_rights_and_policies_name_the_portals_own_account(
    fleet: SmallFleet, folder: OwnFolder
) -> None:
    registers()
    documents = list(yaml.safe_load_all(selectors.generated_rights(fleet.admin, "home")))
    subjects = [
        (subject["namespace"], subject["name"])
        for document in documents
        for subject in document.get("subjects", ())
    ]
    assert set(subjects) == {(NAMESPACE, ACCOUNT)} and len(subjects) == 3
    assert not [each for each in documents if each["kind"] in ("Namespace", "ServiceAccount")]
    text = yaml.safe_dump_all(documents)
    assert USER in text and "kueue-system:gpu-budget-portal" not in text


def test_worker_of_a_kueue_needs_an_address_for_others(
    fleet: SmallFleet, folder: OwnFolder, home: DevServer, settings, monkeypatch
) -> None:
    settings.PORTAL_OWN_CLUSTER_ADDRESS = ""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    with pytest.raises(Rejected, match="Set PORTAL_OWN_CLUSTER_ADDRESS"):
        registers(role="worker", mode="kueue")
    settings.PORTAL_OWN_CLUSTER_ADDRESS = home.url
    made = registers(role="worker").cluster
    assert made is not None and made.multikueue_kubeconfig_sealed is not None
    theirs = connection_of(unseal(made.multikueue_kubeconfig_sealed))
    assert (theirs.server, theirs.token_file) == (home.url, None)
    assert home.cluster.access.user_of(f"Bearer {theirs.token}").endswith(":multikueue")


def test_no_kubeconfig_and_no_body_leads_to_the_portals_files(
    fleet: SmallFleet, folder: OwnFolder, client: Client
) -> None:
    """What marks the own account is not a kubeconfig, and the folder is a setting."""
    for text in (OWN_ACCOUNT.decode(), f"kubeconfig: {folder.place}", str(folder.place / TOKEN)):
        with pytest.raises(Rejected):
            services.register_cluster(
                fleet.admin, slug="x", name="X", role="single", mode="portal", kubeconfig=text
            )
    client.force_login(fleet.admin)
    body = {"slug": "x", "name": "X", "role": "single", "mode": "portal", "own_account": True}
    for name in ("folder", "token_file", "PORTAL_OWN_CLUSTER_FOLDER", "address"):
        answer = client.post(
            "/api/v1/clusters", {**body, name: "/etc"}, content_type="application/json"
        )
        assert answer.status_code == 422 and name in answer.content.decode()
    assert not Cluster.objects.exists()
