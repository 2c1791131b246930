"""The shapes of Kueue's kinds that the portal writes, version v1beta2.

Source: the served OpenAPI schemas of Kueue v0.19.2 (fields, bounds, defaults, list types), written
down again in this package's own small language.
"""

from __future__ import annotations

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

CONDITIONS = keyed(
    {
        "type*": text(high=316, pattern=LABEL_KEY),
        "status*": one_of("True", "False", "Unknown"),
        "reason*": text(1, 1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        "message*": text(high=32768),
        "lastTransitionTime*": text(),
        "observedGeneration": whole(0),
    },
    "type",
    high=16,
)

RESOURCE_GROUPS = atomic(
    {
        "coveredResources*": atomic(text(), 1, 64),
        "flavors*": by_name(
            {
                "name*": NAME,
                "resources*": by_name(
                    {
                        "name*": text(),
                        "nominalQuota*": quantity(),
                        "borrowingLimit": quantity(),
                        "lendingLimit": quantity(),
                    },
                    low=1,
                    high=64,
                ),
            },
            low=1,
            high=64,
        ),
    },
    high=16,
)

CLUSTER_QUEUE_SPEC: Node = {
    "resourceGroups": RESOURCE_GROUPS,
    "cohortName": NAME,
    "queueingStrategy": one_of("StrictFIFO", "BestEffortFIFO", default="BestEffortFIFO"),
    "namespaceSelector": SELECTOR,
    "flavorFungibility": struct(
        {
            "whenCanBorrow": one_of("MayStopSearch", "TryNextFlavor", default="MayStopSearch"),
            "whenCanPreempt": one_of("MayStopSearch", "TryNextFlavor", default="TryNextFlavor"),
            "preference": one_of("BorrowingOverPreemption", "PreemptionOverBorrowing"),
        },
        default={},
    ),
    "preemption": struct(
        {
            "withinClusterQueue": one_of(
                "Never", "LowerPriority", "LowerOrNewerEqualPriority", default="Never"
            ),
            "reclaimWithinCohort": one_of("Never", "LowerPriority", "Any", default="Never"),
            "borrowWithinCohort": struct(
                {
                    "policy": one_of("Never", "LowerPriority", default="Never"),
                    "maxPriorityThreshold": whole(),
                },
                default={},
            ),
        },
        default={},
    ),
    "admissionChecksStrategy": {
        "admissionChecks*": by_name(
            {"name*": CHECK_NAME, "onFlavors": unique(NAME, high=64)}, low=1, high=64
        )
    },
    "stopPolicy": STOP_POLICY,
    "fairSharing": FAIR_SHARING,
    "admissionScope": {
        "admissionMode*": one_of("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
    },
    "concurrentAdmissionPolicy": {
        "migration*": {
            "mode*": one_of("TryPreferredFlavors", "RetainFirstAdmission"),
            "constraints": {"lastAcceptableFlavorName": NAME},
        }
    },
}


def _usage(*, has_borrowed: bool) -> Schema:
    resource = {"name*": text(), "total": quantity()}
    if has_borrowed:
        resource["borrowed"] = quantity()
    resources = by_name(resource, high=64)
    return by_name({"name*": NAME, "resources*": resources}, high=64)


def _queue_status(fair_sharing: Node, *, has_borrowed: bool) -> Node:
    return {
        "conditions": CONDITIONS,
        "flavorsReservation": _usage(has_borrowed=has_borrowed),
        "flavorsUsage": _usage(has_borrowed=has_borrowed),
        "pendingWorkloads": whole(),
        "reservingWorkloads": whole(),
        "admittedWorkloads": whole(),
        "fairSharing": fair_sharing,
    }


WEIGHTED_SHARE: Node = {"weightedShare*": whole()}
CLUSTER_QUEUE_STATUS = _queue_status(WEIGHTED_SHARE, has_borrowed=True)

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
    {"weightedShare*": whole(), "admissionFairSharingStatus": _CONSUMED}, has_borrowed=False
)

RESOURCE_FLAVOR_SPEC: Node = {
    "nodeLabels": Schema("map", high=8, item=text(), is_atomic=True),
    "nodeTaints": atomic(
        {"key*": text(), "value": text(), "effect*": text(), "timeAdded": text()}, high=8
    ),
    "tolerations": TOLERATIONS,
    "topologyName": NAME,
}

ADMISSION_CHECK_SPEC: Node = {
    "controllerName*": text(1, 253),
    "parameters": {
        "apiGroup*": text(1, 253, pattern=SUBDOMAIN),
        "kind*": text(1, 63, pattern=r"^(?i:[a-z]([-a-z0-9]*[a-z0-9])?)$"),
        "name*": text(1, 63, pattern=f"^{LABEL}$"),
    },
}
CONDITIONED: Node = {"conditions": CONDITIONS}

MULTIKUEUE_CONFIG_SPEC: Node = {
    "clusters*": atomic(text(high=256), 1, 20),
    "quotaManagement": one_of("Manual", "Automated", default="Manual"),
}
MULTIKUEUE_CLUSTER_SPEC: Node = {
    "clusterSource*": {
        "kubeConfig": {
            "location*": text(1, 256),
            "locationType": one_of("Secret", "Path", default="Secret"),
        },
        "clusterProfileRef": {"name*": text(1, 256)},
    }
}
TOPOLOGY_SPEC: Node = {"levels*": atomic({"nodeLabel*": text(1, 316, pattern=LABEL_KEY)}, 1, 16)}

WORKLOAD_SPEC: Node = {
    "podSets": by_name(
        {
            "name": POD_SET_NAME,
            "template*": POD_TEMPLATE,
            "count": whole(0, default=1),
            "minCount": whole(1),
            "topologyRequest": OPEN,
        },
        low=1,
        high=18,
    ),
    "queueName": NAME,
    "priorityClassRef": {
        "group*": one_of("kueue.x-k8s.io", "scheduling.k8s.io"),
        "kind*": one_of("WorkloadPriorityClass", "PriorityClass"),
        "name*": text(1, 253, pattern=SUBDOMAIN),
    },
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
_POD_SET_UPDATES = atomic(
    {
        "name*": SHORT_NAME,
        "labels": LABELS,
        "annotations": LABELS,
        "nodeSelector": LABELS,
        "tolerations": TOLERATIONS,
    },
    high=18,
)
WORKLOAD_STATUS: Node = {
    "conditions": CONDITIONS,
    "admission": {"clusterQueue": NAME, "podSetAssignments": by_name(_ASSIGNMENT, high=18)},
    "requeueState": {"count": whole(0), "requeueAt": text()},
    "reclaimablePods": by_name({"name*": SHORT_NAME, "count*": whole(0)}, high=18),
    "admissionChecks": by_name(
        {
            "name*": CHECK_NAME,
            "state*": one_of("Pending", "Ready", "Retry", "Rejected"),
            "lastTransitionTime*": text(),
            "message*": text(high=32768),
            "requeueAfterSeconds": whole(0),
            "retryCount": whole(0),
            "podSetUpdates": _POD_SET_UPDATES,
        },
        high=8,
    ),
    "resourceRequests": by_name(
        {"name*": SHORT_NAME, "resources": dictionary(quantity())}, high=18
    ),
    "accumulatedPastExecutionTimeSeconds": whole(),
    "schedulingStats": {
        "evictions": keyed(
            {"reason*": text(high=316), "underlyingCause*": text(high=316), "count*": whole(0)},
            "reason",
            "underlyingCause",
            high=256,
        )
    },
    "nominatedClusterNames": atomic(text(high=256), high=20),
    "clusterName": text(high=256),
    "unhealthyNodes": by_name({"name*": text(high=63)}, high=8),
    "preemptionGates": by_name(
        {"name*": GATE_NAME, "position*": one_of("Closed", "Open"), "lastTransitionTime*": text()},
        high=8,
    ),
}
