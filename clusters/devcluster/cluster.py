"""One embedded cluster: its objects, its rules, its access and its faults, without a network."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusters.devcluster.access import Access, Denial
from clusters.devcluster.faults import InjectedFaults
from clusters.devcluster.identity import discovery, route_of
from clusters.devcluster.problems import Document, Failure
from clusters.devcluster.reads import DEFAULT_WATCH_S, Reads, WatchRequest, parse_filter
from clusters.devcluster.registry import CRDS, EVENTS, NAMESPACES, kueue_definitions
from clusters.devcluster.store import HISTORY, ObjectStore
from clusters.devcluster.writes import APPLY, Address, Intent, Writes
from clusters.documents.keys import place_of, version_of
from clusters.documents.times import stamp

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kueue-system")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EVENTS_KEPT = 1000
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_YES = ("1", "true")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How a cluster is made. `file` keeps its objects over restarts, `secret` its tokens."""

    name: str = "devcluster"
    file: Path | None = None
    secret: str = field(default="", repr=False)
    webhooks: bool = True
    denials: Sequence[Denial] = ()
    history: int = HISTORY
    bookmark_every_s: float = 2.0
    now: Callable[[], datetime] | None = None


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request as it came in, after the network."""

    method: str
    path: str
    query: Mapping[str, str]
    user: str
    user_agent: str = ""
    content_type: str = ""
    body: Any = None


@dataclass(frozen=True, slots=True)
class ApiReply:
    """A whole document, or the lines of a watch."""

    code: int
    document: Any = None
    lines: Generator[bytes, None, None] | None = None


class DevCluster:
    """Answers requests; `writes` and `store` serve tests and controllers directly."""

    def __init__(self, options: ClusterOptions | None = None) -> None:
        options = options or ClusterOptions()
        self.name = options.name
        self.store = ObjectStore(file=options.file, history=options.history)
        self.writes = Writes(self.store, now=options.now, webhooks=options.webhooks)
        self.reads = Reads(self.store, bookmark_every_s=options.bookmark_every_s)
        self.access = Access(options.secret or secrets.token_hex(32), options.denials)
        self.faults = InjectedFaults()
        self._make_first_objects()
        self._events = deque(map(place_of, sorted(self.store.all(EVENTS.key)[1], key=version_of)))

    def close(self) -> None:
        self.store.close()

    def _make_first_objects(self) -> None:
        namespaces: list[Document] = [{"metadata": {"name": name}} for name in FIRST_NAMESPACES]
        for kind, documents in ((NAMESPACES, namespaces), (CRDS, kueue_definitions())):
            for document in documents:
                if self.store.get(kind.key, "", document["metadata"]["name"]) is None:
                    self.writes.create(Address(kind), document, Intent("devcluster"))

    def answer(self, request: ApiRequest) -> ApiReply:
        """Answers one request.

        Raises:
            Failure: what a real API server would answer with a failure Status.
        """
        found = discovery(request.path)
        if found is not None and request.method == "GET":
            return ApiReply(200, found)
        if request.path in ("/livez", "/readyz", "/healthz"):
            return ApiReply(200, {"text": "ok"})
        if request.path == REVIEW and request.method == "POST":
            return ApiReply(201, self.access.review(request.user, request.body))
        target = route_of(request.path)
        self.access.check(request.user, target.attributes(_verb(request, target)))
        if request.method == "GET":
            return self._read(target, request)
        if request.method == "POST":
            return ApiReply(201, self._create(target, request))
        if request.method not in _VERBS or not target.name:
            raise _not_allowed()
        if request.method == "PUT":
            return ApiReply(200, self.writes.update(target, request.body, _intent(request)))
        change = self._patch if request.method == "PATCH" else self._delete
        return change(target, request)

    def _read(self, target: Address, request: ApiRequest) -> ApiReply:
        if target.name:
            return ApiReply(200, self.writes.live(target))
        query = request.query
        wanted = parse_filter(
            target.kind,
            namespace=target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        if query.get("watch") in _YES:
            since = query.get("resourceVersion", "")
            watch = WatchRequest(
                since="" if since == "0" else since,
                seconds=float(query.get("timeoutSeconds") or DEFAULT_WATCH_S),
                bookmarks=query.get("allowWatchBookmarks") in _YES,
            )
            return ApiReply(200, lines=self.reads.watch(target.kind, wanted, watch))
        limit, token = int(query.get("limit") or 0), query.get("continue", "")
        return ApiReply(200, self.reads.page(target.kind, wanted, limit=limit, token=token))

    def _create(self, target: Address, request: ApiRequest) -> Document:
        if target.subresource == "token":
            return self._token(target, request.body)
        if target.name:
            raise _not_allowed()
        made = self.writes.create(target, request.body, _intent(request))
        if target.kind is EVENTS:
            self._keep_event(made)
        return made

    def _keep_event(self, event: Document) -> None:
        """Real API servers forget events after an hour; here the oldest one makes room."""
        with self.store.lock:
            self._events.append(place_of(event))
            while len(self._events) > EVENTS_KEPT:
                oldest = self._events.popleft()
                if self.store.get(EVENTS.key, *oldest) is not None:
                    self.store.remove(EVENTS.key, *oldest)

    def _patch(self, target: Address, request: ApiRequest) -> ApiReply:
        is_apply = request.content_type in APPLY
        if is_apply and not request.query.get("fieldManager"):
            text = (
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required"
                " for apply patch"
            )
            raise Failure(422, "Invalid", text)
        existed = self.store.get(target.kind.key, target.namespace, target.name) is not None
        intent = _intent(request)
        document = self.writes.patch(target, request.body, request.content_type, intent)
        return ApiReply(200 if existed else 201, document)

    def _delete(self, target: Address, request: ApiRequest) -> ApiReply:
        options = dict(request.body) if isinstance(request.body, dict) else {}
        if request.query.get("propagationPolicy"):
            options.setdefault("propagationPolicy", request.query["propagationPolicy"])
        dry_run = request.query.get("dryRun") == "All"
        return ApiReply(200, self.writes.delete(target, options, dry_run=dry_run))

    def _token(self, target: Address, body: Any) -> Document:
        self.writes.live(target)
        spec = (body.get("spec") if isinstance(body, dict) else None) or {}
        seconds = int(spec.get("expirationSeconds") or 3600)
        if seconds < 600:
            text = (
                "spec.expirationSeconds: Invalid value: may not specify a duration less than"
                " 10 minutes"
            )
            raise Failure(422, "Invalid", text)
        token, ends = self.access.mint(target.namespace, target.name, seconds)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": spec | {"expirationSeconds": seconds},
            "status": {
                "token": token,
                "expirationTimestamp": stamp(datetime.fromtimestamp(ends, UTC)),
            },
        }


def _verb(request: ApiRequest, target: Address) -> str:
    if request.method == "GET" and not target.name:
        return "watch" if request.query.get("watch") in _YES else "list"
    return _VERBS.get(request.method, request.method.lower())


def _intent(request: ApiRequest) -> Intent:
    query = request.query
    manager = query.get("fieldManager") or request.user_agent.split("/")[0] or "unknown"
    return Intent(manager, query.get("dryRun") == "All", query.get("force") == "true")


def _not_allowed() -> Failure:
    return Failure(405, "MethodNotAllowed", "the server does not allow this method")
