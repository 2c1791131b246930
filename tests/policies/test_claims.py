"""Who claims devices where they count: the policies on a real API server, asked without storing."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.documents import labels
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post
from clusters.manifests.wish import PolicyWish
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.rest import ApiError
from tests.policies.ground import apply_policies
from tests.waiting import eventually

pytestmark = pytest.mark.controlplane

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
PODS = "/api/v1/namespaces/{}/pods"
Document = dict[str, Any]


def claiming(template: str = "two", **spec: Any) -> Document:
    """A Job whose pod claims devices, and asks for none by a name."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {labels.QUEUE: "default"}},
        "spec": {"suspend": True, "template": {"spec": pod}, **spec},
    }


def pod_of(job: Document) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stray"},
        "spec": job["spec"]["template"]["spec"],
    }


@pytest.mark.parametrize("is_portal_mode", [True, False], ids=["portal", "kueue"])
def test_claims_wait_for_quota_where_they_count_and_stay_what_they_are(
    bare_cluster: ControlPlane, is_portal_mode: bool
) -> None:
    """As GPUs by name do: suspended, in a queue, and of the template that was counted."""
    name = f"claims-{'portal' if is_portal_mode else 'kueue'}"
    post = Post(False, is_portal_mode, name, is_single=True, counts_claims=True)
    place = {"metadata": {"name": name, "labels": {labels.INSTALLATION: name}}}
    bare_cluster.rest.ensure("/api/v1/namespaces", {"kind": "Namespace", **place})
    apply_policies(bare_cluster, policy_documents(PolicyWish(post)))
    tenant = bare_cluster.rest_as("alice")

    def made(path: str, document: Document, *, stored: bool = False) -> tuple[Document, str]:
        """What it becomes, and why it is refused."""
        try:
            place = path.format(name) + ("" if stored else "?dryRun=All")
            return tenant.create(place, document), ""
        except ApiError as error:
            return {}, str(error)

    def changed(document: Document) -> str:
        try:
            tenant.merge(f"{JOBS.format(name)}/train?dryRun=All", document)
        except ApiError as error:
            return str(error)
        return ""

    def stray() -> str:
        return made(PODS, pod_of(claiming()))[1]

    try:
        eventually(lambda: "Pods with GPUs run as part of a Job" in stray(), why=stray)
        without_queue = claiming()
        del without_queue["metadata"]["labels"]
        for document in (claiming(suspend=False), without_queue):
            found, why = made(JOBS, document)
            # Where the portal decides it is put right, and refused elsewhere.
            is_right = bool(found) and found["spec"]["suspend"]
            assert is_right if is_portal_mode else "so it waits for its quota" in why, (found, why)
        assert made(JOBS, claiming(), stored=True)[1] == ""
        spec = {"template": claiming("nine")["spec"]["template"]}
        assert "they cannot be changed: submit another job" in changed({"spec": spec})
        assert changed({"metadata": {"annotations": {"note": "mine"}}}) == ""
    finally:
        tenant.close()
