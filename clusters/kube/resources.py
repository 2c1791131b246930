"""The Kubernetes resources that the portal reads or writes, as plain values.

A `Resource` is all that is needed to build an address; documents themselves stay plain dicts, since
typed models cost more than the request that carries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.documents.resources import JOB as JOB
from clusters.documents.resources import POD as POD
from clusters.documents.resources import Resource as Resource

Document = dict[str, Any]

KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSION = "v1beta2"


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(KUEUE_GROUP, KUEUE_VERSION, plural, kind, namespaced)


NAMESPACE = Resource("", "v1", "namespaces", "Namespace", False)
NODE = Resource("", "v1", "nodes", "Node", False)
SECRET = Resource("", "v1", "secrets", "Secret", True)
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap", True)
SERVICE_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
EVENT = Resource("", "v1", "events", "Event", True)
LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
_RBAC = "rbac.authorization.k8s.io"
ROLE = Resource(_RBAC, "v1", "roles", "Role", True)
ROLE_BINDING = Resource(_RBAC, "v1", "rolebindings", "RoleBinding", True)
CLUSTER_ROLE = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDING = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_ADMISSION = "admissionregistration.k8s.io"
VALIDATING_POLICY = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
VALIDATING_POLICY_BINDING = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
MUTATING_POLICY = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False
)
MUTATING_POLICY_BINDING = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False
)
VALIDATING_WEBHOOK = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
MUTATING_WEBHOOK = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
CUSTOM_RESOURCE_DEFINITION = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
_AUTHORIZATION = "authorization.k8s.io"
SELF_SUBJECT_ACCESS_REVIEW = Resource(
    _AUTHORIZATION, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)
SELF_SUBJECT_RULES_REVIEW = Resource(
    _AUTHORIZATION, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False
)
PRIORITY_CLASS = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)

TOPOLOGY = _kueue("topologies", "Topology")
RESOURCE_FLAVOR = _kueue("resourceflavors", "ResourceFlavor")
WORKLOAD_PRIORITY_CLASS = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")
COHORT = _kueue("cohorts", "Cohort")
MULTIKUEUE_CLUSTER = _kueue("multikueueclusters", "MultiKueueCluster")
MULTIKUEUE_CONFIG = _kueue("multikueueconfigs", "MultiKueueConfig")
ADMISSION_CHECK = _kueue("admissionchecks", "AdmissionCheck")
CLUSTER_QUEUE = _kueue("clusterqueues", "ClusterQueue")
LOCAL_QUEUE = _kueue("localqueues", "LocalQueue", namespaced=True)
WORKLOAD = _kueue("workloads", "Workload", namespaced=True)

# In the order of application: what others refer to comes first.
ALL = (
    NAMESPACE, CUSTOM_RESOURCE_DEFINITION, NODE, SERVICE_ACCOUNT, SECRET, CONFIG_MAP,
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING,
    VALIDATING_POLICY, VALIDATING_POLICY_BINDING, MUTATING_POLICY, MUTATING_POLICY_BINDING,
    VALIDATING_WEBHOOK, MUTATING_WEBHOOK, PRIORITY_CLASS, WORKLOAD_PRIORITY_CLASS,
    TOPOLOGY, RESOURCE_FLAVOR, COHORT, MULTIKUEUE_CLUSTER, MULTIKUEUE_CONFIG, ADMISSION_CHECK,
    CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, JOB, POD, EVENT, LEASE,
    SELF_SUBJECT_ACCESS_REVIEW, SELF_SUBJECT_RULES_REVIEW,
)  # fmt: skip

_BY_KIND: Mapping[tuple[str, str], Resource] = {(r.api_version, r.kind): r for r in ALL}


def resource_of(document: Mapping[str, Any]) -> Resource:
    """The resource that a document belongs to, by its apiVersion and kind.

    Raises:
        LookupError: a kind that the portal does not handle.
    """
    key = (str(document.get("apiVersion", "")), str(document.get("kind", "")))
    try:
        return _BY_KIND[key]
    except KeyError:
        raise LookupError(f"no resource known for {key[1]} of {key[0]}") from None
