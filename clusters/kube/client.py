"""One cluster as the rest of the portal sees it: HTTP(S) to its API server, documents as dicts.

Every method raises a `ClusterError` of the family that fits, and nothing else, for whatever goes
wrong on the way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Self

from clusters.documents.keys import version_number
from clusters.errors import AnswerTooLarge, Gone, NotFound, Refusal, ServerFault
from clusters.kube.kubeconfig import Connection, connection_of
from clusters.kube.resources import SELF_SUBJECT_ACCESS_REVIEW, Document, Resource
from clusters.kube.shares import Counted, Share
from clusters.kube.stream import WatchStream, is_object
from clusters.kube.transport import READ_TIMEOUT_S, SMALL_ANSWER, Call, Transport

FIELD_MANAGER = "gpu-budget-portal"
PAGE_SIZE = 500
# A list that has not ended by then, in seconds and in bytes of all its pages, has no end.
LIST_S = 120.0
LIST_LIMIT = 1024**3
# A watch that does not even begin within this time is as good as none.
OPENING_S = 5.0


class PatchType(StrEnum):
    """How a patch's body is meant; the values are its content types."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    # JSON is YAML, and the older content type is known to every server.
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource: by namespace, labels and fields; empty is all."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str | int | None]:
        return {"labelSelector": self.labels, "fieldSelector": self.fields}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write. `force` counts for server-side apply only; `limit` as of a call."""

    field_manager: str = FIELD_MANAGER
    force: bool = False
    dry_run: bool = False
    subresource: str = ""
    limit: int | None = None

    @property
    def query(self) -> dict[str, str | int | None]:
        return {
            "fieldManager": self.field_manager,
            "dryRun": "All" if self.dry_run else None,
        }


WRITE = WriteOptions()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete; uid and resource_version are preconditions (409 when they no longer hold)."""

    propagation: Propagation = Propagation.BACKGROUND
    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    dry_run: bool = False

    @property
    def body(self) -> Document:
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        kept = {key: value for key, value in preconditions.items() if value}
        return {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": str(self.propagation),
            **({"preconditions": kept} if kept else {}),
            **({} if self.grace_period_s is None else {"gracePeriodSeconds": self.grace_period_s}),
            **({"dryRun": ["All"]} if self.dry_run else {}),
        }


DELETE = DeleteOptions()


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How to watch: from where, for how long, and how long a silence may last (seconds)."""

    resource_version: str = ""
    timeout_s: int = 240
    idle_timeout_s: float = 250.0


WATCH = WatchOptions()


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A whole list, all pages of it, and the resourceVersion to watch from."""

    items: list[Document]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What one small request told: version, round trip, and the server's clock (None if untold)."""

    version: str
    latency_s: float
    server_time: datetime | None


