"""Requests that take their time hold none of the web's threads: nginx and gunicorn as in compose.

Both servers are real ones, on loopback. What is tried through the proxy is tried past it as well,
where it does stop the web.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

import pytest

from tests import front
from tests.controlplane.processes import free_port
from tests.lanes import IN_CI, ROOT
from tests.waiting import eventually

HEAD = b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: csrftoken=" + b"a" * 32 + b"\r\n"
"""With the cookie, the form is read before anything is answered."""
FORM = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n"
BODY = HEAD + FORM + b"username="
SLOW = 40
"""Far more than there are threads: one process may take many more of them than the other."""
IN_TIME_S = 8.0
"""Less than nginx gives a client that says nothing, so that no thread is free by then again."""


@dataclass(frozen=True)
class Served:
    """Ports of the proxy and of the web behind it."""

    proxy: int
    web: int


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    program = front.nginx_program()
    if program is None:
        (pytest.fail if IN_CI else pytest.skip)("no nginx: install Debian's nginx")
    folder = tmp_path_factory.mktemp("served")
    ports = Served(proxy=free_port(), web=free_port())
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{folder}/portal.sqlite3",
    }
    web = f"127.0.0.1:{ports.web}"
    proxy = front.nginx(program, folder, port=ports.proxy, web=web)
    assert front.threads_of_web() < SLOW
    with ExitStack() as stack:
        for command in (front.gunicorn(web), proxy):
            log = stack.enter_context((folder / "log").open("ab"))
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        def answers() -> bool:
            with suppress(OSError, http.client.HTTPException):
                return all(get(port, seconds=5.0) for port in (ports.web, ports.proxy))
            return False

        eventually(answers, why=(folder / "log").read_text)
        yield ports


def get(port: int, *, seconds: float) -> bool:
    """Whether the sign-in page comes in time."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)) as connection:
        connection.request("GET", "/login/")
        return connection.getresponse().status == 200


@pytest.fixture
def slow(served: Served) -> Iterator[list[socket.socket]]:
    """Connections to close in the end."""
    opened: list[socket.socket] = []
    yield opened
    for each in opened:
        each.close()
    eventually(lambda: get(served.web, seconds=5.0))


@pytest.mark.parametrize("begun", [BODY, HEAD + b"X-Slow: "], ids=["bodies", "heads"])
def test_slow_requests_stop_the_web_for_nobody(
    served: Served, slow: list[socket.socket], begun: bytes
):
    for _ in range(SLOW):
        slow.append(socket.create_connection(("127.0.0.1", served.proxy)))
        slow[-1].sendall(begun)
    for _ in range(5):
        for each in slow:
            each.sendall(b"x")
        assert get(served.proxy, seconds=IN_TIME_S)
        time.sleep(0.1)


def test_without_the_proxy_slow_bodies_stop_the_web(served: Served, slow: list[socket.socket]):
    def begin() -> None:
        slow.append(socket.create_connection(("127.0.0.1", served.web)))
        slow[-1].sendall(BODY)

    def stops() -> bool:
        """A process may have got more than its threads, and the next one fewer: then one more."""
        try:
            get(served.web, seconds=2.0)
        except TimeoutError:
            return True
        begin()
        return False

    for _ in range(SLOW):
        begin()
    eventually(stops)


def test_what_the_proxy_says_of_a_client_is_what_the_portal_counts(served: Served):
    """The address that reached the proxy comes last, after whatever the client claims."""
    text = (ROOT / "portal" / "nginx.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;" in text
    compose = (ROOT / "compose.yaml").read_text()
    assert "PORTAL_PROXIES:-2" in compose and "./portal/nginx.conf:/etc/nginx/nginx.conf" in compose


def test_a_request_that_falls_silent_is_ended(served: Served, slow: list[socket.socket]):
    slow.append(socket.create_connection(("127.0.0.1", served.proxy), timeout=15.0))
    slow[0].sendall(BODY)
    began = time.monotonic()
    assert b"408" in slow[0].recv(1000) or not slow[0].recv(1)
    assert time.monotonic() - began < 13.0
