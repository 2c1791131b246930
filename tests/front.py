"""Web as the image starts it, and the nginx of compose.yaml before it; on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent


def gunicorn(bind: str) -> list[str]:
    """The command of the image, bound elsewhere."""
    command = _command()
    command[command.index("--bind") + 1] = bind
    return [sys.executable, "-m", *command]


def threads_of_web() -> int:
    """How many requests one container of web answers at once."""
    command = _command()
    workers, threads = (int(command[command.index(f"--{name}") + 1]) for name in (
        "workers", "threads"
    ))  # fmt: skip
    return workers * threads


def _command() -> list[str]:
    text = (ROOT / "Dockerfile").read_text()
    command = json.loads(re.findall(r"^CMD (\[.*?\])$", text, re.M | re.S)[-1].replace("\\\n", ""))
    assert command[0] == "gunicorn"
    return list(command)


def nginx_program() -> str | None:
    """Where nginx is, if it is."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def nginx(program: str, folder: Path, *, port: int, web: str, names: int = 53) -> list[str]:
    """The command, with the file that compose mounts; only its places are others.

    Args:
        program: As :func:`nginx_program` found it.
        folder: For the file and for bodies.
        port: To listen on.
        web: Host and port of web.
        names: Port of the server that knows the host.
    """
    text = (ROOT / "portal" / "nginx.conf").read_text()
    for there, here in (
        ("listen 8000", f"listen 127.0.0.1:{port}"),
        ("http://web:8000", f"http://{web}"),
        ("resolver 127.0.0.11", f"resolver 127.0.0.1:{names}"),
        ("/tmp/", f"{folder}/"),
    ):
        assert there in text
        text = text.replace(there, here)
    (folder / "nginx.conf").write_text(text)
    return [program, "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


class Names:
    """A name server that gives every name the same addresses, as Docker's does for several
    containers of one service; it goes on naming those that are gone. A context manager."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, name="names", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asked, whom = self._socket.recvfrom(512)
                self._socket.sendto(self._answer(asked), whom)

    def _answer(self, asked: bytes) -> bytes:
        """One question in, so many addresses out; each is valid for a second."""
        end = asked.index(b"\0", 12) + 5
        head = asked[:2] + struct.pack("!5H", 0x8180, 1, len(self._addresses), 0, 0)
        told = struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4)
        return head + asked[12:end] + b"".join(told + socket.inet_aton(a) for a in self._addresses)
