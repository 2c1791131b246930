"""Which kinds an embedded cluster serves, and how each behaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusters.devcluster import core_schemas as core
from clusters.devcluster import kueue_schemas as kueue
from clusters.devcluster.problems import Subject
from clusters.devcluster.schema import Node, Schema, struct, text, whole

KUEUE_GROUP = "kueue.x-k8s.io"


@dataclass(frozen=True, slots=True)
class Kind:
    """One served kind.

    `counts_generation`: metadata.generation exists and follows changes of the object's intent.
    `is_custom`: a custom resource: closed schema, defaults, validation, unknown fields dropped.
    """

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool
    schema: Schema
    has_status: bool = False
    counts_generation: bool = False
    is_custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """GROUP/PLURAL: what objects are filed under."""
        return f"{self.group}/{self.plural}"

    def subject(self, name: str) -> Subject:
        return Subject(self.group, self.plural, self.name, name)


def _plain(
    group: str,
    plural: str,
    name: str,
    parts: Mapping[str, Node] | None = None,
    *,
    namespaced: bool = False,
    counts_generation: bool = False,
) -> Kind:
    """A built-in kind of version v1, of which only some structure is written down."""
    fields = {"apiVersion": text(), "kind": text(), "metadata": core.METADATA, **(parts or {})}
    return Kind(
        group, "v1", plural, name, namespaced, struct(fields, is_open=True),
        has_status="status" in fields, counts_generation=counts_generation,
    )  # fmt: skip


def _kueue(plural: str, name: str, parts: Mapping[str, Node], *, namespaced: bool = False) -> Kind:
    """A custom resource of Kueue's; what a part is called is the field's name."""
    fields = {"apiVersion": text(), "kind": text(), "metadata": core.METADATA, **parts}
    return Kind(
        KUEUE_GROUP, "v1beta2", plural, name, namespaced, struct(fields),
        has_status="status" in parts, counts_generation=True, is_custom=True,
    )  # fmt: skip


_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_VALUE = {"value*": whole(), "description": text(high=2048)}
_CHECK = {"spec": kueue.ADMISSION_CHECK_SPEC, "status": kueue.CONDITIONS_STATUS}
_CLUSTER = {"spec": kueue.MULTIKUEUE_CLUSTER_SPEC, "status": kueue.CONDITIONS_STATUS}
_COHORT = {"spec": kueue.COHORT_SPEC, "status": kueue.COHORT_STATUS}
_CLUSTER_QUEUE = {"spec": kueue.CLUSTER_QUEUE_SPEC, "status": kueue.CLUSTER_QUEUE_STATUS}
_LOCAL_QUEUE = {"spec": kueue.LOCAL_QUEUE_SPEC, "status": kueue.LOCAL_QUEUE_STATUS}
_WORKLOAD = {"spec": kueue.WORKLOAD_SPEC, "status": kueue.WORKLOAD_STATUS}
_NAMESPACE = {"spec": core.NAMESPACE_SPEC, "status": core.POD_STATUS}
_NODE = {"spec": core.NODE_SPEC, "status": core.POD_STATUS}
_POD = {"spec": core.POD_SPEC, "status": core.POD_STATUS}
_JOB = {"spec": core.JOB_SPEC, "status": core.OPEN}

KINDS: tuple[Kind, ...] = (
    _plain("", "namespaces", "Namespace", _NAMESPACE),
    _plain("", "nodes", "Node", _NODE),
    _plain("", "secrets", "Secret", {"data": core.DATA}, namespaced=True),
    _plain("", "configmaps", "ConfigMap", {"data": core.DATA}, namespaced=True),
    _plain("", "serviceaccounts", "ServiceAccount", namespaced=True),
    _plain("", "pods", "Pod", _POD, namespaced=True, counts_generation=True),
    _plain("", "events", "Event", namespaced=True),
    _plain("batch", "jobs", "Job", _JOB, namespaced=True, counts_generation=True),
    _plain("coordination.k8s.io", "leases", "Lease", namespaced=True),
    _plain(_RBAC, "roles", "Role", namespaced=True),
    _plain(_RBAC, "rolebindings", "RoleBinding", namespaced=True),
    _plain(_RBAC, "clusterroles", "ClusterRole"),
    _plain(_RBAC, "clusterrolebindings", "ClusterRoleBinding"),
    _plain(_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _plain(_ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    _plain(_ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    _plain(_ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    _plain(_ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    _plain(_ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    _plain("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
    _plain("scheduling.k8s.io", "priorityclasses", "PriorityClass"),
    _kueue("topologies", "Topology", {"spec": kueue.TOPOLOGY_SPEC}),
    _kueue("resourceflavors", "ResourceFlavor", {"spec": kueue.RESOURCE_FLAVOR_SPEC}),
    _kueue("workloadpriorityclasses", "WorkloadPriorityClass", _VALUE),
    _kueue("cohorts", "Cohort", _COHORT),
    _kueue("multikueueclusters", "MultiKueueCluster", _CLUSTER),
    _kueue("multikueueconfigs", "MultiKueueConfig", {"spec": kueue.MULTIKUEUE_CONFIG_SPEC}),
    _kueue("admissionchecks", "AdmissionCheck", _CHECK),
    _kueue("clusterqueues", "ClusterQueue", _CLUSTER_QUEUE),
    _kueue("localqueues", "LocalQueue", _LOCAL_QUEUE, namespaced=True),
    _kueue("workloads", "Workload", _WORKLOAD, namespaced=True),
)
BY_ADDRESS: Mapping[tuple[str, str, str], Kind] = {
    (kind.group, kind.version, kind.plural): kind for kind in KINDS
}
BY_KEY: Mapping[str, Kind] = {kind.key: kind for kind in KINDS}
NAMESPACES = BY_KEY["/namespaces"]
CRDS = BY_KEY["apiextensions.k8s.io/customresourcedefinitions"]


def kueue_definitions() -> Iterator[dict[str, object]]:
    """CustomResourceDefinitions of the served Kueue kinds, without their schemas."""
    for kind in KINDS:
        if not kind.is_custom:
            continue
        names = {"kind": kind.name, "listKind": f"{kind.name}List", "plural": kind.plural}
        yield {
            "apiVersion": CRDS.api_version,
            "kind": CRDS.name,
            "metadata": {"name": f"{kind.plural}.{kind.group}"},
            "spec": {
                "group": kind.group,
                "names": names | {"singular": kind.name.lower()},
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "versions": [{"name": kind.version, "served": True, "storage": True}],
            },
            "status": {
                "storedVersions": [kind.version],
                "conditions": [{"type": "Established", "status": "True"}],
            },
        }
