"""A process that is told to end is told wherever it happens to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import signal
from clusters.signals import end_of

over = end_of(signal.SIGTERM, signal.SIGINT)
# As in the middle of its own wait.
with over._cond:
    signal.raise_signal(signal.{name})
print(over.wait(5))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_is_heard_where_the_main_thread_holds_the_events_lock(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(name=name)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ran.stdout == "True\n"
