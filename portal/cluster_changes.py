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
        "Nothing is written to this cluster until writing is on again; the page shows what would "
        "be written. Running jobs go on. It can be switched back at any time.",
        "Stop writing",
        "Writing is off.",
        setting="writes_enabled",
        fixed={"writes_enabled": False},
    ),
    "start-writing": ClusterChange(
        _write,
        "Write again",
        "What is wanted is applied within seconds.",
        "Write again",
        "Writing is on.",
        fixed={"writes_enabled": True},
    ),
    "mode": ClusterChange(
        _calls(enforcement.set_mode, mode="mode", reason="reason"),
        "Change who decides",
        "Only with writing stopped; the matrix of modes and the proof of a live Kueue are checked "
        "again.",
        "Change mode",
        "The mode is changed.",
        setting="mode",
    ),
    "drift": ClusterChange(
        _calls(enforcement.set_drift_policy, policy="drift_policy"),
        "Hand edits",
        "The portal notices a hand edit of an owned field within seconds.",
        "Save",
        "Saved.",
        setting="drift_policy",
    ),
    "guard": ClusterChange(
        _calls(enforcement.set_guard, guard="guard", reason="reason"),
        "Guard",
        "Three defects of Kueue 0.19.2: a returning worker's old copy kills the running job, an "
        "evicted job keeps its quota for ever, a rejected job that is active again is not queued. "
        "Cures delete old copies on workers and write into workloads and jobs on this manager; "
        "they stop no running job. They need rights of their own: apply the generated ones again.",
        "Save",
        "Saved.",
        setting="guard",
    ),
    "kubeconfig": ClusterChange(
        _renew,
        "Renew the kubeconfig",
        "The new one has to lead to the same cluster; that is checked before the old one is "
        "forgotten.",
        "Renew",
        "The kubeconfig is renewed.",
    ),
    "token": ClusterChange(
        _calls(enforcement.rotate_multikueue_token),
        "Renew the multikueue token",
        "The manager gets a new token for this worker; the old one ends by itself.",
        "Renew token",
        "A new token is in place.",
    ),
    "local-jobs": ClusterChange(
        _calls(enforcement.set_local_jobs, allowed="allows_local_jobs"),
        "Jobs past the manager",
        "Jobs that are submitted on the worker itself are shown as outside of the split.",
        "Save",
        "Saved.",
        setting="allows_local_jobs",
    ),
    "operators": ClusterChange(
        _calls(enforcement.set_operators, operators="operators"),
        "Operators",
        "Controllers of JobSet, Ray, Kubeflow and the like make the parts of a job that queues as "
        "a whole. The admission policies let those parts run when one of these makes them; apply "
        "the generated ones again.",
        "Save",
        "Saved: apply the generated rights to this cluster again.",
        setting="operators",
    ),
    "gpus-elsewhere": ClusterChange(
        _elsewhere,
        "GPUs outside of workspaces",
        "An admission policy can refuse pods with GPUs in every namespace that is no workspace of "
        "this portal; apply the generated ones again.",
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
        "The cluster carries newer promises than the portal's database. Nothing is written until "
        "you say which side is right. What you do not choose is lost.",
        "Decide",
        "Decided; the sync goes on.",
    ),
    "deregister": ClusterChange(
        _calls(enforcement.deregister_cluster, reason="reason", abandon="abandon"),
        "De-register this cluster",
        "Cannot be undone. The cluster is drained, the portal's objects, copies and secrets there "
        "are removed, its stored credentials are forgotten. Namespaces, jobs and use stay.",
        "De-register",
        "The cluster is being drained and removed.",
    ),
    "forget": ClusterChange(
        _calls(enforcement.deregister_cluster, reason="reason", abandon="abandon"),
        "Forget this cluster now",
        "Cannot be undone. Its stored credentials are forgotten at once, and the portal cleans up "
        "nothing more there: what is left on the cluster stays. Use stays in the books.",
        "Forget it",
        "The cluster is forgotten.",
        fixed={"abandon": True},
    ),
    "rename": ClusterChange(
        _calls(enforcement.edit_cluster, name="name"),
        "Rename this cluster",
        "Only how people read it: the slug stays.",
        "Rename",
        "The cluster is renamed.",
        setting="name",
    ),
}
"""By the last part of the page's address."""

SETTINGS: Mapping[str, ClusterChange] = {
    row.setting: row for row in CHANGES.values() if row.setting
}
