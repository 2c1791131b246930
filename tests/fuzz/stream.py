"""Deeds of a stranger, by a seed: sound objects that were changed here and there, and nonsense.

The same seed and kinds make the same deeds. A sound object is grown along its schema: somewhere
below it a field is set, a list is made long or empty, or a part is written anew from nothing.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.documents import labels
from clusters.documents.resources import Resource
from clusters.jobs.table import KINDS
from clusters.kube import resources as r
from tests.fuzz import hostile
from tests.fuzz.schemas import Node, resolved
from tests.resources import TOPOLOGY

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
DEEP = 6
JOB_KINDS: Sequence[Resource] = tuple(
    KINDS[place].resource
    for place in (
        ("jobset.x-k8s.io", "JobSet"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("kubeflow.org", "PyTorchJob"),
        ("ray.io", "RayJob"),
    )
)
INTEGRATIONS = ("batch/job", "pod", *(
    KINDS[kind.group, kind.kind].integration for kind in JOB_KINDS
))  # fmt: skip
# How often each kind is written to, of a hundred.
OFTEN: Mapping[Resource, int] = {
    r.JOB: 30, r.WORKLOAD: 24, r.POD: 18, **dict.fromkeys(JOB_KINDS, 5), r.LOCAL_QUEUE: 2,
    r.WORKLOAD_PRIORITY_CLASS: 1, r.COHORT: 1, r.CLUSTER_QUEUE: 1, r.RESOURCE_FLAVOR: 1,
    r.ADMISSION_CHECK: 1, TOPOLOGY: 1,
}  # fmt: skip
VERBS = ("create", "change", "status", "delete")
_SHARES = (60, 20, 10, 10)


@dataclass(frozen=True, slots=True)
class Deed:
    """One write: the object's name and namespace, and its body; of a change a merge patch."""

    number: int
    verb: str
    resource: Resource
    namespace: str
    name: str
    body: Document

    def __str__(self) -> str:
        shown = json.dumps(self.body, ensure_ascii=True)
        shown = shown if len(shown) < 4000 else f"{shown[:4000]}… ({len(shown)} characters)"
        return f"deed {self.number}: {self.verb} {self.resource.kind} {self.name}: {shown}"


def deeds(seed: int, schemas: Mapping[str, Node]) -> Iterator[Deed]:
    """Deeds without end.

    Args:
        seed: Of all chance.
        schemas: By kind; kinds without one are not written to.
    """
    rng = random.Random(seed)
    kinds = [kind for kind in OFTEN if kind.kind in schemas]
    weights = [OFTEN[kind] for kind in kinds]
    number = 0
    while True:
        resource = rng.choices(kinds, weights)[0]
        verb = rng.choices(VERBS, _SHARES)[0]
        namespace = rng.choice(hostile.NAMESPACES) if resource.namespaced else ""
        name, node = rng.choice(hostile.NAMES), schemas[resource.kind]
        yield Deed(number, verb, resource, namespace, name, _body(rng, verb, resource, node))
        number += 1


def _body(rng: random.Random, verb: str, resource: Resource, node: Node) -> Document:
    if verb == "delete":
        return {}
    if verb == "status":
        found = resolved(node).get("properties", {}).get("status", {})
        return {"status": _filled_status(rng, resource, found)}
    document = sound(rng, resource)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        changed = grown(rng, _main(document), node, 0)
        document = {**document, **(changed if isinstance(changed, dict) else {})}
    _mark(rng, document)
    if verb == "change":
        # Of a merge patch null takes away, which is as good as to set.
        part = {key: document[key] for key in ("spec", "metadata") if key in document}
        return {k: v for k, v in part.items() if rng.random() < 0.7} or part
    return {**document, "apiVersion": resource.api_version, "kind": resource.kind}


def _main(document: Document) -> Document:
    return {k: v for k, v in document.items() if k not in ("metadata", "status")}


def _mark(rng: random.Random, document: Document) -> None:
    metadata = document.setdefault("metadata", {})
    if rng.random() < 0.45:
        found = hostile.marks(rng, is_label=False)
        metadata["annotations"] = {**metadata.get("annotations", {}), **found}
    if rng.random() < 0.3:
        metadata["labels"] = {**metadata.get("labels", {}), **hostile.marks(rng, is_label=True)}
    if rng.random() < 0.2:
        metadata["ownerReferences"] = hostile.owners(rng)
    if rng.random() < 0.06:
        metadata["finalizers"] = rng.sample(hostile.FINALIZERS, 2)


