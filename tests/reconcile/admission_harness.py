"""Embedded clusters with shifts on them, and the documents that stories are made of."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.controllers import RUN_SECONDS, JobRunner
from clusters.devcluster.server import DevServer
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.reconcile.context import ClusterFacts
from clusters.reconcile.foreground import ForegroundShift, work_in_foreground
from tests.resources import resource_of
from tests.waiting import PATIENCE_S

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
UNLIMITED = "9223372036854775807"
NS = "acme-vision"
INSTALLATION = "test-installation"
CHECK = "gpu-budget-portal"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def facts(
    name: str, *, is_manager: bool = False, pk: int = 0, mode: str = "portal", **changes: Any
) -> ClusterFacts:
    return ClusterFacts(
        pk=pk,
        slug=name,
        is_manager=is_manager,
        mode=mode,
        state="active",
        generation=1,
        installation=INSTALLATION,
        **changes,
    )


class RunningShift:
    """A shift in a thread of its own; `error` is what ended it."""

    def __init__(self, shift: ForegroundShift) -> None:
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._shift = shift
        self._thread = threading.Thread(target=self._run, name=shift.holder, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            work_in_foreground(self._shift, stop=self._stop)
        except BaseException as error:
            self.error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the shift does not end"

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.ask_to_stop()
        self.join()


class Place:
    """One cluster with a client."""

    def __init__(self, name: str, client: KubeClient, kubeconfig: str) -> None:
        self.name, self.client, self.kubeconfig = name, client, kubeconfig
        self.server: DevServer | None = None

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Document | None:
        try:
            return self.client.get(resource, name, namespace=namespace)
        except NotFound:
            return None

    def create(self, *documents: Document) -> None:
        for document in documents:
            self.client.create(resource_of(document), document)

    def all(self, resource: Resource) -> list[Document]:
        return self.client.list(resource).items

    def job(self, name: str, namespace: str = NS) -> Document | None:
        return self.get(r.JOB, name, namespace)

    def workload_of(self, job: str, namespace: str = NS) -> Document | None:
        """The Workload that belongs to a Job: its own or the prebuilt one."""
        for workload in self.all(r.WORKLOAD):
            if workload["metadata"]["namespace"] != namespace:
                continue
            owners = workload["metadata"].get("ownerReferences") or []
            if any(owner["name"] == job for owner in owners):
                return workload
        return None

    def patch_status(self, resource: Resource, name: str, status: Document) -> None:
        from clusters.kube.client import WriteOptions

        self.client.patch(
            resource, name, {"status": status}, options=WriteOptions(subresource="status")
        )


class Embedded:
    """Embedded clusters; use as a context manager."""

    def __init__(self, *names: str, webhooks: bool = False) -> None:
        self._names, self._webhooks = names, webhooks
        self._stack = ExitStack()
        self.places: dict[str, Place] = {}
        self.shifts: list[RunningShift] = []

    def __enter__(self) -> Embedded:
        for name in self._names:
            options = ClusterOptions(name=name, webhooks=self._webhooks, bookmark_every_s=0.5)
            server = self._stack.enter_context(DevServer(DevCluster(options)))
            runner = JobRunner(server.cluster)
            runner.start()
            self._stack.callback(runner.stop)
            client = self._stack.enter_context(KubeClient.from_kubeconfig(server.kubeconfig))
            place = Place(name, client, server.kubeconfig)
            place.server = server
            self.places[name] = place
        return self

    def __exit__(self, *error: object) -> None:
        running = [shift for shift in self.shifts if not shift.is_over]
        for shift in running:
            shift.ask_to_stop()
        for shift in running:
            shift.join()
        self._stack.close()

    def __getitem__(self, name: str) -> Place:
        return self.places[name]

    def start(
        self,
        name: str,
        role: str,
        *,
        workers: tuple[str, ...] = (),
        holder: str = "",
        lease_s: int = 15,
        body: Any = None,
        **changes: Any,
    ) -> RunningShift:
        place = self.places[name]
        shift = ForegroundShift(
            kubeconfig=place.kubeconfig,
            role=role,
            facts=facts(name, is_manager=bool(workers), **changes),
            holder=holder or f"{role}-{name}-{len(self.shifts)}",
            workers={worker: self.places[worker].kubeconfig for worker in workers},
            lease_s=lease_s,
            body=body,
        )
        running = RunningShift(shift)
        self.shifts.append(running)
        return running


def kueue(kind: str, name: str, spec: Document, namespace: str = "") -> Document:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def quota_objects(
    gpus: int,
    *,
    namespace: str = NS,
    flavor: str = "h100",
    cohort: str = "",
    borrow: int | None = None,
    check: bool = False,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> list[Document]:
    """Namespace, flavor, ClusterQueue and LocalQueue of one workspace."""
    gpu = {"name": GPU, "nominalQuota": str(gpus)}
    if borrow is not None:
        gpu["borrowingLimit"] = str(borrow)
    rest = [{"name": name, "nominalQuota": UNLIMITED} for name in ("cpu", "memory")]
    queue: Document = {
        "namespaceSelector": {},
        "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": [gpu]}]},
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "host", "resources": rest}],
            },
        ],
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        **spec,
    }
    if cohort:
        queue["cohortName"] = cohort
    if check:
        queue["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    node_labels = {"gpu": flavor} if labels is None else dict(labels)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        kueue("ResourceFlavor", flavor, {"nodeLabels": node_labels}),
        kueue("ResourceFlavor", "host", {}),
        kueue("ClusterQueue", namespace, queue),
        kueue("LocalQueue", "default", {"clusterQueue": namespace}, namespace),
    ]


def multikueue_objects(*workers: str) -> list[Document]:
    """What the manager knows of its workers."""
    source = {"clusterSource": {"kubeConfig": {"location": "x", "locationType": "Secret"}}}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK}
    return [
        *[kueue("MultiKueueCluster", worker, source) for worker in workers],
        kueue("MultiKueueConfig", CHECK, {"clusters": list(workers)}),
        kueue("AdmissionCheck", CHECK, {"controllerName": MULTIKUEUE, "parameters": parameters}),
    ]


def job(
    name: str,
    *,
    gpus: int = 1,
    pods: int = 1,
    run_s: float = 0.3,
    managed: bool = False,
    namespace: str = NS,
    priority_class: str = "",
    **spec: Any,
) -> Document:
    """A Job as a user submits it."""
    requests = {"cpu": "4", "memory": "16Gi", GPU: str(gpus)}
    labels = {"kueue.x-k8s.io/queue-name": "default"}
    if priority_class:
        labels["kueue.x-k8s.io/priority-class"] = priority_class
    container = {"name": "main", "image": "train:1", "resources": {"requests": requests}}
    body: Document = {
        "suspend": True,
        "parallelism": pods,
        "completions": pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        **spec,
    }
    if managed:
        body["managedBy"] = MULTIKUEUE
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {RUN_SECONDS: str(run_s)},
        },
        "spec": body,
    }


def limited(document: Document) -> Document:
    """The same Job as a real API server takes it: with a limit of what cannot be overcommitted."""
    [container] = document["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {GPU: container["resources"]["requests"][GPU]}
    return document


def condition(document: Document | None, kind: str) -> Document:
    for entry in ((document or {}).get("status") or {}).get("conditions") or []:
        if entry["type"] == kind:
            return entry
    return {}


def is_true(document: Document | None, kind: str) -> bool:
    return condition(document, kind).get("status") == "True"
