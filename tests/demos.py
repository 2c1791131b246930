"""``make demo`` as somebody would run it, in a copy of what it runs: its data is the copy's own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.processes import free_port
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
READY = re.compile(r"ready after (\d+) s:\s+(http://127\.0\.0\.1:\d+)")
PARTS = ("portal", "budgets", "clusters", "templates", "static")


@dataclass(frozen=True, slots=True)
class Demo:
    """One that is ready.

    Attributes:
        process: Everything else of it runs below this one.
        folder: Where it runs.
        seconds: From its start until it was ready, as it said itself.
        address: Of its pages.
    """

    process: subprocess.Popen[str]
    folder: Path
    seconds: int
    address: str

    def password(self, login: str) -> str:
        """Of one of its people, as it is printed at the start."""
        known = json.loads((self.folder / ".demo" / "secrets.json").read_text())
        return str(known[f"DEMO_{login.upper()}_PASSWORD"])


def copied(folder: Path, *, of: Path = ROOT) -> Path:
    """The folder, with what the demo of a checkout runs."""
    for name in PARTS:
        shutil.copytree(of / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(of / "manage.py", folder)
    return folder


def start(folder: Path, port: int, clusters: str = "", **settings: str) -> subprocess.Popen[str]:
    """Begin a demo, with these settings and without what the test run itself sets; older ones know
    one kind of clusters."""
    chosen = ["--clusters", clusters] if clusters else []
    ours = ("PORTAL_", "DATABASE_URL", "CELERY_", "DJANGO_SETTINGS_MODULE", "PYTEST_")
    return subprocess.Popen(
        [sys.executable, "-m", "portal.demo", "--port", str(port), *chosen],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith(ours)}
        | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until_ready(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Seconds and address, as the demo prints them; it gives up by itself when it takes long."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = READY.search(line)
        if found:
            return int(found[1]), found[2]
    raise AssertionError("the demo ended: " + "".join(lines[-20:]))


def end(process: subprocess.Popen[str]) -> None:
    """Whatever became of it, nothing of it runs on."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def running(folder: Path, clusters: str = "", **settings: str) -> Iterator[Demo]:
    """A demo for as long as the body lasts."""
    process = start(folder, free_port(), clusters, **settings)
    try:
        yield Demo(process, folder, *read_until_ready(process))
    finally:
        end(process)
