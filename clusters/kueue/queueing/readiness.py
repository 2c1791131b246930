"""Whether a ClusterQueue or LocalQueue is active, with the condition that says so.

Source: Kueue pkg/cache/scheduler/clusterqueue.go, pkg/controller/core, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
from clusters.kueue.quota.tree import ClusterQueueState


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
_NO_ENTRY: Final = "Can't submit new workloads to clusterQueue"


def queue_condition(
    spec: ClusterQueueSpec,
    *,
    flavors: Mapping[str, FlavorSpec],
    checks: Mapping[str, CheckSpec],
    topologies: Collection[str] | None = None,
) -> ActiveCondition:
    """Active condition of a ClusterQueue, by the flavors, checks and topologies that exist.

    ``topologies`` is ``None`` where nobody asks for one.
    """
    if spec.is_deleted:
        return _TERMINATING
    problems = list(_problems(spec, flavors, checks))
    if topologies is not None and not _is_remote(spec, checks):
        problems.extend(_lacking_topology(spec, flavors, topologies))
    if not problems:
        return _QUEUE_READY
    details = ", ".join(text for _, text in problems)
    return ActiveCondition(False, problems[0][0], f"Can't admit new workloads: {details}.")


def local_queue_condition(
    spec: LocalQueueSpec, *, queue: ActiveCondition | None
) -> ActiveCondition:
    """Active condition of a LocalQueue, by its ClusterQueue's; ``None`` where there is none."""
    if spec.stop_policy is not StopPolicy.NONE:
        return ActiveCondition(False, "Stopped", "LocalQueue is stopped")
    if queue is None:
        return ActiveCondition(False, "ClusterQueueDoesNotExist", _NO_ENTRY)
    if not queue.is_active:
        return ActiveCondition(False, "ClusterQueueIsInactive", _NO_ENTRY)
    return ActiveCondition(True, "Ready", "Can submit new workloads to localQueue")


def relate_to_topology(
    state: ClusterQueueState, *, flavors: Mapping[str, FlavorSpec], checks: Mapping[str, CheckSpec]
) -> None:
    """Note what flavors and checks mean for the placement of a queue's workloads."""
    spec = state.spec
    named = {name for group in spec.groups for name in group.flavors}
    state.is_placed_only = all(name in flavors and flavors[name].topology for name in named)
    state.is_remote = _is_remote(spec, checks)
    state.provisioned = frozenset(
        flavor
        for name, on in spec.checks.items()
        if name in checks and checks[name].controller == PROVISIONING_CONTROLLER
        for flavor in on or named
    )


def _is_remote(spec: ClusterQueueSpec, checks: Mapping[str, CheckSpec]) -> bool:
    """Whether workers place the pods of its workloads."""
    return any(
        name in checks and checks[name].controller == labels.MULTIKUEUE for name in spec.checks
    )


def _lacking_topology(
    spec: ClusterQueueSpec, flavors: Mapping[str, FlavorSpec], topologies: Collection[str]
) -> Iterator[tuple[str, str]]:
    for name in sorted({item for group in spec.groups for item in group.flavors} & flavors.keys()):
        topology = flavors[name].topology
        if topology and topology not in topologies:
            text = f'there is no Topology "{topology}" for TAS flavor "{name}"'
            yield "TopologyNotFound", text


def _problems(
    spec: ClusterQueueSpec, flavors: Mapping[str, FlavorSpec], checks: Mapping[str, CheckSpec]
) -> Iterator[tuple[str, str]]:
    """Reason and words of everything that keeps a ClusterQueue from admitting."""
    if spec.stop_policy is not StopPolicy.NONE:
        yield "Stopped", "is stopped"
    known = [checks[name] for name in sorted(spec.checks) if name in checks]
    remote = [check.name for check in known if check.controller == labels.MULTIKUEUE]
    named = [name for group in spec.groups for name in group.flavors]
    for reason, words, names in (
        (
            "FlavorNotFound",
            "references missing ResourceFlavor(s): ",
            [name for name in named if name not in flavors],
        ),
        (
            "AdmissionCheckNotFound",
            "references missing AdmissionCheck(s): ",
            sorted(spec.checks.keys() - checks.keys()),
        ),
        (
            "AdmissionCheckInactive",
            "references inactive AdmissionCheck(s): ",
            [check.name for check in known if not check.is_active],
        ),
        (
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: ",
            remote if len(remote) > 1 else [],
        ),
        (
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: ",
            [name for name in remote if spec.checks[name]],
        ),
    ):
        if names:
            yield reason, words + ",".join(names)
    if remote and any(check.controller == PROVISIONING_CONTROLLER for check in known):
        text = "Cannot use ProvisioningRequest AdmissionCheck together with MultiKueue"
        yield "MultiKueueWithProvisioningRequest", text
