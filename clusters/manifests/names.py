"""Names, labels and ownership of everything that the portal writes to a cluster.

Names are functions of slugs alone, so two runs agree without talking. Pinned here: the one Kueue
API version that documents are written in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from clusters.documents import labels
from clusters.documents.keys import annotations_of, labels_of
from clusters.documents.numbers import whole_number

Document: TypeAlias = dict[str, Any]

KUEUE_API: Final = "kueue.x-k8s.io/v1beta2"
KUEUE_NAMESPACE: Final = "kueue-system"
MANAGED_BY: Final = "gpu-budget-portal"

LOCAL_QUEUE: Final = "default"
ADMISSION_CHECK: Final = "gpu-budget-portal"
SPEND_CHECK: Final = "gpu-budget-portal-spend"
MULTIKUEUE_CONFIG: Final = "gpu-budget-portal"
MULTIKUEUE_ACCOUNT: Final = "multikueue"
PORTAL_ACCOUNT: Final = "gpu-budget-portal"
KUEUE_ACCOUNT: Final = "kueue-controller-manager"
KUBECONFIG_KEY: Final = "kubeconfig"

# What others refer to comes first; pruning goes the other way.
KIND_ORDER: Final = (
    "Namespace",
    "Secret",
    "Topology",
    "ResourceFlavor",
    "Cohort",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "AdmissionCheck",
    "ClusterQueue",
    "LocalQueue",
)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One object of a cluster; `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    @property
    def rank(self) -> int:
        """Position in the order of application.

        Raises:
            ValueError: A kind that the portal does not write.
        """
        return KIND_ORDER.index(self.kind)

    @property
    def path(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose an object is: installation, the subject that it comes from, the subject's generation.

    Attributes:
        installation: Id of the portal's installation.
        subject: ``flavor:SLUG``, ``topology:SLUG``, ``account:SLUG``, ``pool:SLUG``,
            ``budget:NAMESPACE`` or ``cluster:SLUG``.
        generation: Of the subject; 0 when the object says none.
    """

    installation: str
    subject: str
    generation: int


def key_of(document: Mapping[str, Any]) -> Key:
    """The key of a document."""
    metadata = document["metadata"]
    return Key(str(document["kind"]), metadata.get("namespace") or "", metadata["name"])


def metadata(name: str, owner: Ownership, *, namespace: str = "") -> Document:
    """Metadata with labels and annotations of ownership."""
    found: Document = {"name": name}
    if namespace:
        found["namespace"] = namespace
    found["labels"] = {labels.MANAGED_BY: MANAGED_BY, labels.INSTALLATION: owner.installation}
    found["annotations"] = {labels.GENERATION: str(owner.generation), labels.SUBJECT: owner.subject}
    return found


def unmarked(document: Mapping[str, Any]) -> Document:
    """Metadata of a merge patch that takes off what `metadata` wrote, and nobody else's marks."""
    gone = dict.fromkeys((labels.INSTALLATION,))
    if labels_of(document).get(labels.MANAGED_BY) == MANAGED_BY:
        gone[labels.MANAGED_BY] = None
    return {
        "labels": gone,
        "annotations": dict.fromkeys((labels.GENERATION, labels.SUBJECT)),
    }


def owner_of(document: Mapping[str, Any]) -> Ownership | None:
    """Whose a live object is; None when no portal made it.

    A generation that is not a whole number counts as 0: somebody edited it, and what is written
    next puts it right.
    """
    marks, annotations = labels_of(document), annotations_of(document)
    installation = marks.get(labels.INSTALLATION)
    if not installation or marks.get(labels.MANAGED_BY) != MANAGED_BY:
        return None
    return Ownership(
        installation=installation,
        subject=annotations.get(labels.SUBJECT, ""),
        generation=whole_number(annotations.get(labels.GENERATION)) or 0,
    )


def spend_controller(installation: str) -> str:
    """Controller of the AdmissionChecks that an installation answers by its spend rules; also the
    field manager of its answers, so that they never touch what the portal applies elsewhere.
    """
    return f"gpu-budget-portal.dev/spend-{installation}"


def secret_name(worker: str) -> str:
    """Secret on the manager that holds the *multikueue* kubeconfig of a worker."""
    return f"multikueue-{worker}"


REHEARSAL: Final = "rehearsal"
"""Installation id of ``manage.py rehearse``, which works beside the portal with its rights."""


def lease_names(installation: str, *, takes_jobs: bool = False) -> tuple[str, ...]:
    """Leases that shifts of this installation, and rehearsals of it, hold on a cluster."""
    private = dict.fromkeys((installation, REHEARSAL))
    roles = ("quota", "usage", "shadow", *(("spend",) if takes_jobs else ()))
    return (
        *(f"gpu-budget-{role}-{owner}" for owner in private for role in roles),
        "gpu-budget-admission",
        "gpu-budget-dispatch",
    )
