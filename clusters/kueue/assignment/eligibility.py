"""May a pod set use a flavor at all: taints, node labels, topology.

Source: Kueue pkg/scheduler/flavorassigner/flavorassigner.go, v0.19.2.
"""

from __future__ import annotations

from clusters.kueue.quota.specifications import FlavorSpec
from clusters.kueue.workload.matching import matches_nodes, untolerated_taint
from clusters.kueue.workload.workloads import PodSet


def refusal_of(pod_set: PodSet, *, flavor: FlavorSpec) -> str:
    """Why no pod of the pod set may run on the flavor, empty when they may."""
    shape = pod_set.shape
    if shape.is_topology_requested and not flavor.topology:
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
    taint = untolerated_taint(
        flavor.taints, tolerations=(*shape.rules.tolerations, *flavor.tolerations)
    )
    if taint is not None:
        return f"untolerated taint {taint} in flavor {flavor.name}"
    if not matches_nodes(shape.rules, node_labels=flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""
