"""Programs that are paused and killed, as faults do."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.controlplane.processes import Program


def test_program_that_was_killed_can_be_paused_and_resumed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    program = Program(command, name="p", log=tmp_path / "log")
    program.kill()
    program.pause()
    program.resume()
    assert not program.is_running()
