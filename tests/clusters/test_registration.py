"""Clusters come, get new credentials, change mode, and go."""

from __future__ import annotations

import json

import pytest

from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry, Capacity, Operation
from clusters import selectors, services
from clusters.devcluster.access import Denial
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.models import Cluster
from clusters.vault import unseal
from tests.builders import SmallFleet
from tests.clusters.fake_kueue import serving
from tests.reconcile.fleet_rows import dev_server, register

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]


def enrol(fleet: SmallFleet, server: DevServer, **changes: object) -> Cluster:
    wish: dict[str, object] = {
        "slug": "gpu-east",
        "name": "East",
        "role": "worker",
        "mode": "portal",
        "kubeconfig": server.kubeconfig,
    }
    return services.register_cluster(fleet.admin, **{**wish, **changes})


def codes(rejected: pytest.ExceptionInfo[Rejected]) -> set[str]:
    return {fault.code for fault in rejected.value.faults}


def test_registered_cluster_is_sealed_examined_and_audited(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east)
    assert b"token" not in bytes(cluster.kubeconfig_sealed)
    assert "gpu-east" in unseal(cluster.kubeconfig_sealed)
    assert (cluster.server, cluster.user_kind) == (east.url, "bearer token")
    states = {row["name"]: row["state"] for row in cluster.preflight["rows"]}
    assert states["Reachable"] == states["Rights"] == states["Kueue's API"] == "ok"
    assert cluster.preflight["modes_on_offer"] == ["portal"]
    assert cluster.health.reachable
    assert cluster.multikueue_token_expires_at is not None
    assert AuditEntry.objects.get(action="cluster.register").cluster == "gpu-east"
    assert Operation.objects.get(kind="first_sync").subject == "cluster:gpu-east"


def test_the_proof_leaves_nothing_behind(
    fleet: SmallFleet, east: DevServer, kube: KubeClient
) -> None:
    enrol(fleet, east)
    assert kube.list(r.CLUSTER_QUEUE).items == []


def test_only_an_admin_registers(fleet: SmallFleet, east: DevServer) -> None:
    with pytest.raises(NotAllowed):
        services.register_cluster(
            fleet.owner,
            slug="x",
            name="X",
            role="worker",
            mode="portal",
            kubeconfig=east.kubeconfig,
        )
    assert not Cluster.objects.exists()


def test_all_faults_are_told_at_once(fleet: SmallFleet, east: DevServer) -> None:
    document = json.loads(east.kubeconfig)
    document["users"][0]["user"] = {"exec": {"command": "rm"}}
    with pytest.raises(Rejected) as rejected:
        enrol(fleet, east, slug="No Good", name="", kubeconfig=json.dumps(document))
    assert {fault.field for fault in rejected.value.faults} == {"slug", "name", "kubeconfig"}
    assert not Cluster.objects.exists()


def test_cluster_that_cannot_be_reached_is_refused(fleet: SmallFleet) -> None:
    with dev_server("gone") as server:
        text = server.kubeconfig
    with pytest.raises(Rejected) as rejected:
        services.register_cluster(
            fleet.admin, slug="gone", name="Gone", role="worker", mode="portal", kubeconfig=text
        )
    assert codes(rejected) == {"unreachable"}


def test_portal_mode_is_refused_while_somebody_serves_queues(
    fleet: SmallFleet, east: DevServer
) -> None:
    with serving(east.kubeconfig), pytest.raises(Rejected) as rejected:
        enrol(fleet, east)
    assert codes(rejected) == {"not_offered"}
    assert "kueue" in rejected.value.faults[0].message


def test_kueue_mode_needs_a_live_kueue(fleet: SmallFleet, east: DevServer) -> None:
    with pytest.raises(Rejected) as rejected:
        enrol(fleet, east, mode="kueue")
    assert codes(rejected) == {"not_offered"}
    with serving(east.kubeconfig):
        assert enrol(fleet, east, mode="kueue").mode == "kueue"


def test_another_portal_that_writes_the_condition_is_no_kueue(
    fleet: SmallFleet, east: DevServer
) -> None:
    with serving(east.kubeconfig, manager="gpu-budget-portal"):
        assert enrol(fleet, east).mode == "portal"


