"""Whether a ClusterQueue or LocalQueue is active, with the condition that says so.

Source: Kueue pkg/cache/scheduler/clusterqueue.go, pkg/controller/core, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from budgets.plan import StopPolicy
from clusters.documents import labels
from clusters.kueue.quota.specifications import (
    PROVISIONING_CONTROLLER,
    CheckSpec,
    ClusterQueueSpec,
    FlavorSpec,
    LocalQueueSpec,
)


@dataclass(frozen=True, slots=True)
class ActiveCondition:
    """The Active condition of a queue."""

    is_active: bool
    reason: str
    message: str


_QUEUE_READY: Final = ActiveCondition(True, "Ready", "Can admit new workloads")
_TERMINATING: Final = ActiveCondition(
    False, "Terminating", "Can't admit new workloads; clusterQueue is terminating"
)


def queue_condition(
    spec: ClusterQueueSpec,
    *,
    flavors: Mapping[str, FlavorSpec],
    checks: Mapping[str, CheckSpec],
) -> ActiveCondition:
    """Active condition of a ClusterQueue.

    Args:
        spec: of the ClusterQueue.
        flavors: ResourceFlavors that exist, by name.
        checks: AdmissionChecks that exist, by name.
    """
    if spec.is_deleted:
        return _TERMINATING
    problems = [
        *_stop_problems(spec),
        *_flavor_problems(spec, flavors),
        *_check_problems(spec, checks),
    ]
    if not problems:
        return _QUEUE_READY
    details = ", ".join(text for _, text in problems)
    return ActiveCondition(False, problems[0][0], f"Can't admit new workloads: {details}.")


def local_queue_condition(
    spec: LocalQueueSpec, *, queue: ActiveCondition | None
) -> ActiveCondition:
    """Active condition of a LocalQueue.

    Args:
        spec: of the LocalQueue.
        queue: condition of its ClusterQueue, ``None`` when that does not exist.
    """
    if spec.stop_policy is not StopPolicy.NONE:
        return ActiveCondition(False, "Stopped", "LocalQueue is stopped")
    if queue is None:
        return ActiveCondition(
            False,
            "ClusterQueueDoesNotExist",
            "Can't submit new workloads to clusterQueue",
        )
    if not queue.is_active:
        return ActiveCondition(
            False,
            "ClusterQueueIsInactive",
            "Can't submit new workloads to clusterQueue",
        )
    return ActiveCondition(True, "Ready", "Can submit new workloads to localQueue")


def _stop_problems(spec: ClusterQueueSpec) -> list[tuple[str, str]]:
    if spec.stop_policy is StopPolicy.NONE:
        return []
    return [("Stopped", "is stopped")]


def _flavor_problems(
    spec: ClusterQueueSpec, flavors: Mapping[str, FlavorSpec]
) -> list[tuple[str, str]]:
    names = [name for group in spec.groups for name in group.flavors if name not in flavors]
    if not names:
        return []
    return [("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(names)}")]


def _check_problems(
    spec: ClusterQueueSpec, checks: Mapping[str, CheckSpec]
) -> list[tuple[str, str]]:
    known = [checks[name] for name in sorted(spec.checks) if name in checks]
    missing = sorted(name for name in spec.checks if name not in checks)
    inactive = [check.name for check in known if not check.is_active]
    problems = []
    if missing:
        text = f"references missing AdmissionCheck(s): {','.join(missing)}"
        problems.append(("AdmissionCheckNotFound", text))
    if inactive:
        text = f"references inactive AdmissionCheck(s): {','.join(inactive)}"
        problems.append(("AdmissionCheckInactive", text))
    return problems + _multikueue_problems(spec, known)


def _multikueue_problems(
    spec: ClusterQueueSpec, known: Sequence[CheckSpec]
) -> list[tuple[str, str]]:
    names = [check.name for check in known if check.controller == labels.MULTIKUEUE]
    per_flavor = [name for name in names if spec.checks[name]]
    problems = []
    if len(names) > 1:
        text = (
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: "
            + ",".join(names)
        )
        problems.append(("MultipleMultiKueueAdmissionChecks", text))
    if per_flavor:
        text = "Cannot specify MultiKueue AdmissionCheck per flavor, found: " + ",".join(per_flavor)
        problems.append(("MultiKueueAdmissionCheckAppliedPerFlavor", text))
    if names and any(check.controller == PROVISIONING_CONTROLLER for check in known):
        text = "Cannot use ProvisioningRequest AdmissionCheck together with MultiKueue"
        problems.append(("MultiKueueWithProvisioningRequest", text))
    return problems
