"""One POST to an address that a person typed in: no redirects, no way into the private network."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import urllib3

TIMEOUT: Final = urllib3.Timeout(connect=5, read=10)
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
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port or PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        raise PostFailed("the address is unusable") from error
    address = _checked_address(host, port, allows_private=allows_private)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {**headers, "Host": host if parts.port is None else f"{host}:{parts.port}"}
    try:
        with _pool(parts.scheme, address, port, host) as pool:
            answer = pool.urlopen(
                "POST", target, body=body, headers=sent, redirect=False, retries=False
            )
    except urllib3.exceptions.HTTPError as error:
        raise PostFailed(f"no answer from {host} ({type(error).__name__})") from error
    if not 200 <= answer.status < 300:
        raise PostFailed(f"{host} answered with status {answer.status}")


def _checked_address(host: str, port: int, *, allows_private: bool) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PostFailed(f"{host} cannot be resolved") from error
    addresses = [str(row[4][0]) for row in found]
    if not allows_private and not all(ipaddress.ip_address(row).is_global for row in addresses):
        raise PostFailed(
            f"{host} is not a public address; PORTAL_WEBHOOK_PRIVATE allows private ones"
        )
    return addresses[0]


def _pool(scheme: str, address: str, port: int, host: str) -> urllib3.HTTPConnectionPool:
    if scheme == "http":
        return urllib3.HTTPConnectionPool(address, port, timeout=TIMEOUT)
    return urllib3.HTTPSConnectionPool(
        address, port, timeout=TIMEOUT, server_hostname=host, assert_hostname=host
    )
