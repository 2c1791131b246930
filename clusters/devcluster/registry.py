"""Which kinds an embedded cluster serves, and how each behaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from clusters.devcluster import core_schemas as core
from clusters.devcluster import kueue_schemas as kueue
from clusters.devcluster.problems import Document
from clusters.devcluster.schema import Node, Schema, struct, text, whole
from clusters.documents.resources import Resource

KUEUE_GROUP = "kueue.x-k8s.io"


@dataclass(frozen=True, slots=True)
class ServedKind(Resource):
    """One served kind.

    `counts_generation`: metadata.generation exists and follows changes of the object's intent.
    `is_custom`: a custom resource: closed schema, defaults, validation, unknown fields dropped.
    """

    schema: Schema
    has_status: bool = False
    counts_generation: bool = False
    is_custom: bool = False

    @property
    def key(self) -> str:
        """GROUP/PLURAL: what objects are filed under."""
        return f"{self.group}/{self.plural}"


def _served(
    group: str,
    version: str,
    plural: str,
    kind: str,
    spec: Node | None = None,
    status: Node | None = None,
    *,
    others: Mapping[str, Node] | None = None,
    namespaced: bool = False,
    counts_generation: bool = False,
    is_custom: bool = False,
) -> ServedKind:
    """A kind; of the built-in ones only some structure is written down."""
    fields = {"apiVersion": text(), "kind": text(), "metadata": core.METADATA, **(others or {})}
    parts = {"spec": spec, "status": status}
    fields |= {name: part for name, part in parts.items() if part is not None}
    return ServedKind(
        group, version, plural, kind, namespaced, struct(fields, is_open=not is_custom),
        has_status=status is not None, counts_generation=counts_generation, is_custom=is_custom,
    )  # fmt: skip


_core = partial(_served, "", "v1")
_rbac = partial(_served, "rbac.authorization.k8s.io", "v1")
_admission = partial(_served, "admissionregistration.k8s.io", "v1")
_kueue = partial(_served, KUEUE_GROUP, "v1beta2", counts_generation=True, is_custom=True)
_DATA = {"data": core.DATA}
_VALUE = {"value*": whole(), "description": text(high=2048)}
_extensions = partial(_served, "apiextensions.k8s.io", "v1")
CRDS = _extensions("customresourcedefinitions", "CustomResourceDefinition")
NAMESPACES = _core("namespaces", "Namespace", core.NAMESPACE_SPEC, core.POD_STATUS)
NODES = _core("nodes", "Node", core.NODE_SPEC, core.POD_STATUS)
EVENTS = _core("events", "Event", namespaced=True)
JOBS = _served(
    "batch", "v1", "jobs", "Job", core.JOB_SPEC, core.OPEN, namespaced=True, counts_generation=True
)

KINDS: tuple[ServedKind, ...] = (
    NAMESPACES,
    NODES,
    _core("secrets", "Secret", others=_DATA, namespaced=True),
    _core("configmaps", "ConfigMap", others=_DATA, namespaced=True),
    _core("serviceaccounts", "ServiceAccount", namespaced=True),
    _core("pods", "Pod", core.POD_SPEC, core.POD_STATUS, namespaced=True, counts_generation=True),
    EVENTS,
    JOBS,
    _served("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole"),
    _rbac("clusterrolebindings", "ClusterRoleBinding"),
    _admission("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _admission("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    _admission("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    _admission("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    _admission("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    _admission("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    CRDS,
    _served("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass"),
    _kueue("topologies", "Topology", kueue.TOPOLOGY_SPEC),
    _kueue("resourceflavors", "ResourceFlavor", kueue.RESOURCE_FLAVOR_SPEC),
    _kueue("workloadpriorityclasses", "WorkloadPriorityClass", others=_VALUE),
    _kueue("cohorts", "Cohort", kueue.COHORT_SPEC, kueue.COHORT_STATUS),
    _kueue(
        "multikueueclusters", "MultiKueueCluster", kueue.MULTIKUEUE_CLUSTER_SPEC, kueue.CONDITIONED
    ),
    _kueue("multikueueconfigs", "MultiKueueConfig", kueue.MULTIKUEUE_CONFIG_SPEC),
    _kueue("admissionchecks", "AdmissionCheck", kueue.ADMISSION_CHECK_SPEC, kueue.CONDITIONED),
    _kueue("clusterqueues", "ClusterQueue", kueue.CLUSTER_QUEUE_SPEC, kueue.CLUSTER_QUEUE_STATUS),
    _kueue(
        "localqueues",
        "LocalQueue",
        kueue.LOCAL_QUEUE_SPEC,
        kueue.LOCAL_QUEUE_STATUS,
        namespaced=True,
    ),
    _kueue("workloads", "Workload", kueue.WORKLOAD_SPEC, kueue.WORKLOAD_STATUS, namespaced=True),
)
BY_ADDRESS: Mapping[tuple[str, str, str], ServedKind] = {
    (kind.group, kind.version, kind.plural): kind for kind in KINDS
}
BY_KEY: Mapping[str, ServedKind] = {kind.key: kind for kind in KINDS}


def kueue_definitions() -> Iterator[Document]:
    """CustomResourceDefinitions of the served Kueue kinds, without their schemas."""
    for kind in KINDS:
        if not kind.is_custom:
            continue
        names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural}
        yield {
            "apiVersion": CRDS.api_version,
            "kind": CRDS.kind,
            "metadata": {"name": f"{kind.plural}.{kind.group}"},
            "spec": {
                "group": kind.group,
                "names": names | {"singular": kind.kind.lower()},
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "versions": [{"name": kind.version, "served": True, "storage": True}],
            },
            "status": {
                "storedVersions": [kind.version],
                "conditions": [{"type": "Established", "status": "True"}],
            },
        }
