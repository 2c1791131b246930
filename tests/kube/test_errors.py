"""How answers and broken connections become errors, and what must never be in them."""

from __future__ import annotations

import json
import pickle
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from clusters import errors
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.convert import (
    MESSAGE_LIMIT,
    error_of_answer,
    error_of_status,
    without_credentials,
)
from clusters.kube.kubeconfig import Connection
from clusters.kube.transport import Call
from tests.controlplane.certificates import Authority
from tests.kube.documents import config_map

DECODE_ERROR = bytes([21, 3, 3, 0, 2, 2, 50])
"""A TLS alert that ends a handshake."""
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwb3J0YWwifQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ"


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> bytes:
    document = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json.dumps(document | {"details": details}).encode()


@pytest.mark.parametrize(
    ("code", "body", "want"),
    [
        pytest.param(400, status(400), errors.Invalid, id="bad request"),
        pytest.param(401, status(401), errors.Unauthenticated, id="unauthorized"),
        pytest.param(403, status(403, "Forbidden"), errors.Forbidden, id="forbidden"),
        pytest.param(
            403,
            status(403, "Forbidden", 'admission webhook "x" denied the request: no'),
            errors.AdmissionDenied,
            id="webhook",
        ),
        pytest.param(
            422,
            status(422, "Invalid", "ValidatingAdmissionPolicy 'p' denied"),
            errors.AdmissionDenied,
            id="policy",
        ),
        pytest.param(404, status(404, "NotFound"), errors.NotFound, id="missing"),
        pytest.param(404, b"404 page not found", errors.NotFound, id="missing, plain text"),
        pytest.param(409, status(409, "Conflict"), errors.Conflict, id="conflict"),
        pytest.param(409, status(409, "AlreadyExists"), errors.AlreadyExists, id="exists"),
        pytest.param(
            409,
            status(
                409,
                "Conflict",
                causes=[
                    {
                        "reason": "FieldManagerConflict",
                        "field": ".spec.a",
                        "message": 'conflict with "b" using v1',
                    }
                ],
            ),
            errors.ApplyConflict,
            id="owned by others",
        ),
        pytest.param(410, status(410, "Expired"), errors.Gone, id="expired"),
        pytest.param(422, status(422, "Invalid"), errors.Invalid, id="invalid"),
        pytest.param(429, status(429, "TooManyRequests"), errors.Throttled, id="throttled"),
        pytest.param(500, status(500, "InternalError"), errors.ServerFault, id="server fault"),
        pytest.param(503, b"<html>", errors.ServerFault, id="proxy in the way"),
        pytest.param(504, status(504, "Timeout"), errors.TimedOut, id="gateway timeout"),
        pytest.param(302, b"", errors.ServerFault, id="redirect is not followed"),
        pytest.param(418, b"", errors.Terminal, id="anything else of the client's"),
    ],
)
def test_answer_becomes_error_of_its_family(
    code: int, body: bytes, want: type[errors.ClusterError]
) -> None:
    error = error_of_answer(code, body, target="GET /x")
    assert type(error) is want
    assert error.status_code == code
    assert error.target == "GET /x"
    assert error.message


def test_error_tells_fields_and_whether_to_try_again() -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "spec.a", "message": "bad"}]
    error = error_of_answer(422, status(422, "Invalid", causes=causes))
    assert error.fields == (errors.FieldFault("spec.a", "bad", "FieldValueInvalid"),)
    throttled = error_of_answer(429, status(429))
    assert isinstance(throttled, errors.Retryable)


def test_watch_error_event_becomes_gone() -> None:
    error = error_of_status({"kind": "Status", "code": 410, "reason": "Expired", "message": "old"})
    assert isinstance(error, errors.Gone)


def test_error_survives_pickling() -> None:
    error = error_of_answer(409, status(409, "Conflict", "changed"), target="PUT /x")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.refusal) == (type(error), error.refusal)


def test_credentials_are_blotted_out() -> None:
    text = without_credentials(f"invalid bearer token: Bearer {TOKEN} and {TOKEN}")
    assert TOKEN not in text
    assert text.count("[hidden]") == 2
    error = error_of_answer(401, status(401, message=f"token {TOKEN} unknown"))
    assert TOKEN not in str(error)


def test_what_a_cluster_says_is_cut() -> None:
    error = error_of_answer(422, status(422, message="x" * 1_000_000))
    assert len(error.refusal.message) == MESSAGE_LIMIT


def test_unreachable_and_late_clusters_are_retryable(dev: DevServer, client: KubeClient) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with (
        KubeClient.from_connection(Connection(f"http://127.0.0.1:{port}", token=TOKEN)) as gone,
        pytest.raises(errors.Unreachable) as refused,
    ):
        gone.get(r.NAMESPACE, "default")
    assert refused.value.__cause__ is not None
    assert TOKEN not in str(refused.value) + repr(refused.value.__cause__)
    dev.cluster.faults.freeze()
    with pytest.raises(errors.TimedOut) as late:
        client.request(Call("GET", "/version", timeout_s=0.2))
    assert late.value.__cause__ is not None
    dev.cluster.faults.thaw()


