"""Lines of syslog (RFC 5424) to a receiver that the operator names, over TLS, TCP or UDP.

TCP and TLS frame by counting bytes (RFC 5425, RFC 6587). Syslog confirms nothing, so what was sent
counts once the receiver has closed the connection after its end: it has read all of it. UDP
confirms nothing at all.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from budgets.services.alerts.posting import PostFailed

PORTS: Final = {"tls": 6514, "tcp": 601, "udp": 514}
DEADLINE_S: Final = 20.0
"""A whole batch, from the connection to its end."""
MOST_BYTES: Final = 8_192
"""What every receiver over TLS should take (RFC 5425, section 4.3.1); UDP carries it as well."""
_PRIORITY: Final = 13 * 8 + 5
"""Facility *log audit*, severity *notice*."""
_APP: Final = "gpu-budget-portal"


@dataclass(frozen=True, slots=True)
class Syslog:
    """Where a receiver is: ``tls://siem.example.com:6514``."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> Syslog:
        """Read from a setting.

        Raises:
            ValueError: It is no such address.
        """
        parts = urlsplit(address)
        if parts.scheme not in PORTS or not parts.hostname or parts.path or parts.username:
            raise ValueError(address)
        return cls(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme])


def line_of(entry: Mapping[str, Any], *, host: str) -> bytes:
    """One entry of the log as a message, without its frame: JSON in ASCII, so one line.

    Args:
        entry: Its document; one that would be too long goes without ``before`` and ``after``, and
            with ``cut``.
        host: Name of this portal.
    """
    # Actions are words of the portal and have neither blanks nor signs.
    head = f"<{_PRIORITY}>1 {entry['at']} {host[:255] or '-'} {_APP} - {entry['action'][:32]} - "
    line = (head + json.dumps(entry)).encode("ascii", "replace")
    if len(line) > MOST_BYTES:
        short = {**entry, "before": {}, "after": {}, "cut": True}
        line = (head + json.dumps(short)).encode("ascii", "replace")
    return line


def send_lines(receiver: Syslog, lines: Iterable[bytes]) -> None:
    """Send messages in their order.

    Raises:
        PostFailed: Not all of them are known to have arrived.
    """
    deadline = time.monotonic() + DEADLINE_S
    try:
        if receiver.scheme == "udp":
            _datagrams(receiver, lines)
        else:
            framed = b"".join(b"%d %s" % (len(line), line) for line in lines)
            _connection(receiver, framed, deadline)
    except OSError as error:
        words = f"no syslog at {receiver.host}:{receiver.port} ({type(error).__name__})"
        raise PostFailed(words) from error


def _datagrams(receiver: Syslog, lines: Iterable[bytes]) -> None:
    [(family, kind, _, _, address), *_] = socket.getaddrinfo(
        receiver.host, receiver.port, type=socket.SOCK_DGRAM
    )
    with socket.socket(family, kind) as sender:
        for line in lines:
            sender.sendto(line, address)


def _connection(receiver: Syslog, framed: bytes, deadline: float) -> None:
    where = receiver.host, receiver.port
    with socket.create_connection(where, timeout=_left(deadline)) as plain:
        if receiver.scheme == "tcp":
            plain.sendall(framed)
            plain.shutdown(socket.SHUT_WR)
            _await_end(plain, deadline)
            return
        context = ssl.create_default_context()
        with context.wrap_socket(plain, server_hostname=receiver.host) as secured:
            secured.settimeout(_left(deadline))
            secured.sendall(framed)
            secured.settimeout(_left(deadline))
            # It may close without saying so, as many do; a reset is another error.
            with suppress(ssl.SSLEOFError):
                secured.unwrap()


def _await_end(stream: socket.socket, deadline: float) -> None:
    stream.settimeout(_left(deadline))
    while stream.recv(4_096):
        stream.settimeout(_left(deadline))


def _left(deadline: float) -> float:
    """Seconds that are left.

    Raises:
        TimeoutError: None.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
