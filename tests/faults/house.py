"""The portal's house as compose.yaml starts it, without its pages, to be broken piece by piece.

PostgreSQL, Redis, two workers for shifts, one for tasks, and beat: each a process of its own that
is started again when it has ended, as a container would be. What they write lies on a disk of its
own where the machine lets one be mounted, so that it can be full; where libfaketime is installed
each of the portal's processes has a clock of its own, so that it can be wrong.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psycopg
import redis
from cryptography.fernet import Fernet

from tests.controlplane.processes import Program, free_port
from tests.servers import postgres_folder, postgres_program, redis_binary
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PORTAL = ("shifts-a", "shifts-b", "tasks", "beat")
HOUSE = ("postgres", "redis", *PORTAL)
RESTART_AFTER_S = 0.5
DISK_MB = 256
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class House:
    """All of it; a context manager that leaves nothing behind.

    Attributes:
        portal: The portal's own processes.
        has_clocks: Each of these has a clock of its own, where libfaketime is installed.
        root: Of the code that commands run.

    Args:
        folder: For data and logs.
        installation: Value of the origin label, and name of the portal.
        lease_s: Duration of a shift's Lease.
        archives: PostgreSQL puts its log of writes into the backup's folder.
    """

    portal: Sequence[str] = PORTAL
    has_clocks = True

    def __init__(
        self, folder: Path, *, installation: str, lease_s: int = 6, archives: bool = False
    ) -> None:
        self.folder, self.disk = folder, folder / "disk"
        self.root = ROOT
        self.data, self.backup = self.disk / "postgres/data", folder / "backup"
        self._archives = archives
        self._as_user: list[str] = []
        self.can_be_full = False
        self.kills = self.starts = 0
        self.restart_after_s = RESTART_AFTER_S
        self._postgres_port, self._redis_port = free_port(), free_port()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._down: set[str] = set()
        self._programs: dict[str, Program] = {}
        self._environment = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("PORTAL_", "PYTEST_", "DATABASE_", "CELERY_", "DJANGO_"))
            },
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": self.database_url,
            "CELERY_BROKER_URL": f"redis://127.0.0.1:{self._redis_port}/0",
            "PORTAL_SECRET_KEY": "faults",
            "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
            "PORTAL_INSTALLATION": installation,
            "PORTAL_CLUSTER_LOOPBACK": "true",
            "LEASE_SECONDS": str(lease_s),
            # As compose.yaml starts them: a process for each cluster.
            "SHIFT_MEMORY_MB": "1024",
            "PYTHONPATH": str(ROOT),
            "PORTAL_DATABASE_PASSWORD": "of-the-run",
            "SKIP_CHECKS": "1",
        }

    @property
    def database_url(self) -> str:
        return f"postgres://portal@127.0.0.1:{self._postgres_port}/postgres"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.disk.mkdir()
        size = f"size={DISK_MB}m,mode=0755"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", self.disk],
            capture_output=True,
            check=False,
        )
        self.can_be_full = mounted.returncode == 0
        try:
            self._start_servers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        with self._lock:
            for program in self._programs.values():
                program.resume()
                program.kill()
        if self.can_be_full:
            for log in self.disk.glob("*.log"):
                shutil.copy(log, self.folder)
                if error and error[0] is not None:
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-600:]}")
            subprocess.run(["umount", "-l", self.disk], check=False)

    # Starting

    def _start_servers(self) -> None:
        if os.geteuid() == 0:
            for part in (self.folder, *self.folder.parents):
                if part.stat().st_uid == os.geteuid() and part != Path("/"):
                    with contextlib.suppress(OSError):
                        part.chmod(part.stat().st_mode | 0o011)
            whom = ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
            self._as_user = ["setpriv", *whom, "--pdeathsig", "KILL", "--"]
        for folder in (self.data.parent, self.backup, self.backup / "wal"):
            folder.mkdir()
            self._give(folder)
        self._make_database()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._postgres_port),
            "unix_socket_directories": str(self.data),
            "fsync": "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "max_wal_size": "64MB",
            "min_wal_size": "32MB",
        }
        if self._archives:
            wal = self.backup / "wal"
            copies = f"test ! -f {wal}/%f && cp %p {wal}/%f"
            settings |= {"archive_mode": "on", "archive_command": copies}
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        server = [str(postgres_folder() / "postgres"), "-D", str(self.data), *flags]
        self._run("postgres", [*self._as_user, *server])
        options = ["--bind", "127.0.0.1", "--port", str(self._redis_port), "--save", ""]
        self._run("redis", [redis_binary(), *options, "--dir", str(self.disk)])
        eventually(self.has_database, why="PostgreSQL does not answer")
        self.manage("migrate", "--no-input", "--skip-checks")

    def _give(self, folder: Path) -> None:
        if self._as_user:
            shutil.chown(folder, "postgres")

    def _make_database(self) -> None:
        self.data.mkdir(mode=0o700)
        self._give(self.data)
        made = [postgres_folder() / "initdb", "-D", self.data, "-U", "portal", "--auth=trust"]
        words = [*self._as_user, *map(str, made), "-E", "UTF8", "-N"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd="/")

    @contextlib.contextmanager
    def without_database(self, *, is_made_anew: bool) -> Iterator[None]:
        """The database is thrown away with its server; the block may put another in its place.

        Args:
            is_made_anew: An empty one is there before the block; else nothing is.
        """
        self._down.add("postgres")
        self._programs["postgres"].kill()
        shutil.rmtree(self.data)
        if is_made_anew:
            self._make_database()
        yield
        self._down.discard("postgres")
        eventually(self._is_primary, seconds=180, why="PostgreSQL does not come back")

    def _is_primary(self) -> bool:
        with contextlib.suppress(psycopg.Error):
            return self.query("SELECT pg_is_in_recovery()") == [(False,)]
        return False

    def by_hand(self, commands: str, **environment: str) -> str:
        """What an operator's commands print; those of the portal run beside it, others as the
        database's user.

        Raises:
            AssertionError: one failed.
        """
        is_ours = commands.startswith("python manage.py")
        place = {
            "OWNER_URL": self.database_url, "BACKUP": str(self.backup), "PGDATA": str(self.data),
        }  # fmt: skip
        tools = {str(postgres_program(name).parent) for name in ("pg_dump", "pg_basebackup")}
        path = [str(Path(sys.executable).parent), *tools, os.environ["PATH"]]
        done = subprocess.run(
            [*([] if is_ours else self._as_user), "sh", "-euc", commands],
            cwd=self.root if is_ours else "/",
            env={**self._environment, **place, **environment, "PATH": ":".join(path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def furnish(
        self,
        kubeconfigs: Mapping[str, str],
        *,
        gpus: int,
        mode: str = "portal",
        floor: int | None = None,
    ) -> None:
        """Register clusters, in a mode, and promise what ``furnish`` says; one worker's floor."""
        folder = self.folder / "kubeconfigs"
        folder.mkdir()
        for name, text in kubeconfigs.items():
            (folder / f"{name}.kubeconfig").write_text(text)
        self._python("-m", "tests.faults.furnish", str(folder), str(gpus), mode, str(floor or gpus))

    def open(self) -> None:
        """Start the portal's processes, and start each again that ends."""
        is_first = not self._down
        self._down = set()
        if not is_first:
            return
        for name in self.portal:
            self._run(name, self.command(name))
        threading.Thread(target=self._keep_alive, name="house", daemon=True).start()

    def command(self, name: str) -> list[str]:
        """How a process of the portal is started."""
        celery = [sys.executable, "-m", "celery", "-A", "portal"]
        if name.startswith("beat"):
            schedule = str(self.disk / f"schedule-{name}")
            return [*celery, "beat", "-s", schedule, "--pidfile=", "-l", "info"]
        queues, slots = ("shift", "16") if name.startswith("shifts") else ("sync,meter", "4")
        words = ["worker", "-P", "threads", "-Q", queues, "-c", slots, "-n", f"{name}@house"]
        return [*celery, *words, "-l", "info"]

    def shut(self) -> None:
        """Stop the portal's processes as an operator does; PostgreSQL and Redis stay."""
        self._down = set(self.portal)
        for name in self.portal:
            with self._lock:
                self._programs[name].terminate()
        for name in self.portal:
            with contextlib.suppress(AssertionError):
                eventually(lambda name=name: not self._programs[name].is_running(), seconds=120)
            self.kill(name)

    def settings_of(self, name: str) -> dict[str, str]:
        """What one process is told besides."""
        return {}

    def _run(self, name: str, command: list[str]) -> None:
        environment = self._environment | self.settings_of(name)
        if name in self.portal and self.has_clocks and FAKETIME is not None:
            self.set_clock(name, 0)
            environment |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock(name)),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
                # Its own mending makes every timed wait for the interpreter return at once: a
                # hundred threads keep two cores busy with nothing else.
                "FAKETIME_FORCE_MONOTONIC_FIX": "0",
                "NO_FAKE_STAT": "1",
                "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/faults/wrong_clock'}",
            }
        log = self.disk / f"{name}.log"
        self.starts += 1
        self._programs[name] = Program(command, name=name, log=log, environment=environment)

    def _keep_alive(self) -> None:
        ended_at: dict[str, float] = {}
        while not self._stop.wait(0.1):
            for name, program in self._programs.items():
                if program.is_running() or name in self._down:
                    ended_at.pop(name, None)
                elif time.monotonic() - ended_at.setdefault(name, time.monotonic()) > (
                    self.restart_after_s
                ):
                    with self._lock, contextlib.suppress(OSError):
                        if not self._stop.is_set():
                            self.starts += 1
                            program.start()

    # Looking in

    def manage(self, *arguments: str) -> str:
        """What a management command prints.

        Raises:
            AssertionError: it failed.
        """
        return self._python("manage.py", *arguments)

    def run(self, code: str) -> subprocess.Popen[bytes]:
        """Code inside the portal, in a process of its own; its caller waits for it."""
        command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", code]
        with (self.folder / "deeds.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.root, env=self._environment, stdout=log, stderr=log
            )

    def _python(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.root, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stderr[-3000:]}"
        return done.stdout

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Rows of the portal's database, past the portal."""
        with psycopg.connect(self.database_url, connect_timeout=5) as connection:
            return connection.execute(text).fetchall()  # type: ignore[arg-type]  # plain text

    def has_database(self) -> bool:
        """Whether PostgreSQL takes a query."""
        with contextlib.suppress(psycopg.Error):
            return bool(self.query("SELECT 1"))
        return False

    # Faults

    def kill(self, name: str) -> None:
        """SIGKILL; it is started again."""
        self.kills += 1
        with self._lock:
            self._programs[name].kill()

    def kill_child(self, name: str, nth: int) -> bool:
        """SIGKILL for one process alone that a process of the house has started; whether it has.

        Args:
            name: One that works shifts: it has a process for each cluster, and what starts them.
            nth: Chooses among them.
        """
        with self._lock:
            found = descendants(self._programs[name].process_id)
            if not found:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[nth % len(found)], signal.SIGKILL)
        return True

    def pause(self, name: str) -> None:
        """SIGSTOP: as if its machine had stalled."""
        self._programs[name].pause()

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._programs[name].resume()

    def fail_over(self) -> None:
        """PostgreSQL goes down at once, as before a failover, and comes up with what it wrote."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._programs["postgres"].process_id, signal.SIGQUIT)

    def flush_redis(self) -> None:
        """Everything in Redis is gone."""
        with contextlib.suppress(redis.RedisError):
            redis.Redis(port=self._redis_port, socket_timeout=2).flushall()

    def fill_disk(self) -> None:
        """Not a byte is left for anybody."""
        with contextlib.suppress(OSError), (self.disk / "ballast").open("wb") as file:
            while True:
                file.write(b"\0" * 65_536)

    def free_disk(self) -> None:
        """There is room again."""
        (self.disk / "ballast").unlink(missing_ok=True)

    def set_clock(self, name: str, seconds: int) -> None:
        """Its wall clock is so much ahead, or behind, from the next second on."""
        text = f"{seconds:+d}"
        path = self._clock(name)
        path.with_suffix(".new").write_text(text + "\n")
        path.with_suffix(".new").rename(path)

    def _clock(self, name: str) -> Path:
        return self.folder / f"{name}.clock"


def descendants(process_id: int) -> list[int]:
    """The processes that one has started, and those that these have; in order of their numbers."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{process_id}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                found += [child, *descendants(child)]
    return sorted(found)
