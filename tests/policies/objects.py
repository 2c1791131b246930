"""Objects of every kind that can end in pods with GPUs, as people write them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from clusters.documents import labels
from clusters.documents import resources as r
from clusters.documents.resources import Resource
from clusters.jobs.described import Described
from clusters.jobs.kind import JobKind
from clusters.jobs.paths import entries, put, values
from clusters.jobs.table import suspendable
from clusters.manifests.guards import suspend_path
from tests.controlplane import build

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
GATE = {"name": labels.ADMISSION_GATE}
SELECTED = {"app": "it"}
KINDS: Mapping[str, JobKind] = {kind.resource.kind: kind for kind in suspendable()}
# What the schemas of real CRDs insist on.
_ASKED = {
    "RayJob": {"entrypoint": "python it.py"},
    "RayService": {"serveConfigV2": "applications: []"},
    "AppWrapper": {"components": [{"template": {"kind": "Pod"}}]},
    "TrainJob": {"runtimeRef": {"name": "torch"}},
}


def queued(queue: str) -> Document:
    """The label of a queue; none when it is empty."""
    return {labels.QUEUE: queue} if queue else {}


def template(device: str = GPU, *, place: str = "containers", **spec: Any) -> Document:
    """A pod template that asks for one device; for none when it is empty."""
    main: Document = {"name": "main", "image": "it:1"}
    asking = {**main, "name": "asking", "resources": {"limits": {device: "1"}}}
    body: Document = {"restartPolicy": "Never", "containers": [main], **spec}
    if device:
        body[place] = [*body.get(place, ()), asking]
    return {"metadata": {"labels": dict(SELECTED)}, "spec": body}


def pod(
    name: str, device: str = GPU, *, queue: str = "", gated: bool = False, **more: Any
) -> Document:
    """A pod by itself."""
    made = template(device, **more)
    if gated:
        made["spec"]["schedulingGates"] = [GATE]
    made["metadata"] = {"name": name, "labels": {**SELECTED, **queued(queue)}}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def job(
    kind: str,
    name: str,
    *,
    suspended: bool = False,
    queue: str = "closed",
    device: str = GPU,
    managed_by: str = "",
) -> Document:
    """A job of a kind that queues as a whole, with one pod."""
    row = KINDS[kind]
    spec: Document = copy.deepcopy(_ASKED.get(kind, {}))
    if isinstance(row, Described):
        for place in row.pod_sets_at:
            _put_pods(spec, place.at, place.template, template(device), bool(place.name_field))
    else:
        spec |= {"parallelism": 1, "template": template(device)}
    put(spec, suspend_path(row), suspended)
    if managed_by:
        put(spec, row.managed_by, managed_by)
    metadata: Document = {"name": name, "labels": queued(queue)}
    return {
        "apiVersion": row.resource.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def pod_specs(document: Document) -> list[Document]:
    """Where the pods of a job are specified, to be changed in place."""
    row = KINDS[document["kind"]]
    if not isinstance(row, Described):
        return [document["spec"]["template"]["spec"]]
    return [
        found
        for place in row.pod_sets_at
        for _, entry in entries(document["spec"], place.at)
        for found in values(entry, f"{place.template}.spec")
    ]


def wider(document: Document) -> Document:
    """The same job with more pods."""
    found = copy.deepcopy(document)
    spec = found["spec"]
    kind = found["kind"]
    if kind == "Job":
        spec["parallelism"] = 4
    elif kind == "JobSet":
        spec["replicatedJobs"][0]["replicas"] = 4
    elif kind in ("AppWrapper", "TrainJob"):
        spec["numNodes"] = 4
    elif "Ray" in kind:
        cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
        cluster["workerGroupSpecs"][0]["replicas"] = 4
    else:
        next(value for key, value in spec.items() if key.endswith("ReplicaSpecs"))["Worker"][
            "replicas"
        ] = 4
    return found


def pod_maker(
    resource: Resource,
    name: str,
    device: str = GPU,
    *,
    queue: str = "",
    gated: bool = False,
    **more: Any,
) -> Document:
    """A Deployment or what else makes pods for ever."""
    gates: Document = {"schedulingGates": [GATE]} if gated else {}
    made = template(device, restartPolicy="Always", **gates, **more)
    made["metadata"]["labels"] |= queued(queue)
    selector: Document = dict(SELECTED) if not resource.group else {"matchLabels": dict(SELECTED)}
    spec: Document = {"selector": selector, "template": made}
    if resource.kind == "StatefulSet":
        spec["serviceName"] = "it"
    if resource.kind == "LeaderWorkerSet":
        spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": made}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": queued(queue)},
        "spec": spec,
    }


def cron_job(name: str, *, queue: str, device: str = GPU, **spec: Any) -> Document:
    made = {"metadata": {"labels": queued(queue)}, "spec": {"template": template(device, **spec)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": made},
    }


def workload(name: str) -> Document:
    entry = {"name": "main", "count": 1, "template": {"spec": template()["spec"]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queueName": "closed", "podSets": [entry]},
    }


def owner(kind: str, name: str, uid: str) -> Document:
    """A reference that says that a job controls an object; nobody verifies it."""
    row = KINDS[kind].resource
    return {
        "apiVersion": row.api_version, "kind": kind, "name": name, "uid": uid, "controller": True,
    }  # fmt: skip


def crds() -> list[Document]:
    """Definitions of every kind: those of the operators, open ones for the others."""
    real = [*build.operator_crds("jobset"), *build.operator_crds("kuberay")]
    known = {crd["metadata"]["name"] for crd in real}
    more = (*(kind.resource for kind in KINDS.values()), LEADER_WORKER_SET)
    return [
        *real,
        *(
            _open(each)
            for each in more
            if each != r.JOB and f"{each.plural}.{each.group}" not in known
        ),
    ]


LEADER_WORKER_SET = Resource(labels.SET_GROUP, "v1", "leaderworkersets", labels.SET_KIND, True)


def _put_pods(spec: Document, at: str, path: str, made: Document, is_list: bool) -> None:
    entry: Document = {"replicas": 1}
    put(entry, path, made)
    if at == "":
        spec |= {path: made}
    elif not at.endswith(".*"):
        put(spec, at, {"rayStartParams": {}, path: made})
    elif not is_list:
        put(spec, at.removesuffix(".*"), {"Worker": entry})
    elif "workerGroup" in at:
        bounds = {"minReplicas": 1, "maxReplicas": 9, "groupName": "all", "rayStartParams": {}}
        put(spec, at.removesuffix(".*"), [{**entry, **bounds}])
    else:
        put(spec, at.removesuffix(".*"), [{"name": "all", **entry}])


def _open(resource: Resource) -> Document:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version, "served": True, "storage": True,
        "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
    }  # fmt: skip
    names = {"kind": resource.kind, "plural": resource.plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group, "names": names, "scope": "Namespaced", "versions": [version],
        },
    }  # fmt: skip
