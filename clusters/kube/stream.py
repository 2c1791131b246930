"""One open watch: JSON lines in, events out; can be closed from another thread at any moment."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import urllib3
from urllib3.exceptions import HTTPError

from budgets.texts import read_json
from clusters.errors import Refusal, ServerFault
from clusters.kube.convert import error_of_status, error_of_transport
from clusters.kube.shares import Counted, Held, Share, weigh

# A Kubernetes object is at most about 3 MiB as JSON; a longer line is not an event.
LINE_LIMIT = 8 * 1024 * 1024
PIECE = 64 * 1024
"""Bytes that are read at once at most, however large the server makes its pieces."""


class WatchType(StrEnum):
    """What happened to the object of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change; a bookmark's document carries only its metadata.resourceVersion."""

    type: WatchType
    document: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str((self.document.get("metadata") or {}).get("resourceVersion") or "")


class WatchStream:
    """Iterates over the events of one watch until the server ends it or somebody closes it.

    `was_interrupted` tells whether another thread ended it, not the server.
    """

    def __init__(
        self, response: urllib3.BaseHTTPResponse, *, target: str, share: Share | None = None
    ) -> None:
        self._response, self._share = response, share
        self.target = target
        self._closed = threading.Event()
        self.was_interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def interrupt(self) -> None:
        """Wakes the reading thread up and ends its iteration; for other threads."""
        self.was_interrupted = True
        self._closed.set()
        # The reader may have closed the connection in the same moment.
        with contextlib.suppress(HTTPError, OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def close(self) -> None:
        """Ends the watch and gives its connection up; for the reading thread."""
        self._closed.set()
        self._response.close()

    def __iter__(self) -> Iterator[WatchEvent]:
        """Events in order.

        Raises:
            Gone: the server says that the resourceVersion is too old.
            ClusterError: the connection broke, fell silent, or carried what is not an event.
        """
        for line in self._lines():
            yield self._event(line)

    def _event(self, line: bytes) -> WatchEvent:
        held = None if self._share is None else self._held(self._share, line)
        try:
            raw = read_json(line)
            kind, document = raw["type"], raw["object"]
            if kind == "ERROR" and isinstance(document, dict):
                raise error_of_status(document, target=self.target)
            checked = _checked(document, WatchType(kind))
            document = checked if held is None else Counted(checked, held)
            return WatchEvent(WatchType(kind), document)
        except (ValueError, KeyError, TypeError) as error:
            # A lost event cannot be told from a mangled one: the reader has to begin anew.
            refusal = Refusal("a line of the watch is not an event", target=self.target)
            raise ServerFault(refusal) from error

    def _held(self, share: Share, line: bytes) -> Held:
        weight = weigh(line)
        if weight > share.largest:
            words = f"an event takes {weight // 1024**2} MiB of memory"
            raise ServerFault(Refusal(words, target=self.target))
        return share.hold(weight, target=self.target)

    def _lines(self) -> Iterator[bytes]:
        pending = bytearray()
        try:
            for chunk in self._response.stream(PIECE, decode_content=False):
                if self._closed.is_set():
                    return
                pending += chunk
                if len(pending) > LINE_LIMIT:
                    raise ServerFault(
                        Refusal("a line of the watch is too long", target=self.target)
                    )
                *lines, rest = pending.split(b"\n")
                pending = bytearray(rest)
                yield from (bytes(line) for line in lines if line.strip())
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # Interrupting from another thread takes the socket away under the reader, which
            # surfaces as any of these.
            if self._closed.is_set():
                return
            raise error_of_transport(error, target=self.target) from error
        if pending.strip() and not self._closed.is_set():
            raise ServerFault(Refusal("the watch ended inside a line", target=self.target))


def _checked(document: Any, kind: WatchType) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise TypeError("a watch event without an object")
    if kind is not WatchType.BOOKMARK and not is_object(document):
        raise TypeError("a watch event about something without a name")
    return document


def is_object(document: Any) -> bool:
    """Whether it has what each object of Kubernetes has: a name, perhaps with a namespace."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        return False
    texts = (metadata.get(key, "") for key in ("namespace", "uid", "resourceVersion"))
    return isinstance(metadata.get("name"), str) and all(isinstance(x, str) for x in texts)
