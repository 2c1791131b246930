"""The one real form of the `KubeClient` protocol: HTTP(S) to one API server.

Also the door by which the rest of the package imports the protocol and its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

from clusters.errors import Gone, Refusal, ServerFault
from clusters.kube.kubeconfig import Connection, connection_of
from clusters.kube.protocol import (
    DELETE,
    EVERYTHING,
    FIELD_MANAGER,
    PAGE_SIZE,
    WATCH,
    WRITE,
    DeleteOptions,
    KubeClient,
    ObjectList,
    PatchType,
    Probe,
    Propagation,
    Selection,
    WatchOptions,
    WriteOptions,
)
from clusters.kube.resources import Document, Resource
from clusters.kube.stream import WatchStream
from clusters.kube.transport import READ_TIMEOUT_S, Call, Transport

# A watch that does not even begin within this time is as good as none.
OPENING_S = 5.0

__all__ = [
    "DELETE",
    "EVERYTHING",
    "FIELD_MANAGER",
    "PAGE_SIZE",
    "WATCH",
    "WRITE",
    "DeleteOptions",
    "HttpKubeClient",
    "KubeClient",
    "ObjectList",
    "PatchType",
    "Probe",
    "Propagation",
    "Selection",
    "WatchOptions",
    "WriteOptions",
    "access_review",
    "is_allowed",
]


@dataclass(frozen=True, slots=True)
class HttpKubeClient:
    """`KubeClient` over HTTP(S). Safe to share between threads; close it when done."""

    transport: Transport = field(repr=False)
    server: str = ""

    @classmethod
    def from_kubeconfig(
        cls, text: str, *, context: str = "", read_timeout_s: float = READ_TIMEOUT_S
    ) -> Self:
        """Builds from a kubeconfig's text; nothing is sent yet.

        Each request waits up to `read_timeout_s` for its answer, watches apart.

        Raises:
            KubeconfigRejected: the kubeconfig holds something that is not allowed.
        """
        connection = connection_of(text, context=context)
        return cls.from_connection(connection, read_timeout_s=read_timeout_s)

    @classmethod
    def from_connection(
        cls, connection: Connection, *, read_timeout_s: float = READ_TIMEOUT_S
    ) -> Self:
        """Builds from checked parts; nothing is sent yet."""
        return cls(Transport(connection, read_timeout_s=read_timeout_s), connection.server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the pooled connections."""
        self.transport.close()

    @property
    def last_contact(self) -> float:
        """Monotonic second of the last answer, 0.0 before the first."""
        return self.transport.last_contact

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, subresource: str = ""
    ) -> Document:
        """One object."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return self._send(Call("GET", path))

    def list(
        self, resource: Resource, selection: Selection = EVERYTHING, *, page_size: int = PAGE_SIZE
    ) -> ObjectList:
        """All objects of a selection, read page by page; begins anew once if the pages expire."""
        try:
            return self._list(resource, selection, page_size)
        except Gone:
            return self._list(resource, selection, page_size)

    def _list(self, resource: Resource, selection: Selection, page_size: int) -> ObjectList:
        items: list[Document] = []
        for page in self._pages(resource, selection, page_size):
            for item in page.get("items") or []:
                # Lists leave kind and apiVersion out of built-in kinds' items.
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                items.append(item)
        return ObjectList(items, page["metadata"]["resourceVersion"])

    def _pages(
        self, resource: Resource, selection: Selection, page_size: int
    ) -> Iterator[Document]:
        path = resource.path(namespace=selection.namespace)
        query = {**selection.query, "limit": page_size or None}
        while True:
            call = Call("GET", path, query=query)
            page = self._send(call)
            metadata = page.get("metadata") if isinstance(page, dict) else None
            if not isinstance(metadata, dict) or "resourceVersion" not in metadata:
                raise ServerFault(Refusal("the answer is not a list", target=call.target))
            yield page
            token = metadata.get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def create(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document:
        """Creates; with `options.subresource` posts to that subresource of the named object."""
        metadata = document.get("metadata") or {}
        name = metadata.get("name") if options.subresource else None
        path = resource.path(
            name, namespace=metadata.get("namespace"), subresource=options.subresource
        )
        query = {**options.query, "force": None}
        return self._send(Call("POST", path, query=query, body=_typed(resource, document, options)))

    def replace(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document:
        """Replaces the whole object; guarded by the document's resourceVersion when it has one."""
        metadata = document["metadata"]
        path = resource.path(
            metadata["name"],
            namespace=metadata.get("namespace"),
            subresource=options.subresource,
        )
        query = {**options.query, "force": None}
        return self._send(Call("PUT", path, query=query, body=_typed(resource, document, options)))

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
        query = options.query
        if patch_type is not PatchType.APPLY:
            query = {**query, "force": None}
        return self._send(Call("PATCH", path, query=query, body=body, content_type=patch_type))

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
        return self._send(Call("DELETE", path, body=options.body))

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
            "allowWatchBookmarks": "true" if options.bookmarks else None,
            "timeoutSeconds": options.timeout_s,
        }
        path = resource.path(namespace=selection.namespace)
        call = Call("GET", path, query=query, timeout_s=OPENING_S)
        response = self.transport.open_stream(call, idle_timeout_s=options.idle_timeout_s)
        return WatchStream(response, target=f"WATCH {call.path}")

    def request(self, call: Call) -> Any:
        """Any other request, whole: reviews, token requests, /version, discovery."""
        return self.transport.send(call).document

    def probe(self, *, timeout_s: float = 3.0) -> Probe:
        """GET /version: is it there, which version, how far, what does its clock say."""
        answer = self.transport.send(Call("GET", "/version", timeout_s=timeout_s))
        when = parsedate_to_datetime(answer.date) if answer.date else None
        return Probe(str(answer.document.get("gitVersion", "")), answer.duration_s, when)

    def _send(self, call: Call) -> Document:
        document: Document = self.transport.send(call).document
        return document


def _typed(resource: Resource, document: Document, options: WriteOptions) -> Document:
    """The document with its type, which servers ask of custom resources even at their address."""
    if options.subresource not in ("", "status"):
        return document  # a subresource such as token has a type of its own
    return {"apiVersion": resource.api_version, "kind": resource.kind, **document}


def access_review(attributes: Mapping[str, str]) -> Document:
    """A SelfSubjectAccessReview: may the client's own identity do this?

    Args:
        attributes: resourceAttributes (verb, group, resource, subresource, namespace, name).
    """
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(attributes)},
    }


def is_allowed(client: KubeClient, attributes: Mapping[str, str]) -> bool:
    """Asks the API server whether the client's own identity may do this."""
    body = access_review(attributes)
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = client.request(Call("POST", path, body=body))
    return bool((answer.get("status") or {}).get("allowed"))
