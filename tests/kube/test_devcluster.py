"""The embedded cluster itself: faults, access, restarts, Jobs, and its command."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clusters import errors
from clusters.devcluster.access import Denial
from clusters.devcluster.cluster import DevCluster
from clusters.devcluster.controllers import (
    EXIT_CODE,
    RUN_SECONDS,
    JobRunner,
    NodeShape,
    make_nodes,
    next_status,
)
from clusters.devcluster.fleet import ClusterPlan, EmbeddedFleet, FleetPlan, read_plan
from clusters.devcluster.server import DevServer, kubeconfig_text
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WatchOptions, is_allowed
from clusters.kube.transport import Call
from tests.kube.documents import config_map, job
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]


def test_faults_over_http_come_and_go(dev: DevServer, client: KubeClient) -> None:
    def wish(**faults: Any) -> None:
        client.request(Call("POST", "/devcluster/faults", body=faults))

    wish(errors=[{"code": 503, "count": 1, "path": "/namespaces"}, {"code": 409, "method": "POST"}])
    with pytest.raises(errors.ServerFault):
        client.get(r.NAMESPACE, "default")
    assert client.get(r.NAMESPACE, "default")
    with pytest.raises(errors.Conflict):
        client.create(r.CONFIG_MAP, config_map("default", "one"))
    wish(latency_s=0.15)
    assert client.probe().latency_s >= 0.15
    wish(errors=[{"code": 500, "count": 99}], clear=True)
    wish(clear=True)
    assert client.probe().latency_s < 0.15
    wish(compact=True)
    with pytest.raises(errors.Gone):
        client.watch(r.CONFIG_MAP, options=WatchOptions(resource_version="3")).close()


def test_access_needs_a_token_that_the_cluster_signed(dev: DevServer) -> None:
    for token in ("nonsense", "e30.00", dev.cluster.access.admin_token[:-1] + "x"):
        text = kubeconfig_text("dev", dev.url, token)
        with KubeClient.from_kubeconfig(text) as stranger:
            with pytest.raises(errors.Unauthenticated):
                stranger.get(r.NAMESPACE, "default")
            with pytest.raises(errors.Unauthenticated):
                stranger.request(Call("POST", "/devcluster/faults", body={"latency_s": 1}))


def test_access_denies_what_its_list_names(dev: DevServer, client: KubeClient) -> None:
    account = {"metadata": {"name": "robot", "namespace": "default"}}
    client.create(r.SERVICE_ACCOUNT, account)
    path = r.SERVICE_ACCOUNT.path("robot", namespace="default", subresource="token")
    token = client.request(Call("POST", path, body={"spec": {"expirationSeconds": 600}}))
    user = "system:serviceaccount:default:robot"
    dev.cluster.access.denials.append(Denial(user, ("list", "watch"), (), ("secrets",)))
    text = kubeconfig_text("dev", dev.url, token["status"]["token"])
    with KubeClient.from_kubeconfig(text) as robot:
        assert robot.list(r.CONFIG_MAP).items == []
        with pytest.raises(errors.Forbidden) as caught:
            robot.list(r.SECRET)
        assert f'User "{user}" cannot list resource "secrets"' in caught.value.message
        attributes = {"verb": "list", "group": "", "resource": "secrets"}
        assert not is_allowed(robot, attributes)
        assert is_allowed(robot, attributes | {"verb": "get"})
    assert is_allowed(client, attributes)


def test_token_ends(dev: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    token, ends = dev.cluster.access.mint("default", "robot", 600)
    header = f"Bearer {token}"
    assert dev.cluster.access.user_of(header) == "system:serviceaccount:default:robot"
    monkeypatch.setattr(time, "time", lambda: ends + 1.0)
    with pytest.raises(Exception, match="Unauthorized"):
        dev.cluster.access.user_of(header)


def test_restart_keeps_objects_versions_and_tokens(tmp_path: Path) -> None:
    plan = FleetPlan([ClusterPlan("one")], tmp_path / "configs", tmp_path / "state")
    with EmbeddedFleet(plan) as fleet:
        port = fleet.servers["one"].port
        text = (tmp_path / "configs" / "one.kubeconfig").read_text()
        with KubeClient.from_kubeconfig(text) as client:
            made = client.create(r.CONFIG_MAP, config_map("default", "kept", a="1"))
            client.create(r.CONFIG_MAP, config_map("default", "gone"))
            client.delete(r.CONFIG_MAP, "gone", namespace="default")
            version = int(client.list(r.CONFIG_MAP).resource_version)
    with EmbeddedFleet(plan) as fleet:
        assert fleet.servers["one"].port == port
        with KubeClient.from_kubeconfig(text) as client:
            listed = client.list(r.CONFIG_MAP)
            assert [item["metadata"]["name"] for item in listed.items] == ["kept"]
            assert listed.items[0]["metadata"]["uid"] == made["metadata"]["uid"]
            assert int(listed.resource_version) == version
            with pytest.raises(errors.Gone):
                old = WatchOptions(resource_version=str(version - 1))
                client.watch(r.CONFIG_MAP, options=old).close()
    for file in [*(tmp_path / "configs").iterdir(), *(tmp_path / "state").glob("*.s*")]:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.fixture
def running(dev: DevServer) -> Iterator[DevCluster]:
    runner = JobRunner(dev.cluster)
    runner.start()
    yield dev.cluster
    runner.stop()


def status_of(client: KubeClient, name: str) -> dict[str, Any]:
    status: dict[str, Any] = client.get(r.JOB, name, namespace="default").get("status", {})
    return status


def true_conditions(status: dict[str, Any]) -> set[str]:
    return {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}


@pytest.mark.parametrize(
    ("exit_code", "want"),
    [
        pytest.param("0", {"SuccessCriteriaMet", "Complete"}, id="succeeds"),
        pytest.param("1", {"FailureTarget", "Failed"}, id="fails"),
    ],
)
def test_job_runs_as_long_as_its_annotation_says(
    running: DevCluster, client: KubeClient, exit_code: str, want: set[str]
) -> None:
    document = job("default", "train", parallelism=3, completions=3)
    document["metadata"]["annotations"] = {RUN_SECONDS: "1", EXIT_CODE: exit_code}
    client.create(r.JOB, document)
    assert eventually(lambda: true_conditions(status_of(client, "train")) == {"Suspended"})
    assert status_of(client, "train")["active"] == 0
    client.patch(r.JOB, "train", {"spec": {"suspend": False}}, namespace="default")
    assert eventually(lambda: status_of(client, "train").get("active") == 3)
    assert status_of(client, "train")["startTime"]
    assert eventually(lambda: true_conditions(status_of(client, "train")) == want)
    ended = status_of(client, "train")
    assert ended["active"] == 0
    assert ended["succeeded" if exit_code == "0" else "failed"] == 3


def test_job_suspended_again_gives_its_pods_back() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    document = job("default", "train", suspend=False, parallelism=2)
    document["status"] = next_status(document, now)
    assert document["status"]["active"] == 2
    document["spec"]["suspend"] = True
    later = now + timedelta(seconds=5)
    stopped = next_status(document, later)
    assert "startTime" not in stopped
    assert (stopped["active"], true_conditions(stopped)) == (0, {"Suspended"})
    assert next_status(document | {"status": stopped}, later) == stopped


def test_job_managed_by_another_controller_is_left_alone(
    running: DevCluster, client: KubeClient
) -> None:
    managed = job("default", "managed", suspend=False, managedBy="kueue.x-k8s.io/multikueue")
    client.create(r.JOB, managed)
    client.create(r.JOB, job("default", "own", suspend=False))
    assert eventually(lambda: status_of(client, "own").get("active") == 1)
    assert status_of(client, "managed") == {}


def test_nodes_are_made_once(dev: DevServer, client: KubeClient) -> None:
    shape = NodeShape("h100", 2, labels={"gpu": "h100"}, resources={"nvidia.com/gpu": "8"})
    make_nodes(dev.cluster, shape)
    make_nodes(dev.cluster, shape)
    nodes = client.list(r.NODE).items
    assert [node["metadata"]["name"] for node in nodes] == ["h100-0", "h100-1"]
    assert nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_namespace_deletion_takes_its_content_along(client: KubeClient) -> None:
    client.create(r.NAMESPACE, {"metadata": {"name": "temp"}})
    client.create(r.CONFIG_MAP, config_map("temp", "one"))
    client.delete(r.NAMESPACE, "temp")
    assert eventually(
        lambda: "temp" not in [n["metadata"]["name"] for n in client.list(r.NAMESPACE).items]
    )
    assert client.list(r.CONFIG_MAP).items == []


def test_slow_watcher_is_ended_not_served_wrongly(dev: DevServer) -> None:
    _, subscription = dev.cluster.store.subscribe("/configmaps", since=None)
    subscription.queue.maxsize = 2
    with KubeClient.from_kubeconfig(dev.kubeconfig) as client:
        for index in range(5):
            client.create(r.CONFIG_MAP, config_map("default", f"c{index}"))
    seen = [subscription.queue.get_nowait() for _ in range(subscription.queue.qsize())]
    assert seen[-1] is None


def test_read_plan_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown keys: clutsers"):
        read_plan({"clutsers": []}, folder=tmp_path)
    with pytest.raises(ValueError, match="same name"):
        read_plan({"clusters": [{"name": "a"}, {"name": "a"}]}, folder=tmp_path)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clusters.devcluster", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


def test_command_serves_a_config_and_ends_on_sigterm(tmp_path: Path) -> None:
    config = tmp_path / "clusters.json"
    node = {"prefix": "n", "count": 1, "resources": {"nvidia.com/gpu": "4"}}
    deny = {"verbs": ["delete"], "resources": ["namespaces"]}
    config.write_text(
        json.dumps(
            {"clusters": [{"name": "manager", "deny": [deny]}, {"name": "w", "nodes": [node]}]}
        )
    )
    process = start("--config", str(config))
    assert process.stdout
    ready = process.stdout.readline()
    assert ready.startswith("ready manager=http://127.0.0.1:")
    text = (tmp_path / "kubeconfigs" / "w.kubeconfig").read_text()
    with KubeClient.from_kubeconfig(text) as client:
        assert len(client.list(r.NODE).items) == 1
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "", "")


def test_command_tells_a_taken_port_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "clusters.json"
        config.write_text(json.dumps({"clusters": [{"name": "m", "port": port}]}))
        process = start("--config", str(config))
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err == f"embedded clusters: port {port} of cluster m is taken\n"


def test_command_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-m', 'clusters.devcluster', '--dir', "
        f"{str(tmp_path)!r}], stdout=subprocess.PIPE, text=True)\n"
        "p.stdout.readline()\n"
        "print(p.pid, flush=True)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    child = int(parent.stdout)

    def is_gone() -> bool:
        stat_file = Path(f"/proc/{child}/stat")
        return not stat_file.exists() or stat_file.read_text().rpartition(")")[2].split()[0] == "Z"

    assert eventually(is_gone)
