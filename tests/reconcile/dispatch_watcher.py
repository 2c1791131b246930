"""An independent observer of dispatch: reads the clusters' own histories, not anybody's word.

It subscribes to the stores of embedded clusters before anything happens and judges afterwards.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from clusters.devcluster.registry import BY_KEY
from clusters.devcluster.store import ObjectStore, Subscription
from tests.reconcile.admission_harness import Embedded
from tests.waiting import PATIENCE_S

Document = dict[str, Any]
ORIGIN = "kueue.x-k8s.io/multikueue-origin"
KINDS = ("batch/jobs", "kueue.x-k8s.io/workloads")
_order = itertools.count()


class Watcher:
    """Collects every state of jobs and Workloads on all clusters; `kinds` are further ones."""

    def __init__(self, fleet: Embedded, *, origin: str, kinds: tuple[str, ...] = ()) -> None:
        self._fleet, self._origin = fleet, origin
        self._kinds = (*KINDS, *kinds)
        self._subscriptions: list[tuple[ObjectStore, Subscription]] = []
        self._threads: list[threading.Thread] = []
        # (order, cluster, kind, type, document)
        self.history: list[tuple[int, str, str, str, Document]] = []

    def __enter__(self) -> Watcher:
        for name, place in self._fleet.places.items():
            store = place.server.cluster.store
            for kind in self._kinds:
                key = BY_KEY[kind].key
                with store.lock:
                    _, subscription = store.subscribe(key, since=None)
                self._subscriptions.append((store, subscription))
                thread = threading.Thread(
                    target=self._follow, args=(name, kind, subscription), daemon=True
                )
                self._threads.append(thread)
                thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for store, subscription in self._subscriptions:
            store.unsubscribe(subscription)
            subscription.end()  # after everything that was told before
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _follow(self, name: str, kind: str, subscription: Subscription) -> None:
        while (change := subscription.queue.get()) is not None:
            self.history.append((next(_order), name, kind, change.type, change.document))

    def judge(self) -> None:
        """Raises AssertionError with every broken rule."""
        faults = [*self._two_jobs(), *self._unnominated(), *self._retry_under_eviction()]
        faults += self._second_reservations()
        faults += self._second_starts()
        assert not faults, "\n".join(faults)

    def _events(self, *kinds: str):
        return [item for item in sorted(self.history, key=lambda i: i[0]) if item[2] in kinds]

    def _two_jobs(self) -> list[str]:
        """At most one reachable worker has an unsuspended Job of ours under one attempt."""
        running: dict[tuple[str, str], set[str]] = {}
        faults = []
        jobs = [kind for kind in self._kinds if not kind.endswith("/workloads")]
        for _, cluster, kind, change, document in self._events(*jobs):
            metadata = document["metadata"]
            if (metadata.get("labels") or {}).get(ORIGIN) != self._origin:
                continue
            attempt = (metadata.get("annotations") or {}).get("gpu-budget-portal.dev/attempt", "")
            key = f"{kind}/{metadata['name']}", attempt
            holders = running.setdefault(key, set())
            if change == "DELETED":
                holders.discard(cluster)
            else:
                holders.add(cluster)
            if len(holders) > 1:
                faults.append(f"{metadata['name']} has Jobs on {sorted(holders)} ({attempt})")
        return faults

    def _second_starts(self) -> list[str]:
        """No job is made twice under one attempt, on whichever worker."""
        made: dict[tuple[str, str], set[str]] = {}
        jobs = [kind for kind in self._kinds if not kind.endswith("/workloads")]
        for _, _, kind, _, document in self._events(*jobs):
            metadata = document["metadata"]
            attempt = (metadata.get("annotations") or {}).get("gpu-budget-portal.dev/attempt", "")
            if attempt and (metadata.get("labels") or {}).get(ORIGIN) == self._origin:
                key = f"{kind}/{metadata['name']}", attempt
                made.setdefault(key, set()).add(metadata["uid"])
        return [
            f"{name} was made {len(uids)} times under {attempt}"
            for (name, attempt), uids in made.items()
            if len(uids) > 1
        ]

    def _workloads(self, cluster: str):
        """(before, after) of every change of the workloads of one cluster."""
        last: dict[str, Document] = {}
        for _, name, _, change, document in self._events("kueue.x-k8s.io/workloads"):
            if name != cluster:
                continue
            uid = document["metadata"]["uid"]
            if change != "DELETED":
                yield last.get(uid, {}), document
            last[uid] = document

    def _unnominated(self) -> list[str]:
        faults = []
        for before, after in self._workloads("manager"):
            old, new = before.get("status") or {}, after.get("status") or {}
            name = new.get("clusterName")
            is_new = name and name != old.get("clusterName")
            if is_new and name not in (old.get("nominatedClusterNames") or []):
                faults.append(f"{after['metadata']['name']}: {name} was not nominated before")
        return faults

    def _retry_under_eviction(self) -> list[str]:
        faults = []
        for before, after in self._workloads("manager"):
            old = {
                c["name"]: c["state"]
                for c in (before.get("status") or {}).get("admissionChecks") or []
            }
            for check in (after.get("status") or {}).get("admissionChecks") or []:
                is_new = check["state"] in ("Retry", "Rejected") != old.get(check["name"])
                if is_new and old.get(check["name"]) != check["state"] and _true(before, "Evicted"):
                    faults.append(f"{after['metadata']['name']}: {check['state']} under Evicted")
        return faults

    def _second_reservations(self) -> list[str]:
        """No workload is given quota twice without having lost it in between."""
        faults = []
        for cluster in self._fleet.places:
            for before, after in self._workloads(cluster):
                if _true(before, "QuotaReserved") and _true(after, "QuotaReserved"):
                    old = before["status"]["admission"]
                    if old != after["status"].get("admission"):
                        faults.append(f"{after['metadata']['name']}: admission changed in place")
        return faults


def _true(document: Document, kind: str) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)
