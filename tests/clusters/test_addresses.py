"""Where a pasted kubeconfig may lead this server."""

from __future__ import annotations

import socket

import pytest

from clusters.errors import Terminal
from clusters.kube.addresses import address_faults, require_allowed


def words(server: str) -> str:
    return " ".join(fault.message for fault in address_faults(server))


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "169.254.1.1", "[fe80::1]", "[::ffff:169.254.169.254]",
        "100.100.100.200", "[fd00:ec2::254]", "2852039166", "0xa9fea9fe", "[fd20:ce::254]",
        "168.63.129.16", "[fd00:ec2::23]", "[fd00:c1::a9fe:a9fe]", "[fd00:42::42]",
    ],
)  # fmt: skip
def test_what_hands_out_credentials_is_never_a_cluster(host: str, settings):
    settings.PORTAL_CLUSTER_LOOPBACK = True
    assert "never a cluster's address" in words(f"https://{host}:6443")


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("64:ff9b::a9fe:a9fe", id="NAT64"),
        pytest.param("64:ff9b::6464:64c8", id="NAT64, of no link"),
        pytest.param("64:ff9b:1::a9fe:a9fe", id="local NAT64, 96 bits"),
        pytest.param("64:ff9b:1::a9:fea9:fe00:0", id="local NAT64, 64 bits"),
        pytest.param("64:ff9b:1:a9:fe:a9fe::", id="local NAT64, 56 bits"),
        pytest.param("64:ff9b:1:a9fe:a9:fe00::", id="local NAT64, 48 bits"),
        pytest.param("2002:a9fe:a9fe::1", id="6to4"),
        pytest.param("2001:0:808:808:0:0:5601:5601", id="Teredo"),
    ],
)
def test_what_a_gateway_reaches_is_refused_like_the_address_itself(host: str, settings):
    assert "never a cluster's address" in words(f"https://[{host}]:6443")
    with pytest.raises(Terminal, match="never a cluster's address"):
        require_allowed(host, host="api.example.org")


def test_what_a_gateway_reaches_inside_is_for_the_settings(settings):
    settings.PORTAL_CLUSTER_LOOPBACK = False
    settings.PORTAL_CLUSTER_PRIVATE = False
    assert "is this server itself" in words("https://[64:ff9b::7f00:1]:6443")
    assert "PORTAL_CLUSTER_PRIVATE" in words("https://[2002:a01:203::1]:6443")
    assert words("https://[64:ff9b::808:808]:6443") == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]", "2130706433"])
def test_loopback_is_for_trying_things_out(host: str, settings):
    settings.PORTAL_CLUSTER_LOOPBACK = False
    assert "is this server itself" in words(f"https://{host}:6443")
    settings.PORTAL_CLUSTER_LOOPBACK = True
    assert words(f"https://{host}:6443") == ""


@pytest.mark.parametrize("host", ["10.1.2.3", "172.16.0.1", "192.168.0.1", "[fd12::1]"])
def test_private_addresses_are_refused_where_the_setting_says_so(host: str, settings):
    assert words(f"https://{host}:6443") == ""
    settings.PORTAL_CLUSTER_PRIVATE = False
    assert "PORTAL_CLUSTER_PRIVATE" in words(f"https://{host}:6443")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "224.0.0.1", "[ff02::1]"])
def test_addresses_of_no_server_are_refused(host: str):
    assert "is not the address of one server" in words(f"https://{host}:6443")


def test_every_address_of_a_name_counts(monkeypatch: pytest.MonkeyPatch):
    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(2, 1, 6, "", ("192.0.2.1", 0)), (2, 1, 6, "", ("169.254.169.254", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert words("https://api.example.org:6443").startswith("api.example.org (169.254.169.254) is")


def test_a_name_without_an_address_is_for_the_preflight(monkeypatch: pytest.MonkeyPatch):
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert words("https://api.example.org:6443") == ""
