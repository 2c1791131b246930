"""What an admin changes on a cluster: a row each, from which page, form and API take what they do.

Typed values come under the names of the API's settings, from a form as from a body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from budgets.models import User
from clusters import services as enforcement
from clusters.models import Cluster

Typed = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One thing that an admin does to a cluster.

    Attributes:
        do: Carries it out, with what was typed.
        title, text, button, said: Of its page, and the sentence when it is done.
        setting: Its name among the settings of the API; empty where that has an address for it.
        fixed: What nobody types, because the page is for that value alone.
    """

    do: Callable[[User, Cluster, Typed], Any]
    title: str
    text: str
    button: str
    said: str
    setting: str = ""
    fixed: Typed = field(default_factory=dict)


def _calls(service: Callable[..., Any], **arguments: str) -> Callable[[User, Cluster, Typed], Any]:
    """Hands a service, by its words for them, what was typed under these names."""

    def do(user: User, cluster: Cluster, typed: Typed) -> Any:
        given = {argument: typed[name] for argument, name in arguments.items()}
        return service(user, cluster=cluster, **given)

    return do


def _configure(user: User, cluster: Cluster, typed: Typed) -> Any:
    wanted = typed["kueue_configuration"] or {}
    return enforcement.set_kueue_configuration(user, cluster=cluster, configuration=wanted)


def _elsewhere(user: User, cluster: Cluster, typed: Typed) -> Any:
    listed = typed["gpu_namespaces"] if typed.get("denies_elsewhere", True) else None
    return enforcement.set_gpu_namespaces(user, cluster=cluster, namespaces=listed)


def _renew(user: User, cluster: Cluster, typed: Typed) -> Any:
    return enforcement.rotate_kubeconfig(user, cluster=cluster, **typed)


def _resolve(user: User, cluster: Cluster, typed: Typed) -> Any:
    return enforcement.resolve_block(
        user, cluster=cluster, apply_ours=typed["keep"] == "portal", reason=typed["reason"]
    )


_write = _calls(enforcement.set_writes_enabled, enabled="writes_enabled", reason="reason")

