"""An API server that means harm, or is broken: every call ends, with a ClusterError, in bounds.

Each answer is spoken over a real socket; sizes and times are small where the limit is a constant
that the test sets, and the real ones where memory is measured.
"""

from __future__ import annotations

import gzip
import ipaddress
import json
import resource as machine
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache

import pytest

from clusters.errors import AnswerTooLarge, ClusterError, Forbidden, ServerFault, Terminal
from clusters.kube import addresses, transport
from clusters.kube import client as kube_client
from clusters.kube import resources as r
from clusters.kube.addresses import address_faults
from clusters.kube.client import KubeClient, is_allowed
from clusters.kube.kubeconfig import Connection
from clusters.reconcile.identity import uid_of
from clusters.services import tokens
from tests.sockets import request_of
from tests.waiting import PATIENCE_S

Talk = Callable[[socket.socket, bytes], None]
MIB = 1024 * 1024
CALLS: dict[str, Callable[[KubeClient], object]] = {
    "get": lambda client: client.get(r.JOB, "train", namespace="team"),
    "list": lambda client: client.list(r.JOB),
    "create": lambda client: client.create(r.JOB, {"metadata": {"name": "x", "namespace": "t"}}),
    "delete": lambda client: client.delete(r.JOB, "train", namespace="team"),
    "probe": lambda client: client.probe(timeout_s=0.5),
    "watch": lambda client: list(client.watch(r.JOB)),
}


