"""Lists, page by page, and watches; label and field selectors say of which objects."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from queue import Empty
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Document, bad_request, encoded
from clusters.devcluster.registry import ServedKind
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


Test = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_EQUALITY = re.compile(r"^([^\s=!]+)\s*(==|=|!=)\s*([^\s=!]*)$")
_KEY = re.compile(r"^!?\s*[A-Za-z0-9][-A-Za-z0-9_./]*$")
_FIELDS = ("metadata.name", "metadata.namespace")
_MORE_FIELDS = {
    "kueue.x-k8s.io/workloads": ("status.admission.clusterQueue",),
    "/pods": ("spec.nodeName", "status.phase"),
    "/secrets": ("type",),
    "/events": ("involvedObject.kind", "involvedObject.name", "involvedObject.namespace"),
    "batch/jobs": ("status.successful",),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which objects of a kind a request is about."""

    namespace: str = ""
    labels: tuple[Test, ...] = ()
    fields: tuple[tuple[str, str, bool], ...] = ()

    def accepts(self, document: Document) -> bool:
        metadata = document["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        if not all(test(labels) for test in self.labels):
            return False
        return all((_value(document, path) == want) is equal for path, want, equal in self.fields)


def parse_filter(kind: ServedKind, *, namespace: str, labels: str, fields: str) -> Filter:
    """Reads the selectors of a request's query.

    Raises:
        Failure: 400 for what is not a selector or not a selectable field.
    """
    return Filter(
        namespace,
        tuple(_label_test(part) for part in _split(labels)),
        tuple(_field_test(kind, part) for part in _split(fields)),
    )


def _split(selector: str) -> Sequence[str]:
    """Splits at the commas that are not inside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _label_test(part: str) -> Test:
    if match := _SET.match(part):
        key, is_in = match[1], match[2] == "in"
        listed = frozenset(entry.strip() for entry in match[3].split(","))
        return lambda labels: (labels.get(key) in listed) is is_in
    if match := _EQUALITY.match(part):
        key, value, is_equal = match[1], match[3], match[2] != "!="
        return lambda labels: (labels.get(key) == value) is is_equal
    if not _KEY.match(part):
        raise bad_request(f"unable to parse requirement: {part}")
    key, is_there = part.lstrip("! "), not part.startswith("!")
    return lambda labels: (key in labels) is is_there


def _field_test(kind: ServedKind, part: str) -> tuple[str, str, bool]:
    match = _EQUALITY.match(part)
    if not match:
        raise bad_request(f"invalid field selector: {part}")
    if match[1] not in (*_FIELDS, *_MORE_FIELDS.get(kind.key, ())):
        raise bad_request(f"field label not supported: {match[1]}")
    return match[1], match[3], match[2] != "!="


def _value(document: Any, path: str) -> str:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return "" if document is None else str(document)
