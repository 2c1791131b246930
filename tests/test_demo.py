"""``make demo`` as somebody would run it: starts, answers, ends with nothing left behind."""

from __future__ import annotations

import signal
import socket
import urllib.request
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from tests.controlplane.processes import free_port
from tests.demos import copied, running, start
from tests.waiting import PATIENCE_S, eventually

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
def checkout(tmp_path: Path) -> Path:
    return copied(tmp_path)


def test_demo_starts_answers_and_leaves_nothing_behind(checkout: Path) -> None:
    with running(checkout) as demo:
        with urllib.request.urlopen(f"{demo.address}/readyz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        family = descendants(demo.process.pid)
        assert len(family) >= 6
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(PATIENCE_S) == 0
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
        assert demo.seconds < 120  # beside other tests; alone it is a fifth of that


def test_demo_of_one_cluster_runs_its_jobs_there(checkout: Path) -> None:
    with running(checkout, "one") as demo:
        eventually(lambda: "running" in phases(checkout), why=lambda: str(phases(checkout)))
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(PATIENCE_S) == 0
    again = start(checkout, free_port())
    output, _ = again.communicate(timeout=PATIENCE_S)
    assert output.strip() == (
        "demo: its data belongs to other clusters; delete it first: make demo-reset"
    )


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
