"""The chart on a real API server: the portal registers the cluster that it runs on.

Helm gives the rights; what kubelet would mount is written by hand, with real tokens.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from django.core.management import call_command

from budgets import services as promises
from clusters.manifests.rbac import questions
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.models import Cluster, ShiftRun
from clusters.reconcile.shift import Ending, run_shift
from clusters.selectors.places import post_of
from clusters.vault import OWN_ACCOUNT
from tests.builders import line, small_fleet
from tests.chart.helm import CHART, RELEASE, VALUES, Helm
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fixtures import require_parts
from tests.controlplane.rest import ApiError, Document
from tests.own_account import OwnFolder
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.controlplane
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SLUG = "gpu-east"
NOTHING_MORE: dict[str, object] = {"workers": [], "kinds": [], "also": []}
Right = tuple[str, str, str, str, str]


@pytest.fixture
def helm(own_cluster: ControlPlane, tmp_path: Path) -> Helm:
    require_parts(("helm",))
    for name in ("kueue-system", "gpu-portal"):
        own_cluster.ensure_namespace(name)
    return Helm(tmp_path, own_cluster.admin_kubeconfig)


def install(helm: Helm, **own: object) -> None:
    """No kubelet is here, so nothing is waited for and no Job is run."""
    given: list[str] = []
    for name, value in own.items():
        given += ("--set-json", f"ownCluster.{name}={json.dumps(value)}")
    files = ("-n", "gpu-portal", "-f", str(VALUES / "own.yaml"))
    helm.run("upgrade", "--install", RELEASE, str(CHART), *files, "--no-hooks", *given)


def rights_of(rest, account: str) -> set[Right]:
    """What is bound to a service account: verb, group, resource, namespace, name."""
    found: set[Right] = set()
    for kind, plural in (("ClusterRole", "clusterroles"), ("Role", "roles")):
        roles = {_key(role): role["rules"] for role in rest.items(f"{RBAC}/{plural}")}
        for binding in rest.items(f"{RBAC}/{plural.removesuffix('s')}bindings"):
            if not any(_is(account, subject) for subject in binding.get("subjects") or ()):
                continue
            assert binding["roleRef"]["kind"] == kind
            namespace = binding["metadata"].get("namespace", "")
            for rule in roles[namespace, binding["roleRef"]["name"]]:
                found |= set(_each(rule, namespace))
    return found


def _key(role: Document) -> tuple[str, str]:
    return role["metadata"].get("namespace", ""), role["metadata"]["name"]


def _is(account: str, subject: Document) -> bool:
    return f"{subject.get('namespace')}/{subject['name']}" == account


def _each(rule: Document, namespace: str) -> Iterable[Right]:
    parts = (rule["verbs"], rule["apiGroups"], rule["resources"])
    for verb, group, resource in product(*parts):
        for name in rule.get("resourceNames") or ("",):
            yield verb, group, resource, namespace, name


def wanted(rules) -> set[Right]:
    return {
        (each.verb, each.group, _whole(each), each.namespace, each.name)
        for each in questions(rules)
    }


def _whole(right) -> str:
    return f"{right.resource}/{right.subresource}" if right.subresource else right.resource


def test_rights_on_the_api_server_are_those_that_the_portal_asks_for(
    helm: Helm, own_cluster: ControlPlane, db: None, settings
) -> None:
    settings.PORTAL_INSTALLATION = "lab"
    for purpose, mode in product(Cluster.Role.values, Cluster.Mode.values):
        install(helm, purpose=purpose, mode=mode, **NOTHING_MORE)
        post = post_of(Cluster(role=purpose, mode=mode))
        assert rights_of(own_cluster.rest, "gpu-portal/portal") == wanted(portal_rules(post))
        theirs = wanted(multikueue_rules()) if purpose == "worker" else set()
        assert rights_of(own_cluster.rest, "kueue-system/multikueue") == theirs
    install(helm, enabled=False)
    assert rights_of(own_cluster.rest, "gpu-portal/portal") == set()


def bound_token(plane: ControlPlane, secret: str) -> str:
    """A token of the portal's pods that ends when a Secret does, as with a pod."""
    secrets = "/api/v1/namespaces/gpu-portal/secrets"
    made = plane.rest.create(secrets, {"metadata": {"name": secret}})
    until = {
        "apiVersion": "v1", "kind": "Secret", "name": secret, "uid": made["metadata"]["uid"],
    }  # fmt: skip
    accounts = "/api/v1/namespaces/gpu-portal/serviceaccounts"
    wish = {"spec": {"expirationSeconds": 600, "boundObjectRef": until}}
    return plane.rest.create(f"{accounts}/portal/token", wish)["status"]["token"]


