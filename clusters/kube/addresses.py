"""Where a kubeconfig may lead this server: not into itself, and not to what hands out credentials.

Asked when a cluster is registered, and again of the very address that a connection has reached: a
name may lead elsewhere by then.

Source: the addresses of metadata services as AWS, Google Cloud, Azure, Alibaba Cloud, Oracle Cloud
and Scaleway document them; what is link-local is refused as a whole.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from budgets.addresses import Address, carried
from clusters.errors import FieldFault, Refusal, Terminal

METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("169.254.169.254", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
            *("168.63.129.16", "100.100.100.200", "fd00:c1::a9fe:a9fe", "fd00:42::42"),
        ),
    )
)
REFUSED: Final = "AddressRefused"


def address_faults(server: str) -> Iterator[FieldFault]:
    """Why this server does not call an API server's address.

    Args:
        server: ``https://HOST:PORT`` of a kubeconfig; a name is resolved. One that has no address
            now is nobody's fault here: the preflight says that it is not reached.
    """
    host = urlsplit(server).hostname or ""
    for found in _addresses(host):
        words = _refusal(found)
        if words:
            shown = host if host == str(found) else f"{host} ({found})"
            yield FieldFault("cluster.server", f"{shown} {words}", REFUSED)
            return


def require_allowed(peer: str, *, host: str) -> None:
    """Refuse the address that a connection to a host has reached.

    Args:
        peer: The address, as the socket tells it.
        host: What the kubeconfig calls it. The settings about loopback and private addresses are
            asked of names alone: an address was held against them when it was written down.

    Raises:
        Terminal: with reason ``AddressRefused``; nothing was sent there.
    """
    found = _address(peer)
    words = _never(found) if _is_literal(host) else _refusal(found)
    if words:
        shown = host if _is_literal(host) else f"{host} ({found})"
        raise Terminal(Refusal(f"{shown} {words}", REFUSED))


def _addresses(host: str) -> list[Address]:
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [_address(str(row[4][0])) for row in rows]


def _address(text: str) -> Address:
    found = ipaddress.ip_address(text.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _is_literal(host: str) -> bool:
    try:
        _address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _reached(address: Address) -> Iterator[Address]:
    """It, and what it may mean to a gateway on the way."""
    yield address
    yield from carried(address)


def _never(address: Address) -> str:
    """Why no cluster can be at an address, whatever the settings say."""
    if any(one in METADATA or one.is_link_local for one in _reached(address)):
        return (
            "is where clouds hand out credentials, never a cluster's address. Register the address "
            "of its API server."
        )
    if address.is_unspecified or address.is_multicast:
        return "is not the address of one server. Register the address of the cluster's API server."
    return ""


def _refusal(address: Address) -> str:
    never = _never(address)
    if never:
        return never
    if any(one.is_loopback for one in _reached(address)):
        if settings.PORTAL_CLUSTER_LOOPBACK:
            return ""
        return (
            "is this server itself. Register an address that leads to the cluster;"
            " PORTAL_CLUSTER_LOOPBACK=true allows loopback for trying things out."
        )
    if any(one.is_private for one in _reached(address)) and not settings.PORTAL_CLUSTER_PRIVATE:
        return "is a private address, and PORTAL_CLUSTER_PRIVATE=false refuses those."
    return ""
