"""The portal's shifts as processes of their own, each on roads of its own, and their sudden ends.

A shift that has ended, however it did, is started again. A kill comes from a road: right before
a change goes on to the API server, or right after it was made and before the shift can know.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography.fernet import Fernet

from tests.controlplane.processes import Program
from tests.faults.ground import Ground
from tests.faults.roads import Road
from tests.faults.schedule import WORKERS, Size
from tests.faults.timeline import MANAGER
from tests.faults.traffic import Passage
from tests.faults.upstream import Upstream

ROOT = Path(__file__).resolve().parents[2]
RESTART_AFTER_S = 0.5
DISPATCHERS = ("dispatch-a", "dispatch-b")
CRASHED = "Traceback (most recent call last)"


@dataclass(slots=True)
class Kill:
    """An armed trap.

    Attributes:
        programs: Any of these.
        left: Changes until it springs.
        moment: ``before`` or ``after`` the change.
    """

    programs: tuple[str, ...]
    left: int
    moment: str


class Troupe:
    """All shifts of a run; a context manager that leaves none behind.

    Args:
        ground: The clusters.
        size: Lease and grace.
        folder: For configuration and logs.
        origin: Value of the origin label.
        variant: A broken dispatcher of ``broken_shift``; empty for the product's.
    """

    def __init__(
        self, ground: Ground, size: Size, folder: Path, *, origin: str, variant: str = ""
    ) -> None:
        self._ground, self._size, self._folder = ground, size, folder
        self._origin, self._variant = origin, variant
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._kills: list[Kill] = []
        self._programs: dict[str, Program] = {}
        self.roads: list[Road] = []
        self.passages: list[Passage] = []
        self.killed: list[str] = []
        self.starts = 0

    def __enter__(self) -> Troupe:
        for name in DISPATCHERS:
            self._start_dispatch(name)
        for cluster in (MANAGER, *WORKERS):
            road = self._road(f"admission-{cluster}", cluster, self._ground.portal[cluster])
            self._start(road.program, "admission", road, ())
        threading.Thread(target=self._keep_alive, name="troupe", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        with self._lock:
            for program in self._programs.values():
                program.kill()
        self._stack.close()

    # Who is who

    def roads_of(self, *, program: str = "", cluster: str = "") -> list[Road]:
        """Roads of programs whose name begins so, to a cluster."""
        return [
            road
            for road in self.roads
            if road.program.startswith(program) and cluster in ("", road.cluster)
        ]

    def holder(self) -> Road:
        """The manager's road of the dispatcher that renewed the Lease last."""
        found = self.roads_of(program="dispatch", cluster=MANAGER)
        return max(found, key=lambda road: road.last_renewal)

    def log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def crashes(self) -> Iterator[str]:
        """The last words of shifts that an unforeseen error ended."""
        for name in self._programs:
            text = self.log_of(name).read_text(errors="replace")
            if CRASHED in text:
                yield f"{name}: {text[text.rindex(CRASHED) :][:3000]}"

    # Sudden ends

    def arm(self, kill: Kill) -> None:
        """Kill one of the programs at the named change."""
        with self._lock:
            self._kills.append(kill)

    def disarm(self) -> None:
        with self._lock:
            self._kills.clear()

    def pause(self, name: str) -> Callable[[], None]:
        """Stop a process as if its machine had stalled; returns what lets it go on."""
        program = self._programs[name]
        program.pause()
        return program.resume

    def _at_change(self, road: Road, moment: str, what: str) -> bool:
        with self._lock:
            for kill in self._kills:
                if road.program not in kill.programs or moment != kill.moment:
                    continue
                kill.left -= 1
                if kill.left > 0:
                    continue
                self._kills.remove(kill)
                self._programs[road.program].kill()
                self.killed.append(f"{road.program} {moment} {what} on {road.cluster}")
                return True
        return False

    # Starting

    def _road(self, program: str, cluster: str, kubeconfig: str) -> Road:
        road = Road(
            program,
            cluster,
            Upstream.of(kubeconfig),
            passed=self.passages.append,
            at_change=self._at_change,
        )
        self.roads.append(self._stack.enter_context(road))
        return road

    def _start_dispatch(self, name: str) -> None:
        road = self._road(name, MANAGER, self._ground.portal[MANAGER])
        arguments = ["--config", str(self._configuration())]
        for worker in WORKERS:
            path = self._folder / f"{name}-{worker}.kubeconfig"
            path.write_text(self._road(name, worker, self._ground.multikueue[worker]).kubeconfig)
            arguments += ["--worker", f"{worker}={path}"]
        self._start(name, "dispatch", road, arguments)

    def _configuration(self) -> Path:
        path = self._folder / "configuration.yaml"
        grace = {"multiKueue": {"workerLostTimeout": f"{self._size.grace_s:g}s"}}
        path.write_text(yaml.safe_dump(grace))
        return path

    def _start(self, name: str, role: str, road: Road, arguments: Iterable[str]) -> None:
        path = self._folder / f"{name}.kubeconfig"
        path.write_text(road.kubeconfig)
        broken = ["-m", "tests.faults.broken_shift", self._variant]
        is_broken = self._variant and role == "dispatch"
        entry = broken if is_broken else [str(ROOT / "manage.py"), "run_shift"]
        command = [
            sys.executable, *entry, "--kubeconfig", str(path), "--role", role,
            "--origin", self._origin, "--name", name, *arguments,
        ]  # fmt: skip
        self.starts += 1
        self._programs[name] = Program(
            command, name=name, log=self.log_of(name), environment=self._environment()
        )

    def _environment(self) -> Mapping[str, str]:
        ours = ("PORTAL_", "PYTEST_", "DATABASE_URL", "CELERY_", "DJANGO_", "LEASE_")
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(ours)},
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": f"sqlite:///{self._folder}/unused.sqlite3",
            "CELERY_BROKER_URL": "memory://",
            "PORTAL_SECRET_KEY": "faults",
            "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
            "PORTAL_INSTALLATION": self._origin,
            "LEASE_SECONDS": str(self._size.lease_s),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }

    def _keep_alive(self) -> None:
        ended_at: dict[str, float] = {}
        while not self._stop.wait(0.1):
            for name, program in self._programs.items():
                if program.is_running():
                    ended_at.pop(name, None)
                elif time.monotonic() - ended_at.setdefault(name, time.monotonic()) > (
                    RESTART_AFTER_S
                ):
                    with self._lock:
                        if not self._stop.is_set():
                            self.starts += 1
                            program.start()
