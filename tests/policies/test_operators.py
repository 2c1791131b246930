"""Jobs of JobSet and Ray run under the policies: their real controllers make the parts.

The portal decides with its generated rights; kube-scheduler and kwok play the pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.documents import labels
from clusters.documents import resources as r
from clusters.documents.conditions import condition
from clusters.documents.keys import labels_of
from clusters.kube.client import WriteOptions
from clusters.kube.resources import WORKLOAD
from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post, role_documents
from clusters.manifests.rights import portal_rules
from clusters.manifests.wish import PolicyWish
from clusters.reconcile.foreground import ForegroundShift
from tests.controlplane import build
from tests.controlplane.components import POD_MAKERS
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fixtures import require_parts
from tests.controlplane.kwok_nodes import NodeShape
from tests.controlplane.operators import (
    JOBSET_USER,
    KUBERAY_USER,
    install_kinds,
    start_jobset,
    start_kuberay,
)
from tests.kube.apply import apply_documents
from tests.policies import objects as o
from tests.policies.ground import Ground, People, apply_policies, make_workspace, queues_for
from tests.reconcile.admission_harness import INSTALLATION, RunningShift, facts
from tests.reconcile.real_clusters import admin_client
from tests.waiting import eventually

pytestmark = pytest.mark.controlplane

KINDS = tuple(o.KINDS[kind].resource for kind in ("JobSet", "RayCluster", "RayJob"))
CONFIGURATION = {
    "integrations": {
        "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "ray.io/raycluster", "ray.io/rayjob"]
    }
}
WISH = PolicyWish(
    Post(False, True, INSTALLATION, kinds=KINDS),
    allows_local_jobs=True,
    operators=(JOBSET_USER, KUBERAY_USER),
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A worker in portal mode with policies, operators, nodes and the portal's shift."""
    require_parts(("etcd", build.KUBERNETES, "kueue", "kwok", "jobset", "kuberay"))
    folder: Path = tmp_path_factory.mktemp("operators")
    plane = ControlPlane("operators", folder)
    plane.start(controllers=POD_MAKERS)
    people = People(plane)
    try:
        install_kinds(plane)
        queues_for(plane)
        make_workspace(plane, "team", installation=INSTALLATION, queues=True)
        plane.start_scheduler()
        plane.start_kwok()
        plane.create_nodes(2, shape=NodeShape(), prefix="node")
        _grant(plane)
        start_jobset(plane)
        start_kuberay(plane)
        shift = ForegroundShift(
            kubeconfig=plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE),
            role="admission",
            facts=facts("operators", kueue_configuration=CONFIGURATION),
            holder="operators",
        )
        running = RunningShift(shift)
        try:
            yield Ground(plane, people, WISH, "team")
        finally:
            running.stop()
        assert running.error is None
    finally:
        people.close()
        plane.stop()


def test_jobs_of_a_jobset_run_once_its_quota_is_there(ground: Ground) -> None:
    job_set = o.job("JobSet", "train", suspended=True, queue="default")
    ground.create(job_set)
    eventually(lambda: not ground.get(job_set)["spec"].get("suspend"), seconds=30)
    # JobSet made them suspended and resumes them after itself.
    eventually(lambda: _runs(ground, "JobSet", "train"), seconds=30, why=lambda: _told(ground))
    eventually(lambda: _pods_of(ground, "Job", "train"), seconds=30, why=lambda: _told(ground))
    # They have the quota of their JobSet, and none of their own beside it.
    parts = _parts(ground, r.JOB, "JobSet", "train")
    assert [part["metadata"]["name"] for part in parts if labels.QUEUE in labels_of(part)] == []
    assert _parts(ground, WORKLOAD, "Job", "train") == []


def test_a_jobset_without_quota_has_no_running_part(ground: Ground) -> None:
    job_set = o.job("JobSet", "later", suspended=True, queue="closed")
    ground.create(job_set)
    eventually(lambda: _parts(ground, r.JOB, "JobSet", "later"), seconds=30)
    # Decided on, and not only looked at before that.
    eventually(lambda: _is_held(ground, "later"), seconds=30, why=lambda: _told(ground))
    parts = _parts(ground, r.JOB, "JobSet", "later")
    assert parts and all(part["spec"]["suspend"] for part in parts)


def test_submitter_of_a_rayjob_runs_beside_its_cluster(ground: Ground) -> None:
    ray = o.job("RayJob", "rays", suspended=True, queue="default")
    # KubeRay lets no job be suspended whose cluster outlives it.
    ray["spec"]["shutdownAfterJobFinishes"] = True
    # Without a template nobody but KubeRay knows the submitter's pod.
    ray["spec"]["submitterPodTemplate"] = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "submit", "image": "it:1"}]}
    }
    ground.create(ray)
    eventually(lambda: not ground.get(ray)["spec"].get("suspend"), seconds=30)
    eventually(lambda: _pods_of(ground, "RayCluster"), seconds=60, why=lambda: _told(ground))
    eventually(lambda: _runs(ground, "RayJob", "rays"), seconds=60, why=lambda: _told(ground))


def _grant(plane: ControlPlane) -> None:
    """What an admin applies."""
    documents = role_documents(
        portal_rules(WISH.post), account=PORTAL_ACCOUNT, name="gpu-budget-portal"
    )
    with admin_client(plane) as client:
        options = WriteOptions(field_manager="kubectl", force=True)
        report = apply_documents(client, documents, options=options)
    assert report.is_complete, report.failed
    apply_policies(plane, policy_documents(WISH))


def _parts(ground: Ground, resource: r.Resource, owner: str, name: str = "") -> list[o.Document]:
    return [
        item
        for item in ground.plane.rest.items(ground.path(resource))
        for above in item["metadata"].get("ownerReferences") or ()
        if above["kind"] == owner and name in above["name"]
    ]


def _runs(ground: Ground, owner: str, name: str) -> bool:
    """Whether an owner has Jobs, and none of them is suspended."""
    parts = _parts(ground, r.JOB, owner, name)
    return bool(parts) and not any(part["spec"].get("suspend") for part in parts)


def _pods_of(ground: Ground, owner: str, name: str = "") -> list[o.Document]:
    """Pods with GPUs that an owner's controller made."""
    return [
        pod
        for pod in _parts(ground, r.POD, owner, name)
        if o.GPU in str(pod["spec"]) and labels.ADMISSION_GATE not in str(pod["spec"])
    ]


def _is_held(ground: Ground, job_set: str) -> bool:
    """Whether the Workload of a JobSet says that it has no quota."""
    found = _parts(ground, WORKLOAD, "JobSet", job_set)
    return any(condition(item, "QuotaReserved").get("status") == "False" for item in found)


def _told(ground: Ground) -> list[str]:
    """Events of the workspace: who was refused what."""
    events = ground.plane.rest.items(f"/api/v1/namespaces/{ground.namespace}/events")
    return [f"{event['reason']}: {event.get('message')}" for event in events][-20:]
