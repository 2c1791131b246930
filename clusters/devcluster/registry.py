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
    kind: str,
    spec: Node | None = None,
    status: Node | None = None,
    *,
    group: str,
    version: str = "v1",
    others: Mapping[str, Node] | None = None,
    namespaced: bool = False,
    counts_generation: bool = False,
    is_custom: bool = False,
) -> ServedKind:
    """A kind; of the built-in ones only some structure is written down."""
    fields = {"apiVersion": text(), "kind": text(), "metadata": core.METADATA, **(others or {})}
    parts = {"spec": spec, "status": status}
    fields |= {name: part for name, part in parts.items() if part is not None}
    plural = Resource.guessed(kind, version, group).plural
    return ServedKind(
        group, version, plural, kind, namespaced, struct(fields, is_open=not is_custom),
        has_status=status is not None, counts_generation=counts_generation, is_custom=is_custom,
    )  # fmt: skip


_core = partial(_served, group="")
_local = partial(_served, group="", namespaced=True)
_rbac = partial(_served, group="rbac.authorization.k8s.io")
_admission = partial(_served, group="admissionregistration.k8s.io")
_kueue = partial(
    _served, group="kueue.x-k8s.io", version="v1beta2", counts_generation=True, is_custom=True
)
_DATA = {"data": core.DATA}
_VALUE = {"value*": whole(), "description": text(high=2048)}
NAMESPACES = _core("Namespace", core.NAMESPACE_SPEC, core.POD_STATUS)
NODES = _core("Node", core.NODE_SPEC, core.POD_STATUS)
EVENTS = _local("Event")
JOBS = _local("Job", core.JOB_SPEC, core.OPEN, group="batch", counts_generation=True)
CRDS = _served("CustomResourceDefinition", group="apiextensions.k8s.io")

KINDS: tuple[ServedKind, ...] = (
    NAMESPACES,
    NODES,
    _local("Secret", others=_DATA),
    _local("ConfigMap", others=_DATA),
    _local("ServiceAccount"),
    _local("LimitRange", core.OPEN),
    _served("RuntimeClass", group="node.k8s.io"),
    _local("Pod", core.POD_SPEC, core.POD_STATUS, counts_generation=True),
    EVENTS,
    JOBS,
    _local("Lease", group="coordination.k8s.io"),
    _rbac("Role", namespaced=True),
    _rbac("RoleBinding", namespaced=True),
    _rbac("ClusterRole"),
    _rbac("ClusterRoleBinding"),
    _admission("ValidatingAdmissionPolicy"),
    _admission("ValidatingAdmissionPolicyBinding"),
    _admission("MutatingAdmissionPolicy"),
    _admission("MutatingAdmissionPolicyBinding"),
    _admission("ValidatingWebhookConfiguration"),
    _admission("MutatingWebhookConfiguration"),
    CRDS,
    _served("PriorityClass", group="scheduling.k8s.io"),
    _served("DeviceClass", core.OPEN, group="resource.k8s.io"),
    _served("ResourceClaimTemplate", core.OPEN, group="resource.k8s.io", namespaced=True),
    _kueue("Topology", kueue.TOPOLOGY_SPEC),
    _kueue("ResourceFlavor", kueue.RESOURCE_FLAVOR_SPEC),
    _kueue("WorkloadPriorityClass", others=_VALUE),
    _kueue("Cohort", kueue.COHORT_SPEC, kueue.COHORT_STATUS),
    _kueue("MultiKueueCluster", kueue.MULTIKUEUE_CLUSTER_SPEC, kueue.CONDITIONED),
    _kueue("MultiKueueConfig", kueue.MULTIKUEUE_CONFIG_SPEC),
    _kueue("AdmissionCheck", kueue.ADMISSION_CHECK_SPEC, kueue.CONDITIONED),
    _kueue("ClusterQueue", kueue.CLUSTER_QUEUE_SPEC, kueue.CLUSTER_QUEUE_STATUS),
    _kueue("LocalQueue", kueue.LOCAL_QUEUE_SPEC, kueue.LOCAL_QUEUE_STATUS, namespaced=True),
    _kueue("Workload", kueue.WORKLOAD_SPEC, kueue.WORKLOAD_STATUS, namespaced=True),
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
