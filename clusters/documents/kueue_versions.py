"""Versions of Kueue: which one the portal follows, and what came with which. Pure.

One table, :data:`FEATURES`, says what an older Kueue cannot do and what an upgrade changes; the
check of a cluster and the page of versions read it.

Source: Kueue CHANGELOG-0.19; apis/config, pkg/config, pkg/features, pkg/controller and the CRDs of
v0.18.2 and v0.19.2, compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

_TEXT: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[-+].*)?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A version of Kueue; they are in order."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def read(cls, text: str) -> Self | None:
        """From a tag such as ``v0.19.2`` or ``v0.19.2-rc.1``; None for anything else."""
        found = _TEXT.fullmatch(text)
        return cls(*(int(part or 0) for part in found.groups())) if found else None

    @property
    def line(self) -> str:
        """Its minor version, such as ``0.19``."""
        return f"{self.major}.{self.minor}"

    def is_of(self, other: Release) -> bool:
        """Whether it is of the other one's minor version, or of a newer one."""
        return (self.major, self.minor) >= (other.major, other.minor)

    def __str__(self) -> str:
        return f"{self.line}.{self.patch}"


FOLLOWED: Final = Release(0, 19, 2)
"""What the portal decides and explains by."""
FORMER: Final = Release(0, 18, 2)
"""The version before it, from which clusters are upgraded."""


class Support(StrEnum):
    """How far the portal goes with a version."""

    FULL = "supported"
    UPGRADE = "upgrade it"
    UNTRIED = "not tried"
    UNKNOWN = "not known"


def support_of(release: Release | None) -> Support:
    """By its minor version; None is a version that is not known."""
    if release is None:
        return Support.UNKNOWN
    by_line = {FOLLOWED.line: Support.FULL, FORMER.line: Support.UPGRADE}
    return by_line.get(release.line, Support.UNTRIED)


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that came with a version.

    Attributes:
        name: What it is.
        since: The first version that has it.
        without: What an older Kueue does, a sentence.
        upgrade: What changes with it and what to do, in sentences.
        setting: Where the Configuration has it. An older Kueue reads its Configuration strictly
            and does not start with a setting that it does not know.
        settled_by: A setting with which the change does not concern a cluster; empty for none.
        on_managers: It concerns managers alone.
        in_crds: It comes with the CRDs, so also where no Kueue runs.
    """

    name: str
    since: Release
    without: str
    upgrade: str
    setting: str = ""
    settled_by: str = ""
    on_managers: bool = False
    in_crds: bool = False


FEATURES: Final[tuple[Feature, ...]] = (
    Feature(
        "Jobs with up to 18 pod sets",
        Release(0, 19),
        "A job with more than 10 pod sets is refused.",
        "Up to 18 pod sets are taken. A manager sends what an older worker refuses, so upgrade the "
        "workers first.",
        in_crds=True,
    ),
    Feature(
        "A time limit for pods by default",
        Release(0, 19),
        "If the Configuration has no waitForPodsReady, pods may take any time to get ready.",
        "The Configuration has no waitForPodsReady: a job whose pods are not ready within 30 "
        "minutes will be evicted and tried again. If jobs need longer, set it before the upgrade.",
        settled_by="waitForPodsReady",
    ),
    Feature(
        "Workers in the configured order",
        Release(0, 19),
        "The incremental dispatcher offers jobs to workers in the order of their names.",
        "The incremental dispatcher follows the order of the MultiKueueConfig.",
        on_managers=True,
    ),
    Feature(
        "Workers in each round",
        Release(0, 19),
        "The incremental dispatcher always adds three workers a round.",
        "multiKueue.incrementalDispatcherConfig.stepSize can be set.",
        setting="multiKueue.incrementalDispatcherConfig",
        on_managers=True,
    ),
    Feature(
        "Access providers of ClusterProfiles",
        Release(0, 19),
        "Only multiKueue.clusterProfile.credentialsProviders is read.",
        "accessProviders replaces credentialsProviders; both together are refused.",
        setting="multiKueue.clusterProfile.accessProviders",
        on_managers=True,
    ),
    Feature(
        "Resources without quota",
        Release(0, 19),
        "resources.quotaCheckStrategy works only with the gate QuotaCheckStrategy.",
        "resources.quotaCheckStrategy works without a gate.",
    ),
    Feature(
        "Jobs that wait for a gate",
        Release(0, 19),
        "The annotation kueue.x-k8s.io/admission-gated-by holds no job back, unless the gate "
        "AdmissionGatedBy is on.",
        "Jobs with the annotation kueue.x-k8s.io/admission-gated-by wait.",
    ),
    Feature(
        "Slices within slices of a topology",
        Release(0, 19),
        "Jobs with several layers of slices are placed only with the gate TASMultiLayerTopology.",
        "Jobs with several layers of slices are placed.",
    ),
    Feature(
        "Nodes that are not ready",
        Release(0, 19),
        "A node counts as failed after it was not ready for a time, whatever its pods do.",
        "A node counts as failed when its pods stop or a taint keeps them from running.",
    ),
    Feature(
        "Helpers of Ray jobs",
        Release(0, 19),
        "The autoscaler and the submitter beside a Ray head count against no quota.",
        "The autoscaler and the submitter beside a Ray head count: 500m CPU, and 512Mi or 200Mi of "
        "memory, for each. Raise CPU and memory quota if it is tight.",
    ),
    Feature(
        "Nominations are cleared",
        Release(0, 19, 2),
        "What an external dispatcher nominated stays in the status, unless the dispatcher hands "
        "the field over.",
        "Kueue's own admission policy clears nominations when a job is admitted or evicted.",
        on_managers=True,
    ),
)
REMOVED_GATES: Final = (
    "DRAExtendedResources", "DynamicResourceAllocation", "LendingLimit", "LocalQueueDefaulting",
    "MultiKueueBatchJobWithManagedBy", "SanitizePodSets",
)  # fmt: skip
"""Gates that 0.18 knows and 0.19 does not: it does not start where one is named."""


def lacking(release: Release) -> tuple[Feature, ...]:
    """What a version cannot do."""
    return tuple(feature for feature in FEATURES if feature.since > release)


def unknown_settings(release: Release, configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of a Configuration with which this version would not start."""
    return tuple(
        feature.setting
        for feature in lacking(release)
        if feature.setting and has_setting(configuration, feature.setting)
    )


def removed_gates(configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """Gates of a Configuration with which :data:`FOLLOWED` would not start."""
    named = configuration.get("featureGates")
    return tuple(name for name in REMOVED_GATES if isinstance(named, Mapping) and name in named)


def has_setting(document: Mapping[str, Any], path: str) -> bool:
    """Whether a document has something at a path of names with dots between them."""
    found: Any = document
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True


def line_of_crds(schemas: Mapping[str, Any]) -> str:
    """The minor version that Kueue's CRDs are of, told by how they list a manager's workers.

    Args:
        schemas: By name, as the API server publishes them.

    Returns:
        ``0.19`` for that one and newer ones, ``0.18`` for that one and older ones, or empty.
    """
    kind = next((name for name in schemas if name.endswith(".v1beta2.MultiKueueConfig")), "")
    listed = _below(schemas, (kind, "properties", "spec", "properties", "clusters"))
    return {"atomic": FOLLOWED.line, "set": FORMER.line}.get(
        str(listed.get("x-kubernetes-list-type")), ""
    )


def _below(document: Any, path: Sequence[str]) -> Mapping[str, Any]:
    """What a document has there; nothing where it has something else."""
    found = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
