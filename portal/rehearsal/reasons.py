"""Why a step does not come: what the objects say, and what an admin of a cluster has to apply.

Clusters and people wrote these words: each is bounded, and has no control characters.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.db.models import Q

from clusters.documents.conditions import conditions_of
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.shares import IN_TASKS
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT, PORTAL_ACCOUNT
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.models import Cluster, ClusterHealth, ObjectState, ShiftRun
from clusters.selectors.places import post_of
from clusters.services.preflight.rows import FAULT, right_rows
from clusters.vault import unseal
from portal.rehearsal.report import plain

STANDS_S = 15.0
"""What is so for so long is no race: quota sync tries again after 1, 2 and 4 s, and a Kueue that
could not connect after 5 and 10 s."""
SHOWN = 5
"""Of one kind of reason; the others are left out, or counted."""
_BAD = (ObjectState.State.FAILED, ObjectState.State.FOREIGN)
_NOTHING = "No object says why. PORTAL_LOG_LEVEL=INFO shows what each shift does."


class TroubleClock:
    """Tells troubles that stand from those that a retry heals. One thread asks."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def first(self, troubles: Mapping[Hashable, str]) -> str:
        """The first that was among the troubles for STANDS_S whenever it asked; empty for none."""
        now = time.monotonic()
        self._since = {key: self._since.get(key, now) for key in troubles}
        standing = (key for key, since in self._since.items() if now - since >= STANDS_S)
        return next((troubles[key] for key in standing), "")


def failed_objects() -> dict[Hashable, str]:
    """What could not be written at the last try, by row. One query."""
    rows = ObjectState.objects.filter(state__in=_BAD).select_related("cluster")
    return {("object", row.pk): _of_object(row) for row in rows}


def unusable_workers() -> dict[Hashable, str]:
    """Why the manager cannot use its workers; nothing while it can use one. One query."""
    rows = list(_connections())
    if any(row.multikueue_active != "False" for row in rows):
        return {}
    return {("worker", row.pk): _of_connection(row) for row in rows}


def told(configs: Mapping[str, str], namespace: str) -> list[str]:
    """What is known of a step that did not come, a sentence each.

    Args:
        configs: Kubeconfigs by slug.
        namespace: Of the workspace.
    """
    rows = Cluster.objects.registered()
    found = [line for row in rows for line in _on_cluster(row.slug, configs[row.slug], namespace)]
    found += [_of_connection(row) for row in _connections() if row.multikueue_active == "False"]
    found += _lagging()
    found += missing_rights(rows, configs)
    return found or [_NOTHING]


def missing_rights(clusters: Iterable[Cluster], configs: Mapping[str, str]) -> Iterator[str]:
    """What identities must be allowed to do and are not, and the command that allows it.

    Args:
        clusters: Registered, or to be.
        configs: Kubeconfigs by slug.
    """
    found = list(clusters)
    for cluster in found:
        lacks = list(_lacks(cluster, configs[cluster.slug]))
        yield from lacks[:SHOWN]
        if len(lacks) > SHOWN:
            yield f"Of {cluster.slug} {len(lacks) - SHOWN} more are missing."
        if lacks:
            accounts = PORTAL_ACCOUNT
            if cluster.is_worker:
                accounts += f" and {MULTIKUEUE_ACCOUNT}"
            workers = [row.slug for row in found if row.is_worker and cluster.is_manager]
            yield (
                f"As an admin of {cluster.slug}, apply the rights of {accounts} in "
                f"{KUEUE_NAMESPACE}: {_command(cluster, workers)}"
            )


def _command(cluster: Cluster, workers: Iterable[str]) -> str:
    named = "".join(f" --worker {slug}" for slug in workers)
    rights = f"manage.py worker_rbac --role {cluster.role} --mode {cluster.mode}{named}"
    return f"{rights} | kubectl apply --server-side -f -"


def _lacks(cluster: Cluster, kubeconfig: str) -> Iterator[str]:
    """One sentence for each resource; nothing of a cluster that does not answer."""
    asked = [("the kubeconfig", kubeconfig, portal_rules(post_of(cluster)))]
    if sealed := cluster.multikueue_kubeconfig_sealed:
        account = f"the service account {MULTIKUEUE_ACCOUNT}"
        asked.append((account, unseal(sealed), multikueue_rules()))
    elif cluster.is_worker and cluster.pk:
        why = plain(cluster.health.multikueue_message)
        yield f"{cluster.slug} gives no token for {MULTIKUEUE_ACCOUNT}: {why}"
    for who, text, rules in asked:
        with suppress(ClusterError), _client(cluster.slug, text) as client:
            for row in right_rows(client, rules):
                if row.state == FAULT:
                    what = row.name.removeprefix("Right: ")
                    yield f"On {cluster.slug} {who} {row.found} {what}."


def _client(slug: str, kubeconfig: str) -> KubeClient:
    """Whose answers are bounded."""
    return KubeClient.from_kubeconfig(kubeconfig, share=IN_TASKS.of(slug))


def _on_cluster(slug: str, kubeconfig: str, namespace: str) -> Iterator[str]:
    """Conditions of the Workload, the Job and its pods."""
    with suppress(ClusterError), _client(slug, kubeconfig) as client:
        for resource in (r.WORKLOAD, r.JOB, r.POD):
            for item in client.list(resource, Selection(namespace=namespace)).items[:SHOWN]:
                name = f"{resource.kind} {item['metadata']['name']} on {slug}"
                checks = (item.get("status") or {}).get("admissionChecks") or []
                said = [_of_condition(entry) for entry in (*conditions_of(item), *checks)]
                yield f"{name}: {'; '.join(said[:SHOWN]) or 'no condition yet'}."


def _of_condition(entry: Mapping[str, Any]) -> str:
    """Of an admission check, too, which has a name and a state."""
    kind, is_so = entry.get("type") or entry.get("name"), entry.get("status") or entry.get("state")
    why = ": ".join(filter(None, (entry.get("reason"), entry.get("message"))))
    return plain(f"{kind} {is_so} ({why})" if why else f"{kind} {is_so}")


def _connections() -> Iterable[ClusterHealth]:
    workers = ClusterHealth.objects.filter(cluster__in=Cluster.objects.registered().workers())
    return workers.select_related("cluster").order_by("cluster__position")


def _of_connection(row: ClusterHealth) -> str:
    return f"MultiKueueCluster {row.cluster.slug} is not active: {plain(row.multikueue_message)}"


def _of_object(row: ObjectState) -> str:
    return f"{row.kind} {row.path} on {row.cluster.slug}: {plain(row.message)}"


def _lagging() -> Iterator[str]:
    """The newest words of objects that are not in place, of shifts, and of clusters."""
    objects = ObjectState.objects.exclude(kind=r.MULTIKUEUE_CLUSTER.kind).select_related("cluster")
    wrong = objects.filter(Q(state__in=_BAD) | Q(message__startswith="Kueue: "))
    for row in wrong.order_by("-changed_at")[:SHOWN]:
        yield _of_object(row)
    for shift in ShiftRun.objects.filter(parked__gt=0).select_related("cluster")[:SHOWN]:
        says = plain(shift.parked_says)
        yield f"The {shift.role} shift of {shift.cluster.slug} has set {shift.parked} aside: {says}"
    away = ClusterHealth.objects.filter(reachable=False).exclude(reason="")
    for health in away.select_related("cluster")[:SHOWN]:
        yield f"{health.cluster.slug} cannot be used: {plain(f'{health.reason}: {health.message}')}"
