"""HTTP on loopback for one embedded cluster, as ordinary clients expect it of an API server."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from clusters.devcluster.cluster import ApiReply, ApiRequest, DevCluster
from clusters.devcluster.controllers import GarbageCollector
from clusters.devcluster.problems import Failure, bad_request, encoded

FAULTS = "/devcluster/faults"
BODY_LIMIT = 3 * 1024 * 1024


class DevServer:
    """Serves one cluster from threads of this process; a context manager.

    Args:
        cluster: what answers.
        port: 0 chooses a free one; a fixed one lets kubeconfigs outlive a restart.
    """

    def __init__(self, cluster: DevCluster, *, port: int = 0) -> None:
        self.cluster = cluster
        self._http = _Server(("127.0.0.1", port), cluster)
        self._garbage = GarbageCollector(cluster)
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> str:
        """An ordinary kubeconfig for the cluster's administrator."""
        return kubeconfig_text(self.cluster.name, self.url, self.cluster.access.admin_token)

    def start(self) -> Self:
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name=f"dev-{self.cluster.name}"
        )
        self._thread.daemon = True
        self._thread.start()
        self._garbage.start()
        return self

    def stop(self) -> None:
        """Ends every connection and the listener; the cluster's objects stay in its store."""
        self.cluster.faults.clear()
        if self._thread:
            self._garbage.stop()
            self.cluster.store.end_subscriptions()
            self._http.shutdown()
            self._thread.join(timeout=5)
        self._http.server_close()
        self._http.drop_connections()

    def drop_connections(self) -> None:
        """Cuts every open connection, as a crash or a network fault does."""
        self._http.drop_connections()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def kubeconfig_text(name: str, url: str, token: str) -> str:
    """A kubeconfig with one context; JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": url}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        },
        indent=1,
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], cluster: DevCluster) -> None:
        self.cluster = cluster
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.cluster.faults.is_refusing:
            self.shutdown_request(request)
            return
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no event; anything else is a bug and is shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError | ValueError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: an address may carry names, and demos have other logs."""

    def _serve(self) -> None:
        cluster = self.server.cluster
        parts = urlsplit(self.path)
        body = self._body()
        try:
            if parts.path == FAULTS:
                cluster.access.user_of(self.headers.get("Authorization", ""))
                self._set_faults(body)
                return
            code = cluster.faults.before(self.command, parts.path)
            if code:
                raise Failure(code, "Injected", f"injected fault {code}")
            reply = cluster.answer(self._request(parts.path, parts.query, body))
        except Failure as problem:
            self._send(ApiReply(problem.code, problem.status))
            return
        if reply.lines is not None:
            self._stream(reply.lines)
        else:
            self._send(reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length else b""

    def _request(self, path: str, query: str, body: bytes) -> ApiRequest:
        user = self.server.cluster.access.user_of(self.headers.get("Authorization", ""))
        if len(body) > BODY_LIMIT:
            raise Failure(
                413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"
            )
        try:
            document = json.loads(body) if body else None
        except ValueError:
            raise bad_request("the body is not JSON") from None
        return ApiRequest(
            method=self.command,
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            user=user,
            user_agent=self.headers.get("User-Agent", ""),
            content_type=self.headers.get("Content-Type", "").split(";")[0],
            body=document,
        )

    def _set_faults(self, body: bytes) -> None:
        wish = json.loads(body or b"{}")
        cluster = self.server.cluster
        cluster.faults.set(wish)
        if wish.get("compact"):
            cluster.store.compact()
        if wish.get("end_watches"):
            cluster.store.end_subscriptions()
        self._send(ApiReply(200, {"ok": True}))
        if wish.get("drop_connections"):
            self.server.drop_connections()

    def _send(self, reply: ApiReply) -> None:
        payload = encoded(reply.document)
        self.send_response(reply.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, lines: Generator[bytes, None, None]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        faults = self.server.cluster.faults
        with contextlib.closing(lines) as open_lines:
            for line in open_lines:
                faults.wait_while_frozen()
                if line:
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
