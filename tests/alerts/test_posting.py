"""Delivery to an address that a person typed in, which may belong to somebody who means harm."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from budgets.services.alerts import posting
from budgets.services.alerts.posting import PostFailed, is_public, post
from tests.sockets import request_of

Talk = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@contextmanager
def receiver(talk: Talk) -> Iterator[str]:
    """A server that answers each connection as ``talk`` does; yields its address."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(30)

    def serve() -> None:
        with suppress(OSError):
            peer, _ = server.accept()
            with peer, suppress(OSError):
                peer.settimeout(30)
                request_of(peer)
                talk(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/hook"
    finally:
        server.close()
        thread.join(30)


def send(url: str) -> None:
    post(url, b"{}", headers={"Content-Type": "application/json"}, allows_private=True)


def test_only_the_status_of_an_answer_is_read():
    sent = [0]

    def endless(peer: socket.socket) -> None:
        peer.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent[0] < 200 * 1024 * 1024:
            peer.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            sent[0] += 65_536

    with receiver(endless) as url:
        send(url)
    assert sent[0] < 20 * 1024 * 1024


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTT"], ids=["headers", "status"])
def test_a_receiver_that_answers_a_byte_at_a_time_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, head: bytes
):
    """Whatever the cut interrupts, the time is what is named."""
    monkeypatch.setattr(posting, "DEADLINE_S", 1.0)

    def slow(peer: socket.socket) -> None:
        peer.sendall(head)
        for _ in range(300):
            peer.sendall(b"x")
            time.sleep(0.1)

    began = time.monotonic()
    with receiver(slow) as url, pytest.raises(PostFailed, match="did not answer within 1 s"):
        send(url)
    assert time.monotonic() - began < 15


def test_a_redirect_is_not_followed():
    asked: list[bytes] = []

    def elsewhere(peer: socket.socket) -> None:
        asked.append(b"once")
        peer.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n")

    with receiver(elsewhere) as url, pytest.raises(PostFailed, match="status 302"):
        send(url)
    assert asked == [b"once"]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808",
        "64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::1", "2001:0:808:808::1", "2001:db8::1",
    ],
)  # fmt: skip
def test_what_reaches_inside_is_not_public(address: str):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_what_is_of_the_open_internet_is_public(address: str):
    assert is_public(address)
