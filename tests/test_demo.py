"""``make demo`` as somebody would run it: starts, answers, ends with nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from tests.controlplane.processes import free_port
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parent.parent
READY = re.compile(r"ready after (\d+) s:\s+(http://127\.0\.0\.1:\d+)")
pytestmark = pytest.mark.embedded


def descendants(pid: int) -> set[int]:
    """Every process below ``pid``, from /proc."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
        except (OSError, IndexError):
            continue
    found: set[int] = set()
    while True:
        more = {child for child, parent in parents.items() if parent in found | {pid}} - found
        if not more:
            return found
        found |= more


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of what the demo runs, so that its data folder is the test's own."""
    for name in ("portal", "budgets", "clusters", "templates", "static"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "manage.py", tmp_path)
    yield tmp_path


def environment() -> dict[str, str]:
    """Without what the test run itself sets."""
    ours = ("PORTAL_", "DATABASE_URL", "CELERY_", "DJANGO_SETTINGS_MODULE", "PYTEST_")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def start(checkout: Path, port: int, clusters: str = "fleet") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "portal.demo", "--port", str(port), "--clusters", clusters],
        cwd=checkout,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until_ready(process: subprocess.Popen[str]) -> tuple[int, str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = READY.search(line)
        if found:
            return int(found[1]), found[2]
    raise AssertionError("the demo ended: " + "".join(lines[-20:]))


def test_demo_starts_answers_and_leaves_nothing_behind(checkout: Path) -> None:
    process = start(checkout, free_port())
    try:
        seconds, address = read_until_ready(process)
        with urllib.request.urlopen(f"{address}/readyz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        family = descendants(process.pid)
        assert len(family) >= 6
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
        assert seconds < 120  # beside other tests; alone it is a fifth of that
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_demo_of_one_cluster_runs_its_jobs_there(checkout: Path) -> None:
    process = start(checkout, free_port(), "one")
    try:
        read_until_ready(process)
        eventually(lambda: "running" in phases(checkout), why=lambda: str(phases(checkout)))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        again = start(checkout, free_port())
        output, _ = again.communicate(timeout=PATIENCE_S)
        assert output.strip() == (
            "demo: its data belongs to other clusters; delete it first: make demo-reset"
        )
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def phases(checkout: Path) -> set[str]:
    """Of jobs that were seen where they were submitted."""
    with closing(connect(checkout / ".demo" / "portal.sqlite3")) as database:
        rows = database.execute("SELECT phase FROM clusters_workloadstate WHERE NOT is_remote_copy")
        return {phase for (phase,) in rows}


def test_demo_says_in_one_line_that_its_port_is_taken(checkout: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(checkout, port)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert output.strip() == (
        f"demo: port {port} is taken; choose another one: PORT={port + 1} make demo"
    )
