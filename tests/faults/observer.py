"""An onlooker of its own: lists and watches three API servers and keeps all that it was told.

It goes past the roads that faults are put on, shares no code with the reconcilers, and has nobody's
word but that of the API servers. The events of one kind on one cluster are in their true order;
between kinds and clusters the order is that of their arrival here.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from tests.faults.upstream import Upstream

Document = dict[str, Any]
JOBS: Final = "/apis/batch/v1/jobs"
WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2/workloads"
QUEUES: Final = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
KINDS: Final = (JOBS, WORKLOADS, QUEUES)
WATCH_S: Final = 240


@dataclass(frozen=True, slots=True)
class Told:
    """One event.

    Attributes:
        at: Monotonic second of its arrival.
        cluster, kind: Where and what; the kind is the path of its collection.
        change: ADDED, MODIFIED or DELETED.
        document: As it is after the change; as it last was, after a deletion.
    """

    at: float
    cluster: str
    kind: str
    change: str
    document: Document

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.document["metadata"]["uid"])


class Observer:
    """Watches every cluster; a context manager.

    Args:
        kubeconfigs: By cluster, of somebody who may see everything.
        kinds: Paths of the collections to watch.
        lists_anew: Where a server has forgotten its history, list once more and tell what differs,
            instead of calling itself blind. For runs in which nobody can write meanwhile.
    """

    def __init__(
        self,
        kubeconfigs: Mapping[str, str],
        *,
        kinds: Sequence[str] = KINDS,
        lists_anew: bool = False,
    ) -> None:
        self._kinds, self._lists_anew = kinds, lists_anew
        self._epochs: dict[str, int] = dict.fromkeys(kubeconfigs, 0)
        # The wall clock of this process, which nobody makes wrong.
        self.wall_offset_s = time.time() - time.monotonic()
        self._upstreams = {name: Upstream.of(text) for name, text in kubeconfigs.items()}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ready: dict[tuple[str, str], threading.Event] = {}
        self._now: dict[tuple[str, str], dict[str, Document]] = {}
        self.history: list[Told] = []
        self.blind: list[str] = []

    def __enter__(self) -> Self:
        for cluster in self._upstreams:
            for kind in self._kinds:
                self._ready[cluster, kind] = threading.Event()
                self._now[cluster, kind] = {}
                thread = threading.Thread(target=self._follow, args=(cluster, kind), daemon=True)
                self._threads.append(thread)
                thread.start()
        for (cluster, kind), ready in self._ready.items():
            if not ready.wait(60):
                raise AssertionError(f"the observer cannot list {kind} on {cluster}")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()

    def now(self, cluster: str, kind: str) -> list[Document]:
        """What is there, as far as it was told."""
        with self._lock:
            return list(self._now[cluster, kind].values())

    def told(self) -> list[Told]:
        """The whole history so far."""
        with self._lock:
            return list(self.history)

    def catch_up(self, *, seconds: float = 30.0) -> None:
        """Wait until everything that is there by now was told.

        Raises:
            AssertionError: it was not told in time.
        """
        ends = time.monotonic() + seconds
        for cluster, kind in self._ready:
            while not self._has(cluster, kind, self._list(cluster, kind)["items"]):
                if time.monotonic() > ends:
                    raise AssertionError(f"the observer lags behind on {cluster}: {kind}")
                time.sleep(0.1)

    def _has(self, cluster: str, kind: str, listed: list[Document]) -> bool:
        known = {
            item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"])
            for item in self.now(cluster, kind)
        }
        return all(
            known.get(item["metadata"]["uid"], -1) >= int(item["metadata"]["resourceVersion"])
            for item in listed
        )

    def look_anew(self, cluster: str) -> None:
        """Its history is another one from now on: what its watches had told ends here."""
        self._epochs[cluster] += 1

    def _follow(self, cluster: str, kind: str) -> None:
        while not self._stop.is_set():
            epoch = self._epochs[cluster]
            try:
                version = self._take_list(cluster, kind)
                self._ready[cluster, kind].set()
                while not self._stop.is_set() and epoch == self._epochs[cluster]:
                    version = self._watch(cluster, kind, version)
            except LostSight as lost:
                if not self._lists_anew:
                    self.blind.append(str(lost))
                    return
                self._stop.wait(0.05)
            except (OSError, http.client.HTTPException, ValueError):
                if not self._lists_anew:
                    raise
                self._stop.wait(0.05)

    def _take_list(self, cluster: str, kind: str) -> str:
        """Tells what differs from what was told before; the version to go on from."""
        listed = self._list(cluster, kind)
        known = {item["metadata"]["uid"]: item for item in self.now(cluster, kind)}
        there = {item["metadata"]["uid"]: item for item in listed["items"]}
        for uid in known.keys() - there.keys():
            self._take(cluster, kind, "DELETED", known[uid])
        for uid, item in there.items():
            before = known.get(uid, {}).get("metadata", {}).get("resourceVersion")
            if before != item["metadata"]["resourceVersion"]:
                self._take(cluster, kind, "MODIFIED" if before else "ADDED", item)
        return str(listed["metadata"]["resourceVersion"])

    def _list(self, cluster: str, kind: str) -> Document:
        connection = self._upstreams[cluster].connect(timeout_s=30)
        try:
            connection.request("GET", kind, headers=self._upstreams[cluster].headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise LostSight(f"{cluster}: {kind} answered {answer.status} {body[:200]!r}")
        return dict(json.loads(body))

    def _watch(self, cluster: str, kind: str, version: str) -> str:
        """One watch until it ends; the version to go on from."""
        upstream = self._upstreams[cluster]
        seconds = 5 if self._lists_anew else WATCH_S
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}"
        connection = upstream.connect(timeout_s=seconds + 30)
        try:
            connection.request(
                "GET", f"{kind}?{query}&resourceVersion={version}", headers=upstream.headers
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise LostSight(f"{cluster}: a watch of {kind} answered {answer.status}")
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise LostSight(f"{cluster}: a watch of {kind} ended with {event['object']}")
                version = str(event["object"]["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self._take(cluster, kind, event["type"], event["object"])
        except (OSError, http.client.HTTPException, ValueError):
            self._stop.wait(0.2)
        finally:
            connection.close()
        return version

    def _take(self, cluster: str, kind: str, change: str, document: Document) -> None:
        # Nothing here is judged by, and it is most of what would be kept.
        document["metadata"].pop("managedFields", None)
        for part in ("template", "podSets"):
            (document.get("spec") or {}).pop(part, None)
        told = Told(time.monotonic(), cluster, kind, change, document)
        with self._lock:
            self.history.append(told)
            if change == "DELETED":
                self._now[cluster, kind].pop(told.uid, None)
            else:
                self._now[cluster, kind][told.uid] = document


class LostSight(Exception):
    """Something may have happened that was not told."""
