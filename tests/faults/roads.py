"""Roads from a program to an API server on which faults can be put; each is an HTTP proxy.

A road stands on loopback between one program and one cluster, so that a fault hits that program
alone, embedded and real API servers alike, while whoever looks on goes another way. It knows
nothing of dispatch. What passed is kept: who asked for what, and what the API server answered.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.faults.traffic import WRITES, Asked, Passage, Troubles
from tests.faults.upstream import Upstream

PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
UPSTREAM_TIMEOUT_S = 330.0


class Stopped(Exception):
    """The road ends this request without an answer."""


class Road:
    """The way of one program to one cluster; a context manager.

    Args:
        program: Who goes on it.
        cluster: Where it leads.
        upstream: The API server behind it.
        passed: Takes what was answered.
        at_change: Called before and after each change, with ``before`` or ``after``; True when the
            program is no more, so that nothing of the request may go on.
    """

    def __init__(
        self,
        program: str,
        cluster: str,
        upstream: Upstream,
        *,
        passed: Callable[[Passage], None],
        at_change: Callable[[Road, str, str], bool] = lambda road, moment, what: False,
    ) -> None:
        self.program, self.cluster = program, cluster
        self.upstream, self.passed, self.at_change = upstream, passed, at_change
        self.troubles = Troubles()
        self.last_renewal = 0.0
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, bool] = {}
        self._http = _Server(("127.0.0.1", 0), self)

    @property
    def kubeconfig(self) -> str:
        """For the program: the upstream's token, and the road's address."""
        name = self.cluster
        port = self._http.server_address[1]
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": name, "user": {"token": self.upstream.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        return json.dumps(document)

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name=f"road-{self.program}", daemon=True
        ).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._flowing.set()
        self._http.shutdown()
        self._http.server_close()
        self.drop(only_watches=False)

    # Faults

    def cut(self) -> None:
        """Close every connection, and each new one, until :meth:`heal`."""
        self.troubles.is_cut = True
        self.drop(only_watches=False)

    def freeze(self) -> None:
        """Connections stay open and nothing passes, until :meth:`heal`."""
        self._flowing.clear()

    def heal(self) -> None:
        """Contact is back; slowness and planned errors stay."""
        self.troubles.is_cut = False
        self._flowing.set()

    def clear(self) -> None:
        """No fault is left."""
        self.troubles = Troubles()
        self._flowing.set()

    def drop(self, *, only_watches: bool = True) -> None:
        """Break the open connections."""
        with self._lock:
            found = [each for each, is_watch in self._open.items() if is_watch or not only_watches]
        for each in found:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    # What the requests need

    def wait_while_frozen(self) -> None:
        self._flowing.wait()

    @contextlib.contextmanager
    def known(self, connection: socket.socket, *, is_watch: bool = False) -> Iterator[None]:
        """Marks a connection as one that a cut breaks."""
        with self._lock:
            before = self._open.get(connection)
            self._open[connection] = is_watch
        try:
            yield
        finally:
            with self._lock:
                if before is None:
                    self._open.pop(connection, None)
                else:
                    self._open[connection] = before

    def planned_error(self, asked: Asked) -> int:
        """The status code that a fault wants for this request; 0 for none."""
        troubles = self.troubles
        with self._lock:
            if asked.is_lease:
                return 503 if time.monotonic() < troubles.leases_closed_until else 0
            if asked.is_watch and troubles.expired_watches > 0:
                troubles.expired_watches -= 1
                return 410
            if not asked.path.startswith(("/apis/batch", "/apis/kueue")):
                return 0
            planned = troubles.errors["writes" if asked.method in WRITES else "reads"]
            if not planned or (planned[0] == 409 and asked.method not in ("PATCH", "PUT")):
                return 0
            return planned.pop(0)

    def takes_answer(self, asked: Asked) -> bool:
        """Whether the answer of a change that was made gets lost."""
        with self._lock:
            if not asked.is_change or self.troubles.lost_answers <= 0:
                return False
            self.troubles.lost_answers -= 1
            return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], road: Road) -> None:
        self.road = road
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is what roads are for; anything else is shown."""
        import sys

        broken = OSError | ValueError | http.client.HTTPException | Stopped | AttributeError
        if not isinstance(sys.exception(), broken):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent; what passed is kept elsewhere."""

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def _serve(self) -> None:
        road = self.server.road
        parts = urlsplit(self.path)
        asked = Asked(self.command, parts.path, parse_qs(parts.query))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if body is not None and len(body) < length:
            self.close_connection = True  # its sender was killed in the middle of it
            return
        with road.known(self.request):
            try:
                self._pass(road, asked, body)
            except (Stopped, OSError, http.client.HTTPException):
                self.close_connection = True
                if self._upstream is not None:
                    self._upstream.close()
                    self._upstream = None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _pass(self, road: Road, asked: Asked, body: bytes | None) -> None:
        road.wait_while_frozen()
        if road.troubles.is_cut:
            raise Stopped
        time.sleep(road.troubles.latency_s)
        code = road.planned_error(asked)
        if code:
            self._refuse(road, asked, code)
            return
        if asked.is_change and road.at_change(road, "before", f"{asked.method} {asked.path}"):
            raise Stopped
        with self._forwarded(road, asked, body) as answer:
            if asked.is_watch and answer.status == 200:
                self._stream(road, answer)
                return
            payload = answer.read()
        self._keep(road, asked, answer.status, payload)
        if asked.is_change and road.at_change(road, "after", f"{asked.method} {asked.path}"):
            raise Stopped
        if road.takes_answer(asked):
            raise Stopped
        if asked.is_lease and asked.method == "PUT" and answer.status == 200:
            road.last_renewal = time.monotonic()
        road.wait_while_frozen()
        if road.troubles.is_cut:
            raise Stopped
        self._send(answer.status, payload)

    @contextlib.contextmanager
    def _forwarded(
        self, road: Road, asked: Asked, body: bytes | None
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {name: self.headers[name] for name in PASSED_ON if self.headers.get(name)}
        if self._upstream is None:
            self._upstream = road.upstream.connect(timeout_s=UPSTREAM_TIMEOUT_S)
        self._upstream.request(asked.method, self.path, body=body, headers=headers)
        yield self._upstream.getresponse()

    def _refuse(self, road: Road, asked: Asked, code: int) -> None:
        reason = "Expired" if code == 410 else REASONS.get(code, "InternalError")
        status = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": reason, "message": f"a fault on the road: {reason}",
        }  # fmt: skip
        road.passed(
            Passage(
                time.monotonic(), road.program, road.cluster, asked.method, asked.path, code, True
            )
        )
        self._send(code, json.dumps(status).encode())

    @staticmethod
    def _keep(road: Road, asked: Asked, code: int, payload: bytes) -> None:
        words = payload.decode(errors="replace")[:2000] if code >= 400 else ""
        road.passed(
            Passage(
                time.monotonic(), road.program, road.cluster, asked.method, asked.path, code,
                False, words,
            )
        )  # fmt: skip

    def _send(self, code: int, payload: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, road: Road, answer: http.client.HTTPResponse) -> None:
        """Passes a watch on, line by line, each as much later as the fault of the moment says."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        lines: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        upstream = self._upstream.sock if self._upstream is not None else None
        reader = threading.Thread(target=_read_lines, args=(answer, lines), daemon=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(road.known(self.request, is_watch=True))
            if upstream is not None:
                stack.enter_context(road.known(upstream, is_watch=True))
                stack.callback(_shut, upstream)
            reader.start()
            while True:
                at, line = lines.get()
                if not line:
                    break
                time.sleep(max(0.0, at + road.troubles.watch_lag_s - time.monotonic()))
                road.wait_while_frozen()
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        raise Stopped  # the upstream connection is spent


def _read_lines(
    answer: http.client.HTTPResponse, lines: queue.SimpleQueue[tuple[float, bytes]]
) -> None:
    line = b"x"
    while line:
        try:
            line = answer.readline()
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            line = b""
        lines.put((time.monotonic(), line))


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
