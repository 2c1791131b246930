"""One story's objects on all clusters as plain values that two runs can be compared by.

Left out: times, UIDs, resource versions, managed fields. Workloads go by the name of their Job;
what is named after the story's namespace goes without it. Values of the portal's own annotations
and of the origin label are not compared, that they are there is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import annotations_of, labels_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from tests.stories.statuses import plain, text_of

Document = Mapping[str, Any]
Snapshot = dict[str, Any]

OURS = "gpu-budget-portal.dev/"
_WORKLOAD_NAME = re.compile(r"^job-(.+)-[0-9a-f]{5}$")
_JOB_FIELDS = (
    "suspend", "managedBy", "parallelism", "completions", "ttlSecondsAfterFinished",
    "activeDeadlineSeconds", "backoffLimit",
)  # fmt: skip
_WORKLOAD_FIELDS = (
    "active", "queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds",
)  # fmt: skip
# Of a Job's status; how pods are on their way out is chance, and times are.
_COUNTS = ("active", "ready", "succeeded", "failed", "startTime", "completionTime", "conditions")
_ABOUT_TIMES = frozenset({"startTime", "completionTime"})


def job_of(workload: Document) -> str:
    """Name of the Job that a Workload is for, copies included."""
    for owner in workload["metadata"].get("ownerReferences") or ():
        return str(owner["name"])
    name = str(workload["metadata"]["name"])
    found = _WORKLOAD_NAME.match(name)
    return found[1] if found else name


def objects_of(client: KubeClient, namespace: str) -> dict[str, dict[str, Document]]:
    """Jobs and Workloads of a namespace, by the name of the Job."""
    selection = Selection(namespace=namespace)
    jobs = {each["metadata"]["name"]: each for each in client.list(r.JOB, selection).items}
    workloads = {job_of(each): each for each in client.list(r.WORKLOAD, selection).items}
    return {"jobs": jobs, "workloads": workloads}


def snapshot(
    clients: Mapping[str, KubeClient], namespace: str, names: Mapping[str, str]
) -> Snapshot:
    """Everything of a story.

    Args:
        clients: By cluster.
        namespace: Of the story.
        names: Clusters that are told under another name: cluster → name.
    """
    found: Snapshot = {}
    for cluster, client in clients.items():
        seen = objects_of(client, namespace)
        told = {
            "jobs": {name: _job(each) for name, each in seen["jobs"].items()},
            "workloads": {name: _workload(each) for name, each in seen["workloads"].items()},
        }
        found[cluster] = {key: value for key, value in told.items() if value}
    return _renamed({key: value for key, value in found.items() if value}, namespace, names)


def _renamed(found: Snapshot, namespace: str, names: Mapping[str, str]) -> Snapshot:
    if not (names or namespace):
        return found
    text = json.dumps(found).replace(f"{namespace}-", "").replace(namespace, "<story>")
    for cluster, name in names.items():
        text = text.replace(cluster, f"<{name}>")
    renamed: Snapshot = json.loads(text)
    return _sorted_names(renamed)


def _sorted_names(value: Any) -> Any:
    """Lists of nominated clusters in an order that does not hang on who won."""
    if isinstance(value, dict):
        return {
            key: sorted(each) if key == "nominatedClusterNames" else _sorted_names(each)
            for key, each in sorted(value.items())
        }
    return [_sorted_names(each) for each in value] if isinstance(value, list) else value


def _job(job: Document) -> Snapshot:
    spec, status = job["spec"], job.get("status") or {}
    template = spec["template"]
    status = status | {
        "conditions": [each for each in status.get("conditions") or () if _tells(each)]
    }
    counts = {key: status[key] for key in _COUNTS if status.get(key) not in (None, [], 0)}
    found = {
        **{key: spec[key] for key in _JOB_FIELDS if key in spec},
        "nodeSelector": template["spec"].get("nodeSelector"),
        "status": plain({key: "<time>" if key in _ABOUT_TIMES else counts[key] for key in counts}),
    }
    kept = {key: value for key, value in found.items() if value not in (None, {}, [])}
    return {**_marks(job), **kept}


def _tells(condition: Document) -> bool:
    """That a Job is not suspended is told only where its controller once saw it suspended."""
    return (condition["type"], condition["status"]) != ("Suspended", "False")


def _workload(workload: Document) -> Snapshot:
    spec = workload["spec"]
    shown = {key: spec[key] for key in _WORKLOAD_FIELDS if key in spec}
    shown["podSets"] = [
        {key: item[key] for key in ("name", "count", "minCount") if key in item}
        for item in spec["podSets"]
    ]
    status = plain(workload.get("status") or {})
    return {
        **_marks(workload),
        "spec": shown,
        "status": {key: value for key, value in status.items() if value not in (None, {}, [])},
    }


def _marks(document: Document) -> Snapshot:
    own, annotations = labels_of(document), annotations_of(document)
    return {
        "labels": {
            key: "<origin>" if key == labels.ORIGIN else text_of(value)
            for key, value in own.items()
            if key not in labels.GENERATED_LABELS
        },
        "annotations": {
            key: "<ours>" if key.startswith(OURS) else text_of(value)
            for key, value in annotations.items()
        },
    }