def grown(rng: random.Random, value: Any, node: Node, depth: int) -> Any:
    """A value with one place below it changed, as its schema says."""
    node = resolved(node)
    fields, each = node.get("properties"), node.get("additionalProperties")
    if isinstance(value, dict) and fields and rng.random() < 0.93:
        there = [name for name in fields if name in value]
        name = rng.choice(there if there and rng.random() < 0.75 else list(fields))
        return {**value, name: grown(rng, value.get(name), fields[name], depth + 1)}
    if isinstance(value, dict) and isinstance(each, Mapping):
        keys = [*value, GPU, "cpu", "memory", rng.choice(hostile.NAMES), *hostile.KEYS[:2]]
        return {**value, rng.choice(keys): made(rng, each, depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        inner = node.get("items", {})
        return rng.choice((
            lambda: [*value[:at], grown(rng, value[at], inner, depth + 1), *value[at + 1 :]],
            lambda: [*value[:at], grown(rng, value[at], inner, depth + 1), *value[at + 1 :]],
            lambda: [*value, made(rng, inner, depth + 1)],
            lambda: [],
            lambda: value * 2,
            lambda: (value * (400 // len(value) + 1))[:400] if rng.random() < 0.2 else value[::-1],
        ))()  # fmt: skip
    return made(rng, node, depth)


def made(rng: random.Random, node: Node, depth: int) -> Any:
    """A value from nothing, as its schema says."""
    node = resolved(node)
    if rng.random() < 0.03:
        return None
    if rng.random() < 0.02:
        return rng.choice(("", 0, [], {}, True, 1.5, "1", ["a"], {"a": "b"}, 10**25, -1))
    if "enum" in node:
        return rng.choice(node["enum"])
    kind = node.get("type")
    if node.get("format") == "quantity" or "x-kubernetes-int-or-string" in node:
        is_text = rng.random() < 0.85
        return rng.choice(hostile.QUANTITIES) if is_text else hostile.whole(rng, node)
    if kind == "integer":
        return hostile.whole(rng, node)
    if kind == "number":
        return rng.choice((0, 0.5, -1, 1e308, 10**15))
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "string":
        is_time = node.get("format") == "date-time"
        return rng.choice(hostile.TIMES) if is_time else hostile.text(rng)
    if kind == "array":
        size = rng.choice((0, 1, 1, 2, 3, 19)) if depth < DEEP else rng.choice((0, 1))
        size = min(max(size, node.get("minItems", 0)), node.get("maxItems", size))
        return [made(rng, node.get("items", {}), depth + 1) for _ in range(size)]
    fields, each = node.get("properties"), node.get("additionalProperties")
    if fields:
        names = list(node.get("required") or ())
        more = [name for name in fields if name not in names]
        names += rng.sample(more, min(len(more), rng.choice((0, 1, 2, 4)) if depth < DEEP else 0))
        return {name: made(rng, fields[name], depth + 1) for name in names}
    if isinstance(each, Mapping):
        keys = rng.sample((GPU, "cpu", "memory", *hostile.NAMES), rng.choice((0, 1, 2)))
        return {key: made(rng, each, depth + 1) for key in keys}
    return rng.choice((hostile.text(rng), hostile.whole(rng, node), {}, [], {"a": [{"b": None}]}))


def _filled_status(rng: random.Random, resource: Resource, node: Node) -> Document:
    found: Document = {}
    for _ in range(rng.choice((1, 2, 3))):
        found = grown(rng, found, node, 0) or {}
        if not isinstance(found, dict):
            return {}
    if resource == r.WORKLOAD and rng.random() < 0.4:
        found["admission"] = _admission(rng)
    if rng.random() < 0.6:
        words = (
            "Complete",
            "Failed",
            "Suspended",
            "QuotaReserved",
            "Admitted",
            "Evicted",
            "Finished",
            "PodsReady",
            "Requeued",
            "Preempted",
            "Ready",
            "PodScheduled",
        )
        found["conditions"] = [
            {
                "type": word,
                "status": rng.choice(("True", "False", "Unknown")),
                "reason": rng.choice(("Pending", "Preempted", "Succeeded", "R", "AdmissionCheck")),
                "message": rng.choice(hostile.TEXTS),
                "lastTransitionTime": rng.choice(hostile.TIMES[:5]),
            }
            for word in rng.sample(words, rng.choice((1, 2, 4)))
        ]  # fmt: skip
    return found


def _admission(rng: random.Random) -> Document:
    """Quota and places that nobody gave."""
    many = rng.random() < 0.5
    section = {
        "domainCount": hostile.whole(rng, {"maximum": 100_000}) if many else 1,
        "valuesPerLevel": [{"universal": rng.choice(("a", "", "x" * 63))}],
        "podCounts": {"universal": hostile.whole(rng, {})},
    }
    placed = {"levels": ["kubernetes.io/hostname"], "slices": [section] * rng.choice((1, 2, 900))}
    assignment = {
        "name": "main",
        "count": hostile.whole(rng, {"format": "int32", "minimum": 0}),
        "flavors": {GPU: rng.choice(("h100", "none"))},
        "resourceUsage": {GPU: rng.choice(hostile.QUANTITIES)},
    }
    if rng.random() < 0.7:
        assignment["topologyAssignment"] = placed
    return {"clusterQueue": rng.choice(hostile.NAMESPACES), "podSetAssignments": [assignment]}


# Sound objects


def sound(rng: random.Random, resource: Resource) -> Document:
    """An object that would do no harm, and is admitted where there is room."""
    found = copy.deepcopy(_SOUND[resource.kind](rng))
    if resource.namespaced and resource.kind not in ("LocalQueue",):
        found.setdefault("metadata", {}).setdefault("labels", {})[labels.QUEUE] = "default"
    return found


def _template(rng: random.Random) -> Document:
    amounts = {"cpu": "1", GPU: str(rng.choice((1, 1, 2, 8)))}
    resources = {"requests": amounts, "limits": {GPU: amounts[GPU]}}
    container = {"name": "main", "image": "train:1", "resources": resources}
    return {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def _job(rng: random.Random) -> Document:
    pods = rng.choice((1, 1, 2, 4))
    spec: Document = {
        "suspend": rng.random() < 0.9, "parallelism": pods, "completions": pods,
        "template": _template(rng),
    }  # fmt: skip
    annotations = {}
    if rng.random() < 0.5:
        spec["managedBy"] = labels.MULTIKUEUE
    if rng.random() < 0.3:
        annotations[labels.ELASTIC] = "true"
    if rng.random() < 0.3:
        annotations[labels.MIN_PARALLELISM] = "1"
    return {"metadata": {"annotations": annotations}, "spec": spec}


def _pod(rng: random.Random) -> Document:
    spec = {**_template(rng)["spec"], "schedulingGates": [{"name": labels.ADMISSION_GATE}]}
    metadata: Document = {}
    if rng.random() < 0.5:
        metadata["labels"] = {labels.POD_GROUP: rng.choice(hostile.NAMES[:4])}
        metadata["annotations"] = {labels.POD_GROUP_TOTAL: rng.choice(("1", "2", "3"))}
    return {"metadata": metadata, "spec": spec}


def _workload(rng: random.Random) -> Document:
    pod_set = {"name": "main", "count": rng.choice((1, 2)), "template": _template(rng)}
    if rng.random() < 0.3:
        size = hostile.whole(rng, {"format": "int32"})
        pod_set["topologyRequest"] = {
            rng.choice(("required", "preferred", "podSetSliceRequiredTopology")): rng.choice(
                ("kubernetes.io/hostname", "example.test/rack", "")
            ),
            "podSetSliceSize": size,
        }
    return {"spec": {"active": True, "queueName": "default", "podSets": [pod_set]}}


def _jobset(rng: random.Random) -> Document:
    job = {"parallelism": 1, "completions": 1, "template": _template(rng)}
    rows = [{"name": "workers", "replicas": 2, "template": {"spec": job}}]
    return {"spec": {"suspend": True, "replicatedJobs": rows, "managedBy": labels.MULTIKUEUE}}


def _leader_workers(rng: random.Random) -> Document:
    template = _template(rng)
    template["spec"]["schedulingGates"] = [{"name": labels.ADMISSION_GATE}]
    return {"spec": {"replicas": 2, "leaderWorkerTemplate": {
        "size": 2, "workerTemplate": template, "leaderTemplate": copy.deepcopy(template),
    }}}  # fmt: skip


def _pytorch(rng: random.Random) -> Document:
    policy = {"suspend": True, "managedBy": labels.MULTIKUEUE}
    replicas = {"Master": {"replicas": 1, "template": _template(rng)}}
    return {"spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas}}


def _ray(rng: random.Random) -> Document:
    head = {"rayStartParams": {}, "template": _template(rng)}
    group = {"groupName": "small", "replicas": 1, "rayStartParams": {}, "template": _template(rng)}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [group]}
    spec = {"suspend": True, "submissionMode": "HTTPMode", "entrypoint": "true"}
    return {"spec": {**spec, "managedBy": labels.MULTIKUEUE, "rayClusterSpec": cluster}}


def _queue(rng: random.Random) -> Document:
    quota = {"name": GPU, "nominalQuota": "4"}
    flavors = [{"name": rng.choice(("h100", *hostile.NAMES[:3])), "resources": [quota]}]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    return {"spec": {
        "namespaceSelector": {}, "resourceGroups": groups, "cohortName": rng.choice(hostile.NAMES),
    }}  # fmt: skip


_SOUND = {
    "Job": _job, "Pod": _pod, "Workload": _workload, "JobSet": _jobset,
    "LeaderWorkerSet": _leader_workers, "PyTorchJob": _pytorch, "RayJob": _ray,
    "ClusterQueue": _queue,
    "LocalQueue": lambda rng: {"spec": {"clusterQueue": rng.choice(hostile.NAMES)}},
    "Cohort": lambda rng: {"spec": {"parentName": rng.choice(hostile.NAMES)}},
    "WorkloadPriorityClass": lambda rng: {"value": hostile.whole(rng, {"format": "int32"})},
    "ResourceFlavor": lambda rng: {"spec": {"nodeLabels": {"gpu": "h100"}}},
    "AdmissionCheck": lambda rng: {"spec": {"controllerName": "example.test/nobody"}},
    "Topology": lambda rng: {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}},
}  # fmt: skip
