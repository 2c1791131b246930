"""The chart as the real Helm sees it: checked, rendered, and installed on a real API server.

The API server enforces Pod Security *restricted* there; a real kube-scheduler gives pods their
nodes and kwok plays them, the Job before each install and upgrade too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import RELEASE, ROOT, VALUES, Helm, HelmError
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fixtures import require_parts
from tests.controlplane.kwok_nodes import NodeShape
from tests.controlplane.rest import ApiError, Document
from tests.golden import assert_golden
from tests.waiting import eventually

pytestmark = pytest.mark.controlplane
SMALL, FULL, OWN = (VALUES / f"{name}.yaml" for name in ("small", "full", "own"))
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
NGINX = re.compile(r"^  nginx\.conf: \|\n(?:    .*\n|\n)*", re.M)
WORKLOADS = {"web", "tasks", "shifts", "beat", "migration"}
# What each kind of object of the Prometheus Operator is; their schemas are the operator's own.
MONITORING = {
    "ServiceMonitor": "servicemonitors",
    "PodMonitor": "podmonitors",
    "PrometheusRule": "prometheusrules",
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    require_parts(("helm",))
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def small(helm: Helm) -> list[Document]:
    return helm.documents(SMALL)


@pytest.fixture(scope="module")
def full(helm: Helm) -> list[Document]:
    return helm.documents(FULL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with the controllers of Deployments and Jobs, kube-scheduler and kwok."""
    require_parts(("etcd", "kubernetes", "kwok", "helm"))
    plane = ControlPlane("chart", tmp_path_factory.mktemp("chart"))
    plane.start(crds=False, controllers=("deployment", "replicaset"))
    try:
        for kind, plural in MONITORING.items():
            plane.rest.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(kind))
            path = f"/apis/monitoring.coreos.com/v1/{plural}"
            eventually(lambda path=path: plane.rest.exists(path))
        plane.create_nodes(2, shape=NodeShape(gpus=0))
        plane.play_pods()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def namespace(cluster: ControlPlane, unique_name: Callable[[str], str]) -> str:
    """One that enforces Pod Security, with a volume for exports."""
    name = unique_name("gpu")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    make_volume(cluster, name)
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    eventually(lambda: cluster.rest.exists(f"{accounts}/default"))
    return name


def crd(kind: str) -> Document:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    plural = MONITORING[kind]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
        },
    }


def make_volume(cluster: ControlPlane, namespace: str) -> None:
    """A claim that is bound already: no controller of volumes runs here."""
    size = {"storage": "10Gi"}
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    volume = {
        "metadata": {"name": namespace},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": "/exports"},
            "claimRef": {"namespace": namespace, "name": "exports"},
        },
    }
    cluster.rest.create("/api/v1/persistentvolumes", volume)
    claim = {
        "metadata": {
            "name": "exports",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeName": namespace,
            "storageClassName": "",
            "resources": {"requests": size},
        },
    }
    cluster.rest.create(claims, claim)
    cluster.rest.merge(f"{claims}/exports/status", {"status": {"phase": "Bound"}})