@pytest.mark.parametrize(
    ("server", "talk", "words"),
    [
        ("https://no-such-name.invalid:6443", None, "No address is known for the server's name."),
        ("http://127.0.0.1:{port}", None, "Nothing listens at the server's address and port"),
        ("https://127.0.0.1:{port}", b"SSH-2.0-x\r\n", "does not speak TLS at this port"),
        ("http://127.0.0.1:{port}", b"", "closed the connection before its answer was complete"),
    ],
)
def test_a_wrong_address_is_told_in_words(server: str, talk: bytes | None, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if talk is None:
            listener.close()
        else:
            threading.Thread(target=answer_twice, args=(listener, talk), daemon=True).start()
        url = server.format(port=port)
        with (
            KubeClient.from_connection(Connection(url, token=TOKEN)) as client,
            pytest.raises(errors.Unreachable) as refused,
        ):
            client.probe()
    assert words in refused.value.message
    assert "Error" not in refused.value.message


def answer_twice(listener: socket.socket, talk: bytes) -> None:
    for _ in range(2):
        with suppress(OSError):
            peer, _ = listener.accept()
            with peer:
                peer.recv(100)
                peer.sendall(talk)


def test_read_survives_a_closed_pooled_connection(dev: DevServer, client: KubeClient) -> None:
    client.get(r.NAMESPACE, "default")
    dev.drop_connections()
    assert client.get(r.NAMESPACE, "default")["metadata"]["name"] == "default"


def test_read_survives_a_handshake_that_fails_once(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server("api")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    connections: list[str] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):  # it is shut down
            while True:
                peer, _ = listener.accept()
                connections.append("one")
                with peer:
                    if len(connections) % 2:
                        peer.recv(65536)
                        peer.sendall(DECODE_ERROR)
                        continue
                    with context.wrap_socket(peer, server_side=True) as talk:
                        talk.recv(65536)
                        talk.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        connection = Connection(
            f"https://127.0.0.1:{listener.getsockname()[1]}",
            ca_pem=authority.pair.certificate_pem.decode(),
            token=TOKEN,
        )
        with KubeClient.from_connection(connection) as client:
            assert client.request(Call("GET", "/version")) == {}
        assert len(connections) == 2
        with KubeClient.from_connection(connection) as other, pytest.raises(errors.Unreachable):
            other.create(r.CONFIG_MAP, config_map("default", "one"))
        assert len(connections) == 3
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_write_is_never_sent_twice(dev: DevServer, client: KubeClient) -> None:
    # The server takes the request and hangs up without an answer.
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with suppress(OSError):  # it is shut down
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        received.append(connection.recv(65536))

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with KubeClient.from_connection(Connection(url, token="t")) as cut:
            with pytest.raises(errors.Unreachable):
                cut.create(r.CONFIG_MAP, config_map("default", "one"))
            with pytest.raises(errors.Unreachable):
                cut.get(r.NAMESPACE, "default")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert [line.split(b" ")[0] for line in received] == [b"POST", b"GET", b"GET"]


def test_nothing_secret_in_representations(client: KubeClient) -> None:
    connection = Connection("https://a", ca_pem="CA", token=TOKEN, client_key_pem="KEY")
    call = Call("POST", "/x", body={"data": {"kubeconfig": TOKEN}})
    for thing in (connection, call, client, client.transport):
        assert TOKEN not in repr(thing)
        assert "KEY" not in repr(thing)


def test_secret_contents_stay_out_of_errors(client: KubeClient) -> None:
    document = {
        "metadata": {"name": "Bad Name", "namespace": "default"},
        "stringData": {"k": TOKEN},
    }
    with pytest.raises(errors.Invalid) as caught:
        client.create(r.SECRET, document)
    assert TOKEN not in repr(caught.value) + str(caught.value) + repr(caught.value.refusal)


def test_redirect_does_not_carry_the_token_along() -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def redirect() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                location = f"http://127.0.0.1:{port}/elsewhere".encode()
                connection.sendall(
                    b"HTTP/1.1 302 Found\r\nLocation: "
                    + location
                    + b"\r\nContent-Length: 0\r\n\r\n"
                )
                connection.settimeout(0.3)
                try:
                    seen.append(connection.recv(65536))
                except TimeoutError:
                    seen.append(b"")

        thread = threading.Thread(target=redirect)
        thread.start()
        with (
            KubeClient.from_connection(
                Connection(f"http://127.0.0.1:{port}", token="secret")
            ) as client,
            pytest.raises(errors.ServerFault),
        ):
            client.get(r.NAMESPACE, "default")
        thread.join()
    assert b"secret" in seen[0]
    assert seen[1] == b""
