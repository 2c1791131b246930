"""ClusterProfiles: programs that an admin of the server names, and workers behind them."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from clusters.documents.resources import Resource
from clusters.errors import KubeconfigRejected, Retryable, Terminal
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kube.exec_plugins import Credential, ExecPlugin, parse_providers, run_plugin
from clusters.kube.kubeconfig import choose
from clusters.manifests.names import KUEUE_NAMESPACE
from clusters.reconcile.multikueue import links
from clusters.reconcile.multikueue.profiles import (
    CLUSTER_PROFILE,
    BadProfile,
    Profiles,
    read_providers,
)
from tests.reconcile.admission_harness import (
    CHECK,
    MULTIKUEUE,
    Document,
    Embedded,
    condition,
    job,
    kueue,
    quota_objects,
)
from tests.reconcile.custom_kinds import serve
from tests.reconcile.test_admission_jobs import NOW
from tests.waiting import eventually

V1 = "client.authentication.k8s.io/v1"
PROFILE = Resource.guessed("ClusterProfile", "v1alpha1", "multicluster.x-k8s.io")
STATUS = WriteOptions(subresource="status")
SERVERS = ("gpu.example:6443", "moved.example:6443", "a.example", "a.example:80")
INFO = {
    "server": "https://gpu.example:6443",
    "certificate-authority-data": "Y2E=",
    "config": {"a": 1},
}


def program(folder: Path, text: str, name: str = "plugin") -> str:
    """An executable file."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def answer(**status: Any) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


def plugin(command: str, *args: str, **env: str) -> ExecPlugin:
    return ExecPlugin("cloud", V1, command, args, env)


def provider(name: str = "cloud", command: str = "/bin/true", **config: Any) -> Document:
    given = {"apiVersion": V1, "command": command, "interactiveMode": "Never", **config}
    return {"name": name, "servers": ["*.example:6443"], "execConfig": given}


# The contract of the programs


def test_plugin_is_told_of_its_cluster_and_of_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTAL_SECRET_KEY", "not-for-plugins")
    seen = tmp_path / "seen"
    text = f"env > {seen}; echo \"$1\" >> {seen}; echo '{answer(token='t-1')}'"
    found = run_plugin(plugin(program(tmp_path, text), "--region=eu", AUDIENCE="portal"), INFO)
    assert found == Credential(token="t-1")
    told = seen.read_text()
    assert "not-for-plugins" not in told
    assert "AUDIENCE=portal" in told
    assert told.endswith("--region=eu\n")
    [line] = [item for item in told.splitlines() if item.startswith("KUBERNETES_EXEC_INFO=")]
    wish = json.loads(line.partition("=")[2])
    assert wish["spec"] == {"cluster": INFO, "interactive": False}


def test_plugin_gives_a_certificate_and_a_time(tmp_path):
    ends = "2026-03-01T01:00:00Z"
    given = answer(clientCertificateData="C", clientKeyData="K", expirationTimestamp=ends)
    found = run_plugin(plugin(program(tmp_path, f"echo '{given}'")), INFO)
    assert (found.certificate_pem, found.key_pem) == ("C", "K")
    assert found.expires_at is not None
    assert found.expires_at.isoformat() == "2026-03-01T01:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "want_family", "want_words"),
    [
        pytest.param("echo secret >&2; exit 3", Retryable, "ended with exit code 3", id="fails"),
        pytest.param("sleep 30", Retryable, "no answer within", id="hangs"),
        pytest.param("echo hello", Terminal, "is not JSON", id="says no JSON"),
        pytest.param(
            "head -c 9000 /dev/zero | tr '\\0' '['", Terminal, "is not JSON", id="says a deep list"
        ),
        pytest.param(
            "head -c 1100000 /dev/zero", Terminal, "longer than 1 MiB", id="says too much"
        ),
        pytest.param("echo '{}'", Terminal, "is not an ExecCredential", id="says something else"),
        pytest.param(f"echo '{answer()}'", Terminal, "neither a token nor", id="gives nothing"),
        pytest.param(
            f"echo '{answer(clientKeyData='K')}'", Terminal, "go together", id="gives half"
        ),
        pytest.param(
            f"echo '{answer(token='t', expirationTimestamp='soon')}'",
            Terminal,
            "is not a time",
            id="gives an odd time",
        ),
    ],
)
def test_plugin_that_does_not_do_its_work_is_told_without_what_it_printed(
    tmp_path, text, want_family, want_words
):
    with pytest.raises(want_family, match=want_words) as caught:
        run_plugin(plugin(program(tmp_path, text)), INFO, timeout_s=5 if "30" not in text else 0.2)
    assert "secret" not in str(caught.value)


def test_plugin_that_is_not_there_is_told():
    with pytest.raises(Terminal, match="/nowhere/plugin cannot be started"):
        run_plugin(plugin("/nowhere/plugin"), INFO)


