"""Clusters over the API: who may, what comes in, and that no credential ever comes out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import yaml
from django.db import connection, transaction
from django.urls import reverse
from django.urls.converters import UUIDConverter

from budgets import services
from budgets.models import ApiToken, AuditEntry, Operation, User
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.models import Cluster
from clusters.vault import unseal
from portal.api.clusters import SettingsInput
from portal.api.urls import urlpatterns
from portal.cluster_changes import SETTINGS
from tests.api.conftest import ROLES, People, client_of
from tests.api.rows import OTHER_SECRET, SECRET, add_cluster, add_workload, kubeconfig


@pytest.fixture
def clustered(people: People) -> People:
    """A manager and a worker with jobs of two accounts."""
    manager = add_cluster("hub", role="manager")
    add_cluster("gpu-east")
    for index in range(3):
        add_workload(manager, "acme-vision", f"train-{index}")
    add_workload(manager, "globex-search", "crawl-search")
    return people


@pytest.fixture
def dev() -> Iterator[DevServer]:
    with DevServer(DevCluster(ClusterOptions(name="dev"))) as server:
        yield server


PLATFORM = {"admin", "finance", "auditor"}
VISION = PLATFORM | {"owner", "account_owner", "viewer"}


@pytest.mark.parametrize(
    ("method", "path", "body", "want"),
    [
        ("GET", "clusters", None, dict.fromkeys(PLATFORM, 200)),
        ("GET", "clusters/hub", None, dict.fromkeys(PLATFORM, 200)),
        ("GET", "clusters/hub/rights", None, dict.fromkeys(PLATFORM, 200)),
        ("POST", "clusters", {"kubeconfig": "x"}, {"admin": 422}),
        ("POST", "cluster-inspection", {"kubeconfig": kubeconfig()}, {"admin": 200}),
        ("PUT", "clusters/hub/kubeconfig", {"kubeconfig": "x"}, {"admin": 422}),
        ("PATCH", "clusters/hub/settings", {"name": "Hub 2"}, {"admin": 200}),
        ("POST", "clusters/hub/resolve", {"keep": "cluster", "reason": "r"}, {"admin": 422}),
        ("POST", "clusters/gpu-east/deregister", {"reason": "r"}, {"admin": 202}),
        ("POST", "clusters/hub/token", {}, {"admin": 422}),
        ("POST", "clusters/hub/role", {"role": "single"}, {"admin": 422}),
        ("GET", "workspaces/acme-vision/now", None, dict.fromkeys(VISION, 200)),
        ("GET", "workloads/hub/uid-train-0", None, dict.fromkeys(VISION, 200)),
        ("GET", "workloads", None, dict.fromkeys(set(ROLES) - {"anonymous"}, 200)),
    ],
)
def test_every_role_gets_what_its_role_allows(clustered, method, path, body, want):
    is_listed = path in ("clusters", "cluster-inspection") or path.startswith("clusters/")
    found = {}
    for role in ROLES:
        with transaction.atomic():
            found[role] = clustered.send(role, method, path, body).status_code
            transaction.set_rollback(True)
    is_hidden = method == "GET" and path != "clusters"
    others = 403 if is_listed and not is_hidden else 404
    assert found == {role: want.get(role, others) for role in ROLES} | {"anonymous": 401}


def test_a_role_is_shown_before_it_is_changed_and_refused_with_the_way_out(clustered):
    single = add_cluster("lab", role="single")
    shown = clustered.send("admin", "POST", "clusters/gpu-east/role", {"role": "manager"})
    assert shown.status_code == 422
    assert "is a worker" in shown.json()["faults"][0]["message"]
    Cluster.objects.filter(slug="hub").delete()
    shown = clustered.send("admin", "POST", "clusters/lab/role", {"role": "manager_runs_jobs"})
    assert shown.status_code == 200
    [place] = [row for row in shown.json() if row["cluster"] == "lab"]
    assert {"AdmissionCheck", "ClusterQueue", "LocalQueue"} <= {
        row["kind"] for row in place["changes"]
    }
    wish = {"role": "manager", "reason": "grow"}
    answer = clustered.send("admin", "PATCH", "clusters/lab/settings", wish)
    assert answer.status_code == 422, "it does not answer"
    single.refresh_from_db()
    assert single.is_single


def secrets_of_everybody() -> list[str]:
    """Everything that must never leave: credentials sealed and open, digests, hashes."""
    found = [SECRET, OTHER_SECRET, "kubeconfig_sealed"]
    for cluster in Cluster.objects.all():
        for sealed in (cluster.kubeconfig_sealed, cluster.multikueue_kubeconfig_sealed):
            found += [bytes(sealed).decode(), base64.b64encode(bytes(sealed)).decode()]
    found += list(ApiToken.objects.values_list("digest", flat=True))
    found += [hashed for hashed in User.objects.values_list("password", flat=True) if hashed]
    return found


def test_no_get_answer_holds_a_secret(clustered):
    services.start_operation(clustered.fleet.admin, kind="preflight", subject="cluster:hub")
    clustered.fleet.revise(clustered.fleet.vision, actor=clustered.fleet.admin)
    known = {
        "namespace": "acme-vision",
        "number": 1,
        "other": 1,
        "username": "olga",
        "account": "acme",
        "uid": "uid-train-0",
        "name": "2026-03",
    }
    seen = 0
    for pattern in urlpatterns:
        if pattern.name in ("nowhere", "schema"):
            continue
        names = pattern.pattern.converters
        values = {name: known.get(name) for name in names}
        if "pk" in values:
            is_uuid = isinstance(names["pk"], UUIDConverter)
            values["pk"] = Operation.objects.get().pk if is_uuid else 1
        if "slug" in values:
            values["slug"] = {"acc": "acme", "fla": "h100"}.get(pattern.name[:3], "hub")
        answer = clustered.send("admin", "GET", reverse(f"api:{pattern.name}", kwargs=values))
        assert answer.status_code in (200, 404, 405) or (
            pattern.name == "usage-groups" and answer.status_code == 422  # it wants a label
        ), pattern.name
        text = b"".join(answer).decode()
        assert [secret for secret in secrets_of_everybody() if secret in text] == [], pattern.name
        seen += answer.status_code == 200
    assert seen >= 28


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(kubeconfig(exec={"command": SECRET}), id="exec plugin"),
        pytest.param(kubeconfig(server="http://10.0.0.1:6443"), id="plain HTTP"),
        pytest.param(kubeconfig(tokenFile=f"/etc/{SECRET}"), id="file path"),
        pytest.param(f"{{{SECRET}", id="no YAML"),
        pytest.param(f"token: {SECRET}", id="no kubeconfig"),
    ],
)
def test_refused_kubeconfig_is_explained_and_not_quoted(people, text):
    body = {"slug": "c", "name": "C", "role": "worker", "mode": "portal", "kubeconfig": text}
    answer = people.send("admin", "POST", "clusters", body)
    assert answer.status_code == 422
    assert {fault["field"] for fault in answer.json()["faults"]} == {"kubeconfig"}
    assert SECRET not in answer.content.decode()
    report = people.send("admin", "POST", "cluster-inspection", {"kubeconfig": text})
    assert report.status_code == 200
    assert SECRET not in report.content.decode()
    assert not Cluster.objects.exists()


def test_cluster_that_does_not_answer_is_not_registered(people):
    body = {"slug": "c", "name": "C", "role": "worker", "mode": "portal"}
    answer = people.send("admin", "POST", "clusters", body | {"kubeconfig": kubeconfig()})
    assert answer.status_code == 422
    assert [fault["code"] for fault in answer.json()["faults"]] == ["unreachable"]
    assert SECRET not in answer.content.decode()
    assert not Cluster.objects.exists()


def test_kubeconfig_is_never_in_the_text_of_a_fault_about_its_shape(people):
    for body in ({"kubeconfig": [SECRET]}, {"kubeconfig": {"token": SECRET}}):
        answer = people.send("admin", "POST", "cluster-inspection", body)
        assert answer.status_code == 422
        assert SECRET not in answer.content.decode()


@pytest.mark.embedded
def test_cluster_is_registered_examined_switched_and_let_go(people, dev, settings, caplog):
    settings.KUEUE_PROOF_SECONDS = 0.3
    token = yaml.safe_load(dev.kubeconfig)["users"][0]["user"]["token"]
    body = {"slug": "dev", "name": "Dev", "role": "worker", "mode": "portal"}
    made = people.send("admin", "POST", "clusters", body | {"kubeconfig": dev.kubeconfig})
    assert made.status_code == 201, made.json()
    detail = made.json()
    assert detail["row"]["slug"] == "dev"
    assert detail["preflight"]["rows"]
    assert token in unseal(Cluster.objects.get().kubeconfig_sealed)

    renewed = people.send("admin", "PUT", "clusters/dev/kubeconfig", {"kubeconfig": dev.kubeconfig})
    assert renewed.status_code == 200
    two = {"writes_enabled": False, "drift_policy": "keep", "reason": "r"}
    refused = people.send("admin", "PATCH", "clusters/dev/settings", two)
    assert refused.json()["faults"][0]["code"] == "one_at_a_time"
    silent = people.send("admin", "PATCH", "clusters/dev/settings", {"writes_enabled": False})
    assert [fault["field"] for fault in silent.json()["faults"]] == ["reason"]
    stopped = people.send(
        "admin", "PATCH", "clusters/dev/settings", {"writes_enabled": False, "reason": "freeze"}
    )
    assert stopped.json()["row"]["writes_enabled"] is False
    kept = people.send("admin", "PATCH", "clusters/dev/settings", {"drift_policy": "keep"})
    assert kept.json()["drift_policy"] == "keep"
    for name, value in (
        ("operators", ["ray/operator"]),
        ("gpu_namespaces", []),
    ):
        listed = people.send("admin", "PATCH", "clusters/dev/settings", {name: value})
        assert listed.json()[name] == value
    open_ = people.send("admin", "PATCH", "clusters/dev/settings", {"gpu_namespaces": None})
    assert open_.json()["gpu_namespaces"] is None

    gone = people.send("admin", "POST", "clusters/dev/deregister", {"reason": "over"})
    assert gone.status_code == 202
    assert gone.json()["state"] == "draining"
    answers = (made, renewed, stopped, kept, gone)
    assert not any(token in answer.content.decode() for answer in answers)
    log = json.dumps(list(AuditEntry.objects.values("before", "after", "reason")))
    assert token not in log
    assert token not in caplog.text


def test_preflight_answers_with_an_operation_to_follow(clustered, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "clusters.broker.current_app.send_task",
        lambda name, **options: sent.append(options),
    )
    answer = clustered.send("admin", "POST", "clusters/gpu-east/preflight")
    assert answer.status_code == 202
    operation = clustered.send("admin", "GET", answer.headers["Location"]).json()
    assert (operation["state"], operation["subject"]) == ("running", "cluster:gpu-east")
    assert sent[0]["args"] == ("gpu-east", operation["id"])


def test_cluster_that_is_not_there_is_404(clustered):
    for method, path, body in (
        ("GET", "clusters/nix", None),
        ("GET", "clusters/nix/rights", None),
        ("PATCH", "clusters/nix/settings", {"name": "x"}),
        ("POST", "clusters/nix/deregister", {"reason": "r"}),
    ):
        assert clustered.send("admin", method, path, body).status_code == 404, path


def test_workloads_are_paged_filtered_and_isolated(clustered):
    def names(query: str, role: str = "owner") -> list[str]:
        answer = clustered.send(role, "GET", f"workloads?{query}")
        assert answer.status_code == 200
        return [row["name"] for row in answer.json()["results"]]

    assert names("") == ["train-0", "train-1", "train-2"]
    assert names("", "stranger") == ["crawl-search"]
    assert names("workspace=globex-search") == []
    assert names("text=crawl") == []
    assert names("text=TRAIN-1") == ["train-1"]
    assert names("phase=running") == []
    assert names("sort=created") == ["train-2", "train-1", "train-0"]
    first = clustered.send("owner", "GET", "workloads?limit=2").json()
    second = clustered.send("owner", "GET", first["next"]).json()
    assert [row["name"] for row in first["results"] + second["results"]] == names("")
    assert second["next"] is None
    foreign = clustered.send("stranger", "GET", first["next"]).json()
    assert [row["name"] for row in foreign["results"]] == ["crawl-search"]
    assert clustered.send("owner", "GET", "workloads/hub/uid-crawl-search").status_code == 404


@pytest.mark.parametrize(
    "content",
    [
        '["-created", "9999-12-31T23:59:59-14:00", 1]',
        '["-created", "2026-01-01T00:00:00+00:00", Infinity]',
        '["-created", "2026-01-01T00:00:00", 1]',
        '["-gpus", 1, 1]',
        "[" * 200,
        "{}",
        "null",
    ],
)
def test_made_up_cursor_of_workloads_is_a_fault(clustered, content):
    cursor = base64.urlsafe_b64encode(content.encode()).decode()
    answer = clustered.send("owner", "GET", f"workloads?cursor={cursor}")
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == ["cursor"]


def test_bad_phase_and_sort_are_faults(clustered):
    for query, field in (("phase=dreaming", "phase"), ("sort=colour", "sort")):
        answer = clustered.send("owner", "GET", f"workloads?{query}")
        assert [fault["field"] for fault in answer.json()["faults"]] == [field]


@pytest.mark.parametrize(
    "path", ["clusters", "clusters/hub", "workloads", "workspaces/acme-vision/now"]
)
def test_queries_do_not_grow_with_clusters_and_jobs(clustered, path, django_assert_max_num_queries):
    client = client_of(clustered.fleet.admin)
    address = f"/api/v1/{path}"
    assert client.get(address).status_code == 200
    with django_assert_max_num_queries(20) as few:
        client.get(address)
    hub = Cluster.objects.get(slug="hub")
    for index in range(3):
        add_cluster(f"more-{index}")
        add_workload(hub, "acme-vision", f"late-{index}")
    per_cluster = 3 if path.endswith("now") else 0
    with django_assert_max_num_queries(len(few) + per_cluster) as many:
        client.get(address)
    assert len(many) <= len(few) + per_cluster
    assert connection.vendor


def test_every_setting_of_the_body_is_a_row_of_the_table_of_changes():
    assert SettingsInput().fields.keys() - {"reason"} == SETTINGS.keys()
