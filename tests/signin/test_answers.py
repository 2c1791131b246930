"""A provider that means harm, or is broken: the sign-in ends, in bounds, and the page says so."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from portal import oidc
from tests.kube.test_hostile_server import speaking
from tests.signin.test_pages import CORP

pytestmark = pytest.mark.django_db
Talk = Callable[[socket.socket], object]
BEGIN = "/signin/corp/"
MIB = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def provider(settings: Any, talk: Talk) -> Iterator[str]:
    """One that answers whatever is asked by ``talk``; yields its address."""

    def answer(peer: socket.socket, request: bytes) -> None:
        talk(peer)

    with speaking(answer) as issuer:
        settings.PORTAL_PROVIDERS = {"corp": replace(CORP, issuer=issuer)}
        yield issuer


def whole(body: bytes, *headers: bytes) -> bytes:
    length = b"Content-Length: %d" % len(body)
    return HEAD + b"\r\n".join((length, b"Connection: close", *headers, b"", body))


def document(issuer: str, **more: Any) -> bytes:
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    return json.dumps({"issuer": issuer, **dict.fromkeys(names, f"{issuer}/x"), **more}).encode()


def dripping(head: bytes) -> Talk:
    def talk(peer: socket.socket) -> None:
        peer.sendall(head)
        for _ in range(600):
            peer.sendall(b" ")
            time.sleep(0.05)

    return talk


def asked() -> tuple[int, float]:
    """What somebody who wants to sign in is answered with, and after how many seconds."""
    began = time.monotonic()
    return Client().get(BEGIN).status_code, time.monotonic() - began


@pytest.mark.parametrize("size", [0, MIB // 2])
def test_an_answer_of_a_usual_size_is_read(settings: Any, size: int):
    issuers: list[str] = []
    with provider(
        settings, lambda peer: peer.sendall(whole(document(issuers[0], more="x" * size)))
    ) as issuer:
        issuers.append(issuer)
        answer = Client().get(BEGIN)
    assert answer.status_code == 302 and answer["Location"].startswith(f"{issuer}/x?")


def test_an_answer_without_end_is_read_to_its_limit_and_no_further(settings: Any):
    sent = [0]

    def endless(peer: socket.socket) -> None:
        peer.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent[0] < 200 * MIB:
            peer.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
            sent[0] += MIB

    with provider(settings, endless):
        assert asked()[0] == 400
    assert sent[0] < 20 * MIB


def test_an_answer_that_is_compressed_unasked_is_not_opened(settings: Any):
    issuers: list[str] = []

    def bomb(peer: socket.socket) -> None:
        text = gzip.compress(document(issuers[0], more=" " * (20 * MIB)))
        peer.sendall(whole(text, b"Content-Encoding: gzip"))

    with provider(settings, bomb) as issuer:
        issuers.append(issuer)
        assert asked()[0] == 400


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Slow: ", id="head"),
        pytest.param(HEAD + b"Content-Length: 9999\r\n\r\n{", id="body"),
    ],
)
def test_a_byte_at_a_time_holds_no_thread(
    settings: Any, monkeypatch: pytest.MonkeyPatch, head: bytes
):
    """Each byte comes before its own time-out, the answer never."""
    monkeypatch.setattr(oidc, "_WHOLE_S", 1.0)
    with provider(settings, dripping(head)):
        status, took_s = asked()
    assert status == 503
    assert took_s < 15


def test_a_provider_sends_the_portal_nowhere_else(settings: Any):
    went: list[int] = []
    with provider(settings, lambda peer: (went.append(1), peer.sendall(whole(b"{}")))) as other:

        def elsewhere(peer: socket.socket) -> None:
            where = f"Location: {other}/\r\nContent-Length: 0\r\n\r\n".encode()
            peer.sendall(b"HTTP/1.1 307 Temporary Redirect\r\n" + where)

        with provider(settings, elsewhere):
            assert asked()[0] == 400
    assert went == []