@pytest.mark.parametrize(
    ("manager_mode", "worker_mode", "is_fine"),
    [
        pytest.param("kueue", "portal", False, id="a manager's Kueue needs workers with Kueue"),
        pytest.param("portal", "portal", True, id="the portal on both"),
        pytest.param("portal", "kueue", True, id="the portal over workers with Kueue"),
    ],
)
def test_matrix_of_modes(
    fleet: SmallFleet, east: DevServer, manager_mode: str, worker_mode: str, is_fine: bool
) -> None:
    register("manager", east.kubeconfig, role="manager", mode=manager_mode)

    def attempt() -> Cluster:
        if worker_mode == "kueue":
            with serving(east.kubeconfig):
                return enrol(fleet, east, mode="kueue")
        return enrol(fleet, east)

    if is_fine:
        assert attempt().mode == worker_mode
    else:
        with pytest.raises(Rejected) as rejected:
            attempt()
        assert codes(rejected) == {"matrix"}


def test_there_is_one_manager(fleet: SmallFleet, east: DevServer) -> None:
    register("manager", east.kubeconfig, role="manager", mode="portal")
    with pytest.raises(Rejected) as rejected:
        enrol(fleet, east, slug="second", role="manager")
    assert "one_manager" in codes(rejected)


def test_missing_rights_are_shown_one_by_one(fleet: SmallFleet) -> None:
    denied = Denial(verbs=("delete",), resources=("clusterqueues",), user="devcluster-admin")
    with dev_server("gpu-east", denials=(denied,)) as server:
        cluster = enrol(fleet, server)
    row = next(row for row in cluster.preflight["rows"] if row["state"] == "fault")
    assert row["name"] == "Right: clusterqueues"
    assert "delete" in row["found"]


def test_rotation_keeps_the_cluster_and_replaces_the_credential(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east)
    before, generation = bytes(cluster.kubeconfig_sealed), cluster.generation
    services.rotate_kubeconfig(fleet.admin, cluster=cluster, kubeconfig=east.kubeconfig)
    cluster.refresh_from_db()
    assert bytes(cluster.kubeconfig_sealed) != before
    assert cluster.generation > generation
    assert AuditEntry.objects.filter(action="cluster.rotate").exists()


def test_mode_changes_only_with_writing_stopped_and_the_proof(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east)
    with pytest.raises(Rejected) as rejected:
        services.set_mode(fleet.admin, cluster=cluster, mode="kueue", reason="Kueue is here")
    assert codes(rejected) == {"writes_on"}
    cluster = services.set_writes_enabled(
        fleet.admin, cluster=cluster, enabled=False, reason="changing over"
    )
    with pytest.raises(Rejected) as rejected:
        services.set_mode(fleet.admin, cluster=cluster, mode="kueue", reason="Kueue is here")
    assert codes(rejected) == {"proof"}
    with serving(east.kubeconfig):
        cluster = services.set_mode(
            fleet.admin, cluster=cluster, mode="kueue", reason="Kueue is here"
        )
    assert cluster.mode == "kueue"


