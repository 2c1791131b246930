"""The shapes of Kueue's kinds that the portal writes, version v1beta2.

Source: the served OpenAPI schemas of Kueue v0.19.2 (fields, bounds, defaults, list types), written
down again in this package's own small language.
"""

from __future__ import annotations

from clusters.devcluster.core_schemas import LABELS, POD_TEMPLATE, SELECTOR, TOLERATIONS
from clusters.devcluster.schema import (
    ANYTHING,
    Schema,
    atomic,
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

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"^{_LABEL}(\.{_LABEL})*$"
LABEL_KEY = rf"^({_LABEL}(\.{_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"

NAME = text(high=253, pattern=SUBDOMAIN)
SHORT_NAME = text(high=63, pattern=f"^{_LABEL}$")
POD_SET_NAME = text(high=63, pattern=f"^{_LABEL}$", default="main")
STOP_POLICY = one_of("None", "Hold", "HoldAndDrain", default="None")
FAIR_SHARING = struct({"weight": quantity(default=1)})
CHECK_NAME = text(1, 316)
GATE_NAME = text(1, 63)

CONDITIONS = keyed(
    struct(
        {
            "type*": text(high=316, pattern=LABEL_KEY),
            "status*": one_of("True", "False", "Unknown"),
            "reason*": text(1, 1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            "message*": text(high=32768),
            "lastTransitionTime*": text(),
            "observedGeneration": whole(0),
        }
    ),
    "type",
    high=16,
)

RESOURCE_GROUPS = atomic(
    struct(
        {
            "coveredResources*": atomic(text(), 1, 64),
            "flavors*": keyed(
                struct(
                    {
                        "name*": NAME,
                        "resources*": keyed(
                            struct(
                                {
                                    "name*": text(),
                                    "nominalQuota*": quantity(),
                                    "borrowingLimit": quantity(),
                                    "lendingLimit": quantity(),
                                }
                            ),
                            "name",
                            low=1,
                            high=64,
                        ),
                    }
                ),
                "name",
                low=1,
                high=64,
            ),
        }
    ),
    high=16,
)

CLUSTER_QUEUE_SPEC = struct(
    {
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
        "admissionChecksStrategy": struct(
            {
                "admissionChecks*": keyed(
                    struct({"name*": CHECK_NAME, "onFlavors": unique(NAME, high=64)}),
                    "name",
                    low=1,
                    high=64,
                )
            }
        ),
        "stopPolicy": STOP_POLICY,
        "fairSharing": FAIR_SHARING,
        "admissionScope": struct(
            {"admissionMode*": one_of("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")}
        ),
        "concurrentAdmissionPolicy": struct(
            {
                "migration*": struct(
                    {
                        "mode*": one_of("TryPreferredFlavors", "RetainFirstAdmission"),
                        "constraints": struct({"lastAcceptableFlavorName": NAME}),
                    }
                )
            }
        ),
    }
)


def _usage(*, has_borrowed: bool) -> Schema:
    resource = {"name*": text(), "total": quantity()}
    if has_borrowed:
        resource["borrowed"] = quantity()
    resources = keyed(struct(resource), "name", high=64)
    return keyed(struct({"name*": NAME, "resources*": resources}), "name", high=64)


def _queue_status(fair_sharing: Schema, *, has_borrowed: bool) -> Schema:
    return struct(
        {
            "conditions": CONDITIONS,
            "flavorsReservation": _usage(has_borrowed=has_borrowed),
            "flavorsUsage": _usage(has_borrowed=has_borrowed),
            "pendingWorkloads": whole(),
            "reservingWorkloads": whole(),
            "admittedWorkloads": whole(),
            "fairSharing": fair_sharing,
        }
    )


WEIGHTED_SHARE = struct({"weightedShare*": whole()})
CLUSTER_QUEUE_STATUS = _queue_status(WEIGHTED_SHARE, has_borrowed=True)

COHORT_SPEC = struct(
    {"parentName": NAME, "resourceGroups": RESOURCE_GROUPS, "fairSharing": FAIR_SHARING}
)
COHORT_STATUS = struct({"fairSharing": WEIGHTED_SHARE})

LOCAL_QUEUE_SPEC = struct(
    {"clusterQueue": NAME, "stopPolicy": STOP_POLICY, "fairSharing": FAIR_SHARING}
)
_CONSUMED = struct({"consumedResources*": dictionary(quantity()), "lastUpdate*": text()})
LOCAL_QUEUE_STATUS = _queue_status(
    struct({"weightedShare*": whole(), "admissionFairSharingStatus": _CONSUMED}),
    has_borrowed=False,
)

RESOURCE_FLAVOR_SPEC = struct(
    {
        "nodeLabels": Schema(type="map", item=text(), is_atomic=True, high=8),
        "nodeTaints": atomic(
            struct({"key*": text(), "value": text(), "effect*": text(), "timeAdded": text()}),
            high=8,
        ),
        "tolerations": Schema(type="list", item=TOLERATIONS.item, is_atomic=True, high=8),
        "topologyName": NAME,
    }
)

ADMISSION_CHECK_SPEC = struct(
    {
        "controllerName*": text(1, 253),
        "parameters": struct(
            {
                "apiGroup*": text(1, 253, pattern=SUBDOMAIN),
                "kind*": text(1, 63, pattern=r"^(?i:[a-z]([-a-z0-9]*[a-z0-9])?)$"),
                "name*": text(1, 63, pattern=f"^{_LABEL}$"),
            }
        ),
    }
)
CONDITIONS_STATUS = struct({"conditions": CONDITIONS})

MULTIKUEUE_CONFIG_SPEC = struct(
    {
        "clusters*": atomic(text(high=256), 1, 20),
        "quotaManagement": one_of("Manual", "Automated", default="Manual"),
    }
)
MULTIKUEUE_CLUSTER_SPEC = struct(
    {
        "clusterSource*": struct(
            {
                "kubeConfig": struct(
                    {
                        "location*": text(1, 256),
                        "locationType": one_of("Secret", "Path", default="Secret"),
                    }
                ),
                "clusterProfileRef": struct({"name*": text(1, 256)}),
            }
        )
    }
)
TOPOLOGY_SPEC = struct(
    {"levels*": atomic(struct({"nodeLabel*": text(1, 316, pattern=LABEL_KEY)}), 1, 16)}
)

WORKLOAD_SPEC = struct(
    {
        "podSets": keyed(
            struct(
                {
                    "name": POD_SET_NAME,
                    "template*": POD_TEMPLATE,
                    "count": whole(0, default=1),
                    "minCount": whole(1),
                    "topologyRequest": Schema(type="struct", is_open=True),
                }
            ),
            "name",
            low=1,
            high=18,
        ),
        "queueName": NAME,
        "priorityClassRef": struct(
            {
                "group*": one_of("kueue.x-k8s.io", "scheduling.k8s.io"),
                "kind*": one_of("WorkloadPriorityClass", "PriorityClass"),
                "name*": text(1, 253, pattern=SUBDOMAIN),
            }
        ),
        "priority": whole(),
        "active": flag(default=True),
        "maximumExecutionTimeSeconds": whole(1),
        "preemptionGates": keyed(struct({"name*": GATE_NAME}), "name", high=8),
    }
)

_ASSIGNMENT = struct(
    {
        "name": POD_SET_NAME,
        "flavors": dictionary(NAME),
        "resourceUsage": dictionary(quantity()),
        "count": whole(0),
        "topologyAssignment": ANYTHING,
        "delayedTopologyRequest": one_of("Pending", "Ready"),
    }
)
_POD_SET_UPDATES = atomic(
    struct(
        {
            "name*": SHORT_NAME,
            "labels": LABELS,
            "annotations": LABELS,
            "nodeSelector": LABELS,
            "tolerations": TOLERATIONS,
        }
    ),
    high=18,
)
WORKLOAD_STATUS = struct(
    {
        "conditions": CONDITIONS,
        "admission": struct(
            {"clusterQueue": NAME, "podSetAssignments": keyed(_ASSIGNMENT, "name", high=18)}
        ),
        "requeueState": struct({"count": whole(0), "requeueAt": text()}),
        "reclaimablePods": keyed(
            struct({"name*": SHORT_NAME, "count*": whole(0)}), "name", high=18
        ),
        "admissionChecks": keyed(
            struct(
                {
                    "name*": CHECK_NAME,
                    "state*": one_of("Pending", "Ready", "Retry", "Rejected"),
                    "lastTransitionTime*": text(),
                    "message*": text(high=32768),
                    "requeueAfterSeconds": whole(0),
                    "retryCount": whole(0),
                    "podSetUpdates": _POD_SET_UPDATES,
                }
            ),
            "name",
            high=8,
        ),
        "resourceRequests": keyed(
            struct({"name*": SHORT_NAME, "resources": dictionary(quantity())}), "name", high=18
        ),
        "accumulatedPastExecutionTimeSeconds": whole(),
        "schedulingStats": struct(
            {
                "evictions": keyed(
                    struct(
                        {
                            "reason*": text(high=316),
                            "underlyingCause*": text(high=316),
                            "count*": whole(0),
                        }
                    ),
                    "reason",
                    "underlyingCause",
                    high=256,
                )
            }
        ),
        "nominatedClusterNames": atomic(text(high=256), high=20),
        "clusterName": text(high=256),
        "unhealthyNodes": keyed(struct({"name*": text(high=63)}), "name", high=8),
        "preemptionGates": keyed(
            struct(
                {
                    "name*": GATE_NAME,
                    "position*": one_of("Closed", "Open"),
                    "lastTransitionTime*": text(),
                }
            ),
            "name",
            high=8,
        ),
    }
)
