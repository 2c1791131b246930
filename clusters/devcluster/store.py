"""The objects of one embedded cluster and the history of their changes, in memory.

One lock orders all writes; every write gets the next resourceVersion. Documents that were committed
are never changed again: whoever wants to change one works on a copy. Given a file, every commit
is also written to SQLite, so that a restart keeps the objects (but not the history: watchers that
resume from before it are told to list again).
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from clusters.devcluster.problems import Document, encoded, expired
from clusters.documents.keys import place_of

HISTORY = 20_000
BACKLOG = 20_000
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed change; `before` is the object's previous state, None for a new one."""

    version: int
    type: str
    kind: str
    document: Document
    before: Document | None
    raw: bytes = field(repr=False)


class Subscription:
    """Changes of one kind as they are committed; "" is every kind. None in the queue ends it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.queue: queue.Queue[Commit | None] = queue.Queue(maxsize=BACKLOG)

    def read(
        self, within_s: float, *, stop: threading.Event, take: Callable[[Commit], float | None]
    ) -> bool:
        """Hands on what comes within a time; False when the subscription ended.

        Args:
            within_s: So long, or until told to stop.
            stop: Tells it.
            take: Gets each change; answers for how long at most to go on, None for no less.
        """
        ends = time.monotonic() + within_s
        while (left := ends - time.monotonic()) > 0 and not stop.is_set():
            try:
                change = self.queue.get(timeout=left)
            except queue.Empty:
                return True
            if change is None:
                return False
            shorter = take(change)
            if shorter is not None:
                ends = min(ends, time.monotonic() + shorter)
        return True

    def end(self) -> None:
        """Wakes the reader up with the end; changes that it has not read are dropped."""
        while True:
            try:
                self.queue.put_nowait(None)
                return
            except queue.Full:
                with self.queue.mutex:
                    self.queue.queue.clear()


class ObjectStore:
    """Objects by kind and (namespace, name); see the module's text."""

    def __init__(self, *, file: Path | None = None, history: int = HISTORY) -> None:
        self.lock = threading.RLock()
        self._objects: dict[str, dict[Key, Document]] = {}
        self._history: deque[Commit] = deque(maxlen=history)
        self._subscriptions: set[Subscription] = set()
        self._version = 1
        self._journal = _Journal(file) if file else None
        if self._journal:
            self._version, self._objects = self._journal.load()
        self._oldest = self._version

    @property
    def version(self) -> int:
        return self._version

    def close(self) -> None:
        """Ends every subscription and closes the file."""
        self.end_subscriptions()
        with self.lock:
            if self._journal:
                self._journal.close()
                self._journal = None

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        with self.lock:
            return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: str) -> tuple[int, list[Document]]:
        """The version and every object of a kind at that version, ordered by namespace and name."""
        with self.lock:
            objects = self._objects.get(kind, {})
            return self._version, [objects[key] for key in sorted(objects)]

    def everything(self) -> list[tuple[str, Document]]:
        with self.lock:
            return [
                (kind, document)
                for kind, objects in self._objects.items()
                for document in objects.values()
            ]

    def put(self, kind: str, document: Document) -> Document:
        """Commits a new or changed object; returns it with its new resourceVersion."""
        with self.lock:
            self._version += 1
            metadata = document["metadata"] | {"resourceVersion": str(self._version)}
            document = document | {"metadata": metadata}
            key = place_of(document)
            objects = self._objects.setdefault(kind, {})
            before = objects.get(key)
            objects[key] = document
            self._commit("MODIFIED" if before else "ADDED", kind, document, before)
            return document

    def remove(self, kind: str, namespace: str, name: str) -> Document:
        """Commits a deletion; returns the last state, at the deletion's version."""
        with self.lock:
            before = self._objects[kind].pop((namespace, name))
            self._version += 1
            metadata = before["metadata"] | {"resourceVersion": str(self._version)}
            document = before | {"metadata": metadata}
            self._commit("DELETED", kind, document, before)
            return document

    def _commit(self, change: str, kind: str, document: Document, before: Document | None) -> None:
        raw = encoded(document)
        if self._journal:
            self._journal.write(self._version, kind, document, None if change == "DELETED" else raw)
        entry = Commit(self._version, change, kind, document, before, raw)
        if len(self._history) == self._history.maxlen:
            self._oldest = self._history[0].version
        self._history.append(entry)
        for subscription in list(self._subscriptions):
            if subscription.kind not in ("", kind):
                continue
            try:
                subscription.queue.put_nowait(entry)
            except queue.Full:
                # The reader is too slow and has to begin anew.
                self._subscriptions.discard(subscription)
                subscription.end()

    def subscribe(self, kind: str, *, since: int | None) -> tuple[list[Commit], Subscription]:
        """Changes after a version, and a subscription that misses none of those to come.

        Raises:
            Failure: 410 when the history does not reach back to that version (or never was there).
        """
        with self.lock:
            backlog: list[Commit] = []
            if since is not None:
                if since < self._oldest or since > self._version:
                    raise expired(since, self._oldest)
                newer = takewhile(lambda commit: commit.version > since, reversed(self._history))
                backlog = [commit for commit in newer if commit.kind == kind][::-1]
            subscription = Subscription(kind)
            self._subscriptions.add(subscription)
            return backlog, subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        with self.lock:
            self._subscriptions.discard(subscription)

    def end_subscriptions(self) -> None:
        """Ends every watch, as an API server that restarts does."""
        with self.lock:
            ended, self._subscriptions = self._subscriptions, set()
            for subscription in ended:
                subscription.end()

    def compact(self) -> None:
        """Forgets the history: whoever resumes from before now is answered 410."""
        with self.lock:
            self._history.clear()
            # A version of its own, so that even the newest version known to a watcher is too old.
            self._version += 1
            self._oldest = self._version

    def is_available(self, version: int) -> bool:
        """Whether a list that began at this version may still be continued."""
        return self._oldest <= version <= self._version


class _Journal:
    """The objects on disk. One connection, used only under the store's lock."""

    def __init__(self, file: Path) -> None:
        # Secrets lie in it; SQLite gives its side files the same rights.
        file.touch(mode=0o600)
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS object (kind TEXT, namespace TEXT, name TEXT,"
            " body BLOB, PRIMARY KEY (kind, namespace, name))"
        )
        self._connection.execute("CREATE TABLE IF NOT EXISTS version (number INTEGER)")

    def load(self) -> tuple[int, dict[str, dict[Key, Document]]]:
        objects: dict[str, dict[Key, Document]] = {}
        rows = self._connection.execute("SELECT kind, namespace, name, body FROM object")
        for kind, namespace, name, body in rows:
            objects.setdefault(kind, {})[namespace, name] = json.loads(body)
        (number,) = self._connection.execute("SELECT max(number) FROM version").fetchone()
        return number or 1, objects

    def write(self, version: int, kind: str, document: Document, raw: bytes | None) -> None:
        key = kind, *place_of(document)
        self._connection.execute("BEGIN")
        if raw is None:
            self._connection.execute(
                "DELETE FROM object WHERE kind=? AND namespace=? AND name=?", key
            )
        else:
            self._connection.execute("INSERT OR REPLACE INTO object VALUES (?,?,?,?)", (*key, raw))
        self._connection.execute("DELETE FROM version")
        self._connection.execute("INSERT INTO version VALUES (?)", (version,))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
