"""The portal's own service account: its files are read with each request, and bounded."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.errors import CredentialUnusable, Unauthenticated
from clusters.kube import own_account
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.kubeconfig import Connection, connection_of, with_token
from clusters.kube.own_account import AUTHORITY, TOKEN, own_connection, own_user
from tests.kube.test_hostile_server import Talk, speaking, whole
from tests.own_account import USER, OwnFolder, token_of


@pytest.fixture
def folder(tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch) -> OwnFolder:
    made = OwnFolder(tmp_path)
    made.write(token_of())
    settings.PORTAL_OWN_CLUSTER_FOLDER = str(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return made


def test_address_authority_and_name_come_from_what_kubelet_gives(folder: OwnFolder) -> None:
    found = own_connection()
    assert found.server == "https://10.96.0.1:443"
    assert "BEGIN CERTIFICATE" in found.ca_pem
    assert (found.token, found.token_file) == ("", folder.place / TOKEN)
    assert own_user() == USER


def test_address_of_version_6_and_the_one_of_the_setting(
    folder: OwnFolder, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert own_connection().server == "https://[fd00::1]:443"
    settings.PORTAL_OWN_CLUSTER_ADDRESS = "https://gpu.example.com:6443"
    assert own_connection().server == "https://gpu.example.com:6443"


_held: list[int] = []


def _removed(path: Path) -> None:
    path.unlink()


def _emptied(path: Path) -> None:
    _replaced(path, b"")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    """One that somebody holds open and writes nothing to."""
    path.unlink()
    os.mkfifo(path)
    _held.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _too_long(path: Path) -> None:
    _replaced(path, b"x" * (own_account.MOST + 1))


def _not_text(path: Path) -> None:
    _replaced(path, b"\xff\xfe")


def _two_words(path: Path) -> None:
    _replaced(path, b"two words")


def _replaced(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("name", [TOKEN, AUTHORITY])
@pytest.mark.parametrize(
    "break_it",
    [_removed, _emptied, _folder, _pipe, _endless, _too_long, _not_text, _two_words],
)
def test_a_file_that_is_not_right_is_named_with_the_way_out(
    folder: OwnFolder, name: str, break_it: Callable[[Path], None]
) -> None:
    break_it(folder.place / name)
    try:
        with pytest.raises(CredentialUnusable) as refused:
            own_connection()
    finally:
        while _held:
            os.close(_held.pop())
    said = refused.value.message
    assert str(folder.place) in said and len(said) < 500
    assert name in said
    assert "x" * 100 not in said and "two words" not in said, "no content is told"


def test_what_is_not_set_is_named(folder: OwnFolder, settings, monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(CredentialUnusable, match="KUBERNETES_SERVICE_HOST"):
        own_connection()
    settings.PORTAL_OWN_CLUSTER_ADDRESS = "http://10.0.0.1:6443"
    with pytest.raises(CredentialUnusable, match="Plain HTTP"):
        own_connection()
    settings.PORTAL_OWN_CLUSTER_FOLDER = ""
    with pytest.raises(CredentialUnusable, match="PORTAL_OWN_CLUSTER_FOLDER"):
        own_connection()


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("opaque", id="opaque"),
        pytest.param(token_of("somebody"), id="of a person"),
        pytest.param(token_of("system:serviceaccount:" + "x" * 300), id="of a very long name"),
        pytest.param("W10.W10.W10", id="claims that are no map"),
    ],
)
def test_a_token_of_nobody_that_the_portal_could_be_is_refused(
    folder: OwnFolder, token: str
) -> None:
    folder.write(token)
    with pytest.raises(CredentialUnusable, match="not the token of a service account"):
        own_user()


def bearer(request: bytes) -> str:
    lines = request.decode().splitlines()
    return next(line for line in lines if line.startswith("Authorization: ")).split()[-1]


def client_of(address: str, folder: OwnFolder) -> KubeClient:
    return KubeClient.from_connection(Connection(address, token_file=folder.place / TOKEN))


def test_each_request_has_the_token_that_the_file_has_then(folder: OwnFolder) -> None:
    sent: list[str] = []

    def talk(peer: socket.socket, request: bytes) -> None:
        sent.append(bearer(request))
        peer.sendall(whole(b"{}"))

    with speaking(talk) as address, client_of(address, folder) as client:
        for number in (1, 2, 3):
            folder.write(token_of(number=number))
            client.get(r.NAMESPACE, "team")
        (folder.place / TOKEN).unlink()
        with pytest.raises(CredentialUnusable, match="cannot be read"):
            client.get(r.NAMESPACE, "team")
    assert sent == [token_of(number=number) for number in (1, 2, 3)]


REFUSED = whole(b'{"kind": "Status", "code": 401}', status="401 Unauthorized")


def while_renewed(folder: OwnFolder, sent: list[str], calls: list[str]) -> Talk:
    """Refuses the first token, and kubelet writes the second while it does."""

    def talk(peer: socket.socket, request: bytes) -> None:
        sent.append(bearer(request))
        calls.append(request.split(b" ")[0].decode())
        if sent[-1] == token_of(number=1):
            folder.write(token_of(number=2))
            peer.sendall(REFUSED)
        else:
            peer.sendall(whole(b'{"metadata": {"name": "x"}}'))

    return talk


def test_what_was_refused_while_the_token_was_renewed_is_sent_once_more(
    folder: OwnFolder,
) -> None:
    sent: list[str] = []
    calls: list[str] = []
    talk = while_renewed(folder, sent, calls)
    with speaking(talk) as address, client_of(address, folder) as client:
        client.create(r.NAMESPACE, {"metadata": {"name": "x"}})
    assert sent == [token_of(number=1), token_of(number=2)]
    assert calls == ["POST", "POST"]


def test_a_token_that_is_refused_and_stays_the_same_is_not_sent_again(folder: OwnFolder) -> None:
    sent: list[str] = []

    def talk(peer: socket.socket, request: bytes) -> None:
        sent.append(bearer(request))
        peer.sendall(REFUSED)

    with (
        speaking(talk) as address,
        client_of(address, folder) as client,
        pytest.raises(Unauthenticated),
    ):
        client.get(r.NAMESPACE, "team")
    assert len(sent) == 1


def test_token_is_in_no_message_of_a_connection_to_it(folder: OwnFolder) -> None:
    assert token_of() not in repr(own_connection())


def test_a_kubeconfig_for_somebody_else_has_their_token_alone(folder: OwnFolder) -> None:
    text = with_token(own_connection(), "theirs", name="home")
    found = connection_of(text)
    assert (found.token, found.token_file) == ("theirs", None)
    assert found.server == "https://10.96.0.1:443" and found.ca_pem == own_connection().ca_pem
    assert token_of() not in text
