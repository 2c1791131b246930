"""Three clusters to run faults on, embedded or real, with quota, and the jobs that they take."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusters import selectors
from clusters.devcluster.controllers import EXIT_CODE as ENDS_WITH
from clusters.kube.client import KubeClient, WriteOptions
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT, PORTAL_ACCOUNT
from clusters.models import Cluster
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet, KueueOptions, start_fleet
from tests.controlplane.kwok_nodes import EXIT_CODE, RUN_FOR, NodeShape
from tests.faults.schedule import CLUSTERS, GPUS_PER_WORKER, WORKERS, Arrival
from tests.faults.timeline import MANAGER
from tests.kube.apply import apply_documents
from tests.reconcile.admission_harness import (
    Document,
    Embedded,
    job,
    limited,
    multikueue_objects,
    quota_objects,
)
from tests.resources import resource_of

NODE_LABELS = {"gpu": "h100"}
QUOTA: Mapping[str, int] = {
    MANAGER: GPUS_PER_WORKER * len(WORKERS),
    **dict.fromkeys(WORKERS, GPUS_PER_WORKER),
}


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a run takes place.

    Attributes:
        name: ``embedded`` or ``real``.
        clients: An administrator's, by cluster.
        admins: Kubeconfigs of somebody who may see everything, by cluster.
        portal: Of the portal's identity, by cluster.
        multikueue: Of the identity that dispatch has on workers.
        places: What runs each cluster: a ``ControlPlane``, or the ``Place`` of an embedded one.
    """

    name: str
    clients: Mapping[str, KubeClient]
    admins: Mapping[str, str]
    portal: Mapping[str, str]
    multikueue: Mapping[str, str]
    places: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self) -> None:
        """Queues, flavors and the check; the same on both grounds."""
        self._create(MANAGER, *multikueue_objects(*WORKERS))
        for cluster, gpus in QUOTA.items():
            self._create(cluster, *quota_objects(gpus, check=cluster == MANAGER, labels={}))

    def _create(self, cluster: str, *documents: Document) -> None:
        for document in documents:
            self.clients[cluster].create(resource_of(document), document)


@contextmanager
def embedded_ground(*, is_bare: bool = False) -> Iterator[Ground]:
    """Three embedded API servers; bare ones have no queues yet."""
    with Embedded(*CLUSTERS, webhooks=True) as fleet:
        texts = {name: place.kubeconfig for name, place in fleet.places.items()}
        clients: dict[str, Any] = {name: place.client for name, place in fleet.places.items()}
        ground = Ground("embedded", clients, texts, texts, texts, fleet.places)
        if not is_bare:
            ground.prepare()
        yield ground


@contextmanager
def real_ground(*, is_bare: bool = False) -> Iterator[Ground]:
    """Three real control planes without a Kueue; pods run under kwok; the generated rights.

    Bare ones have no queues yet.
    """
    with tempfile.TemporaryDirectory(prefix="fault-run-") as folder:
        fleet = start_fleet(len(WORKERS), kueue=False, kwok=True, folder=Path(folder))
        with fleet, ExitStack() as stack:
            ground = _over(fleet, stack)
            if not is_bare:
                ground.prepare()
            yield ground


@contextmanager
def kueue_ground(*, part: str, config: Mapping[str, Any]) -> Iterator[Ground]:
    """Three real control planes on which Kueue decides; pods run under kwok; no queues yet.

    Args:
        part: Of ``build``: which version of Kueue runs.
        config: Of Kueue, on every cluster.
    """
    options = KueueOptions(config=config, part=part)
    with tempfile.TemporaryDirectory(prefix="fault-run-") as folder:
        fleet = start_fleet(len(WORKERS), kwok=True, folder=Path(folder), kueue_options=options)
        with fleet, ExitStack() as stack:
            yield _over(fleet, stack, mode="kueue")


def _over(fleet: Fleet, stack: ExitStack, *, mode: str = "portal") -> Ground:
    planes = dict(zip(CLUSTERS, fleet.clusters, strict=True))
    shape = NodeShape(gpus=GPUS_PER_WORKER, labels=NODE_LABELS)
    for name in WORKERS:
        planes[name].create_nodes(2, shape=shape, prefix=name)
    admins = {name: plane.admin_kubeconfig.read_text() for name, plane in planes.items()}
    clients = {
        name: stack.enter_context(KubeClient.from_kubeconfig(text)) for name, text in admins.items()
    }
    for name in CLUSTERS:
        role = "manager" if name == MANAGER else "worker"
        grant(clients[name], role=role, workers=WORKERS, mode=mode)
    return Ground(
        "real",
        clients,
        admins,
        {name: identity(plane, PORTAL_ACCOUNT) for name, plane in planes.items()},
        {name: identity(planes[name], MULTIKUEUE_ACCOUNT) for name in WORKERS},
        planes,
    )


def grant(client: KubeClient, *, role: str, workers: Sequence[str], mode: str = "portal") -> None:
    """Make the portal's identities with exactly the generated rights; no policies."""
    kinds = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role"}
    wanted = selectors.rights_documents(Cluster(role=role, mode=mode), workers=workers)
    documents = [item for item in wanted if item["kind"] in kinds | {"RoleBinding"}]
    report = apply_documents(client, documents, options=WriteOptions(force=True))
    assert report.is_complete, report.failed


def identity(plane: ControlPlane, account: str) -> str:
    """A kubeconfig of one of them, for four hours."""
    return plane.kubeconfig_for(account, namespace=KUEUE_NAMESPACE, lifetime_s=4 * 3600)


def job_of(arrival: Arrival) -> Document:
    """The Job of an arrival, as its owner submits it to the manager."""
    document = job(arrival.name, gpus=arrival.gpus, run_s=arrival.run_s, managed=True)
    return _steered(document, arrival)


def squatter_of(arrival: Arrival) -> Document:
    """Somebody else's Job of the same name, for a worker; it waits there, outside every queue."""
    document = job(arrival.name, gpus=1, run_s=1)
    del document["metadata"]["labels"]
    return _steered(document, arrival)


def _steered(document: Document, arrival: Arrival) -> Document:
    code = "1" if arrival.fails else "0"
    document["metadata"]["annotations"][ENDS_WITH] = code
    template = document["spec"]["template"]
    # kwok takes whole milliseconds in Go's form.
    steering = {RUN_FOR: f"{round(arrival.run_s * 1000)}ms", EXIT_CODE: code}
    template["metadata"] = {"annotations": steering}
    document["spec"]["backoffLimit"] = 0
    return limited(document)
