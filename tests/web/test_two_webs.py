"""Behind the nginx of compose.yaml, of several webs any one may be gone; what it had is asked again
of another one where that changes nothing.

The nginx is real; the webs are stand-ins that can fall silent at a moment of the test's choice.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import socketserver
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import front
from tests.controlplane.processes import free_port
from tests.lanes import IN_CI
from tests.sockets import request_of
from tests.waiting import eventually

HOSTS = ("127.0.0.2", "127.0.0.3")
TRIES = 12
BEGUN_S = 180
"""All pages are loaded first, on a machine that has other work."""
WAITS = """
import pathlib, time
here = pathlib.Path(__file__).parent
(here / "begun").touch()
while not (here / "go").exists():
    time.sleep(0.05)
from tests.settings import *
"""


class Web(socketserver.ThreadingTCPServer):
    """Answers with its host, or reads a request and hangs up."""

    allow_reuse_address = True
    daemon_threads = True
    dies = False

    def __init__(self, host: str, port: int, seen: Counter[str]) -> None:
        self.seen = seen
        super().__init__((host, port), Answer)


class Answer(socketserver.BaseRequestHandler):
    server: Web

    def handle(self) -> None:
        asked = request_of(self.request).decode()
        self.server.seen[asked.partition(" ")[0]] += 1
        if not self.server.dies:
            self.request.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )


class Webs:
    """Both of them, and the nginx before them."""

    def __init__(self, proxy: int, port: int) -> None:
        self._proxy, self._port = proxy, port
        self.seen: Counter[str] = Counter()
        self._standing: dict[str, Web] = {}
        for host in HOSTS:
            self.start(host)

    def start(self, host: str) -> None:
        self._standing[host] = Web(host, self._port, self.seen)
        threading.Thread(target=self._standing[host].serve_forever, daemon=True).start()

    def stop(self, host: str) -> None:
        web = self._standing.pop(host)
        web.shutdown()
        web.server_close()

    def hang_up(self) -> None:
        for web in self._standing.values():
            web.dies = True

    def close(self) -> None:
        for host in list(self._standing):
            self.stop(host)

    def ask(self, method: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._proxy, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, "/", body=b"x" if method == "POST" else None)
            return connection.getresponse().status


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


@pytest.fixture
def webs(tmp_path: Path) -> Iterator[Webs]:
    program = front.nginx_program()
    if program is None:
        (pytest.fail if IN_CI else pytest.skip)("no nginx: install Debian's nginx")
    proxy, port = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(front.Names(HOSTS))
        webs = Webs(proxy, port)
        stack.callback(webs.close)
        command = front.nginx(program, tmp_path, port=proxy, web=f"web:{port}", names=names.port)
        log = stack.enter_context((tmp_path / "log").open("ab"))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)

        eventually(lambda: listens(proxy), why=(tmp_path / "log").read_text)
        assert webs.ask("GET") == 200
        webs.seen.clear()
        yield webs


@pytest.mark.parametrize("gone", HOSTS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_web_that_is_gone_costs_no_request(webs: Webs, method: str, gone: str) -> None:
    """Its name is known for a while yet."""
    webs.stop(gone)
    assert [webs.ask(method) for _ in range(TRIES)] == [200] * TRIES
    assert webs.seen[method] == TRIES


def test_what_a_web_died_with_is_asked_of_the_other_unless_it_may_have_changed_something(
    webs: Webs,
) -> None:
    webs.hang_up()
    assert [webs.ask(method) for method in ("GET", "POST")] == [502, 502]
    assert webs.seen == {"GET": 2, "POST": 1}


def test_web_that_only_begins_takes_no_request(tmp_path: Path) -> None:
    """nginx asks whoever takes a connection, and would wait for it."""
    (tmp_path / "waiting_settings.py").write_text(WAITS)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "waiting_settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/portal.sqlite3",
        "PYTHONPATH": f"{tmp_path}:{front.ROOT}",
    }
    port = free_port()
    with (tmp_path / "log").open("ab") as log:
        command = front.gunicorn(f"127.0.0.1:{port}")
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        eventually((tmp_path / "begun").exists, why=(tmp_path / "log").read_text)
        assert not listens(port)
        (tmp_path / "go").touch()
        eventually(lambda: listens(port), seconds=BEGUN_S, why=(tmp_path / "log").read_text)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BEGUN_S)
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
    finally:
        process.terminate()
        process.wait(BEGUN_S)
