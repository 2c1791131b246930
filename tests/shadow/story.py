"""A cluster that tells what happens on it, second by second, to episodes without a clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from clusters.kueue.cycle.engine import Engine
from clusters.reconcile.shadow.compare import Disagreement
from clusters.reconcile.shadow.episodes import Episodes
from tests.kueue.builders import START, flavor, local_queue, reserved

Document = dict[str, Any]


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def with_condition(document: Document, kind: str, status: str, reason: str, message: str = ""):
    """The document with one condition set."""
    status_part = dict(document.get("status") or {})
    others = [item for item in status_part.get("conditions") or () if item["type"] != kind]
    entry = {"type": kind, "status": status, "reason": reason, "message": message}
    entry["lastTransitionTime"] = stamp(START)
    status_part["conditions"] = [*others, entry]
    return {**document, "status": status_part}


def waiting(document: Document, reason: str, message: str) -> Document:
    return with_condition(document, "QuotaReserved", "False", reason, message)


def evicted(document: Document, *, why: str = "InClusterQueue") -> Document:
    """Told to stop for another workload; still holds its quota."""
    found = with_condition(document, "Evicted", "True", "Preempted")
    return with_condition(found, "Preempted", "True", why)


def released(document: Document) -> Document:
    """Its pods are gone: no quota any more."""
    found = with_condition(document, "QuotaReserved", "False", "Preempted", "Preempted")
    found["status"].pop("admission", None)
    return found


def finished(document: Document) -> Document:
    return with_condition(document, "Finished", "True", "Succeeded")


def _raised(trees: Iterable[str], error: Exception) -> None:
    raise error


class Story:
    """Tells events and keeps count of what was found."""

    def __init__(self, *documents: Document, configuration: Document | None = None) -> None:
        self.now = START + timedelta(hours=1)
        self.episodes = Episodes(Engine(configuration))
        self.compared = self.passed_over = 0
        self.differences: list[Disagreement] = []
        namespace = {"kind": "Namespace", "metadata": {"name": "ns"}}
        self.tell(namespace, flavor("f0"), *documents)
        self.episodes.begin(self.now)

    def tell(self, *documents: Document) -> Story:
        """One event after the other, 10 ms apart; a ClusterQueue brings its LocalQueue."""
        for document in documents:
            self._take(document)
            if document["kind"] == "ClusterQueue":
                name = document["metadata"]["name"]
                self._take(local_queue(name, name))
        return self

    def gone(self, document: Document) -> Story:
        self._take(document, is_gone=True)
        return self

    def _take(self, document: Document, *, is_gone: bool = False) -> None:
        self.now += timedelta(milliseconds=10)
        self.episodes.take(document["kind"], document, is_gone=is_gone, now=self.now)

    def rest(self, seconds: float = 30) -> Story:
        """Let time pass, compared every second."""
        ends = self.now + timedelta(seconds=seconds)
        while self.now < ends:
            self.now += timedelta(seconds=1)
            for verdict in self.episodes.settle(self.now, failed=_raised):
                self.compared += verdict.compared
                self.passed_over += verdict.passed_over
                self.differences.extend(verdict.differences)
        return self

    def admit(self, document: Document, queue: str, **more: Any) -> Document:
        """Tell that Kueue admitted it; returns the new version."""
        found = reserved(document, queue, at=stamp(self.now), **more)
        self.tell(found)
        return found