def test_providers_are_refused_with_everything_that_is_wrong_at_once():
    document = {
        "accessProviders": [
            provider("a", command="relative/plugin"),
            provider("a", apiVersion="v0", interactiveMode="Sometimes"),
            provider("", env=[{"name": "1 bad", "value": "x"}], args="one"),
        ]
    }
    with pytest.raises(ValueError, match="not an absolute path") as caught:
        parse_providers(document)
    text = str(caught.value)
    for want in ("apiVersion: write", "interactiveMode: write", "'a' is named twice",
                 "[2].name: is missing", "1 bad", "args: a list"):  # fmt: skip
        assert want in text


def test_file_of_providers_that_cannot_be_read_names_the_setting(tmp_path):
    assert read_providers("") == ()
    with pytest.raises(BadProfile, match="PORTAL_ACCESS_PROVIDERS /nowhere/file"):
        read_providers("/nowhere/file")
    path = tmp_path / "providers.yaml"
    path.write_text("accessProviders: 7")
    with pytest.raises(BadProfile, match="a list of access providers is missing"):
        read_providers(str(path))


def test_kubeconfig_that_names_a_program_stays_refused():
    config = {
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "https://a.example:6443"}}],
        "users": [{"name": "x", "user": {"exec": {"command": "/bin/true", "apiVersion": V1}}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    with pytest.raises(KubeconfigRejected) as caught:
        choose(yaml.safe_dump(config))
    assert any(item.field == "user.exec" for item in caught.value.refusal.fields)


# From a profile to a client


def profile(server: str, *, names: tuple[str, ...] = ("cloud",), **cluster: Any) -> Document:
    listed = [{"name": name, "cluster": {"server": server, **cluster}} for name in names]
    return {
        "apiVersion": CLUSTER_PROFILE.api_version,
        "kind": CLUSTER_PROFILE.kind,
        "metadata": {"name": "east", "namespace": KUEUE_NAMESPACE},
        "spec": {"clusterManager": {"name": "inventory"}, "displayName": "east"},
        "status": {"accessProviders": listed},
    }


class Manager:
    """A manager that has one profile, and a clock."""

    def __init__(self, document: Document) -> None:
        self.document, self.now, self.asked = document, NOW, 0

    def get(self, resource, name, *, namespace=None) -> Document:
        return self.document

    def run(self, chosen: ExecPlugin, cluster: Any) -> Credential:
        self.asked += 1
        return Credential(token=f"t-{self.asked}", expires_at=self.now + timedelta(minutes=10))


def profiles(manager: Manager, *names: str) -> Profiles:
    given = [ExecPlugin(name, V1, "/bin/true", servers=SERVERS) for name in names]
    return Profiles(
        manager,
        providers=lambda: given,
        now=lambda: manager.now,
        run=manager.run,  # type: ignore[arg-type]
    )


def settled(found: Profiles) -> Any:
    def client() -> Any:
        try:
            return found.client_for("east")
        except Retryable:
            return None

    return eventually(client)


def test_credential_is_kept_until_shortly_before_its_end_and_then_renewed():
    manager = Manager(profile("https://gpu.example:6443"))
    found = profiles(manager, "other", "cloud")
    first = settled(found)
    assert found.client_for("east") is first
    manager.now += timedelta(minutes=9, seconds=30)
    assert found.client_for("east") is first  # a new one is asked for beside it
    eventually(lambda: found.client_for("east") is not first)
    assert manager.asked == 2
    manager.document = profile("https://moved.example:6443")
    assert "moved" in settled(found).server
    found.close()


@pytest.mark.parametrize(
    ("document", "names", "want"),
    [
        pytest.param(profile("https://a.example"), (), "no access provider configured", id="none"),
        pytest.param(
            profile("https://a.example"), ("vault",), "it lists cloud", id="no common provider"
        ),
        pytest.param(
            profile("https://a.example", **{"proxy-url": "http://p"}),
            ("cloud",),
            "proxy",
            id="proxy",
        ),
    ],
)
def test_profile_that_does_not_say_how_to_get_in_is_told(document, names, want):
    with pytest.raises(BadProfile, match=want):
        profiles(Manager(document), *names).client_for("east")


@pytest.mark.parametrize("server", ["http://a.example:80", "https://u:p@a.example"])
def test_what_no_kubeconfig_may_say_no_profile_may_say(server):
    found = profiles(Manager(profile(server)), "cloud")

    def refused() -> bool:
        try:
            found.client_for("east")
        except KubeconfigRejected:
            return True
        except Retryable:
            return False
        return False

    assert eventually(refused)


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("https://evil.example:6443", id="another host"),
        pytest.param("https://gpu.example", id="another port"),
        pytest.param("https://gpu.example:6443@evil.example", id="a host that is a user"),
        pytest.param("https://gpu.example.evil.example:6443", id="a host that begins alike"),
        pytest.param("", id="none"),
    ],
)
def test_a_credential_goes_to_no_server_that_the_file_does_not_name(server):
    manager = Manager(profile(server))
    with pytest.raises(BadProfile, match="PORTAL_ACCESS_PROVIDERS"):
        profiles(manager, "cloud").client_for("east")
    assert manager.asked == 0  # nor is its program told of it