def pods_of(documents: list[Document]) -> dict[str, Document]:
    """Component → its pod's spec."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"]
        for each in documents
        if each["kind"] in ("Deployment", "Job")
    }


def container_of(documents: list[Document], component: str) -> Document:
    found: Document = next(
        each for each in pods_of(documents)[component]["containers"] if each["name"] == component
    )
    return found


# Rendered


@pytest.mark.parametrize("values", [SMALL, FULL, OWN], ids=lambda path: path.stem)
def test_chart_passes_the_strict_lint(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.lint(values)


@pytest.mark.parametrize("values", [SMALL, FULL, OWN], ids=lambda path: path.stem)
def test_chart_renders_as_it_was_read(helm: Helm, values: Path) -> None:
    text = helm.template(values)
    assert_golden(f"chart/{values.stem}.yaml", NGINX.sub("  nginx.conf: the product's\n", text))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ("host=", "host is empty"),
        ("image.repository=", "image.repository is empty"),
        ("secrets.name=", "secrets.name is empty"),
        ("migration.secret=", "migration.secret is empty"),
        ("web.replica=3", "replica"),
        ("settings.PORTAL_SECRET_KEY=shown-to-everybody", "PORTAL_SECRET_KEY"),
        ("settings.DATABASE_URL=shown-to-everybody", "DATABASE_URL"),
        ("shifts.slots=many", "slots"),
        ("ownCluster.mode=both", "mode"),
        ("ownCluster.kinds={job}", "kinds"),
        ("ownCluster.address=http://gpu.example.com", "address"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(helm: Helm, values: str, want: str) -> None:
    with pytest.raises(HelmError, match=want) as refused:
        helm.template(SMALL, "--set", values)
    assert "shown-to-everybody" not in str(refused.value)


def test_nginx_is_the_products_and_asks_the_web_beside_it(small: list[Document]) -> None:
    text = next(
        each["data"]["nginx.conf"] for each in small if "nginx.conf" in each.get("data", {})
    )
    want = (ROOT / "portal" / "nginx.conf").read_text()
    for there, here in (("listen 8000;", "listen 8080;"), ("//web:8000", "//127.0.0.1:8000")):
        assert want.count(there) == 1
        want = want.replace(there, here)
    assert text == want


def test_processes_are_started_as_compose_starts_them(small: list[Document]) -> None:
    for component, service in (("tasks", "worker"), ("beat", "beat")):
        assert container_of(small, component)["command"] == SERVICES[service]["command"]
    slots = [
        part.replace("${PORTAL_SHIFT_SLOTS:-24}", "24") for part in SERVICES["shifts"]["command"]
    ]
    assert container_of(small, "shifts")["command"] == slots
    migrate = f"python manage.py check_settings && {SERVICES['migrate']['command'][-1]}"
    assert container_of(small, "migration")["command"][-1] == migrate
    assert "command" not in container_of(small, "web"), "as the image says"


def test_nobody_but_the_migration_is_the_owner_of_the_tables(
    small: list[Document], full: list[Document]
) -> None:
    for documents, want in ((small, "portal"), (full, "database")):
        assert set(pods_of(documents)) == WORKLOADS
        of = {name: _reference(container_of(documents, name)) for name in WORKLOADS}
        assert of.pop("migration") == "portal-owner"
        assert set(of.values()) == {want}
        told = {name for name, pod in pods_of(documents).items() if "portal-owner" in str(pod)}
        assert told == {"migration"}


def _reference(container: Document) -> str:
    found = next(each for each in container["env"] if each["name"] == "DATABASE_URL")
    name: str = found["valueFrom"]["secretKeyRef"]["name"]
    return name


def test_secrets_come_by_reference_alone(full: list[Document]) -> None:
    assert "Secret" not in {each["kind"] for each in full}
    for component in WORKLOADS:
        by_value = {
            each["name"] for each in container_of(full, component)["env"] if "value" in each
        }
        assert not by_value & {"PORTAL_SECRET_KEY", "PORTAL_METRICS_TOKEN", "CELERY_BROKER_URL"}


def test_rules_and_boards_are_the_products(helm: Helm) -> None:
    documents = helm.documents(FULL, "--set", "metrics.rules=true,metrics.boards=true")
    rules = next(each for each in documents if each["kind"] == "PrometheusRule")
    files = ROOT / "chart" / "files"
    assert rules["spec"] == yaml.safe_load((files / "alerts.yaml").read_text())
    boards = {
        name: text
        for each in documents
        if each["metadata"]["labels"].get("grafana_dashboard")
        for name, text in each["data"].items()
    }
    assert boards == {path.name: path.read_text() for path in (files / "boards").iterdir()}


def test_token_of_the_cluster_is_in_the_containers_that_ask_clusters_and_in_no_other(
    helm: Helm, full: list[Document]
) -> None:
    own = helm.documents(OWN)
    assert set(pods_of(own)) == {*WORKLOADS, "registration"}
    have = {
        container["name"]
        for pod in pods_of(own).values()
        for container in pod["containers"]
        if any(each["name"] == "own-account" for each in container.get("volumeMounts") or ())
    }
    assert have == {"web", "tasks", "shifts", "registration"}
    for pod in pods_of(own).values():
        assert pod["automountServiceAccountToken"] is False
        given = any(volume["name"] == "own-account" for volume in pod["volumes"])
        assert given is (pod["containers"][0]["name"] in have)
    assert "serviceAccountToken" not in str(full), "nothing is given where it is not asked for"
    assert "rbac.authorization.k8s.io" not in str(full)


def test_job_that_registers_says_what_the_values_say(helm: Helm) -> None:
    command = container_of(helm.documents(OWN), "registration")["command"]
    want = ["--slug=home", "--name=Our own cluster", "--role=manager", "--mode=kueue"]
    assert command == ["python", "manage.py", "register_own_cluster", *want]
    quiet = helm.documents(OWN, "--set", "ownCluster.register=false")
    assert set(pods_of(quiet)) == WORKLOADS


# On a real API server


def test_release_is_installed_upgraded_rolled_back_and_removed(
    helm: Helm, cluster: ControlPlane, namespace: str
) -> None:
    here = Helm(helm.home, cluster.admin_kubeconfig)
    small = ("-f", str(SMALL), "--set", "spool.existingClaim=exports")

    installed = here.change("install", namespace, *small)

    assert installed["info"]["status"] == "deployed"
    assert migrations(installed) == ["Succeeded"]
    pods = cluster.rest.items(f"/api/v1/namespaces/{namespace}/pods")
    assert sorted(components(pods)) == sorted(("beat", "shifts", "tasks", "web") * 2)
    assert all(pod["spec"].get("nodeName") for pod in pods), "kube-scheduler found room for each"
    assert image_of(cluster, namespace) == "registry.example.com/gpu-budget-portal:0.1.0"

    cluster.rest.ensure("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
    switched_on = "metrics.rules=true,metrics.boards=true,ownCluster.enabled=true"
    everything = ("-f", str(FULL), "--set", switched_on)
    plain = ("--set", "nodeSelector=null,priorityClassName=,image.digest=,image.tag=0.2.0")
    upgraded = here.change("upgrade", namespace, *everything, *plain)

    assert (upgraded["version"], migrations(upgraded)) == (2, ["Succeeded"] * 2)
    own_role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{namespace}-portal"
    assert cluster.rest.exists(own_role), "and the cluster is registered, by the second Job"
    assert image_of(cluster, namespace) == "registry.example.com/gpu-budget-portal:0.2.0"
    for plural in MONITORING.values():
        path = f"/apis/monitoring.coreos.com/v1/namespaces/{namespace}/{plural}"
        assert len(cluster.rest.items(path)) == 1
    ingresses = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"
    assert len(cluster.rest.items(ingresses)) == 1

    here.run("rollback", RELEASE, "1", "-n", namespace, "--wait", "--timeout", "4m")

    assert image_of(cluster, namespace) == "registry.example.com/gpu-budget-portal:0.1.0"
    assert cluster.rest.items(ingresses) == []
    assert not cluster.rest.exists(own_role)

    here.run("uninstall", RELEASE, "-n", namespace, "--wait", "--timeout", "4m")

    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert cluster.rest.items(deployments) == []
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    assert [each["metadata"]["name"] for each in cluster.rest.items(claims)] == ["exports"]


def migrations(release: Document) -> list[str]:
    """How the Jobs before and after this revision ended."""
    return [hook["last_run"]["phase"] for hook in release["hooks"]]


def components(pods: list[Document]) -> list[str]:
    return [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods]


def image_of(cluster: ControlPlane, namespace: str) -> str:
    web = cluster.rest.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/portal-web")
    found: str = web["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


GUARDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "runAsNonRoot": lambda pod: pod["securityContext"].pop("runAsNonRoot"),
    "seccompProfile": lambda pod: pod["securityContext"].pop("seccompProfile"),
    "allowPrivilegeEscalation": lambda pod: pod["containers"][0]["securityContext"].pop(
        "allowPrivilegeEscalation"
    ),
    "capabilities": lambda pod: pod["containers"][0]["securityContext"].pop("capabilities"),
}


@pytest.mark.parametrize("component", sorted(WORKLOADS))
def test_pods_pass_pod_security_restricted_and_not_without_one_guard(
    cluster: ControlPlane, namespace: str, full: list[Document], component: str
) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.rest.create(accounts, {"metadata": {"name": "portal"}})
    pod = pods_of(full)[component]
    pod = {key: value for key, value in pod.items() if key != "priorityClassName"}

    submit(cluster, namespace, pod)

    for guard, take_out in GUARDS.items():
        weaker = copy.deepcopy(pod)
        take_out(weaker)
        with pytest.raises(ApiError, match=guard) as refused:
            submit(cluster, namespace, weaker)
        assert refused.value.status == 403
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in pod["containers"])


def submit(cluster: ControlPlane, namespace: str, pod: Document) -> None:
    """As the API server would take it; nothing is stored."""
    body = {"metadata": {"name": "tried"}, "spec": pod}
    cluster.rest.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
