"""One POST to an address that a person typed in: no redirects, no way into the private network.

Of the answer only the status is read: neither its length nor its pace is the receiver's to choose.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import urllib3

from budgets.addresses import carried, parts_of

TIMEOUT: Final = urllib3.Timeout(connect=5, read=10)
DEADLINE_S: Final = 20.0
"""A whole delivery, however slowly its pieces come."""
PORTS: Final = {"https": 443, "http": 80}


class PostFailed(Exception):
    """It did not arrive, or was not taken; the message says why without quoting the answer."""


def post(url: str, body: bytes, *, headers: Mapping[str, str], allows_private: bool) -> None:
    """POST once.

    The name is resolved here and the connection goes to the address that was checked, so that a
    name cannot lead somewhere else between the check and the call.

    Raises:
        PostFailed: No connection, a private address, or an answer that is not 2xx.
    """
    parts = parts_of(url)
    host = parts.hostname or ""
    try:
        port = parts.port or PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        raise PostFailed("the address is unusable") from error
    address = _checked_address(host, port, allows_private=allows_private)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {**headers, "Host": host if parts.port is None else f"{host}:{parts.port}"}
    with _pool(parts.scheme, address, port, host) as pool, _deadline(pool) as is_over:
        try:
            status = pool.urlopen(
                "POST",
                target,
                body=body,
                headers=sent,
                redirect=False,
                retries=False,
                preload_content=False,
            ).status
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if is_over.is_set():
                raise _too_slow(host) from error
            raise PostFailed(f"no answer from {host} ({type(error).__name__})") from error
    if is_over.is_set():
        raise _too_slow(host)
    if not 200 <= status < 300:
        raise PostFailed(f"{host} answered with status {status}")


def _too_slow(host: str) -> PostFailed:
    return PostFailed(f"{host} did not answer within {DEADLINE_S:.0f} s")


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet, whichever way it is written.

    An IPv6 address that carries an IPv4 address (mapped, 6to4, Teredo, NAT64) is refused: what it
    reaches is decided by a gateway that may stand inside.
    """
    found = ipaddress.ip_address(address)
    if getattr(found, "ipv4_mapped", None) or carried(found):
        return False
    return found.is_global and not found.is_multicast


def _checked_address(host: str, port: int, *, allows_private: bool) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PostFailed(f"{host} cannot be resolved") from error
    addresses = [str(row[4][0]) for row in found]
    if not allows_private and not all(is_public(row) for row in addresses):
        raise PostFailed(
            f"{host} is not a public address; PORTAL_WEBHOOK_PRIVATE allows private ones"
        )
    return addresses[0]


@contextmanager
def _deadline(pool: urllib3.HTTPConnectionPool) -> Iterator[threading.Event]:
    """Cut the pool's connection when the time is over, whatever is being waited for then.

    What had come by then may look like a whole answer; yields what says that it is none.
    """
    is_over = threading.Event()
    opened: list[socket.socket] = []

    class Watched(pool.ConnectionCls):  # type: ignore[name-defined, misc]  # of http or of https
        def _new_conn(self) -> socket.socket:
            made: socket.socket = super()._new_conn()
            opened.append(made.dup())  # TLS takes the other one over
            return made

    def cut() -> None:
        is_over.set()
        for each in opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    pool.ConnectionCls = Watched
    timer = threading.Timer(DEADLINE_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()
        for each in opened:
            each.close()


def _pool(scheme: str, address: str, port: int, host: str) -> urllib3.HTTPConnectionPool:
    if scheme == "http":
        return urllib3.HTTPConnectionPool(address, port, timeout=TIMEOUT)
    return urllib3.HTTPSConnectionPool(
        address, port, timeout=TIMEOUT, server_hostname=host, assert_hostname=host
    )
