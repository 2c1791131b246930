"""One embedded cluster: its objects, its rules, its access and its faults, without a network.

Faults are what tests and demonstrations switch on: slowness, errors, silence, refusal.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusters.devcluster.access import Access, Denial
from clusters.devcluster.identity import discovery, route_of
from clusters.devcluster.problems import Document, Failure
from clusters.devcluster.reads import DEFAULT_WATCH_S, Reads, WatchRequest, parse_filter
from clusters.devcluster.registry import CRDS, EVENTS, NAMESPACES, kueue_definitions
from clusters.devcluster.store import HISTORY, ObjectStore
from clusters.devcluster.writes import APPLY, Address, Intent, Writes
from clusters.documents.keys import place_of, version_of
from clusters.documents.times import stamp


@dataclass(slots=True)
class PlannedError:
    """The next `count` requests that match are answered with this status code."""

    code: int
    count: int
    method: str = ""
    path: str = ""

    def matches(self, method: str, path: str) -> bool:
        if self.count <= 0 or (self.method and self.method != method):
            return False
        return not self.path or re.search(self.path, path) is not None


class InjectedFaults:
    """What is broken at the moment; safe to change while requests run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: list[PlannedError] = []
        self._thawed = threading.Event()
        self._thawed.set()
        self.latency_s = 0.0
        self.is_refusing = False

    def fail(self, code: int, *, count: int = 1, method: str = "", path: str = "") -> None:
        """Answers the next `count` matching requests with `code`; `path` is a pattern to search."""
        with self._lock:
            self._errors.append(PlannedError(code, count, method, path))

    def freeze(self) -> None:
        """Connections are accepted and then nothing is answered, until `thaw`."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def clear(self) -> None:
        """Everything works again."""
        with self._lock:
            self._errors.clear()
        self.latency_s, self.is_refusing = 0.0, False
        self._thawed.set()

    def wait_while_frozen(self) -> None:
        self._thawed.wait()

    def before(self, method: str, path: str) -> int:
        """Waits as long as the faults ask for; the status code to fail with, or 0."""
        self._thawed.wait()
        if self.latency_s:
            time.sleep(self.latency_s)
        with self._lock:
            for error in self._errors:
                if error.matches(method, path):
                    error.count -= 1
                    return error.code
        return 0

    def set(self, wish: Mapping[str, Any]) -> None:
        """Faults as the admin address takes them: latency_s, refuse, freeze, errors, clear."""
        if wish.get("clear"):
            self.clear()
        self.latency_s = float(wish.get("latency_s", self.latency_s))
        self.is_refusing = bool(wish.get("refuse", self.is_refusing))
        for error in wish.get("errors") or []:
            self.fail(**error)
        if "freeze" in wish:
            (self.freeze if wish["freeze"] else self.thaw)()


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