@contextmanager
def speaking(talk: Talk) -> Iterator[str]:
    """A server that answers each request with ``talk(peer, request)``; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=speak, args=(peer,), daemon=True).start()

    def speak(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            while request := request_of(peer):
                talk(peer, request)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


@contextmanager
def server(talk: Talk, *, timeout_s: float = PATIENCE_S) -> Iterator[KubeClient]:
    """A client of a server that answers each request with ``talk(peer, request)``."""
    with speaking(talk) as address:
        client = KubeClient.from_connection(Connection(address), read_timeout_s=timeout_s)
        try:
            yield client
        finally:
            client.close()


def whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunks(peer: socket.socket, pieces: Iterator[bytes]) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        peer.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    peer.sendall(b"0\r\n\r\n")


def peak_mib() -> float:
    return machine.getrusage(machine.RUSAGE_SELF).ru_maxrss / 1024


def refused(call: str, talk: Talk, *, timeout_s: float = PATIENCE_S) -> ClusterError:
    """The error that a call ends with; also that it ends within 15 s."""
    began = time.monotonic()
    with server(talk, timeout_s=timeout_s) as client, pytest.raises(ClusterError) as error:
        CALLS[call](client)
    assert time.monotonic() - began < 15
    return error.value


@cache
def bomb() -> bytes:
    """200 MiB of blanks in less than one."""
    packed = gzip.compress(b" " * (200 * MIB), compresslevel=9)
    assert len(packed) < MIB
    return packed


@pytest.mark.parametrize("call", CALLS)
def test_an_answer_that_is_compressed_unasked_is_not_opened(call: str):
    answer = whole(bomb(), "Content-Encoding: gzip")
    before = peak_mib()
    error = refused(call, lambda peer, _: peer.sendall(answer))
    assert "compressed" in str(error)
    assert peak_mib() - before < 100


@pytest.mark.parametrize("call", [name for name in CALLS if name != "watch"])
def test_an_answer_without_end_is_read_to_its_limit_and_no_further(
    call: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "ANSWER_LIMIT", 4 * MIB)
    sent = [0]

    def endless(peer: socket.socket, _: bytes) -> None:
        def pieces() -> Iterator[bytes]:
            while sent[0] < 200 * MIB:
                sent[0] += MIB
                yield b"x" * MIB

        chunks(peer, pieces())

    assert isinstance(refused(call, endless), AnswerTooLarge)
    assert sent[0] < 60 * MIB


def brackets(sent: list[int]) -> Talk:
    """60 MiB of ``[]``, of which each takes more than twenty times its bytes once it is read."""

    def talk(peer: socket.socket, _: bytes) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"["
            while sent[0] < 60 * MIB:
                sent[0] += MIB
                yield b"[]," * (MIB // 3)
            yield b"[]]"

        chunks(peer, pieces())

    return talk


SMALL: dict[str, Callable[[KubeClient], object]] = {
    "version": lambda client: client.probe(),
    "UID": uid_of,
    "token": tokens._request_token,
    "right": lambda client: is_allowed(client, {"verb": "get"}),
}


@pytest.mark.parametrize("call", SMALL)
def test_what_says_little_is_read_to_a_small_limit(call: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "ANSWER_LIMIT", 8 * MIB)
    sent = [0]
    with server(brackets(sent)) as client, pytest.raises(AnswerTooLarge, match="more than 1 MiB"):
        SMALL[call](client)
    assert sent[0] < 30 * MIB


def test_a_refusal_that_would_take_too_much_memory_is_not_read():
    body = b'{"kind":"Status","message":"read","x":[' + b"[]," * 250_000 + b"[]]}"
    error = refused("get", lambda peer, _: peer.sendall(whole(body, status="403 Forbidden")))
    assert isinstance(error, Forbidden)
    assert error.message.startswith('{"kind":"Status"') and len(error.message) <= 300


OTHER_LANGUAGES = {
    "text/html": b"<html><body>Sign in to see this page.</body></html>\n",
    "application/vnd.kubernetes.protobuf": b"k8s\x00\n\x0b\n\x08batch/v1\x12\x03Job\n",
    "application/yaml": b"kind: Job\nmetadata: {name: train, namespace: team}\n",
}


@pytest.mark.parametrize("language", OTHER_LANGUAGES)
@pytest.mark.parametrize("call", CALLS)
def test_an_answer_in_another_language_is_none(call: str, language: str):
    body = whole(OTHER_LANGUAGES[language], f"Content-Type: {language}")
    assert isinstance(refused(call, lambda peer, _: peer.sendall(body)), ServerFault)


OTHERS = {
    "name": {"kind": "Job", "metadata": {"name": "other", "namespace": "team"}},
    "namespace": {"kind": "Job", "metadata": {"name": "train", "namespace": "other"}},
    "kind": {"kind": "Secret", "metadata": {"name": "train", "namespace": "team"}},
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_object_than_was_asked_for_is_none(other: str):
    body = whole(json.dumps(OTHERS[other]).encode())
    error = refused("get", lambda peer, _: peer.sendall(body))
    assert isinstance(error, ServerFault) and "another object" in str(error)


@pytest.mark.parametrize("said", [{}, {"metadata": {}}, {"kind": "Job", "metadata": 7}])
def test_what_says_nothing_of_itself_may_be_what_was_asked_for(said: dict[str, object]):
    body = whole(json.dumps(said).encode())
    with server(lambda peer, _: peer.sendall(body)) as client:
        assert CALLS["get"](client) == said


def test_an_announced_length_is_not_believed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "ANSWER_LIMIT", MIB)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n"
    error = refused("get", lambda peer, _: peer.sendall(head + b"x" * (2 * MIB)))
    assert isinstance(error, AnswerTooLarge)


def test_an_answer_that_ends_early_is_none():
    def cut(peer: socket.socket, _: bytes) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")
        peer.close()

    refused("get", cut)


def drip(text: bytes) -> Talk:
    def talk(peer: socket.socket, _: bytes) -> None:
        for number in range(600):
            peer.sendall(text[number : number + 1] or b" ")
            time.sleep(0.05)

    return talk


DRIPS = {
    "headers": b"HTTP/1.1 200 OK\r\nX-Slow: ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{",
}


@pytest.fixture(scope="module")
def dripped() -> dict[tuple[str, str], Future[ClusterError]]:
    """How each call ends where each byte comes before its own time-out, the answer never.

    All wait at once, each for a server of its own.
    """
    cases = [(call, part) for call in CALLS for part in DRIPS]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(cases)) as pool:
        patch.setattr(kube_client, "OPENING_S", 0.5)
        return {
            (call, part): pool.submit(refused, call, drip(DRIPS[part]), timeout_s=0.5)
            for call, part in cases
            if (call, part) != ("watch", "body")  # which may take as long as it likes
        }


@pytest.mark.parametrize("call", CALLS)
def test_a_byte_at_a_time_holds_no_thread(call: str, dripped):
    error = dripped[call, "headers"].result()
    assert error.reason in {"Timeout", "TimedOut", "Unreachable"}, error.reason


@pytest.mark.parametrize("call", [name for name in CALLS if name != "watch"])
def test_a_body_of_a_byte_at_a_time_holds_no_thread(call: str, dripped):
    dripped[call, "body"].result()


@pytest.mark.parametrize("token", ["again", None])
def test_a_list_without_end_ends(token: str | None, monkeypatch: pytest.MonkeyPatch):
    """The same page for ever, or always another one."""
    monkeypatch.setattr(kube_client, "LIST_S", 1.0)
    asked = [0]

    def pages(peer: socket.socket, _: bytes) -> None:
        asked[0] += 1
        following = token or f"page-{asked[0]}"
        page = {"metadata": {"resourceVersion": "1", "continue": following}, "items": []}
        time.sleep(0.01)
        peer.sendall(whole(json.dumps(page).encode()))

    assert "has no end" in str(refused("list", pages))
    assert token is None or asked[0] == 2, "the same page twice is enough"


def test_a_list_of_more_bytes_than_its_budget_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kube_client, "LIST_LIMIT", 3 * MIB)
    asked = [0]

    def pages(peer: socket.socket, _: bytes) -> None:
        asked[0] += 1
        items = [{"metadata": {"name": "x", "annotations": {"a": "x" * MIB}}}]
        metadata = {"resourceVersion": "1", "continue": str(asked[0])}
        peer.sendall(whole(json.dumps({"metadata": metadata, "items": items}).encode()))

    assert "has no end" in str(refused("list", pages))
    assert asked[0] == 3


def test_a_page_that_is_too_large_is_read_in_smaller_ones(monkeypatch: pytest.MonkeyPatch):
    """A tenant's large objects keep nobody's list from being read."""
    monkeypatch.setattr(transport, "ANSWER_LIMIT", MIB)
    wanted, limits = 30, list[int]()

    def pages(peer: socket.socket, request: bytes) -> None:
        query = request.split(b" ")[1].decode().partition("?")[2]
        given = dict(pair.split("=") for pair in query.split("&"))
        limit, first = int(given["limit"]), int(given.get("continue", "0"))
        limits.append(limit)
        numbers = range(first, min(first + limit, wanted))
        items = [
            {"metadata": {"name": f"job-{n}", "annotations": {"a": "x" * (150 * 1024)}}}
            for n in numbers
        ]
        end = numbers.stop
        metadata = {"resourceVersion": "7", "continue": str(end) if end < wanted else ""}
        peer.sendall(whole(json.dumps({"metadata": metadata, "items": items}).encode()))

    with server(pages) as client:
        listed = client.list(r.JOB)
    assert [item["metadata"]["name"] for item in listed.items] == [f"job-{n}" for n in range(30)]
    assert limits[:3] == [500, 50, 5]


def test_an_object_that_no_page_is_small_enough_for_ends_its_list(
    monkeypatch: pytest.MonkeyPatch,
):
    """100 MiB of one object, sixty-four times less of any answer."""
    monkeypatch.setattr(transport, "ANSWER_LIMIT", MIB)
    limits, sent = list[int](), [0]

    def huge(peer: socket.socket, request: bytes) -> None:
        limits.append(int(request.partition(b"limit=")[2].split(b" ")[0]))

        def pieces() -> Iterator[bytes]:
            yield b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "'
            for _ in range(100):
                sent[0] += MIB
                yield b"x" * MIB
            yield b'"}}]}'

        chunks(peer, pieces())

    assert isinstance(refused("list", huge), AnswerTooLarge)
    assert limits == [500, 50, 5, 1]
    assert sent[0] < 200 * MIB


NONSENSE = [
    b"", b"null", b"[]", b"7", b'"text"', b"{", b"\xff\xfe", b"[" * 100_000,
    b'{"metadata": 7}', b'{"metadata": {}}', b'{"metadata": {"resourceVersion": 1}, "items": 7}',
    b'{"metadata": {"resourceVersion": "1"}, "items": [7]}',
    b'{"metadata": {"resourceVersion": "1"}, "items": [{}]}',
    b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": 7}}]}',
    b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a", "uid": {}}}]}',
]  # fmt: skip


@pytest.mark.parametrize("body", NONSENSE)
def test_a_list_is_a_list_of_objects_or_none(body: bytes):
    assert isinstance(refused("list", lambda peer, _: peer.sendall(whole(body))), ServerFault)


@pytest.mark.parametrize(
    "date", ["garbage", "Thu, 99 Foo 99999 99:99:99 GMT", "", "Sun, 22 Nov 2026 10:00:00 -0000"]
)
def test_a_clock_that_tells_no_time_is_no_clock(date: str):
    body = b'{"gitVersion": {"not": "text"}}'
    with server(lambda peer, _: peer.sendall(whole(body, f"Date: {date}"))) as client:
        assert client.probe().server_time is None


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Again", "308 There", "304 Same"])
def test_nobody_is_sent_elsewhere(status: str):
    asked = list[bytes]()

    def redirect(peer: socket.socket, request: bytes) -> None:
        asked.append(request)
        peer.sendall(whole(b"", "Location: http://127.0.0.1:1/", status=status))

    refused("get", redirect)
    assert len(asked) == 1


WATCHED = [
    b"x" * (9 * MIB), b"null\n", b"{}\n", b'{"type": "ADDED"}\n',
    b'{"type": "ADDED", "object": {"metadata": {}}}\n',
    b'{"type": "ADDED", "object": {"metadata": {"name": ["a"]}}}\n',
    b'{"type": "NEW", "object": {"metadata": {"name": "a"}}}\n',
    b'{"type": "ERROR", "object": {"code": "x", "message": ["y"], "details": 7}}\n',
    b'{"type": "ERROR", "object": 7}\n', b'{"type": "BOOKMARK", "object": {"metadata": 7}}\n',
]  # fmt: skip


@pytest.mark.parametrize("line", WATCHED, ids=lambda line: line[:40].decode())
def test_a_line_of_a_watch_is_an_event_or_its_end(line: bytes):
    error = refused("watch", lambda peer, _: chunks(peer, iter([line])))
    assert len(line) < 8 * MIB or "too long" in str(error)


def test_a_piece_of_a_watch_may_announce_any_size():
    """One piece of a terabyte: what came of it is looked at as it comes."""
    before = peak_mib()

    def huge(peer: socket.socket, _: bytes) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n")
        for _ in range(40):
            peer.sendall(b"x" * MIB)

    assert "too long" in str(refused("watch", huge))
    assert peak_mib() - before < 100


@pytest.mark.parametrize("becomes", ["this server", "a metadata service"])
def test_a_name_that_leads_elsewhere_by_now_is_not_followed(
    becomes: str, monkeypatch: pytest.MonkeyPatch, settings
):
    """It was another address when the cluster was registered; not a byte goes to the new one."""
    settings.PORTAL_CLUSTER_LOOPBACK = becomes == "a metadata service"
    if becomes == "a metadata service":
        monkeypatch.setattr(addresses, "METADATA", {ipaddress.ip_address("127.0.0.1")})
    heard: list[bytes] = []
    with server(lambda peer, request: heard.append(request)) as known:
        port = int(known.server.rpartition(":")[2])
        where = ["192.0.2.1", "127.0.0.1"]
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (where.pop(0), port))]
        )
        name = f"http://api.example.org:{port}"
        assert list(address_faults(name)) == []
        client = KubeClient.from_connection(Connection(name, token="secret"), read_timeout_s=2.0)
        with client, pytest.raises(Terminal) as error:
            client.probe()
    assert error.value.reason == "AddressRefused"
    assert "api.example.org (127.0.0.1) is" in error.value.message
    assert heard == []


@pytest.mark.parametrize(
    ("told", "want"), [("9", True), ("11", False), ("", False), ("9" * 5_000, False), ("x", False)]
)
def test_how_far_a_cluster_is_goes_by_versions_that_can_be_compared(
    monkeypatch: pytest.MonkeyPatch, told: str, want: bool
):
    monkeypatch.setattr(KubeClient, "newest_version", lambda *_: told)
    client = KubeClient.__new__(KubeClient)
    assert client.is_behind(r.JOB, kube_client.EVERYTHING, "10") is want
