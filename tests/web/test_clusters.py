"""Registration, the cluster page and its switches; the real thing behind is an embedded cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from django.test import override_settings
from django.utils import timezone
from django.views.debug import SafeExceptionReporterFilter

from budgets import services
from budgets.models import Operation
from clusters import broker
from clusters import services as enforcement
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.models import Cluster, ClusterHealth, Drift, ObjectState, ShiftRun
from clusters.vault import seal
from portal.cluster_changes import CHANGES
from portal.web.forms import PortalForm
from tests.own_account import USER, OwnFolder
from tests.web.conftest import Visitors

ADDRESS = "/clusters/register/"
NOW = datetime.now(UTC)


@pytest.fixture
def server() -> Iterator[DevServer]:
    with DevServer(DevCluster(ClusterOptions(name="gpu-east"))) as server:
        yield server


@pytest.fixture
def worker(visitors: Visitors) -> Cluster:
    cluster = Cluster.objects.create(
        slug="gpu-east",
        name="GPU east",
        role="worker",
        mode="kueue",
        server="https://gpu-east.invalid",
        context="east",
        user_kind="bearer token",
        kubeconfig_sealed=seal("token: never-shown-4711"),
    )
    ClusterHealth.objects.create(
        cluster=cluster, reachable=True, last_contact_at=datetime.now(UTC), latency_ms=4
    )
    return cluster


def kubeconfig(**user) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "east",
        "clusters": [{"name": "east", "cluster": {"server": "https://gpu-east.example"}}],
        "users": [{"name": "portal", "user": user}],
        "contexts": [{"name": "east", "context": {"cluster": "east", "user": "portal"}}],
    }
    return yaml.safe_dump(document)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            kubeconfig(exec={"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}),
            id="exec plugin",
        ),
        pytest.param(kubeconfig(tokenFile="/var/run/token-4711"), id="file path"),
        pytest.param(kubeconfig(**{"auth-provider": {"name": "gcp"}}), id="auth provider"),
        pytest.param("{not: [yaml-4711", id="no YAML"),
    ],
)
def test_unusable_kubeconfig_is_refused_with_a_sentence(visitors: Visitors, text: str):
    answer = visitors["admin"].post(ADDRESS, {"kubeconfig": text})

    assert answer.status_code == 422
    assert answer.context["form"].errors["kubeconfig"]
    assert Cluster.objects.count() == 0


@pytest.mark.parametrize("address", [ADDRESS, "/clusters/gpu-east/kubeconfig/"])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="by the service"),
        pytest.param({"file_name": "east.yaml", "context": "x" * 300}, id="by the form"),
    ],
)
def test_refused_kubeconfig_is_not_sent_back(visitors: Visitors, worker, address: str, more: dict):
    refused = kubeconfig(token="tok-4711", exec={"command": "aws"})
    answer = visitors["admin"].post(address, {"kubeconfig": refused, **more})

    text = answer.content.decode()
    assert answer.status_code == 422 and 'name="kubeconfig"' in text
    assert "tok-4711" not in text
    assert "no-store" in answer["Cache-Control"]
    reported = SafeExceptionReporterFilter().get_post_parameters(answer.wsgi_request)
    assert set(reported) >= {"kubeconfig"} and "tok-4711" not in str(reported)


def test_no_field_for_a_secret_shows_what_was_typed():
    """Whatever form a page has; a sealed one alone travels in a field that nobody sees."""
    is_secret = re.compile("kubeconfig|password|secret|token|credential").search

    def forms_below(above: type[PortalForm]) -> Iterator[type[PortalForm]]:
        for form in above.__subclasses__():
            yield from (form, *forms_below(form))

    shown = {
        (form.__name__, name): "tok-4711" in field.widget.render(name, "tok-4711")
        for form in forms_below(PortalForm)
        for name, field in form.base_fields.items()
        if is_secret(name)
    }
    want = {("KubeconfigForm", "kubeconfig"), ("SourceForm", "kubeconfig")}
    want |= {("PasswordForm", "password"), ("PasswordForm", "old_password")}
    assert want <= shown.keys() and set(shown.values()) == {False}


def test_nothing_or_two_kubeconfigs_are_refused(visitors: Visitors):
    client = visitors["admin"]

    assert client.post(ADDRESS, {"kubeconfig": ""}).status_code == 422
    both = {"kubeconfig": kubeconfig(token="t"), "file_name": "east.yaml"}
    assert client.post(ADDRESS, both).status_code == 422


def test_kubeconfig_travels_to_the_second_step_only_sealed(visitors: Visitors):
    answer = visitors["admin"].post(ADDRESS, {"kubeconfig": kubeconfig(token="tok-4711")})

    text = answer.content.decode()
    assert answer.status_code == 200 and "east: https://gpu-east.example" in text
    assert "tok-4711" not in text
    assert "no-store" in answer["Cache-Control"]
    held = answer.context["form"]["held"].value()
    assert "tok-4711" in enforcement.held_kubeconfig(None, held=held)


def test_a_changed_seal_begins_again(visitors: Visitors):
    answer = visitors["admin"].post(ADDRESS, {"held": "gAAAA-changed"})

    assert answer.status_code == 422
    assert answer.context["step"] == 1
    assert "give it again" in answer.content.decode()


@override_settings(KUEUE_PROOF_SECONDS=0.2)
@pytest.mark.embedded
def test_registration_ends_at_the_preflight_table(visitors: Visitors, server: DevServer):
    client = visitors["admin"]
    first = client.post(ADDRESS, {"kubeconfig": server.kubeconfig})
    form = first.context["form"]
    values = {name: form[name].value() or "" for name in form.fields}
    values |= {"slug": "gpu-east", "name": "GPU east", "role": "worker", "mode": "portal"}

    faulty = client.post(ADDRESS, {**values, "slug": "Not A Slug"})
    assert faulty.status_code == 422 and "slug" in faulty.context["form"].errors
    done = client.post(ADDRESS, values)

    assert done["Location"] == "/clusters/gpu-east/#preflight"
    text = visitors.text("admin", "/clusters/gpu-east/")
    assert Cluster.objects.get().state == "active"
    assert "Checked" in text
    secrets = [user["user"] for user in yaml.safe_load(server.kubeconfig)["users"]]
    for value in (value for user in secrets for value in user.values()):
        assert value not in text


@override_settings(KUEUE_PROOF_SECONDS=0.2)
@pytest.mark.embedded
def test_this_cluster_is_registered_without_a_kubeconfig(
    visitors: Visitors, server: DevServer, tmp_path: Path
):
    client = visitors["admin"]
    assert "Register this cluster" not in visitors.text("admin", ADDRESS)
    folder = OwnFolder(tmp_path)
    folder.write(server.cluster.access.mint("gpu-portal", "portal", 600)[0])
    with override_settings(
        PORTAL_OWN_CLUSTER_FOLDER=str(tmp_path), PORTAL_OWN_CLUSTER_ADDRESS=server.url
    ):
        assert "Register this cluster" in visitors.text("admin", ADDRESS)
        first = client.post(ADDRESS, {"own": "1"})
        text = first.content.decode()
        assert USER in text and 'name="held"' not in text and 'name="context"' not in text
        values = {"own": "1", "slug": "home", "name": "Home", "role": "single", "mode": "portal"}
        faulty = client.post(ADDRESS, {**values, "slug": "Not A Slug"})
        assert faulty.status_code == 422 and "slug" in faulty.context["form"].errors
        other = client.post(ADDRESS, {**values, "mode": "kueue"})
        assert other.status_code == 422 and not Cluster.objects.exists()
        done = client.post(ADDRESS, values)
        assert done["Location"] == "/clusters/home/#preflight"
        assert Cluster.objects.get().is_own
        assert "Register this cluster" not in visitors.text("admin", ADDRESS)
        assert client.post(ADDRESS, values)["Location"] == ADDRESS
    assert visitors["owner"].post(ADDRESS, values).status_code == 403


def test_this_cluster_is_not_offered_while_a_file_of_it_is_missing(
    visitors: Visitors, tmp_path: Path
):
    with override_settings(PORTAL_OWN_CLUSTER_FOLDER=str(tmp_path)):
        text = visitors.text("admin", ADDRESS)
    assert f"{tmp_path}/token cannot be read" in text
    assert "Register this cluster" not in text


def test_cluster_page_shows_objects_and_drift_but_no_credential(visitors: Visitors, worker):
    now = datetime.now(UTC)
    ObjectState.objects.create(
        cluster=worker,
        kind="ClusterQueue",
        name="acme-vision",
        subject="budget:acme-vision",
        state="drifted",
        changed_at=now,
    )
    Drift.objects.create(
        cluster=worker,
        kind="ClusterQueue",
        name="acme-vision",
        field="spec.stopPolicy",
        wanted="None",
        found="Hold",
        manager="kubectl-edit",
        noticed_at=now,
    )

    text = visitors.text("finance", "/clusters/gpu-east/")

    assert "kubectl-edit" in text and "spec.stopPolicy" in text
    assert "drifted" in text
    assert "never-shown-4711" not in text
    assert "Stop writing" not in text
    assert "Stop writing" in visitors.text("admin", "/clusters/gpu-east/")


def test_a_hand_edit_among_the_changes_says_who_and_which_fields(visitors: Visitors, worker):
    after = {"manager": "kubectl-edit", "fields": ["spec.stopPolicy"], "count": 1}
    services.audit(None, "cluster.hand_edit", "cluster:gpu-east", cluster="gpu-east", after=after)

    text = visitors.text("admin", "/clusters/gpu-east/")

    writes = text[text.index('id="writes"') :]
    assert "kubectl-edit" in writes and "spec.stopPolicy" in writes
    assert "kubectl-edit" in visitors.text("admin", "/audit/?cluster=gpu-east")


@pytest.mark.parametrize("state", ["active", "draining"])
def test_a_cluster_that_waits_for_a_decision_leads_to_it(visitors: Visitors, worker, state: str):
    Cluster.objects.update(state=state)
    link = 'href="/clusters/gpu-east/block/">Decide …</a>'
    assert link not in visitors.text("admin", "/clusters/gpu-east/")

    Cluster.objects.update(blocked_reason="Its portal was restored from a backup.")

    assert link in visitors.text("admin", "/clusters/gpu-east/")
    assert link not in visitors.text("finance", "/clusters/gpu-east/")


def test_cluster_page_says_why_a_shift_failed_until_somebody_works(visitors: Visitors, worker):
    now = timezone.now()
    died = "The process of gpu-east ended. It needed more memory than SHIFT_MEMORY_MB allows."
    shift = ShiftRun.objects.create(
        cluster=worker,
        role="quota",
        holder="h",
        started_at=now,
        heartbeat_at=now,
        ended_at=now,
        outcome=f"failed: {died}",
    )
    page = visitors["admin"].get("/clusters/gpu-east/").content.decode()
    assert "The quota shift failed" in page and died in page
    for changes in ({"outcome": "handed over"}, {"outcome": f"failed: {died}", "ended_at": None}):
        for name, value in changes.items():
            setattr(shift, name, value)
        shift.save()
        page = visitors["admin"].get("/clusters/gpu-east/").content.decode()
        assert "The quota shift failed" not in page


def test_writing_is_stopped_and_resumed_with_a_reason(visitors: Visitors, worker):
    client = visitors["admin"]

    assert client.post("/clusters/gpu-east/stop-writing/", {"reason": ""}).status_code == 422
    client.post("/clusters/gpu-east/stop-writing/", {"reason": "upgrade"})
    worker.refresh_from_db()
    assert worker.writes_enabled is False
    assert "What would be written" in visitors.text("admin", "/clusters/gpu-east/")
    client.post("/clusters/gpu-east/start-writing/", {"reason": "done"})
    worker.refresh_from_db()
    assert worker.writes_enabled is True


def test_hand_edits_local_jobs_and_configuration_are_switches(visitors: Visitors, worker):
    client = visitors["admin"]

    client.post("/clusters/gpu-east/drift/", {"drift_policy": "keep"})
    client.post("/clusters/gpu-east/local-jobs/", {"allows_local_jobs": "on"})
    bad = client.post("/clusters/gpu-east/configuration/", {"kueue_configuration": "{a: ["})
    worker.refresh_from_db()
    assert (worker.drift_policy, worker.allows_local_jobs) == ("keep", True)
    assert bad.status_code == 422 and "not YAML" in bad.content.decode()
    for nonsense in ('a: "\\0"', "a: .inf", "a: !!binary aGk=", "a: &x [*x]", "[" * 5000):
        answer = client.post("/clusters/gpu-east/configuration/", {"kueue_configuration": nonsense})
        assert (answer.status_code, "The YAML" in answer.content.decode()) == (422, True)
    client.post("/clusters/gpu-east/local-jobs/", {})
    worker.refresh_from_db()
    assert worker.allows_local_jobs is False


def test_the_configuration_page_shows_what_holds_and_every_fault_by_its_name(
    visitors: Visitors, worker
):
    client = visitors["admin"]
    address = "/clusters/gpu-east/configuration/"
    assert "defaults of Kueue 0.19.2" in visitors.text("admin", address)

    typed = "fairSharing:\n  preemptionStrategies: [LessThanInitialShare]\n"
    gates = "featureGates:\n  PriorityBoost: true\n"
    client.post(address, {"kueue_configuration": typed + gates})
    text = visitors.text("admin", address)
    assert "LessThanInitialShare" in text and "PriorityBoost is on: an annotation" in text

    wrong = "fairSharing:\n  preemptionStrategies: [Nobody]\nresources: [1]\n"
    answer = client.post(address, {"kueue_configuration": wrong})
    said = " ".join(answer.context["form"].errors["kueue_configuration"])
    assert answer.status_code == 422
    assert "fairSharing: 'Nobody'" in said and "resources: Kueue expects another shape" in said

    worker.refresh_from_db()
    worker.kueue_configuration = {"resources": [1]}
    worker.save()
    assert "another shape" in visitors.text("admin", address)


def test_lists_of_the_policies_are_typed_a_line_each(visitors: Visitors, worker):
    client = visitors["admin"]

    bad = client.post("/clusters/gpu-east/operators/", {"operators": "ray-system"})
    assert bad.status_code == 422 and "NAMESPACE/NAME" in bad.content.decode()
    client.post("/clusters/gpu-east/operators/", {"operators": "ray/operator\n\n jobs/it "})
    listed = {"denies_elsewhere": "on", "gpu_namespaces": "gpu-operator"}
    client.post("/clusters/gpu-east/gpus-elsewhere/", listed)
    worker.refresh_from_db()
    assert (worker.operators, worker.gpu_namespaces) == (
        ["jobs/it", "ray/operator"],
        ["gpu-operator"],
    )
    shown = visitors.text("admin", "/clusters/gpu-east/")
    assert "ray/operator" in shown and "refused, but in gpu-operator" in shown
    assert "ray/operator" in visitors.text("admin", "/clusters/gpu-east/operators/")
    client.post("/clusters/gpu-east/gpus-elsewhere/", {"gpu_namespaces": "gpu-operator"})
    worker.refresh_from_db()
    assert worker.gpu_namespaces is None


def test_mode_is_not_changed_while_writing_is_on(visitors: Visitors, worker):
    values = {"mode": "portal", "reason": "try"}

    answer = visitors["admin"].post("/clusters/gpu-east/mode/", values)

    worker.refresh_from_db()
    assert answer.status_code == 422 and "mode" in answer.context["form"].errors
    assert worker.mode == "kueue"


def test_deregistering_asks_for_the_slug_again(visitors: Visitors, worker):
    client, address = visitors["admin"], "/clusters/gpu-east/deregister/"

    assert client.post(address, {"slug": "gpu-west", "reason": "sold"}).status_code == 422
    worker.refresh_from_db()
    assert worker.state == "active"
    assert client.post(address, {"slug": "gpu-east", "reason": "sold"}).status_code == 302
    worker.refresh_from_db()
    assert worker.state == "draining"


def test_a_draining_cluster_says_what_is_left_and_can_be_given_up(visitors: Visitors, worker):
    Cluster.objects.update(state="draining")
    ClusterHealth.objects.update(checked_at=datetime.now(UTC))
    left = ObjectState(
        cluster=worker, kind="Cohort", name="acme", state="failed", message="no", changed_at=NOW
    )
    left.save()
    text = visitors.text("admin", "/clusters/gpu-east/")
    assert "1 object of the portal is left" in text
    assert "Last error: Cohort acme: no" in text
    assert 'href="/clusters/gpu-east/forget/"' in text
    assert 'href="/clusters/gpu-east/deregister/"' not in text
    given = {"slug": "gpu-east", "reason": "registered by mistake"}
    assert visitors["admin"].post("/clusters/gpu-east/forget/", given).status_code == 302
    worker.refresh_from_db()
    assert (worker.state, bytes(worker.kubeconfig_sealed)) == ("removed", b"")


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_table_has_a_page(visitors: Visitors, worker, change: str):
    text = visitors.text("admin", f"/clusters/gpu-east/{change}/")
    assert CHANGES[change].button in text


@pytest.mark.parametrize("role", ["finance", "auditor", "owner", "stranger"])
def test_only_admins_switch(visitors: Visitors, worker, role: str):
    for change in ("stop-writing", "deregister", "mode", "kubeconfig"):
        answer = visitors[role].post(f"/clusters/gpu-east/{change}/", {"reason": "x"})
        assert answer.status_code in (403, 404)
    assert visitors[role].post("/clusters/gpu-east/preflight/").status_code in (403, 404)
    worker.refresh_from_db()
    assert (worker.state, worker.writes_enabled) == ("active", True)


def test_preflight_shows_its_progress(visitors: Visitors, worker, monkeypatch):
    sent = []
    monkeypatch.setattr(broker.current_app, "send_task", lambda *a, **k: sent.append((a, k)))

    answer = visitors["admin"].post("/clusters/gpu-east/preflight/")

    operation = Operation.objects.get()
    assert answer["Location"] == f"/operations/{operation.pk}/"
    assert sent[0][1]["args"] == ("gpu-east", str(operation.pk))
    assert "To the cluster" in visitors.text("admin", answer["Location"])


def test_cluster_page_shows_how_far_the_first_sync_is(visitors: Visitors, worker):
    subject = f"cluster:{worker.slug}"
    under_way = services.start_operation(visitors.fleet.admin, kind="first_sync", subject=subject)
    services.advance_operation(under_way.pk, step="3 of 40 objects in place", done=3, total=40)
    services.start_operation(visitors.fleet.admin, kind="first_sync", subject="cluster:other")

    page = visitors["admin"].get(f"/clusters/{worker.slug}/").content.decode()
    assert page.count("First sync") == 1
    assert "3 of 40 objects in place" in page
    assert 'value="3" max="40"' in page

    services.finish_operation(under_way.pk)
    assert "First sync" not in visitors["admin"].get(f"/clusters/{worker.slug}/").content.decode()


def test_rights_are_a_file_for_platform_roles(visitors: Visitors, worker):
    answer = visitors["admin"].get("/clusters/gpu-east/rights.yaml")

    kinds = {document["kind"] for document in yaml.safe_load_all(answer.content) if document}
    assert 'filename="gpu-east-rights.yaml"' in answer["Content-Disposition"]
    assert "ClusterRole" in kinds
    assert visitors["owner"].get("/clusters/gpu-east/rights.yaml").status_code == 404
    assert visitors["admin"].get("/clusters/gpu-west/rights.yaml").status_code == 404