@dataclass(frozen=True, slots=True)
class KubeClient:
    """A client of one API server. Safe to share between threads; close it when done."""

    transport: Transport = field(repr=False)
    server: str = ""

    @classmethod
    def from_kubeconfig(
        cls, text: str, *, read_timeout_s: float = READ_TIMEOUT_S, share: Share | None = None
    ) -> Self:
        """Builds from a kubeconfig's text; nothing is sent yet.

        Each request waits up to `read_timeout_s` for its answer, watches apart. `share` is what the
        cluster may take of this process's memory, where others are read in it, too.

        Raises:
            KubeconfigRejected: the kubeconfig holds something that is not allowed.
        """
        connection = connection_of(text)
        return cls.from_connection(connection, read_timeout_s=read_timeout_s, share=share)

    @classmethod
    def from_connection(
        cls,
        connection: Connection,
        *,
        read_timeout_s: float = READ_TIMEOUT_S,
        share: Share | None = None,
    ) -> Self:
        """Builds from checked parts; nothing is sent yet."""
        transport = Transport(connection, read_timeout_s=read_timeout_s, share=share)
        return cls(transport, connection.server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the pooled connections."""
        self.transport.close()

    def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str = "",
        limit: int | None = None,
    ) -> Document:
        """One object, of so many bytes at most.

        Raises:
            ServerFault: the answer says of itself that it is another object.
        """
        path = resource.path(name, namespace=namespace, subresource=subresource)
        call = Call("GET", path, limit=limit)
        found = self.request(call)
        if not subresource and not resource.may_be(found, name, namespace=namespace):
            words = "the answer is another object than was asked for"
            raise ServerFault(Refusal(words, target=call.target))
        return found

    def list(
        self, resource: Resource, selection: Selection = EVERYTHING, *, page_size: int = PAGE_SIZE
    ) -> ObjectList:
        """All objects of a selection, read page by page; begins anew once if the pages expire."""
        try:
            return self._list(resource, selection, page_size)
        except Gone:
            return self._list(resource, selection, page_size)

    def is_behind(self, resource: Resource, selection: Selection, version: str) -> bool:
        """Whether the cluster has not come to a resourceVersion that it told: its past is older.

        A watch from there on tells nothing until as many writes have been made.
        """
        newest = version_number(self.newest_version(resource, selection))
        return 0 < newest < version_number(version)

    def newest_version(self, resource: Resource, selection: Selection) -> str:
        """The resourceVersion that the cluster has come to; empty where it tells none."""
        query = {**selection.query, "limit": 1}
        path = resource.path(namespace=selection.namespace)
        found = self.request(Call("GET", path, query=query))
        return str(found["metadata"]["resourceVersion"]) if _is_list(found) else ""

    def _list(self, resource: Resource, selection: Selection, page_size: int) -> ObjectList:
        items: list[Document] = []
        for page in self._pages(resource, selection, page_size):
            held = page.held if isinstance(page, Counted) else None
            for item in page.get("items") or []:
                # Lists leave kind and apiVersion out of built-in kinds' items.
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                items.append(item if held is None else Counted(item, held))
        return ObjectList(items, str(page["metadata"]["resourceVersion"]))

    def _pages(
        self, resource: Resource, selection: Selection, page_size: int
    ) -> Iterator[Document]:
        """Pages, smaller ones where they are too large, of a list that ends in time and bytes.

        Raises:
            ServerFault: it is no list, or has no end.
        """
        path = resource.path(namespace=selection.namespace)
        query = {**selection.query, "limit": page_size or None}
        ends, size = time.monotonic() + LIST_S, 0
        while True:
            call = Call("GET", path, query=query)
            try:
                answer = self.transport.send(call)
            except AnswerTooLarge:
                limit = int(query["limit"] or PAGE_SIZE)
                if limit == 1:
                    raise
                query = {**query, "limit": max(1, limit // 10)}
                continue
            page, size = answer.document, size + answer.size
            if not _is_list(page):
                raise ServerFault(Refusal("the answer is not a list", target=call.target))
            yield page
            token = page["metadata"].get("continue")
            if not token:
                return
            if size > LIST_LIMIT or time.monotonic() > ends or token == query.get("continue"):
                words = f"the list has no end: {size:,} bytes were read"
                raise ServerFault(Refusal(words, target=call.target))
            query = {**query, "continue": str(token)}

    def create(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document:
        """Creates; with `options.subresource` posts to that subresource of the named object."""
        name = (document.get("metadata") or {}).get("name") if options.subresource else None
        return self._write("POST", resource, name, document, options)

    def replace(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document:
        """Replaces the whole object; guarded by the document's resourceVersion when it has one."""
        return self._write("PUT", resource, document["metadata"]["name"], document, options)

    def _write(
        self,
        method: str,
        resource: Resource,
        name: str | None,
        document: Document,
        options: WriteOptions,
    ) -> Document:
        namespace = (document.get("metadata") or {}).get("namespace")
        path = resource.path(name, namespace=namespace, subresource=options.subresource)
        body = _typed(resource, document, options)
        call = Call(method, path, query=options.query, body=body, limit=options.limit)
        return self.request(call)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        options: WriteOptions = WRITE,
    ) -> Document:
        """Patches; a merge patch is guarded by a metadata.resourceVersion inside its body."""
        path = resource.path(name, namespace=namespace, subresource=options.subresource)
        is_forced = options.force and patch_type is PatchType.APPLY
        query = {**options.query, "force": "true" if is_forced else None}
        return self.request(Call("PATCH", path, query=query, body=body, content_type=patch_type))

    def apply(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document:
        """Server-side apply of everything that this field manager wants of the object.

        Raises:
            ApplyConflict: others own fields with other values, and `options.force` is off.
        """
        metadata = document["metadata"]
        return self.patch(
            resource,
            metadata["name"],
            _typed(resource, document, options),
            namespace=metadata.get("namespace"),
            patch_type=PatchType.APPLY,
            options=options,
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        options: DeleteOptions = DELETE,
    ) -> Document:
        """Deletes; returns the object (still there with finalizers) or a Status."""
        path = resource.path(name, namespace=namespace)
        return self.request(Call("DELETE", path, body=options.body))

    def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        options: WatchOptions = WATCH,
    ) -> WatchStream:
        """Opens a watch; iterate over the stream, and close it (it is a context manager).

        Raises:
            Gone: the resourceVersion is too old (may also come out of the stream).
        """
        query = {
            **selection.query,
            "watch": "1",
            "resourceVersion": options.resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": options.timeout_s,
        }
        path = resource.path(namespace=selection.namespace)
        call = Call("GET", path, query=query, timeout_s=OPENING_S)
        response = self.transport.open_stream(call, idle_timeout_s=options.idle_timeout_s)
        return WatchStream(response, target=f"WATCH {call.path}", share=self.transport.share)

    def request(self, call: Call) -> Document:
        """Any other request, whole: reviews, token requests, /version, discovery."""
        return self.transport.send(call).document

    def probe(self, *, timeout_s: float = 3.0) -> Probe:
        """GET /version: is it there, which version, how far, what does its clock say."""
        call = Call("GET", "/version", timeout_s=timeout_s, limit=SMALL_ANSWER)
        answer = self.transport.send(call)
        return Probe(
            str(answer.document.get("gitVersion", "")), answer.duration_s, _clock(answer.date)
        )


