"""The house with two of each: web behind nginx, workers for tasks and for shifts, and beat.

Each is a process group of its own that is killed whole, as a container would be, and is started
again after some seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg

from tests import front
from tests.controlplane.processes import free_port
from tests.faults.house import House
from tests.servers import Missing

KINDS: Final = ("web", "tasks", "shifts", "beat")
HOSTS: Final = {"web-a": "127.0.0.2", "web-b": "127.0.0.3"}
HOLDERS = """
SELECT c.slug, s.role, s.holder, extract(epoch FROM coalesce(s.lease_renewed_at, 'epoch'::timestamptz))
FROM clusters_shiftrun s JOIN clusters_cluster c ON c.id = s.cluster_id WHERE s.ended_at IS NULL
"""  # noqa: E501  one query, as it is read
BEAT = "SELECT holder FROM clusters_beatlease"
NOW = "SELECT extract(epoch FROM clock_timestamp())"


class Pairs(House):
    """Two of each; nginx stands before web and is never killed."""

    portal = tuple(f"{kind}-{which}" for kind in KINDS for which in "ab")
    has_clocks = False

    def __init__(self, folder: Path, *, installation: str, lease_s: int) -> None:
        super().__init__(folder, installation=installation, lease_s=lease_s)
        self.port, self._web_port = free_port(), free_port()
        self._names = front.Names(list(HOSTS.values()))
        self._environment |= {
            "PORTAL_HTTPS": "false",
            "PORTAL_PROXIES": "1",
            "PORTAL_WEBHOOK_PRIVATE": "true",
            "PORTAL_SPOOL_FOLDER": str(folder / "spool"),
        }

    def open(self) -> None:
        """As without pages, and nginx before them."""
        program = front.nginx_program()
        if program is None:
            raise Missing("no nginx: install Debian's nginx")
        super().open()
        folder = self.folder / "nginx"
        folder.mkdir()
        folder.chmod(0o755)
        self._names.__enter__()
        web = f"web:{self._web_port}"
        self._run(
            "nginx",
            front.nginx(program, folder, port=self.port, web=web, names=self._names.port),
        )

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._names.__exit__()

    def command(self, name: str) -> list[str]:
        """How a process of the portal is started."""
        if name in HOSTS:
            return front.gunicorn(f"{HOSTS[name]}:{self._web_port}")
        return super().command(name)

    def settings_of(self, name: str) -> dict[str, str]:
        """What one process is told besides."""
        return {"PORTAL_HEARTBEAT_FILE": str(self._heartbeat(name))} if "-" in name else {}

    def _heartbeat(self, name: str) -> Path:
        return self.folder / f"{name}.heartbeat"

    # Looking in

    def is_well(self, name: str) -> bool:
        """Whether a process says so itself, as its probe asks."""
        if not self._programs[name].is_running():
            return False
        if name in HOSTS:
            with contextlib.suppress(OSError, http.client.HTTPException):
                asked = http.client.HTTPConnection(HOSTS[name], self._web_port, timeout=3)
                with contextlib.closing(asked):
                    asked.request("GET", "/readyz", headers={"Host": "127.0.0.1"})
                    return asked.getresponse().status == 200
            return False
        with contextlib.suppress(OSError):
            return time.time() - self._heartbeat(name).stat().st_mtime < 10.0
        return False

    def sends(self) -> str:
        """The beat with the lease, by its name here."""
        held = self.query(BEAT)
        return next((n for n in self.portal if held and f"schedule-{n} " in held[0][0]), "")

    def take_down(self, name: str, *, seconds: float) -> Callable[[], bool]:
        """SIGKILL; it is started again so much later.

        Returns:
            Whether somebody has taken over by now what it had.
        """
        self.restart_after_s = seconds
        taken = self._successor_of(name)
        self._heartbeat(name).unlink(missing_ok=True)
        self.kill(name)
        return taken

    def _successor_of(self, name: str) -> Callable[[], bool]:
        if name.startswith("beat"):
            before = self.query(BEAT)
            return lambda: self.query(BEAT) != before
        if name.startswith("shifts"):
            mark = f"{socket.gethostname()}-{self._programs[name].process_id}-"
            now = self.query(NOW)[0][0]
            lost = {row[:2] for row in self.query(HOLDERS) if row[2].startswith(mark)}

            def is_taken() -> bool:
                """Its row has another holder, whose Lease on the cluster was renewed since."""
                with contextlib.suppress(psycopg.Error):
                    held = {
                        row[:2] for row in self.query(HOLDERS)
                        if not row[2].startswith(mark) and row[3] > now
                    }  # fmt: skip
                    return lost <= held
                return False

            return is_taken
        return lambda: True
