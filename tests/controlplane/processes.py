"""Processes of a control plane: in groups of their own, logged to files, never left behind.

Every program gets its own session, so that a Ctrl-C for the test run reaches the test run alone
and a whole group can be ended at once. On Linux the kernel ends a program when the thread that
started it dies (PR_SET_PDEATHSIG, set by ``setpriv``); since that is per thread and fleets start
in parallel, one thread that lives as long as the process starts them all. So nothing survives a
killed pytest.

Ports are drawn from below the range that the kernel gives to clients: no client takes one while its
API server is down between a kill and a restart.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

LOOPBACK = "127.0.0.1"
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_POLL_S = 0.02
_TAIL_LINES, _TAIL_COLUMNS = 8, 400


class StartError(RuntimeError):
    """A program ended or was not ready in time; the message carries the end of its log."""


class _Spawner:
    """Starts programs from one thread that never ends before this process does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._process_id = 0

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._pool is None or self._process_id != os.getpid():
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="spawner")
                self._process_id = os.getpid()
            pending: Future[subprocess.Popen[bytes]] = self._pool.submit(start)
        return pending.result()


_spawner = _Spawner()
_taken_ports: set[int] = set()
_ports_lock = threading.Lock()


class Program:
    """One running program of a control plane."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._environment = {"PATH": os.environ.get("PATH", ""), **(environment or {})}
        self.start()

    def start(self) -> None:
        """Run the program, for the first time or once more after it has ended."""
        self._process = _spawner.run(self._start)
        atexit.register(self.kill)

    def _start(self) -> subprocess.Popen[bytes]:
        guard = shutil.which("setpriv")
        guarded = [guard, "--pdeathsig", "KILL", "--"] if guard else []
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*guarded, *self._command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        """Stop the group with SIGSTOP; return when it does stand still, or has ended."""
        self._signal(signal.SIGSTOP)
        # The signal reaches the threads one after the other; some would answer for a moment yet.
        with contextlib.suppress(ChildProcessError):  # somebody else waited for its end
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # A number of a process that was waited for may belong to somebody else by now.
        if self.is_running():
            os.killpg(self._process.pid, number)

    def terminate(self) -> None:
        """Ask the program to end, with SIGTERM; what it has started is its own to end."""
        if self.is_running():
            self._process.terminate()

    def kill(self) -> None:
        """End the group with SIGKILL and reap it; safe to call again."""
        atexit.unregister(self.kill)
        self._signal(signal.SIGKILL)
        self._process.wait(timeout=60)

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(line[:_TAIL_COLUMNS] for line in lines)

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_s: float = 120.0) -> None:
        """Poll until the program is ready.

        Raises:
            StartError: it ended before, or was not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_running():
                code = self._process.returncode
                raise StartError(f"{self.name} ended with status {code}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} not ready in {timeout_s:g} s:\n{self.log_tail()}")
            time.sleep(_POLL_S)


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on and that this process gave to nobody."""
    draw = random.SystemRandom()
    with _ports_lock:
        while True:
            port = draw.randrange(_FIRST_PORT, _LAST_PORT)
            if port not in _taken_ports and not is_listening(port):
                _taken_ports.add(port)
                return port


def is_listening(port: int) -> bool:
    """Say whether something accepts connections on a loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
