"""The documents of a story, in a namespace of its own so that stories share clusters.

ClusterQueues, Cohorts, AdmissionChecks and MultiKueueConfigs are named after that namespace;
flavors, priority classes and MultiKueueClusters are shared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from clusters.documents import labels
from tests.reconcile.admission_harness import INSTALLATION, MULTIKUEUE, kueue
from tests.stories.documents import GPU, documents_of, merged
from tests.stories.fleets.form import MANAGER, WORKERS, FleetStory

Document = dict[str, Any]
QUEUE = "team"
FLAVOR = "story-gpu"
# No node has it: the pods stay pending until a story plays them.
NODE_LABELS = {"story.test/pool": "played"}
PRIORITIES: Mapping[str, int] = {"story-low": 10, "story-high": 1000}
_NAMED_AFTER = frozenset({"ClusterQueue", "Cohort", "AdmissionCheck", "MultiKueueConfig"})


def shared_objects() -> list[Document]:
    """What every cluster has before the first story."""
    classes = []
    for name, value in PRIORITIES.items():
        document = kueue("WorkloadPriorityClass", name, {})
        del document["spec"]
        classes.append(document | {"value": value})
    return [kueue("ResourceFlavor", FLAVOR, {"nodeLabels": NODE_LABELS}), *classes]


def fleet_objects() -> list[Document]:
    """What the manager has besides: one MultiKueueCluster for each worker."""
    return [
        kueue(
            "MultiKueueCluster",
            worker,
            {"clusterSource": {"kubeConfig": {"location": worker, "locationType": "Secret"}}},
        )
        for worker in WORKERS
    ]


def namespace_of(story: FleetStory) -> Document:
    marks = {labels.INSTALLATION: INSTALLATION}
    metadata = {"name": story.namespace, "labels": marks}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def check_of(story: FleetStory) -> str:
    """Name of the story's MultiKueue check."""
    return f"{story.namespace}-multikueue"


def story_objects(story: FleetStory, origin: str) -> Iterable[tuple[str, Document]]:
    """(cluster, document) of everything that is there when a story begins, namespaces aside."""
    check = check_of(story)
    config = kueue("MultiKueueConfig", check, {"clusters": list(story.workers)})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": check}
    spec = {"controllerName": MULTIKUEUE, "parameters": parameters}
    yield MANAGER, config
    yield MANAGER, kueue("AdmissionCheck", check, spec)
    for entry in story.objects:
        given = dict(entry)
        on = given.pop("where", MANAGER)
        for document in made(story, given, on=on, origin=origin):
            yield on, document
    for cluster, quota in story.quota.items():
        for document in _queues(story, cluster, quota):
            yield cluster, document


def made(story: FleetStory, entry: Mapping[str, Any], *, on: str, origin: str) -> list[Document]:
    """The documents of one entry, localised; Jobs of the manager are MultiKueue's.

    ``$origin`` in an entry stands for this manager's origin.
    """
    given = json.loads(json.dumps(dict(entry)).replace("$origin", origin))
    is_managed = given.pop("managed", on == MANAGER)
    found = documents_of(given)
    for document in found:
        metadata = document["metadata"]
        if document["kind"] in _NAMED_AFTER:
            metadata["name"] = f"{story.namespace}-{metadata['name']}"
        else:
            metadata["namespace"] = story.namespace
        if document["kind"] == "Job" and is_managed:
            document["spec"].setdefault("managedBy", MULTIKUEUE)
        if document["kind"] == "LocalQueue":
            queue = document["spec"]["clusterQueue"]
            document["spec"]["clusterQueue"] = f"{story.namespace}-{queue}"
    return found


def _queues(story: FleetStory, cluster: str, quota: Any) -> list[Document]:
    given = dict(quota) if isinstance(quota, Mapping) else {"nominal": quota}
    checks = [f"{story.namespace}-{name}" for name in given.get("checks") or ()]
    if cluster == MANAGER and given.get("dispatch", True):
        checks.insert(0, check_of(story))
    resource = {"name": GPU, "nominalQuota": str(given["nominal"])}
    flavors = [{"name": FLAVOR, "resources": [resource]}]
    spec: Document = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": each} for each in checks]}
    name = story.namespace
    return [
        kueue("ClusterQueue", name, merged(spec, given.get("spec") or {})),
        kueue("LocalQueue", QUEUE, {"clusterQueue": name}, name),
    ]
