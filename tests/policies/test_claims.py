"""Who claims devices where they count: the policies on a real API server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.documents import labels
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post
from clusters.manifests.wish import PolicyWish
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fixtures import require_parts
from tests.controlplane.rest import ApiError, Rest
from tests.policies import objects as o
from tests.policies.ground import apply_policies
from tests.waiting import eventually

pytestmark = pytest.mark.controlplane

NAMESPACE = "claiming"
CRDS = {"jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org"}
WAITS = "asks for GPUs, so it waits for its quota"
WITH_LISTS, WITH_MAPS = "JobSet", "PyTorchJob"


def claiming(kind: str, template: str = "two", *, suspended: bool = True) -> o.Document:
    """A job whose pods claim devices, and ask for none by a name."""
    made = o.job(kind, "train", suspended=suspended, queue="default", device="")
    for spec in o.pod_specs(made):
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return made


def refusal(ask: Callable[[], object]) -> str:
    """Why something is refused; empty when it is not."""
    try:
        ask()
    except ApiError as error:
        return str(error)
    return ""


def place(kind: str) -> str:
    return o.KINDS[kind].resource.path(namespace=NAMESPACE)


@pytest.fixture
def tenant(own_cluster: ControlPlane, is_portal_mode: bool) -> Rest:
    """Who has every right on a cluster of its own where devices of claims count."""
    require_parts(("jobset", "kuberay"))
    for crd in o.crds():
        if crd["metadata"]["name"] in CRDS:
            own_cluster.rest.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    post = Post(False, is_portal_mode, "claims", is_single=True, counts_claims=True)
    marks = {"name": NAMESPACE, "labels": {labels.INSTALLATION: "claims"}}
    own_cluster.rest.ensure("/api/v1/namespaces", {"kind": "Namespace", "metadata": marks})
    apply_policies(own_cluster, policy_documents(PolicyWish(post)))
    return own_cluster.rest


@pytest.mark.parametrize("is_portal_mode", [True, False], ids=["portal", "kueue"])
def test_claims_wait_for_quota_where_they_count_and_stay_what_they_are(
    tenant: Rest, is_portal_mode: bool
) -> None:
    """As GPUs by name do: suspended, in a queue, and of the template that was counted."""
    stray = o.pod("stray", "", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "two"}])

    def stray_refusal() -> str:
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        return refusal(lambda: tenant.create(pods, stray))

    eventually(lambda: "Pods with GPUs run as part of a Job" in stray_refusal(), why=stray_refusal)
    for kind in (WITH_LISTS, WITH_MAPS):

        def at_once(kind: str = kind) -> str:
            made = claiming(kind, suspended=False)
            return refusal(lambda: tenant.create(f"{place(kind)}?dryRun=All", made))

        # Each policy is in force in its own time.
        eventually(lambda asked=at_once: WAITS in asked(), why=at_once)
        made = claiming(kind)
        tenant.create(place(kind), made)
        address = f"{place(kind)}/train"
        other = {"spec": claiming(kind, "nine")["spec"]}
        said = refusal(lambda at=address, change=other: tenant.merge(at, change))
        assert "they cannot be changed: submit another job" in said
        tenant.merge(address, {"metadata": {"annotations": {"note": "mine"}}})
