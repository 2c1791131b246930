"""The shapes of Kueue's kinds that the portal writes, version v1beta2.

Source: the served OpenAPI schemas of Kueue v0.19.2 (fields, bounds, defaults, list types), written
down again in this package's own small language.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusters.devcluster.core_schemas import LABELS, OPEN, POD_TEMPLATE, SELECTOR, TOLERATIONS
from clusters.devcluster.schema import (
    ANYTHING,
    LABEL,
    SUBDOMAIN,
    Node,
    Schema,
    atomic,
    by_name,
    dictionary,
    flag,
    keyed,
    one_of,
    quantity,
    struct,
    text,
    unique,
    whole,
)

LABEL_KEY = rf"^({LABEL}(\.{LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"

NAME = text(high=253, pattern=SUBDOMAIN)
SHORT_NAME = text(high=63, pattern=f"^{LABEL}$")
POD_SET_NAME = text(high=63, pattern=f"^{LABEL}$", default="main")
STOP_POLICY = one_of("None", "Hold", "HoldAndDrain", default="None")
FAIR_SHARING: Node = {"weight": quantity(default=1)}
CHECK_NAME = text(1, 316)
GATE_NAME = text(1, 63)

_CONDITION: Node = {
    "type*": text(high=316, pattern=LABEL_KEY),
    "status*": one_of("True", "False", "Unknown"),
    "reason*": text(1, 1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    "message*": text(high=32768),
    "lastTransitionTime*": text(),
    "observedGeneration": whole(0),
}
CONDITIONS = keyed(_CONDITION, "type", high=16)
CONDITIONED: Node = {"conditions": CONDITIONS}

_QUOTA: Node = {
    "name*": text(),
    "nominalQuota*": quantity(),
    "borrowingLimit": quantity(),
    "lendingLimit": quantity(),
}
_FLAVOR: Node = {"name*": NAME, "resources*": by_name(_QUOTA, low=1, high=64)}
_GROUP: Node = {
    "coveredResources*": atomic(text(), 1, 64),
    "flavors*": by_name(_FLAVOR, low=1, high=64),
}
RESOURCE_GROUPS = atomic(_GROUP, high=16)

_SEARCH = ("MayStopSearch", "TryNextFlavor")
_FUNGIBILITY: Mapping[str, Node] = {
    "whenCanBorrow": one_of(*_SEARCH, default="MayStopSearch"),
    "whenCanPreempt": one_of(*_SEARCH, default="TryNextFlavor"),
    "preference": one_of("BorrowingOverPreemption", "PreemptionOverBorrowing"),
}
_EQUAL_TOO = "LowerOrNewerEqualPriority"
_BORROW_WITHIN_COHORT: Mapping[str, Node] = {
    "policy": one_of("Never", "LowerPriority", default="Never"),
    "maxPriorityThreshold": whole(),
}
_PREEMPTION: Mapping[str, Node] = {
    "withinClusterQueue": one_of("Never", "LowerPriority", _EQUAL_TOO, default="Never"),
    "reclaimWithinCohort": one_of("Never", "LowerPriority", "Any", default="Never"),
    "borrowWithinCohort": struct(_BORROW_WITHIN_COHORT, default={}),
}
_CHECK: Node = {"name*": CHECK_NAME, "onFlavors": unique(NAME, high=64)}
_MIGRATION: Node = {
    "mode*": one_of("TryPreferredFlavors", "RetainFirstAdmission"),
    "constraints": {"lastAcceptableFlavorName": NAME},
}
_ADMISSION_MODE = one_of("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
CLUSTER_QUEUE_SPEC: Node = {
    "resourceGroups": RESOURCE_GROUPS,
    "cohortName": NAME,
    "queueingStrategy": one_of("StrictFIFO", "BestEffortFIFO", default="BestEffortFIFO"),
    "namespaceSelector": SELECTOR,
    "flavorFungibility": struct(_FUNGIBILITY, default={}),
    "preemption": struct(_PREEMPTION, default={}),
    "admissionChecksStrategy": {"admissionChecks*": by_name(_CHECK, low=1, high=64)},
    "stopPolicy": STOP_POLICY,
    "fairSharing": FAIR_SHARING,
    "admissionScope": {"admissionMode*": _ADMISSION_MODE},
    "concurrentAdmissionPolicy": {"migration*": _MIGRATION},
}


def _queue_status(used: Node, fair_sharing: Node) -> Node:
    usage = by_name({"name*": NAME, "resources*": by_name(used, high=64)}, high=64)
    return {
        "conditions": CONDITIONS,
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "pendingWorkloads": whole(),
        "reservingWorkloads": whole(),
        "admittedWorkloads": whole(),
        "fairSharing": fair_sharing,
    }


WEIGHTED_SHARE: Mapping[str, Node] = {"weightedShare*": whole()}
_USED: Mapping[str, Node] = {"name*": text(), "total": quantity()}
CLUSTER_QUEUE_STATUS = _queue_status({**_USED, "borrowed": quantity()}, WEIGHTED_SHARE)

COHORT_SPEC: Node = {
    "parentName": NAME,
    "resourceGroups": RESOURCE_GROUPS,
    "fairSharing": FAIR_SHARING,
}
COHORT_STATUS: Node = {"fairSharing": WEIGHTED_SHARE}

LOCAL_QUEUE_SPEC: Node = {
    "clusterQueue": NAME,
    "stopPolicy": STOP_POLICY,
    "fairSharing": FAIR_SHARING,
}
_CONSUMED: Node = {"consumedResources*": dictionary(quantity()), "lastUpdate*": text()}
LOCAL_QUEUE_STATUS = _queue_status(
    _USED, {**WEIGHTED_SHARE, "admissionFairSharingStatus": _CONSUMED}
)

_TAINT: Node = {"key*": text(), "value": text(), "effect*": text(), "timeAdded": text()}
RESOURCE_FLAVOR_SPEC: Node = {
    "nodeLabels": Schema("map", high=8, item=text(), is_atomic=True),
    "nodeTaints": atomic(_TAINT, high=8),
    "tolerations": TOLERATIONS,
    "topologyName": NAME,
}

_PARAMETERS: Node = {
    "apiGroup*": text(1, 253, pattern=SUBDOMAIN),
    "kind*": text(1, 63, pattern=r"^(?i:[a-z]([-a-z0-9]*[a-z0-9])?)$"),
    "name*": text(1, 63, pattern=f"^{LABEL}$"),
}
ADMISSION_CHECK_SPEC: Node = {"controllerName*": text(1, 253), "parameters": _PARAMETERS}

MULTIKUEUE_CONFIG_SPEC: Node = {
    "clusters*": atomic(text(high=256), 1, 20),
    "quotaManagement": one_of("Manual", "Automated", default="Manual"),
}
_KUBECONFIG: Node = {
    "location*": text(1, 256),
    "locationType": one_of("Secret", "Path", default="Secret"),
}
MULTIKUEUE_CLUSTER_SPEC: Node = {
    "clusterSource*": {
        "kubeConfig": _KUBECONFIG,
        "clusterProfileRef": {"name*": text(1, 256)},
    }
}
TOPOLOGY_SPEC: Node = {"levels*": atomic({"nodeLabel*": text(1, 316, pattern=LABEL_KEY)}, 1, 16)}

_POD_SET: Node = {
    "name": POD_SET_NAME,
    "template*": POD_TEMPLATE,
    "count": whole(0, default=1),
    "minCount": whole(1),
    "topologyRequest": OPEN,
}
_PRIORITY_CLASS: Node = {
    "group*": one_of("kueue.x-k8s.io", "scheduling.k8s.io"),
    "kind*": one_of("WorkloadPriorityClass", "PriorityClass"),
    "name*": text(1, 253, pattern=SUBDOMAIN),
}
WORKLOAD_SPEC: Node = {
    "podSets": by_name(_POD_SET, low=1, high=18),
    "queueName": NAME,
    "priorityClassRef": _PRIORITY_CLASS,
    "priority": whole(),
    "active": flag(default=True),
    "maximumExecutionTimeSeconds": whole(1),
    "preemptionGates": by_name({"name*": GATE_NAME}, high=8),
}

_ASSIGNMENT: Node = {
    "name": POD_SET_NAME,
    "flavors": dictionary(NAME),
    "resourceUsage": dictionary(quantity()),
    "count": whole(0),
    "topologyAssignment": ANYTHING,
    "delayedTopologyRequest": one_of("Pending", "Ready"),
}
_POD_SET_UPDATE: Node = {
    "name*": SHORT_NAME,
    "labels": LABELS,
    "annotations": LABELS,
    "nodeSelector": LABELS,
    "tolerations": TOLERATIONS,
}
_CHECK_STATE: Node = {
    "name*": CHECK_NAME,
    "state*": one_of("Pending", "Ready", "Retry", "Rejected"),
    "lastTransitionTime*": text(),
    "message*": text(high=32768),
    "requeueAfterSeconds": whole(0),
    "retryCount": whole(0),
    "podSetUpdates": atomic(_POD_SET_UPDATE, high=18),
}
_REQUESTS: Node = {"name*": SHORT_NAME, "resources": dictionary(quantity())}
_CAUSES = ("reason", "underlyingCause")
_EVICTIONS: Node = {**{f"{cause}*": text(high=316) for cause in _CAUSES}, "count*": whole(0)}
_GATE: Node = {
    "name*": GATE_NAME,
    "position*": one_of("Closed", "Open"),
    "lastTransitionTime*": text(),
}
WORKLOAD_STATUS: Node = {
    "conditions": CONDITIONS,
    "admission": {"clusterQueue": NAME, "podSetAssignments": by_name(_ASSIGNMENT, high=18)},
    "requeueState": {"count": whole(0), "requeueAt": text()},
    "reclaimablePods": by_name({"name*": SHORT_NAME, "count*": whole(0)}, high=18),
    "admissionChecks": by_name(_CHECK_STATE, high=8),
    "resourceRequests": by_name(_REQUESTS, high=18),
    "accumulatedPastExecutionTimeSeconds": whole(),
    "schedulingStats": {"evictions": keyed(_EVICTIONS, *_CAUSES, high=256)},
    "nominatedClusterNames": atomic(text(high=256), high=20),
    "clusterName": text(high=256),
    "unhealthyNodes": by_name({"name*": text(high=63)}, high=8),
    "preemptionGates": by_name(_GATE, high=8),
}
