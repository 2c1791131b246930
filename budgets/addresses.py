"""Addresses that others write: their parts, and what one of the network reaches.

Source: RFC 6052, section 2.2 (NAT64), RFC 8215 (its local prefix), RFC 3056 (6to4), RFC 4380
(Teredo).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")


def carried(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address may reach through a gateway; none of most.

    Returns:
        Every one that it can mean: only its gateway knows how long the prefix of a local NAT64 is.
    """
    if isinstance(address, IPv4Address):
        return ()
    raw = address.packed
    found = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or address in _LOCAL_NAT64:
        found.append(IPv4Address(raw[12:]))
    if address in _LOCAL_NAT64:  # the ninth byte is never a part of it
        found += (IPv4Address(raw[begin:8] + raw[9 : begin + 5]) for begin in (6, 7, 8))
    return tuple(one for one in found if one is not None)


def parts_of(url: str) -> SplitResult:
    """The parts of a URL that somebody else wrote; all of them empty where it is none."""
    try:
        return urlsplit(url)
    except ValueError:  # brackets that are not closed, or letters that are read as others
        return urlsplit("")


def has_port(parts: SplitResult) -> bool:
    """Whether the port of a URL, if it names one, is one that can be: 1 to 65535."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
