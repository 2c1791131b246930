"""One embedded cluster: its objects, its rules, its access and its faults, without a network."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusters.devcluster import registry
from clusters.devcluster.access import Access, Denial
from clusters.devcluster.faults import Faults
from clusters.devcluster.problems import Document, Problem
from clusters.devcluster.reads import Page, Reads, WatchRequest
from clusters.devcluster.routes import Route, discovery, route_of
from clusters.devcluster.selectors import parse_filter
from clusters.devcluster.store import HISTORY, Store
from clusters.devcluster.writes import Intent, Target, Writes

NAMESPACES = ("default", "kube-system", "kube-public", "kueue-system")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EVENTS_KEPT = 1000
_EVENTS = "/events"


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
class Request:
    """A request as it came in, after the network."""

    method: str
    path: str
    query: Mapping[str, str]
    user: str
    user_agent: str = ""
    content_type: str = ""
    body: Any = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole document, or the lines of a watch."""

    code: int
    document: Any = None
    lines: Generator[bytes, None, None] | None = None


class DevCluster:
    """Answers requests; `writes` and `store` serve tests and controllers directly."""

    def __init__(self, options: ClusterOptions | None = None) -> None:
        options = options or ClusterOptions()
        self.name = options.name
        self.store = Store(file=options.file, history=options.history)
        self.writes = Writes(self.store, now=options.now, webhooks=options.webhooks)
        self.reads = Reads(self.store, bookmark_every_s=options.bookmark_every_s)
        self.access = Access(options.secret or secrets.token_hex(32), options.denials)
        self.faults = Faults()
        self._make_first_objects()
        kept = sorted(self.store.all(_EVENTS)[1], key=_age_rank)
        self._events = deque((e["metadata"]["namespace"], e["metadata"]["name"]) for e in kept)

    def close(self) -> None:
        self.store.close()

    def _make_first_objects(self) -> None:
        for name in NAMESPACES:
            if self.store.get("/namespaces", "", name) is None:
                document: Document = {"metadata": {"name": name}}
                self.writes.create(Target(registry.NAMESPACES), document, Intent("devcluster"))
        for definition in registry.kueue_definitions():
            metadata: Any = definition["metadata"]
            if self.store.get(registry.CRDS.key, "", metadata["name"]) is None:
                self.writes.create(Target(registry.CRDS), definition, Intent("devcluster"))

    def answer(self, request: Request) -> Reply:
        """Answers one request.

        Raises:
            Problem: what a real API server would answer with a failure Status.
        """
        found = discovery(request.path)
        if found is not None and request.method == "GET":
            return Reply(200, found)
        if request.path in ("/livez", "/readyz", "/healthz"):
            return Reply(200, {"text": "ok"})
        if request.path == REVIEW and request.method == "POST":
            return Reply(201, self.access.review(request.user, request.body))
        route = route_of(request.path)
        self.access.check(request.user, route.attributes(_verb(request, route)))
        handler = {
            "GET": self._read,
            "POST": self._create,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }.get(request.method)
        if handler is None:
            raise Problem(405, "MethodNotAllowed", "the server does not allow this method")
        return handler(route, request)

    def _read(self, route: Route, request: Request) -> Reply:
        if route.name:
            return Reply(200, self.writes.live(route.target))
        query = request.query
        wanted = parse_filter(
            route.kind,
            namespace=route.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        if query.get("watch") in ("1", "true"):
            watch = WatchRequest(
                since=_version(query),
                seconds=float(query.get("timeoutSeconds") or 1800),
                bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            )
            return Reply(200, lines=self.reads.watch(route.kind, wanted, watch))
        page = Page(int(query.get("limit") or 0), query.get("continue", ""))
        return Reply(200, self.reads.page(route.kind, wanted, page))

    def _create(self, route: Route, request: Request) -> Reply:
        if route.subresource == "token":
            return Reply(201, self._token(route, request.body))
        _need(not route.name)
        made = self.writes.create(route.target, request.body, _intent(request))
        if route.target.kind.key == _EVENTS:
            self._keep_event(made)
        return Reply(201, made)

    def _keep_event(self, event: Document) -> None:
        """Real API servers forget events after an hour; here the oldest one makes room."""
        with self.store.lock:
            self._events.append((event["metadata"]["namespace"], event["metadata"]["name"]))
            while len(self._events) > EVENTS_KEPT:
                namespace, name = self._events.popleft()
                if self.store.get(_EVENTS, namespace, name) is not None:
                    self.store.remove(_EVENTS, namespace, name)

    def _update(self, route: Route, request: Request) -> Reply:
        _need(bool(route.name))
        return Reply(200, self.writes.update(route.target, request.body, _intent(request)))

    def _patch(self, route: Route, request: Request) -> Reply:
        _need(bool(route.name))
        if request.content_type.startswith("application/apply-patch") and not request.query.get(
            "fieldManager"
        ):
            text = (
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required"
                " for apply patch"
            )
            raise Problem(422, "Invalid", text)
        target, intent = route.target, _intent(request)
        existed = self.store.get(route.kind.key, route.namespace, route.name) is not None
        document = self.writes.patch(target, request.body, request.content_type, intent)
        return Reply(200 if existed else 201, document)

    def _delete(self, route: Route, request: Request) -> Reply:
        _need(bool(route.name))
        dry_run = request.query.get("dryRun") == "All"
        options = dict(request.body) if isinstance(request.body, dict) else {}
        if request.query.get("propagationPolicy"):
            options.setdefault("propagationPolicy", request.query["propagationPolicy"])
        return Reply(200, self.writes.delete(route.target, options, dry_run=dry_run))

    def _token(self, route: Route, body: Any) -> Document:
        account = self.writes.live(Target(route.kind, route.namespace, route.name))
        spec = (body.get("spec") if isinstance(body, dict) else None) or {}
        seconds = int(spec.get("expirationSeconds") or 3600)
        if seconds < 600:
            text = (
                "spec.expirationSeconds: Invalid value: may not specify a duration less than"
                " 10 minutes"
            )
            raise Problem(422, "Invalid", text)
        token, ends = self.access.mint(route.namespace, account["metadata"]["name"], seconds)
        when = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": route.name, "namespace": route.namespace},
            "spec": spec | {"expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": when},
        }


def _verb(request: Request, route: Route) -> str:
    if request.method == "GET" and not route.name:
        return "watch" if request.query.get("watch") in ("1", "true") else "list"
    verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs.get(request.method, request.method.lower())


def _version(query: Mapping[str, str]) -> str:
    version = query.get("resourceVersion", "")
    return "" if version == "0" else version


def _intent(request: Request) -> Intent:
    query = request.query
    manager = query.get("fieldManager") or request.user_agent.split("/")[0] or "unknown"
    return Intent(manager, query.get("dryRun") == "All", query.get("force") == "true")


def _age_rank(event: Document) -> int:
    return int(event["metadata"]["resourceVersion"])


def _need(fits: bool) -> None:
    if not fits:
        raise Problem(405, "MethodNotAllowed", "the server does not allow this method")
