"""Lists, page by page, and watches."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from queue import Empty

from clusters.devcluster import problems
from clusters.devcluster.problems import Document, encoded
from clusters.devcluster.registry import ServedKind
from clusters.devcluster.selectors import Filter
from clusters.devcluster.store import Commit, ObjectStore, Subscription
from clusters.documents.keys import place_of

DEFAULT_WATCH_S = 1800.0


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """From where, how long, and whether to say now and then where the watch is."""

    since: str = ""
    seconds: float = DEFAULT_WATCH_S
    bookmarks: bool = False


class Reads:
    """Read requests against one store."""

    def __init__(self, store: ObjectStore, *, bookmark_every_s: float) -> None:
        self._store = store
        self._bookmark_every_s = bookmark_every_s

    def page(self, kind: ServedKind, wanted: Filter, *, limit: int, token: str) -> Document:
        """One page of a list: at most so many, 0 is all, from where a token says.

        Raises:
            Failure: 410 when the list began before what the history still knows.
        """
        version, documents = self._store.all(kind.key)
        start = ("", "")
        if token:
            version, start = self._continued(token)
        found = [d for d in documents if place_of(d) > start and wanted.accepts(d)]
        metadata: Document = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            metadata["remainingItemCount"] = len(found) - limit
            found = found[:limit]
            left = encoded({"v": version, "k": place_of(found[-1])})
            metadata["continue"] = base64.urlsafe_b64encode(left).decode()
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": found,
        }

    def _continued(self, token: str) -> tuple[int, tuple[str, str]]:
        try:
            decoded = json.loads(base64.urlsafe_b64decode(token))
            version, (namespace, name) = int(decoded["v"]), decoded["k"]
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise problems.bad_request("continue key is not valid") from None
        if not self._store.is_available(version):
            text = "The provided continue parameter is too old to display a consistent list result."
            raise problems.Failure(410, "Expired", text)
        return version, (namespace, name)

    def watch(
        self, kind: ServedKind, wanted: Filter, request: WatchRequest
    ) -> Generator[bytes, None, None]:
        """Lines of a watch; the first part happens at once, so that faults come as a status.

        Raises:
            Failure: 410, or 400 for what is not a resourceVersion.
        """
        if request.since and not request.since.isdecimal():
            text = f"Invalid value: {request.since!r}: a resourceVersion is a number"
            raise problems.bad_request(text)
        since = int(request.since) if request.since else 0
        with self._store.lock:
            backlog, subscription = self._store.subscribe(kind.key, since=since or None)
            first = [] if since else self._store.all(kind.key)[1]
        opening = chain(
            (_line("ADDED", encoded(document)) for document in first if wanted.accepts(document)),
            chain.from_iterable(_event(change, wanted) for change in backlog),
        )
        return self._lines(kind, wanted, request, subscription, opening)

    def _lines(
        self,
        kind: ServedKind,
        wanted: Filter,
        request: WatchRequest,
        subscription: Subscription,
        opening: Iterable[bytes],
    ) -> Generator[bytes, None, None]:
        ends = time.monotonic() + request.seconds
        try:
            yield from opening
            while (left := ends - time.monotonic()) > 0:
                try:
                    wait = min(left, self._bookmark_every_s)
                    fresh = subscription.queue.get(timeout=wait)
                except Empty:
                    if request.bookmarks:
                        yield self._bookmark(kind, subscription)
                    continue
                if fresh is None:
                    return
                yield from _event(fresh, wanted)
        finally:
            self._store.unsubscribe(subscription)

    def _bookmark(self, kind: ServedKind, subscription: Subscription) -> bytes:
        with self._store.lock:
            # Only when nothing waits is everything up to now delivered.
            version = self._store.version if subscription.queue.empty() else None
        if version is None:
            return b""
        document = {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(version)},
        }
        return _line("BOOKMARK", encoded(document))


def _event(change: Commit, wanted: Filter) -> Iterator[bytes]:
    """The change as this watch sees it: objects enter and leave a selection by changing."""
    before = change.before is not None and wanted.accepts(change.before)
    after = change.type != "DELETED" and wanted.accepts(change.document)
    if after:
        yield _line("MODIFIED" if before else "ADDED", change.raw)
    elif before:
        yield _line("DELETED", change.raw)


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"
