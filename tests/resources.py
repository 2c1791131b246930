"""More resources than the portal itself handles, and whose a document is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.kube import resources as r
from clusters.kube.resources import KUEUE_GROUP, KUEUE_VERSION, Resource

_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
ROLE = Resource.guessed("Role", "v1", _RBAC)
ROLE_BINDING = Resource.guessed("RoleBinding", "v1", _RBAC)
CLUSTER_ROLE = Resource.guessed("ClusterRole", "v1", _RBAC, namespaced=False)
CLUSTER_ROLE_BINDING = Resource.guessed("ClusterRoleBinding", "v1", _RBAC, namespaced=False)
VALIDATING_POLICY_BINDING = Resource.guessed(
    "ValidatingAdmissionPolicyBinding", "v1", _ADMISSION, namespaced=False
)
CUSTOM_RESOURCE_DEFINITION = Resource.guessed(
    "CustomResourceDefinition", "v1", "apiextensions.k8s.io", namespaced=False
)
TOPOLOGY = Resource.guessed("Topology", KUEUE_VERSION, KUEUE_GROUP, namespaced=False)

# In the order of application: what others refer to comes first.
ALL = (
    r.NAMESPACE, CUSTOM_RESOURCE_DEFINITION, r.NODE, r.SERVICE_ACCOUNT, r.SECRET, r.CONFIG_MAP,
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING,
    r.VALIDATING_POLICY, VALIDATING_POLICY_BINDING, r.MUTATING_POLICY, r.MUTATING_POLICY_BINDING,
    r.VALIDATING_WEBHOOK, r.MUTATING_WEBHOOK, r.PRIORITY_CLASS, r.WORKLOAD_PRIORITY_CLASS,
    TOPOLOGY, r.RESOURCE_FLAVOR, r.COHORT, r.MULTIKUEUE_CLUSTER, r.MULTIKUEUE_CONFIG,
    r.ADMISSION_CHECK, r.CLUSTER_QUEUE, r.LOCAL_QUEUE, r.DEVICE_CLASS, r.RESOURCE_CLAIM_TEMPLATE,
    r.WORKLOAD, r.JOB, r.POD, r.EVENT, r.LEASE,
    r.SELF_SUBJECT_ACCESS_REVIEW,
)  # fmt: skip
_BY_KIND: Mapping[tuple[str, str], Resource] = {(item.api_version, item.kind): item for item in ALL}


def resource_of(document: Mapping[str, Any]) -> Resource:
    """The resource that a document belongs to, by its apiVersion and kind."""
    return _BY_KIND[document["apiVersion"], document["kind"]]
