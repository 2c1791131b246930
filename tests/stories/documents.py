"""Short forms of the documents that stories are made of; whole documents pass as they are.

* ``{job: train, gpus: 2, pods: 3, ...}``: a Job under the LocalQueue ``team``. Also ``queue``,
  ``namespace``, ``priority`` (a WorkloadPriorityClass), ``labels``, ``annotations``, ``suspend``,
  ``spec`` (merged into the Job's) and ``pod`` (merged into the pod's).
* ``{queue: team, flavors: {h100: 8}, ...}``: a ClusterQueue and a LocalQueue of that name. A flavor
  may be ``{nominal: 8, borrow: 4, lend: 2}``; ``spec`` is merged into the ClusterQueue's.
* ``{flavor: h100, labels: {...}, taints: [...]}``, ``{cohort: all, flavors: {...}, spec: {...}}``,
  ``{priority: high, value: 100}``, ``{admission_check: name}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
NAMESPACE = "story"
GPU = "nvidia.com/gpu"
KUEUE = "kueue.x-k8s.io/v1beta2"
CONTROLLER = "example.com/by-hand"


def documents_of(entry: Mapping[str, Any]) -> list[Document]:
    """The documents that one entry of a story stands for.

    Raises:
        ValueError: neither a document nor a short form.
    """
    if "apiVersion" in entry:
        return [dict(entry)]
    for name, make in _FORMS.items():
        if name in entry:
            given = dict(entry)
            return make(given.pop(name), **given)
    raise ValueError(f"no document and none of {', '.join(_FORMS)}: {dict(entry)}")


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> Document:
    """Maps merged key by key, anything else replaced."""
    found = dict(base)
    for key, value in more.items():
        below = found.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merged(below, value)
        found[key] = value
    return found


def _kueue(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "") -> Document:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _job(
    name: str,
    *,
    gpus: int = 1,
    pods: int = 1,
    queue: str = "team",
    namespace: str = NAMESPACE,
    priority: str = "",
    suspend: bool = True,
    **more: Mapping[str, Any],
) -> list[Document]:
    labels = {"kueue.x-k8s.io/queue-name": queue, **(more.get("labels") or {})}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    amount = {GPU: str(gpus)}
    container = {
        "name": "main",
        "image": "registry.invalid/train:1",
        "resources": {"requests": amount, "limits": amount},
    }
    pod = merged({"restartPolicy": "Never", "containers": [container]}, more.get("pod") or {})
    spec = {"parallelism": pods, "completions": pods, "suspend": suspend, "template": {"spec": pod}}
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {key: value for key, value in labels.items() if value},
        "annotations": dict(more.get("annotations") or {}),
    }
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": merged(spec, more.get("spec") or {}),
        }
    ]


def _quota(flavors: Mapping[str, Any]) -> Document:
    listed = []
    for name, amount in flavors.items():
        given = amount if isinstance(amount, Mapping) else {"nominal": amount}
        entry = {"name": GPU, "nominalQuota": str(given["nominal"])}
        for short, field in (("borrow", "borrowingLimit"), ("lend", "lendingLimit")):
            if short in given:
                entry[field] = str(given[short])
        listed.append({"name": name, "resources": [entry]})
    return {"resourceGroups": [{"coveredResources": [GPU], "flavors": listed}]}


def _queue(
    name: str,
    *,
    flavors: Mapping[str, Any],
    cohort: str = "",
    namespace: str = NAMESPACE,
    spec: Mapping[str, Any] | None = None,
) -> list[Document]:
    whole = merged({"namespaceSelector": {}, **_quota(flavors)}, spec or {})
    if cohort:
        whole["cohortName"] = cohort
    return [
        _kueue("ClusterQueue", name, whole),
        _kueue("LocalQueue", name, {"clusterQueue": name}, namespace),
    ]


def _cohort(
    name: str, *, flavors: Mapping[str, Any] | None = None, spec: Mapping[str, Any] | None = None
) -> list[Document]:
    return [_kueue("Cohort", name, merged(_quota(flavors) if flavors else {}, spec or {}))]


def _flavor(
    name: str, *, labels: Mapping[str, str] | None = None, taints: Any = None
) -> list[Document]:
    spec: Document = {"nodeLabels": dict(labels)} if labels else {}
    if taints:
        spec["nodeTaints"] = list(taints)
    return [_kueue("ResourceFlavor", name, spec)]


def _priority(name: str, *, value: int) -> list[Document]:
    found = _kueue("WorkloadPriorityClass", name, {})
    del found["spec"]
    return [found | {"value": value}]


def _check(name: str) -> list[Document]:
    """An AdmissionCheck that somebody plays by hand; its status says that it is active."""
    found = _kueue("AdmissionCheck", name, {"controllerName": CONTROLLER})
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "played by hand",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return [found | {"status": {"conditions": [active]}}]


# The first key that is there names the form: a job may name its queue and priority.
_FORMS = {
    "job": _job,
    "queue": _queue,
    "cohort": _cohort,
    "flavor": _flavor,
    "admission_check": _check,
    "priority": _priority,
}
