"""Real clusters registered under the generated least rights."""

from __future__ import annotations

from clusters import selectors, services
from clusters.kube.client import KubeClient, WriteOptions
from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
from clusters.models import Cluster
from tests.controlplane.control_plane import ControlPlane
from tests.kube.apply import apply_documents


def admin_client(plane: ControlPlane) -> KubeClient:
    """The administrator's client; for what an admin does, and to look."""
    return KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text())


def grant_rights(plane: ControlPlane, *, role: str, mode: str, workers: tuple[str, ...] = ()):
    """Apply what ``manage.py worker_rbac`` prints, as an admin would."""
    return grant_to(plane, Cluster(role=role, mode=mode), workers=workers)


def grant_to(plane: ControlPlane, cluster: Cluster, *, workers: tuple[str, ...] = ()):
    """Apply what the page of a cluster gives, as an admin would."""
    documents = selectors.rights_documents(cluster, workers=workers)
    with admin_client(plane) as client:
        report = apply_documents(
            client, documents, options=WriteOptions(field_manager="kubectl", force=True)
        )
    assert report.is_complete, report.failed
    return documents


def register_real(
    plane: ControlPlane, slug: str, *, role: str, mode: str, workers: tuple[str, ...] = ()
) -> Cluster:
    """Grant, make a kubeconfig of the portal's service account, register."""
    grant_rights(plane, role=role, mode=mode, workers=workers)
    text = plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
    return services.register_cluster(
        None, slug=slug, name=slug, role=role, mode=mode, kubeconfig=text
    )
