"""HTTP to one API server: a pool of connections, one TLS context, timeouts, no redirects, no proxy.

The official client's REST layer owns the pool; documents go around its typed models. Keys and
certificates live in memory: Python's TLS reads a client key only from a file, so it lies in a
0700 folder for the milliseconds that loading takes.
"""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3.exceptions import HTTPError, ProtocolError, SSLError

from budgets import timed
from budgets.texts import read_json
from clusters.errors import AnswerTooLarge, Refusal, ServerFault
from clusters.kube.addresses import require_allowed
from clusters.kube.convert import error_of_answer, error_of_transport
from clusters.kube.kubeconfig import Connection
from clusters.kube.own_account import read_token
from clusters.kube.shares import Counted, Held, Share, weigh

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 15.0
WHOLE = 2.0
"""A whole answer may take so many times as long as its next byte, however slowly bytes come."""
ANSWER_LIMIT = 64 * 1024 * 1024
"""Bytes of one answer; a list that has more is read in smaller pages."""
SMALL_ANSWER = 1024 * 1024
"""Bytes of an answer that says little: a version, a namespace, a token."""
POOL_SIZE = 32
"""Connections that wait to be used again. Watches that end together bring back a dozen at once, and
what finds no room is closed and opened anew."""
USER_AGENT = "gpu-budget-portal"
UNAUTHORIZED = 401
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `query` values of None are left out; the body is a JSON document or nothing.

    `limit` is how many bytes its answer may have, where that is less than any answer may.
    """

    method: str
    path: str
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)
    content_type: str = JSON
    timeout_s: float | None = None
    limit: int | None = None

    @property
    def target(self) -> str:
        """Verb and address without the query, for messages."""
        return f"{self.method} {self.path}"

    @property
    def url(self) -> str:
        query = {key: value for key, value in self.query.items() if value not in (None, "")}
        return f"{self.path}?{urlencode(query)}" if query else self.path


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A successful answer, whole: the document, when it came, how long it took, and its bytes."""

    document: dict[str, Any]
    date: str
    duration_s: float
    size: int = 0


