"""Kueue's and Kubernetes' own words for why a workload does not run, told in plain ones.

Who owns a job reads the sentence first and what the cluster said as its detail. What no rule knows
is quoted as the cluster's, never shown bare. Reasons and messages are those of Kueue 0.19.
"""

from __future__ import annotations

import re
from typing import Final

# What is found in "reason: message", and the clause that says it; the first that fits is told.
_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), clause)
    for pattern, clause in (
        (
            r"^DeactivatedDueToAdmissionCheck|in Rejected state",
            "an admission check rejected the job: it was deactivated, and asks for no GPUs until "
            "somebody puts it back in the queue",
        ),
        (
            r"MaximumExecutionTimeExceeded|maximum execution time",
            "the job ran longer than its own time limit allows, so it was stopped and deactivated",
        ),
        (
            r"RequeuingLimitExceeded|number of re-queuing retries",
            "the pods of the job were not ready in time too often, so it was deactivated",
        ),
        (
            r"^Deactivated|workload is deactivated",
            "it is deactivated and asks for no GPUs until somebody puts it back in the queue",
        ),
        (
            r"^AdmissionCheck:|in Retry state",
            "an admission check asked to try the job again later, so it gave its GPUs back and "
            "waits in its queue",
        ),
        (
            r"prioritization in the ClusterQueue|^InClusterQueue",
            "it was preempted: a job of the same workspace that goes before it needed its GPUs",
        ),
        (
            r"reclamation within the cohort while borrowing|^InCohortReclaimWhileBorrowing",
            "it was preempted: it ran on borrowed GPUs, and a job with a higher priority in "
            "another workspace borrows them now",
        ),
        (
            r"reclamation within the cohort|^InCohortReclamation",
            "it was preempted: it ran on borrowed GPUs, and the workspace that they are committed "
            "to took them back",
        ),
        (
            r"Fair Sharing within the cohort|^InCohortFairSharing",
            "it was preempted: it ran on borrowed GPUs, and another workspace had less than its "
            "fair share",
        ),
        (r"^Preempted", "it was preempted: another job needed its GPUs"),
        (
            r"PodsReady ?[Tt]imeout",
            "its pods were not ready in time, so it was stopped and is tried again later",
        ),
        (r"[Nn]ode ?[Ff]ailures?", "a node that it ran on failed, so it was stopped"),
        (r"^FlavorMigration", "it was stopped to run on another flavor"),
        (r"^EvictedOnManagerCluster", "the manager stopped it, so its copy on the worker stopped"),
        (
            r"(?:Cluster|Local)Queue(?: \S+)? is (?:stopped|inactive)|QueueStopped",
            "its queue is stopped, so nothing runs from it",
        ),
        (
            r"LocalQueue (\S+) doesn't exist",
            "its namespace has no queue {0}: submit it to a queue that is there",
        ),
        (
            r"ClusterQueue (\S+) doesn't exist",
            "the ClusterQueue {0} of its workspace is not on the cluster",
        ),
        (
            r"Admission is gated by: (\S+)",
            "its own admission gate {0} holds it back until the gate is removed",
        ),
        (
            r"namespace doesn't match ClusterQueue selector",
            "its ClusterQueue does not take jobs of its namespace (namespaceSelector)",
        ),
        (
            r"get claim spec for ResourceClaimTemplate (\S+) in podset \S+: .* not found",
            "its pods claim devices by the ResourceClaimTemplate {0}, which is not in its "
            "namespace; create it, and the job goes on by itself",
        ),
        (
            r"the portal may not read ResourceClaimTemplates",
            "its pods claim devices, and the portal may not read ResourceClaimTemplates on this "
            "cluster; an admin applies the cluster's rights again",
        ),
        (
            r"DeviceClass of ResourceClaimTemplate (\S+) is not mapped in DRA configuration",
            "its pods claim devices by the ResourceClaimTemplate {0}, and on this cluster no "
            "device of a claim counts against a budget (resources.deviceClassMappings is empty)",
        ),
        (
            r"DeviceClass (\S+) is not mapped in DRA configuration",
            "its pods claim devices of class {0}, and no budget on this cluster counts that class "
            "(resources.deviceClassMappings)",
        ),
        (
            r"feature does not support use of resource claims",
            "its pods share a ResourceClaim, whose devices cannot be counted for one job; claim "
            "them by a ResourceClaimTemplate",
        ),
        (
            r"uses DRA resources but the KueueDRAIntegration feature gate is not enabled",
            "its pods claim devices, and claims are switched off on this cluster "
            "(KueueDRAIntegration)",
        ),
        (
            r"ResourceClaimTemplate (\S+): AllocationMode 'All' is not supported",
            "its ResourceClaimTemplate {0} claims all devices that there are; say in count how "
            "many",
        ),
        (
            r"ResourceClaimTemplate (\S+): FirstAvailable device selection is not supported",
            "its ResourceClaimTemplate {0} leaves open which devices it claims (firstAvailable); "
            "claim one class (exactly)",
        ),
        (
            r"ResourceClaimTemplate (\S+): AdminAccess is not supported",
            "its ResourceClaimTemplate {0} asks for devices that others use (adminAccess), which "
            "no budget counts",
        ),
        (
            r"ResourceClaimTemplate (\S+): devices that are selected by CEL are not counted",
            "its ResourceClaimTemplate {0} selects devices by CEL, which the portal cannot check; "
            "claim a DeviceClass that has those devices alone",
        ),
        (
            r"DeviceClass (\S+) (?:counts by sources|with sources configured)",
            "its pods ask for devices of class {0}, of which parts count (sources in "
            "resources.deviceClassMappings), and the portal counts whole devices",
        ),
        (
            r"didn't satisfy LimitRange constraints: (.+)",
            "it asks for more or less than a LimitRange of its namespace allows: {0}",
        ),
        (
            r"exceeded quota: (\S+), requested: (.+?), used: (.+?), limited: (\S+)",
            "the ResourceQuota {0} of its namespace has no room (asked for {1}, used {2}, allowed "
            "{3})",
        ),
        (
            r'violates PodSecurity "([^"]+)": (.+)',
            "its pods break the pod security standard {0} of its namespace: {1}",
        ),
        (
            r'admission webhook "([^"]+)" denied the request: (.+)',
            "the admission webhook {0} refuses it: {1}",
        ),
        (
            r"ValidatingAdmissionPolicy '([^']+)' .*denied request: (.+)",
            "the policy {0} refuses it: {1}",
        ),
        (r'namespaces? "([^"]+)" not found', "there is no namespace {0}"),
        (
            r'no matches for kind "([^"]+)"',
            "the cluster does not serve the kind {0}, because its CRD is not installed",
        ),
        (r"resource (\S+) unavailable in ClusterQueue", "its budget has no quota for {0}"),
        (
            r"^ExceedsMaxQuota|insufficient quota",
            "it asks for more than its budget can ever have",
        ),
        (
            r"insufficient unused quota|^WaitingForQuota",
            "too few GPUs of its budget are free now",
        ),
        (r"untolerated taint", "the job does not tolerate the taints of any flavor of its budget"),
        (
            r"doesn't match node affinity",
            "the job's node selector or affinity matches no flavor of its budget",
        ),
        (
            r"Pending the preemption|^WaitingForPreemptedWorkloads",
            "it starts when jobs that were told to make room have stopped",
        ),
        (
            r"[Bb]ackoff ?[Ll]imit",
            "its pods failed more often than its backoffLimit allows",
        ),
        (r"^DeadlineExceeded|longer than specified deadline", "it ran longer than its deadline"),
        (r"^Succeeded|finished successfully", "it finished successfully"),
    )
)


def clause(reason: str, message: str) -> str:
    """What a condition says, as a clause in small letters without a full stop; empty if unknown.

    Args:
        reason: Of the condition.
        message: Of the condition, as the reader may see it.
    """
    text = f"{reason}: {message}"
    for pattern, words in _RULES:
        if found := pattern.search(text):
            return words.format(*found.groups())
    return ""


def plain(reason: str, message: str) -> str:
    """What a condition says, as a sentence; what is not known is quoted, and nothing is nothing."""
    words = clause(reason, message)
    if not words:
        told = message.strip().rstrip(".") or reason
        words = f"the cluster says: {told}" if told else ""
    return f"{words[0].upper()}{words[1:]}." if words else ""
