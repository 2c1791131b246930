"""Parts of the column in memory: a clock, a transport, watches, all without threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from clusters.devcluster.access import ADMIN
from clusters.devcluster.cluster import ApiRequest, DevCluster
from clusters.devcluster.identity import route_of
from clusters.devcluster.problems import Failure
from clusters.devcluster.reads import Filter, parse_filter
from clusters.devcluster.registry import ServedKind
from clusters.devcluster.store import Subscription
from clusters.documents.keys import without_writers
from clusters.errors import ClusterError, Forbidden, NotFound, Refusal, Unreachable
from clusters.kube.client import EVERYTHING, KubeClient, Selection
from clusters.kube.convert import error_of_status
from clusters.kube.resources import Resource
from clusters.kube.transport import ApiAnswer, Call
from clusters.reconcile.runtime.watches import Change, Keep, Seen, Sink

Document = dict[str, Any]
Now = Callable[[], datetime]


class Clock:
    """Wall and monotonic time, which pass only when told."""

    def __init__(self, start: datetime) -> None:
        self._start, self._elapsed_s = start, 0.0

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        # A clock that begins at zero would look like one that was never read.
        return 1000.0 + self._elapsed_s


class MemoryTransport:
    """A ``Transport`` to an embedded cluster of this process; documents are copies."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.is_cut = False

    def close(self) -> None:
        """Nothing is open."""

    def send(self, call: Call) -> ApiAnswer:
        if self.is_cut:
            raise Unreachable(Refusal("the connection is cut", target=call.target))
        query = {key: str(value) for key, value in call.query.items() if value not in (None, "")}
        body = json.loads(json.dumps(call.body))
        request = ApiRequest(
            call.method, call.path, query, ADMIN,
            user_agent="gpu-budget-portal", content_type=call.content_type, body=body,
        )  # fmt: skip
        try:
            reply = self.cluster.answer(request)
        except Failure as problem:
            raise error_of_status(
                problem.status, code=problem.code, target=call.target
            ) from problem
        return ApiAnswer(json.loads(json.dumps(reply.document)), "", 0.0)


class StepPulse:
    """A pulse that knows at once."""

    def __init__(self, client: Any) -> None:
        self._transport: MemoryTransport = client.transport
        self.last_error: ClusterError | None = None

    @property
    def is_lost(self) -> bool:
        return self._transport.is_cut

    def failed_s_ago(self) -> float:
        return 0.0

    def returned_s_ago(self) -> None:
        return None

    def run(self, stop: Any) -> None:
        """There is nothing to wait for."""


def step_pulse(client: KubeClient) -> StepPulse:
    return StepPulse(client)


class _Image:
    """One resource as it was told."""

    def __init__(
        self, resource: Resource, selection: Selection, *, is_optional: bool, keep: Keep
    ) -> None:
        self.resource, self.selection, self.is_optional = resource, selection, is_optional
        self._keep = keep
        self.documents: dict[tuple[str, str], Document] = {}
        self.version = -1
        self.is_synced = False
        self.last_error: ClusterError | None = None
        self.subscription: Subscription | None = None

    @cached_property
    def kind(self) -> ServedKind:
        """As the cluster calls it; Failure where it is not served."""
        return route_of(self.resource.path()).kind

    @cached_property
    def _wanted(self) -> Filter:
        return parse_filter(self.kind, namespace="", labels=self.selection.labels, fields="")

    def accepts(self, document: Document) -> bool:
        """Whether it is in the selection."""
        return bool(self._wanted.accepts(document))

    def kept(self, document: Document) -> Document:
        """Of a copy of it, what the role keeps and is told."""
        return self._keep(json.loads(json.dumps(document)))


class StepWatches:
    """``Watches`` whose events are told when somebody pumps them."""

    def __init__(
        self, client: Any, *, cluster: str, pulse: Any, sink: Sink, registry: list[StepWatches]
    ) -> None:
        self._client, self._cluster, self._sink = client, cluster, sink
        self._transport: MemoryTransport = client.transport
        self._images: dict[Resource, _Image] = {}
        self._registry = registry
        registry.append(self)

    def add(
        self,
        resource: Resource,
        *,
        selection: Selection = EVERYTHING,
        is_optional: bool = False,
        keep: Keep = without_writers,
    ) -> _Image:
        image = _Image(resource, selection, is_optional=is_optional, keep=keep)
        self._images[resource] = image
        self._pump(image)
        return image

    def pump(self) -> None:
        """Tell everything that changed."""
        for image in self._images.values():
            self._pump(image)

    def _pump(self, image: _Image) -> None:
        if self._transport.is_cut:
            image.last_error = Unreachable(Refusal("the connection is cut"))
            return
        store = self._transport.cluster.store
        if store.version == image.version and image.last_error is None:
            return
        try:
            found = _selected(self._transport.cluster, image)
        except Failure as problem:
            image.last_error = error_of_status(problem.status, code=problem.code)
            return
        image.last_error, image.version = None, store.version
        now = {_place(each): each for each in found}
        for place, document in now.items():
            if _version(image.documents.get(place)) != _version(document):
                self._tell(Change.UPSERT, image.resource, image.kept(document))
        gone = {_place(each): each for each in _deleted(image)}
        for place in (image.documents.keys() | gone.keys()) - now.keys():
            known = gone.get(place) or image.documents[place]
            self._tell(Change.DELETED, image.resource, image.kept(known))
        image.documents = now
        if not image.is_synced:
            image.is_synced = True
            self._tell(Change.SYNCED, image.resource, {})

    def _tell(self, change: Change, resource: Resource, document: Document) -> None:
        self._sink(Seen(change, self._cluster, resource, document))

    @property
    def is_synced(self) -> bool:
        return all(each.is_synced or _is_absent(each) for each in self._images.values())

    @property
    def is_connected(self) -> bool:
        return self.is_synced and self.last_error() is None

    def missing(self) -> tuple[Resource, ...]:
        return tuple(each.resource for each in self._images.values() if _is_absent(each))

    def last_error(self) -> Exception | None:
        errors = (each.last_error for each in self._images.values() if not each.is_optional)
        return next((error for error in errors if error is not None), None)

    def age(self) -> float | None:
        return 0.0

    def wait_synced(self, stop: Any) -> bool:
        self.pump()
        return self.is_synced

    def snapshot(self, resource: Resource) -> list[Document]:
        image = self._images[resource]
        return [image.kept(image.documents[place]) for place in sorted(image.documents)]

    def close(self) -> None:
        if self in self._registry:
            self._registry.remove(self)


def _is_absent(image: _Image) -> bool:
    return image.is_optional and isinstance(image.last_error, NotFound | Forbidden)


def _place(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(document: Document | None) -> str:
    return str(document["metadata"]["resourceVersion"]) if document is not None else ""


def _deleted(image: _Image) -> list[Document]:
    """What was deleted since the last look, also what came and went between two looks."""
    found: list[Document] = []
    while image.subscription is not None and not image.subscription.queue.empty():
        change = image.subscription.queue.get_nowait()
        if change is not None and change.type == "DELETED":
            found.append(change.document)
    return [each for each in found if image.accepts(each)]


def _selected(cluster: DevCluster, image: _Image) -> list[Document]:
    """What a list of the resource would tell; the documents themselves, which stay as they are."""
    key = image.kind.key
    if image.subscription is None:
        image.subscription = cluster.store.subscribe(key, since=None)[1]
    return [each for each in cluster.store.all(key)[1] if image.accepts(each)]