class Transport:
    """Sends calls to one API server; safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        read_timeout_s: float = READ_TIMEOUT_S,
        share: Share | None = None,
    ) -> None:
        self._read_timeout_s = read_timeout_s
        self.share = share
        self._server = connection.server.rstrip("/")
        self._headers = {"Accept": JSON, "User-Agent": USER_AGENT}
        self._token = _token_of(connection)
        self._rest = RESTClientObject(_configuration(connection))
        manager = self._rest.pool_manager
        if self._server.startswith("https:"):
            manager.connection_pool_kw["ssl_context"] = tls_context(connection)
        # There is one host only: its pool is looked up once, not with every request.
        self._pool = manager.connection_from_url(self._server)
        self._pool.ConnectionCls = _guarded(self._pool.ConnectionCls)
        self._prefix = urlsplit(self._server).path

    def __repr__(self) -> str:
        return f"<Transport {self._server}>"

    def close(self) -> None:
        self._rest.close()

    def send(self, call: Call) -> ApiAnswer:
        """Sends, waits for the whole answer, and reads it as JSON.

        Raises:
            ClusterError: of the family that fits (see `clusters.errors`).
        """
        started = time.monotonic()
        try:
            response = self._open_with_retry(call)
            body = _whole(response, call, limit=self._limit(call))
        except (HTTPError, OSError) as error:
            raise error_of_transport(error, target=call.target) from error
        finally:
            timed.end()
        duration_s = time.monotonic() - started
        self._raise_for_status(call, response, body)
        date = response.headers.get("Date", "")
        held = self._held(call, body)
        document = _json(call, body)
        if held is not None:
            document = Counted(document, held)
        return ApiAnswer(document, date, duration_s, len(body))

    def _limit(self, call: Call) -> int:
        limit = ANSWER_LIMIT if call.limit is None else min(ANSWER_LIMIT, call.limit)
        return limit if self.share is None else min(limit, self.share.largest)

    def _held(self, call: Call, body: bytes) -> Held | None:
        """The cluster's share that the answer takes, before it is read; None where all is its."""
        if self.share is None:
            return None
        weight = weigh(body)
        if weight > self.share.largest:
            raise AnswerTooLarge(
                Refusal(f"the answer takes {weight // 1024**2} MiB of memory", target=call.target)
            )
        return self.share.hold(weight, target=call.target)

    def open_stream(self, call: Call, *, idle_timeout_s: float) -> urllib3.BaseHTTPResponse:
        """Sends and returns the answer unread; each later read may take up to `idle_timeout_s`.

        The answer's beginning has to come as fast as any other answer.

        Raises:
            ClusterError: no answer, or one with a status of 400 or more.
        """
        opening = min(idle_timeout_s, call.timeout_s or self._read_timeout_s)
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=opening)
        try:
            response = self._open(call, timeout)
            is_fine = 200 <= response.status < 300
            body = b"" if is_fine else _whole(response, call, limit=self._limit(call))
        except (HTTPError, OSError) as error:
            raise error_of_transport(error, target=call.target) from error
        finally:
            timed.end()  # what follows comes when something happens
        self._raise_for_status(call, response, body)
        _require_plain(response, call)
        waiting = getattr(response.connection, "sock", None)
        if waiting is not None:
            waiting.settimeout(idle_timeout_s)
        return response

    def _open_with_retry(self, call: Call) -> urllib3.BaseHTTPResponse:
        timeout = urllib3.Timeout(
            connect=CONNECT_TIMEOUT_S, read=call.timeout_s or self._read_timeout_s
        )
        try:
            return self._open(call, timeout)
        except (ProtocolError, SSLError):
            # An idle pooled connection may have been closed under us, a handshake may fail once. A
            # read can be sent again; a write may have been done: the caller has to find out.
            if call.method != "GET":
                raise
            return self._open(call, timeout)

    def _open(self, call: Call, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        token = self._token()
        response = self._sent(call, timeout, token)
        if response.status == UNAUTHORIZED and (newer := self._token()) != token:
            # Another token came meanwhile, and of what was refused nothing was done.
            response.close()
            response = self._sent(call, timeout, newer)
        return response

    def _sent(self, call: Call, timeout: urllib3.Timeout, token: str) -> urllib3.BaseHTTPResponse:
        headers = dict(self._headers)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        body = None
        if call.body is not None:
            headers["Content-Type"] = call.content_type
            body = json.dumps(call.body, separators=(",", ":")).encode()
        timed.begin(WHOLE * float(timeout.read_timeout or READ_TIMEOUT_S))
        return self._pool.urlopen(
            call.method,
            self._prefix + call.url,
            headers=headers,
            body=body,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )

    @staticmethod
    def _raise_for_status(call: Call, response: urllib3.BaseHTTPResponse, body: bytes) -> None:
        # A redirect is not followed: it could lead a bearer token to another host.
        if not 200 <= response.status < 300:
            raise error_of_answer(response.status, body, target=call.target)


def _token_of(connection: Connection) -> Callable[[], str]:
    """The bearer token for a request: the same one always, or what its file has now."""
    path = connection.token_file
    return (lambda: connection.token) if path is None else partial(read_token, path)


def _require_plain(response: urllib3.BaseHTTPResponse, call: Call) -> None:
    """Raises ServerFault: it is compressed, unasked: nobody knows how much that is."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        response.close()
        raise ServerFault(Refusal("the answer is compressed", target=call.target))


def _whole(response: urllib3.BaseHTTPResponse, call: Call, *, limit: int) -> bytes:
    """The body, if it is one that was asked for.

    Raises:
        AnswerTooLarge: it has more bytes than the limit; the rest was not read.
    """
    _require_plain(response, call)
    body = bytearray()
    # An empty piece is its end, which is checked against the length that was announced.
    while piece := response.read(limit + 1 - len(body), decode_content=False):
        body += piece
        if len(body) > limit:
            response.close()
            words = f"the answer has more than {limit // 1024**2} MiB"
            raise AnswerTooLarge(Refusal(words, target=call.target))
    response.release_conn()
    return bytes(body)


def _guarded(connections: type[Any]) -> type[Any]:
    """The same kind of connections: only to where a cluster may be, with answers that end in time.

    The address is asked of the socket, before a byte is sent: what a name led to a moment before
    is no proof of where it leads now.
    """

    class Guarded(connections):  # type: ignore[misc]  # urllib3 chooses the base
        response_class = timed.TimedResponse

        def _new_conn(self) -> socket.socket:
            found: socket.socket = super()._new_conn()
            try:
                require_allowed(found.getpeername()[0], host=self.host)
            except BaseException:
                found.close()
                raise
            return found

    return Guarded


def _json(call: Call, body: bytes) -> dict[str, Any]:
    try:
        found = read_json(body) if body else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ServerFault(Refusal("the answer is not a JSON object", target=call.target))
    return found


def _configuration(connection: Connection) -> Configuration:
    """The official client's configuration, cut off from proxies and files of the environment."""
    configuration = Configuration(
        host=connection.server, proxy="", no_proxy="", connection_pool_maxsize=POOL_SIZE
    )
    configuration.proxy = None
    configuration.retries = False
    configuration.tls_server_name = connection.tls_server_name or None
    configuration.socket_options = _socket_options()
    return configuration


def _socket_options() -> list[tuple[int, int, int]]:
    """No delay for small writes; a peer whose host vanished is noticed in about 8 s."""
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    ]
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def tls_context(connection: Connection) -> ssl.SSLContext:
    """A context that trusts only the kubeconfig's CA (or the system's, when it names none)."""
    context = ssl.create_default_context(cadata=connection.ca_pem or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if connection.client_certificate_pem and connection.client_key_pem:
        with tempfile.TemporaryDirectory(prefix="portal-tls-") as folder:
            certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
            for path, text in (
                (certificate, connection.client_certificate_pem),
                (key, connection.client_key_pem),
            ):
                path.touch(mode=0o600)
                path.write_text(text)
            context.load_cert_chain(certificate, key)
    return context