CHANGES: Mapping[str, ClusterChange] = {
    "stop-writing": ClusterChange(
        _write,
        "Stop all writing",
        "The portal writes nothing to this cluster until writing is switched on again. The "
        "cluster's page shows what it would write. Running jobs go on.",
        "Stop writing",
        "Writing is off.",
        setting="writes_enabled",
        fixed={"writes_enabled": False},
    ),
    "start-writing": ClusterChange(
        _write,
        "Write again",
        "The portal applies what is missing on the cluster within seconds.",
        "Write again",
        "Writing is on.",
        fixed={"writes_enabled": True},
    ),
    "mode": ClusterChange(
        _calls(enforcement.set_mode, mode="mode", reason="reason"),
        "Change who decides",
        "Writing to the cluster has to be stopped first. The portal checks again whether the modes "
        "of the fleet fit together and whether a Kueue is running there.",
        "Change mode",
        "The mode has been changed.",
        setting="mode",
    ),
    "role": ClusterChange(
        _calls(enforcement.change_role, role="role", reason="reason"),
        "Change the role",
        "A single cluster can become a manager that dispatches to workers, and go back. Budgets, "
        "workspaces, prices and the ledger stay, and so do jobs in queue default. Jobs for workers "
        "go to a second queue, fleet. Apply the generated rights and policies again afterwards.",
        "Change the role",
        "The role has been changed. Apply the generated rights to this cluster again.",
        setting="role",
    ),
    "drift": ClusterChange(
        _calls(enforcement.set_drift_policy, policy="drift_policy"),
        "Hand edits",
        "When somebody changes a field of the portal on the cluster, the portal notices it within "
        "seconds.",
        "Save",
        "Saved.",
        setting="drift_policy",
    ),
    "guard": ClusterChange(
        _calls(enforcement.set_guard, guard="guard", reason="reason"),
        "Guard",
        "The guard looks for three defects of Kueue 0.19.2: the old copy on a returning worker "
        "ends the running job, an evicted job keeps its quota for ever, and a rejected job that is "
        "active again is not queued. To cure them it deletes old copies on workers and writes to "
        "workloads and jobs on this manager. It stops no running job. It needs more rights: apply "
        "the generated rights again.",
        "Save",
        "Saved.",
        setting="guard",
    ),
    "kubeconfig": ClusterChange(
        _renew,
        "Renew the kubeconfig",
        "The new kubeconfig has to lead to the same cluster. The portal checks that before it "
        "forgets the old one.",
        "Renew",
        "The kubeconfig has been renewed.",
    ),
    "token": ClusterChange(
        _calls(enforcement.rotate_multikueue_token),
        "Renew the multikueue token",
        "The manager gets a new token for this worker. The old token ends by itself.",
        "Renew token",
        "A new token is in place.",
    ),
    "local-jobs": ClusterChange(
        _calls(enforcement.set_local_jobs, allowed="allows_local_jobs"),
        "Jobs that bypass the manager",
        "The portal shows jobs that are submitted on the worker itself as outside of the split.",
        "Save",
        "Saved.",
        setting="allows_local_jobs",
    ),
    "operators": ClusterChange(
        _calls(enforcement.set_operators, operators="operators"),
        "Operators",
        "Controllers such as those of JobSet, Ray and Kubeflow make the parts of a job that queues "
        "as a whole. The admission policies let these parts run if one of the listed service "
        "accounts makes them. Apply the generated policies again after a change.",
        "Save",
        "Saved: apply the generated rights to this cluster again.",
        setting="operators",
    ),
    "gpus-elsewhere": ClusterChange(
        _elsewhere,
        "GPUs outside of workspaces",
        "An admission policy can refuse pods with GPUs in every namespace that is not a workspace "
        "of this portal. Apply the generated policies again after a change.",
        "Save",
        "Saved: apply the generated rights to this cluster again.",
        setting="gpu_namespaces",
    ),
    "configuration": ClusterChange(
        _configure,
        "Kueue Configuration",
        "Kueue keeps these settings in a file, not in its API. The portal's forecasts and its own "
        "decisions follow what is entered here.",
        "Save",
        "Saved.",
        setting="kueue_configuration",
    ),
    "block": ClusterChange(
        _resolve,
        "Decide which side is right",
        "The cluster carries newer promises than the portal's database. The portal writes nothing "
        "there until you say which side is right. What you do not choose is lost.",
        "Decide",
        "The decision is saved, and the sync goes on.",
    ),
    "deregister": ClusterChange(
        _calls(enforcement.deregister_cluster, reason="reason", abandon="abandon"),
        "De-register this cluster",
        "This cannot be undone. The portal drains the cluster, removes its objects, copies and "
        "secrets there, and forgets the stored credentials. Namespaces, jobs and use stay.",
        "De-register",
        "The cluster is being drained. It is removed when nothing of the portal is left on it.",
    ),
    "forget": ClusterChange(
        _calls(enforcement.deregister_cluster, reason="reason", abandon="abandon"),
        "Forget this cluster now",
        "This cannot be undone. The portal forgets the stored credentials at once and removes "
        "nothing more there: what is left on the cluster stays. Use stays in the books.",
        "Forget it",
        "The cluster has been forgotten.",
        fixed={"abandon": True},
    ),
    "rename": ClusterChange(
        _calls(enforcement.edit_cluster, name="name"),
        "Rename this cluster",
        "This changes only the name that people read. The slug stays.",
        "Rename",
        "The cluster has been renamed.",
        setting="name",
    ),
}
"""By the last part of the page's address."""

SETTINGS: Mapping[str, ClusterChange] = {
    row.setting: row for row in CHANGES.values() if row.setting
}