def test_switches_need_reasons_and_are_audited(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    with pytest.raises(Rejected):
        services.set_writes_enabled(fleet.admin, cluster=cluster, enabled=False)
    services.set_drift_policy(fleet.admin, cluster=cluster, policy="keep")
    with pytest.raises(Rejected):
        services.set_drift_policy(fleet.admin, cluster=cluster, policy="whatever")
    entry = AuditEntry.objects.get(action="cluster.drift_policy")
    assert (entry.before, entry.after) == (
        {"drift_policy": "restore"},
        {"drift_policy": "keep"},
    )


def test_policies_trust_whom_an_admin_lists(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    operator = "jobset-system/jobset-controller-manager"
    before = selectors.generated_rights(fleet.admin, cluster.slug)
    services.set_operators(fleet.admin, cluster=cluster, operators=[operator, operator])
    services.set_gpu_namespaces(fleet.admin, cluster=cluster, namespaces=["gpu-operator"])
    cluster.refresh_from_db()
    assert (cluster.operators, cluster.gpu_namespaces) == ([operator], ["gpu-operator"])
    after = selectors.generated_rights(fleet.admin, cluster.slug)
    user = "system:serviceaccount:jobset-system:jobset-controller-manager"
    for text in (user, "gpus-in-workspaces-only", "- gpu-operator"):
        assert (text in before, text in after) == (False, True)
    actions = ("cluster.operators", "cluster.gpu_namespaces")
    assert AuditEntry.objects.filter(action__in=actions).count() == 2


def test_lists_of_policies_hold_names_and_not_too_many(fleet: SmallFleet, east: DevServer) -> None:
    cluster = enrol(fleet, east)
    with pytest.raises(Rejected) as rejected:
        services.set_operators(fleet.admin, cluster=cluster, operators=["a/b", "nobody", 'x/"y'])
    assert len(rejected.value.faults) == 2
    for names in (["*"], [f"n{number}" for number in range(101)]):
        with pytest.raises(Rejected):
            services.set_gpu_namespaces(fleet.admin, cluster=cluster, namespaces=names)
    with pytest.raises(NotAllowed):
        services.set_operators(fleet.owner, cluster=cluster, operators=["a/b"])


def test_kueue_configuration_is_read_from_text_and_checked(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east, kueue_configuration="fairSharing: {enable: true}")
    assert cluster.kueue_configuration == {"fairSharing": {"enable": True}}
    with pytest.raises(Rejected):
        services.set_kueue_configuration(
            fleet.admin,
            cluster=cluster,
            configuration="fairSharing: {preemptionStrategies: [Sometimes]}",
        )


def test_manager_with_workers_stays(fleet: SmallFleet, east: DevServer) -> None:
    manager = register("manager", east.kubeconfig, role="manager", mode="portal")
    worker = enrol(fleet, east)
    with pytest.raises(Rejected) as rejected:
        services.deregister_cluster(fleet.admin, cluster=manager, reason="over")
    assert codes(rejected) == {"has_workers"}
    services.deregister_cluster(fleet.admin, cluster=worker, reason="lost", abandon=True)
    worker.refresh_from_db()
    assert (worker.state, bytes(worker.kubeconfig_sealed)) == ("removed", b"")
    assert not Capacity.objects.filter(cluster="gpu-east", valid_until=None).exists()
    services.deregister_cluster(fleet.admin, cluster=manager, reason="over")
    manager.refresh_from_db()
    assert manager.state == "draining"


def test_preflight_of_a_registered_cluster_shows_progress(
    fleet: SmallFleet, east: DevServer
) -> None:
    cluster = enrol(fleet, east)
    operation = services.start_preflight(fleet.admin, cluster=cluster)
    table = services.run_preflight(fleet.admin, cluster=cluster, operation_id=operation.pk)
    operation.refresh_from_db()
    assert operation.state == Operation.State.DONE
    assert operation.done == operation.total == 6
    assert table.is_reachable


def test_health_is_written_for_clusters_without_a_shift(fleet: SmallFleet, east: DevServer) -> None:
    cluster = register("gpu-east", east.kubeconfig)
    assert services.check_health() == {"gpu-east": True}
    east.cluster.faults.is_refusing = True
    assert services.check_health() == {"gpu-east": False}
    cluster.health.refresh_from_db()
    assert not cluster.health.reachable
    assert cluster.health.lost_since is not None


def test_contexts_are_listed_with_what_speaks_against_them(
    fleet: SmallFleet, east: DevServer
) -> None:
    document = json.loads(east.kubeconfig)
    document["contexts"].append({"name": "other", "context": {"cluster": "none", "user": "none"}})
    report = services.inspect_kubeconfig(json.dumps(document))
    assert [(row.name, not row.faults) for row in report.contexts] == [
        ("gpu-east", True),
        ("other", False),
    ]
    assert services.inspect_kubeconfig("{").faults != ()


def test_kubeconfig_files_come_from_one_folder_only(
    fleet: SmallFleet, east: DevServer, tmp_path, settings
) -> None:
    (tmp_path / "a.kubeconfig").write_text(east.kubeconfig)
    (tmp_path.parent / "b.kubeconfig").write_text("secret")
    with pytest.raises(Rejected):
        services.kubeconfig_from_file(fleet.admin, name="a.kubeconfig")
    settings.PORTAL_KUBECONFIG_FOLDER = str(tmp_path)
    assert services.kubeconfig_from_file(fleet.admin, name="a.kubeconfig") == east.kubeconfig
    for name in ("../b.kubeconfig", "missing.kubeconfig", str(tmp_path.parent / "b.kubeconfig")):
        with pytest.raises(Rejected):
            services.kubeconfig_from_file(fleet.admin, name=name)