@pytest.mark.parametrize(
    ("server", "want"),
    [
        ("https://a.gpu.example", True), ("https://b.A.GPU.example.:443", True),
        ("https://gpu.example", False), ("https://xgpu.example", False),
        ("https://10.0.0.7:6443", True), ("https://10.0.0.7", False), ("https://[fd00::7]:1", True),
        ("https://a.gpu.example:x", False), ("*.gpu.example", False),
    ],
)  # fmt: skip
def test_servers_are_hosts_with_ports_or_whole_domains(server, want):
    listed = ("*.gpu.example", "10.0.0.7:6443", "[fd00::7]:1")
    assert ExecPlugin("cloud", V1, "/bin/true", servers=listed).may_go_to(server) is want


@pytest.mark.parametrize(
    "servers",
    [None, [], "gpu.example", ["*"], ["a.*.example"], ["https://a.example"], ["a/b"], [7]],
)
def test_a_provider_without_servers_is_refused(servers):
    document = {"accessProviders": [{**provider(), "servers": servers}]}
    with pytest.raises(ValueError, match="name the API servers"):
        parse_providers(document)


# Dispatched to


@pytest.fixture
def fleet(monkeypatch, tmp_path, settings) -> Iterator[Embedded]:
    """A manager, and one worker that nothing but a profile leads to."""
    serve(monkeypatch, PROFILE)
    monkeypatch.setattr(links, "CREDENTIAL_EVERY_S", 0.2)
    with Embedded("manager", "east", webhooks=True) as fleet:
        user = yaml.safe_load(fleet["east"].kubeconfig)["users"][0]["user"]
        text = f"test -e {tmp_path}/down && exit 1; echo '{answer(token=user['token'])}'"
        server = yaml.safe_load(fleet["east"].kubeconfig)["clusters"][0]["cluster"]["server"]
        given = provider(command=program(tmp_path, text))
        path = tmp_path / "providers.yaml"
        path.write_text(
            yaml.safe_dump({"accessProviders": [{**given, "servers": [urlsplit(server).netloc]}]})
        )
        settings.PORTAL_ACCESS_PROVIDERS = str(path)
        source = {"clusterSource": {"clusterProfileRef": {"name": "east"}}}
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK}
        fleet["manager"].create(
            kueue("MultiKueueCluster", "gpu-east", source),
            kueue("MultiKueueConfig", CHECK, {"clusters": ["gpu-east"]}),
            kueue(
                "AdmissionCheck", CHECK, {"controllerName": MULTIKUEUE, "parameters": parameters}
            ),
            *quota_objects(16, check=True),
        )
        fleet["east"].create(*quota_objects(8))
        fleet.start("manager", "admission")
        fleet.start("east", "admission")
        fleet.start("manager", "dispatch", workers=("east",))
        yield fleet
        assert all(shift.error is None for shift in fleet.shifts), [s.error for s in fleet.shifts]


def shown(fleet: Embedded) -> Document:
    return condition(fleet["manager"].get(r.MULTIKUEUE_CLUSTER, "gpu-east"), "Active")


@pytest.mark.embedded
def test_job_runs_on_a_worker_that_only_a_profile_leads_to(fleet, tmp_path):
    manager, east = fleet["manager"], fleet["east"]
    told = eventually(lambda: shown(fleet).get("reason") == "BadClusterProfile" and shown(fleet))
    assert "no ClusterProfile east" in told["message"]
    cluster = yaml.safe_load(east.kubeconfig)["clusters"][0]["cluster"]
    authority = {k: v for k, v in cluster.items() if k == "certificate-authority-data"}
    document = profile(cluster["server"], **authority)
    status = document.pop("status")
    (tmp_path / "down").touch()
    manager.client.create(CLUSTER_PROFILE, document)
    manager.client.patch(
        CLUSTER_PROFILE, "east", {"status": status}, namespace=KUEUE_NAMESPACE, options=STATUS
    )
    eventually(lambda: "exit code 1" in shown(fleet)["message"])
    (tmp_path / "down").unlink()
    eventually(lambda: shown(fleet).get("status") == "True", why=lambda: str(shown(fleet)))
    manager.create(job("train", gpus=8, managed=True))
    eventually(lambda: east.job("train"))
    manager.client.delete(CLUSTER_PROFILE, "east", namespace=KUEUE_NAMESPACE)
    eventually(lambda: shown(fleet).get("reason") == "BadClusterProfile")
