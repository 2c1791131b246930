"""A few racks of nodes, queues over them, and jobs that ask for a place in them."""

from __future__ import annotations

from typing import Any

from tests.reconcile.admission_harness import GPU, NS, UNLIMITED, job, kueue

Document = dict[str, Any]
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
PODSET = "kueue.x-k8s.io/podset-"


def topology_objects(name: str, *, gpus: int, namespace: str = NS) -> list[Document]:
    """Topology, flavor, queues: every resource is of the one flavor, whose nodes have racks."""
    amounts = ((GPU, str(gpus)), ("cpu", UNLIMITED), ("memory", UNLIMITED))
    resources = [{"name": each, "nominalQuota": amount} for each, amount in amounts]
    flavor = {"nodeLabels": {"pool": name}, "topologyName": name}
    group = {
        "coveredResources": [each for each, _ in amounts],
        "flavors": [{"name": name, "resources": resources}],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        kueue("Topology", name, {"levels": [{"nodeLabel": each} for each in (BLOCK, RACK, HOST)]}),
        kueue("ResourceFlavor", name, flavor),
        kueue("ClusterQueue", namespace, {"namespaceSelector": {}, "resourceGroups": [group]}),
        kueue("LocalQueue", "default", {"clusterQueue": namespace}, namespace),
    ]


def place_labels(pool: str, rack: str) -> dict[str, str]:
    """Labels of a node in a rack, as ``b0-r1``."""
    return {"pool": pool, BLOCK: rack.partition("-")[0], RACK: rack}


def racked_job(
    name: str, *, pods: int, gpus: int = 4, namespace: str = NS, **asks: str
) -> Document:
    """An indexed Job whose pods ask for a place, as ``required=RACK``."""
    made = job(name, gpus=gpus, pods=pods, run_s=600, namespace=namespace)
    made["spec"]["completionMode"] = "Indexed"
    made["spec"]["template"]["metadata"] = {
        "annotations": {f"{PODSET}{ask}-topology": level for ask, level in asks.items()}
    }
    return made


def domains_of(workload: Document | None) -> dict[str, int]:
    """Pods by node, as the admission of a Workload of one pod set says."""
    from clusters.kueue.workload.placement import parse_placement

    admission = ((workload or {}).get("status") or {}).get("admission") or {}
    [assignment] = admission.get("podSetAssignments") or [{}]
    placement = parse_placement(assignment.get("topologyAssignment"))
    return {item.values[-1]: item.count for item in placement.domains} if placement else {}