def is_refused(plane: ControlPlane, token: str) -> bool:
    rest = plane.rest_with_token(token)
    try:
        rest.get("/api/v1/namespaces/kube-system")
    except ApiError as error:
        assert error.status == 401
        return True
    finally:
        rest.close()
    return False


def test_portal_registers_its_own_cluster_and_works_there_while_its_token_is_renewed(
    transactional_db: None,
    helm: Helm,
    own_cluster: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
    settings,
) -> None:
    fleet = small_fleet()
    promises.retire_capacity(None, cluster="gpu-west", reason="There is one cluster.")
    settings.PORTAL_INSTALLATION, settings.KUEUE_PROOF_SECONDS = "lab", 0.5
    install(helm, purpose="single", mode="portal", **NOTHING_MORE)
    authority = own_cluster.authority.pair.certificate.read_text()
    folder = OwnFolder(tmp_path_factory.mktemp("own-account"), authority=authority)
    old = bound_token(own_cluster, "first")
    folder.write(old)
    settings.PORTAL_OWN_CLUSTER_FOLDER = str(folder.place)
    settings.PORTAL_OWN_CLUSTER_ADDRESS = own_cluster.server

    told = StringIO()
    command = ("register_own_cluster", f"--slug={SLUG}", "--mode=portal")
    eventually(lambda: not is_refused(own_cluster, old))
    call_command(*command, stdout=told)

    row = Cluster.objects.get()
    assert f"registered as {SLUG}" in told.getvalue()
    assert bytes(row.kubeconfig_sealed) == OWN_ACCOUNT
    assert row.context == "system:serviceaccount:gpu-portal:portal"
    states = {each["name"]: each["state"] for each in row.preflight["rows"]}
    assert states["Rights"] == "ok", row.preflight["rows"]

    stop, outcomes = threading.Event(), []
    shift = threading.Thread(
        target=lambda: outcomes.append(
            run_shift(SLUG, "quota", stop=stop, seconds=10 * PATIENCE_S, holder="a")
        )
    )
    shift.start()
    try:
        quota = _quota_of(own_cluster)
        fleet.revise(fleet.vision, line("h100", 8, 16))
        eventually(lambda: quota() == "8", why=quota)
        begun = ShiftRun.objects.get(role="quota").started_at

        folder.write(bound_token(own_cluster, "second"))
        own_cluster.rest.delete("/api/v1/namespaces/gpu-portal/secrets/first")
        # The API server remembers for ten seconds who had a token.
        eventually(lambda: is_refused(own_cluster, old))

        fleet.revise(fleet.vision, line("h100", 16, 16))
        eventually(lambda: quota() == "16", why=quota)
        now = ShiftRun.objects.get(role="quota")
        assert (now.started_at, now.ended_at) == (begun, None)
    finally:
        stop.set()
        shift.join(PATIENCE_S)
    assert [outcome.ending for outcome in outcomes] == [Ending.STOPPED]
    call_command(*command, stdout=told)
    assert "Nothing to do" in told.getvalue()


def _quota_of(plane: ControlPlane) -> Callable[[], str]:
    """GPUs of acme-vision's ClusterQueue; empty while there is none."""
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/acme-vision"

    def quota() -> str:
        if not plane.rest.exists(path):
            return ""
        groups = plane.rest.get(path)["spec"].get("resourceGroups") or ()
        return next(
            (
                str(resource["nominalQuota"])
                for group in groups
                for flavor in group["flavors"]
                for resource in flavor["resources"]
                if (flavor["name"], resource["name"]) == ("h100", "nvidia.com/gpu")
            ),
            "",
        )

    return quota
