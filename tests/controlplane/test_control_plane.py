"""Real control planes do what tests of the portal rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import urllib3
import yaml

from tests.waiting import PATIENCE_S, eventually

from . import build, processes
from .control_plane import ControlPlane
from .fixtures import require_parts
from .fleet import Fleet
from .history import forget_history
from .processes import StartError
from .queues import KUEUE, condition_of, connect_workers, job, make_queue
from .rest import ApiError

UniqueName = Callable[[str], str]
REPOSITORY = Path(__file__).resolve().parents[2]


def job_path(namespace: str, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}".rstrip("/")


def test_fleet_runs_kueue_on_every_cluster(kueue_fleet: Fleet) -> None:
    for cluster in kueue_fleet.clusters:
        assert {"etcd", "kube-apiserver", "kube-controller-manager", "kueue"} <= set(
            cluster.programs()
        )
        assert cluster.rest.get("/version")["gitVersion"] == f"v{build.KUBERNETES_VERSION}"


def test_kueue_validates_and_converts_through_its_webhooks(
    kueue_fleet: Fleet, unique_name: UniqueName
) -> None:
    name = unique_name("converted")
    manager = kueue_fleet.manager
    make_queue(manager, name, gpus=4)

    old = f"/apis/kueue.x-k8s.io/v1beta1/clusterqueues/{name}"
    manager.rest.merge(old, {"spec": {"cohort": name}})
    assert manager.rest.get(f"{KUEUE}/clusterqueues/{name}")["spec"]["cohortName"] == name

    groups = manager.rest.get(old)["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["lendingLimit"] = "5"
    with pytest.raises(ApiError, match="admission webhook"):
        manager.rest.merge(f"{KUEUE}/clusterqueues/{name}", {"spec": {"resourceGroups": groups}})


def test_job_finishes_under_kwok(kueue_fleet: Fleet, unique_name: UniqueName) -> None:
    worker, name = kueue_fleet.workers[0], unique_name("local")
    make_queue(worker, name, gpus=16)

    worker.rest.create(job_path(name), job("train", gpus=8))
    worker.rest.create(job_path(name), job("broken", gpus=8, exit_code=1))

    def conditions(of: str) -> tuple[str, str]:
        found = worker.rest.get(job_path(name, of))
        return condition_of(found, "Complete"), condition_of(found, "Failed")

    eventually(lambda: conditions("train") == ("True", "") and conditions("broken")[1] == "True")
    pods = worker.rest.items(f"/api/v1/namespaces/{name}/pods")
    assert sorted(pod["status"]["phase"] for pod in pods) == ["Failed", "Succeeded"]
    # On whichever of its nodes: other tests of the session add nodes of their own.
    nodes = {node["metadata"]["name"] for node in worker.rest.items("/api/v1/nodes")}
    assert {pod["spec"]["nodeName"] for pod in pods} <= nodes


def test_multikueue_dispatches_a_job_end_to_end(
    kueue_fleet: Fleet, unique_name: UniqueName
) -> None:
    name, manager = unique_name("dispatched"), kueue_fleet.manager
    connect_workers(kueue_fleet, name)
    for worker in kueue_fleet.workers:
        make_queue(worker, name, gpus=8)
    make_queue(manager, name, gpus=16, admission_check=name)
    queue = f"{KUEUE}/clusterqueues/{name}"
    eventually(lambda: condition_of(manager.rest.get(queue), "Active") == "True")

    manager.rest.create(job_path(name), job("train", gpus=8))

    eventually(
        lambda: condition_of(manager.rest.get(job_path(name, "train")), "Complete") == "True"
    )
    # Kueue ends the Workload once it has seen the Job end.
    workload = lambda: manager.rest.items(f"{KUEUE}/namespaces/{name}/workloads")[0]  # noqa: E731
    eventually(lambda: condition_of(workload(), "Finished") == "True")
    assert workload()["status"]["clusterName"] in {
        f"{name}-{worker.name}" for worker in kueue_fleet.workers
    }
    assert manager.rest.items(f"/api/v1/namespaces/{name}/pods") == []


def test_api_server_keeps_objects_and_port_over_kill_and_pause(
    bare_cluster: ControlPlane, unique_name: UniqueName
) -> None:
    name, server = unique_name("kept"), bare_cluster.server
    bare_cluster.ensure_namespace(name)

    bare_cluster.kill_api_server()
    with pytest.raises(urllib3.exceptions.HTTPError):
        bare_cluster.rest.get("/version")
    bare_cluster.start_api_server()
    assert bare_cluster.server == server
    assert bare_cluster.rest.exists(f"/api/v1/namespaces/{name}")

    bare_cluster.pause_api_server()
    assert processes.is_listening(bare_cluster.port)
    assert not bare_cluster.rest.is_ready()
    bare_cluster.resume_api_server()
    eventually(bare_cluster.rest.is_ready)


def test_mend_brings_back_what_a_test_paused_or_killed(bare_cluster: ControlPlane) -> None:
    before = set(bare_cluster.programs())
    bare_cluster.pause_api_server()
    bare_cluster.mend()
    assert bare_cluster.rest.is_ready()

    bare_cluster.kill_api_server()
    assert set(bare_cluster.programs()) == before - {"kube-apiserver"}
    bare_cluster.mend()
    assert bare_cluster.rest.is_ready()
    assert set(bare_cluster.programs()) == before


def test_forgotten_history_answers_410(bare_cluster: ControlPlane, unique_name: UniqueName) -> None:
    name, rest = unique_name("past"), bare_cluster.rest
    path = f"/api/v1/namespaces/{name}/configmaps"
    bare_cluster.ensure_namespace(name)
    for number in range(3):
        rest.create(path, {"metadata": {"name": f"{name}-{number}"}})
    first_page = rest.get(f"{path}?limit=1")["metadata"]
    rest.delete(f"{path}/{name}-0")
    watch = f"{path}?watch=true&timeoutSeconds=1&resourceVersion={first_page['resourceVersion']}"
    page = f"{path}?limit=1&continue={first_page['continue']}"
    assert rest.get(watch)["type"] == "DELETED"
    assert rest.items(page)

    forget_history(bare_cluster)

    assert rest.get(watch)["object"]["code"] == 410
    with pytest.raises(ApiError) as gone:
        rest.items(page)
    assert gone.value.status == 410


@pytest.mark.controlplane
def test_up_ends_its_programs_on_sigterm(tmp_path: Path) -> None:
    require_parts(("etcd", build.KUBERNETES, "kueue"))
    command = [sys.executable, "-m", "tests.controlplane", "up", "--workers=0", "--no-kueue"]
    with subprocess.Popen(
        [*command, f"--dir={tmp_path}"], stdout=subprocess.PIPE, cwd=REPOSITORY, text=True
    ) as parent:
        assert parent.stdout is not None
        next(line for line in parent.stdout if line.startswith("up in "))
        fleet = json.loads((tmp_path / "fleet.json").read_text())
        port = int(fleet["manager"]["server"].rpartition(":")[2])
        assert processes.is_listening(port)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(timeout=PATIENCE_S) == 0
    assert Path(fleet["manager"]["kubeconfig"]).is_file()
    assert not processes.is_listening(port)


def test_kueue_comes_and_goes_on_a_bare_cluster(
    own_cluster: ControlPlane, unique_name: UniqueName
) -> None:
    name, rest = unique_name("visit"), own_cluster.rest
    make_queue(own_cluster, name, gpus=4)
    queue = f"{KUEUE}/clusterqueues/{name}"

    with pytest.raises(StartError, match=r"(?s)kueue ended.*preemptionStrategies"):
        own_cluster.start_kueue({"fairSharing": {}})
    assert "kueue" not in own_cluster.programs()
    own_cluster.start_kueue(feature_gates={"MultiKueue": False})
    eventually(lambda: condition_of(rest.get(queue), "Active") == "True")

    own_cluster.stop_kueue(keep_webhooks=True)
    with pytest.raises(ApiError, match="failed calling webhook"):
        rest.merge(queue, {"spec": {"stopPolicy": "Hold"}})
    own_cluster.start_kueue()

    own_cluster.stop_kueue()
    rest.merge(queue, {"spec": {"stopPolicy": "Hold"}})
    rest.create(job_path(name), job("local", gpus=1))
    assert rest.get(queue)["spec"]["stopPolicy"] == "Hold"
    assert rest.items(f"{KUEUE}/namespaces/{name}/workloads") == []


def test_bare_cluster_serves_crds_without_kueue(
    bare_cluster: ControlPlane, unique_name: UniqueName
) -> None:
    name = unique_name("bare")
    make_queue(bare_cluster, name, gpus=4)
    status = {"status": {"reservingWorkloads": 3}}
    bare_cluster.rest.merge(f"{KUEUE}/clusterqueues/{name}/status", status)

    found = bare_cluster.rest.get(f"{KUEUE}/clusterqueues/{name}")
    assert found["status"]["reservingWorkloads"] == 3
    assert "finalizers" not in found["metadata"]


def test_kubeconfig_of_a_service_account_has_no_more_rights_than_granted(
    bare_cluster: ControlPlane, unique_name: UniqueName, tmp_path: Path
) -> None:
    name = unique_name("rights")
    text = bare_cluster.kubeconfig_for("portal", namespace=name)
    bare_cluster.grant(
        "portal",
        namespace=name,
        rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
    )

    token = yaml.safe_load(text)["users"][0]["user"]["token"]
    rest = bare_cluster.rest_with_token(token)

    def answered(path: str) -> bool:
        try:
            return rest.items(path) == []
        except ApiError as error:
            assert error.status == 403
            return False

    eventually(lambda: answered("/api/v1/nodes"))  # the authorizer learns of rights by a watch
    with pytest.raises(ApiError) as refused:
        rest.items("/api/v1/secrets")
    assert refused.value.status == 403
    rest.close()


@pytest.mark.controlplane
def test_no_program_survives_a_killed_parent(tmp_path: Path) -> None:
    require_parts(("etcd", build.KUBERNETES, "kueue"))
    code = (
        "import pathlib, sys, time\n"
        "from tests.controlplane.control_plane import ControlPlane\n"
        "cluster = ControlPlane('orphan', pathlib.Path(sys.argv[1]))\n"
        "cluster.start(crds=False, controller_manager=False)\n"
        "print(*[p.process_id for p in cluster.programs().values()], flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        process_ids = [int(word) for word in parent.stdout.readline().split()]
        assert len(process_ids) == 2
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    eventually(lambda: not any(_is_alive(process_id) for process_id in process_ids))


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    # A dead process stays visible as a zombie where nobody collects orphans.
    state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"