def _is_list(page: Document) -> bool:
    metadata, items = page.get("metadata"), page.get("items")
    return (
        isinstance(metadata, dict)
        and "resourceVersion" in metadata
        and isinstance(items, list | None)
        and all(is_object(item) for item in items or ())
    )


def _clock(date: str) -> datetime | None:
    """The server's clock by its Date header; None where that is no time, or one without a zone."""
    try:
        found = parsedate_to_datetime(date) if date else None
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found is not None and found.tzinfo is not None else None


def _typed(resource: Resource, document: Document, options: WriteOptions) -> Document:
    """The document with its type, which servers ask of custom resources even at their address."""
    if options.subresource not in ("", "status"):
        return document  # a subresource such as token has a type of its own
    return {"apiVersion": resource.api_version, "kind": resource.kind, **document}


def is_allowed(client: KubeClient, attributes: Mapping[str, str]) -> bool:
    """Asks the API server whether the client's own identity may do this.

    Args:
        client: The cluster.
        attributes: resourceAttributes (verb, group, resource, subresource, namespace, name).
    """
    review = {"spec": {"resourceAttributes": dict(attributes)}}
    options = WriteOptions(limit=SMALL_ANSWER)
    answer = client.create(SELF_SUBJECT_ACCESS_REVIEW, review, options=options)
    return bool((answer.get("status") or {}).get("allowed"))


def delete_exactly(
    client: KubeClient, resource: Resource, document: Document, *, options: DeleteOptions = DELETE
) -> None:
    """Deletes the object as it was read, and no other of its name; gone already is fine.

    Raises:
        Conflict: it changed since it was read.
    """
    metadata = document["metadata"]
    exact = replace(options, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    with contextlib.suppress(NotFound):
        client.delete(
            resource, metadata["name"], namespace=metadata.get("namespace"), options=exact
        )
