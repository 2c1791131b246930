"""Who may do what at the broker: Redis as compose.yaml starts it, and what lies in it."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import yaml
from celery import Celery
from django.core.cache import caches

from portal.celery import app
from tests.lanes import ROOT
from tests.servers import free_port, redis_binary
from tests.waiting import eventually

pytestmark = pytest.mark.redis
PASSWORD = "onlyHereForTests"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A Redis with the options of compose.yaml."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["redis"]
    line = service["command"][-1].replace("$$REDIS_PASSWORD", PASSWORD)
    _, _, *options = shlex.split(line)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="portal-redis-") as folder:
        place = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        process = subprocess.Popen([redis_binary(), *options, *place], stdout=subprocess.DEVNULL)
        address = f"redis://portal:{PASSWORD}@127.0.0.1:{port}/0"
        try:
            eventually(lambda: is_up(address))
            yield address
        finally:
            process.terminate()
            process.wait(30)


def is_up(address: str) -> bool:
    try:
        return bool(redis.Redis.from_url(address).ping())
    except redis.ConnectionError:
        return False


def test_without_the_password_nobody_reads_or_writes(url: str) -> None:
    for address in (url.replace(f"portal:{PASSWORD}@", ""), url.replace(PASSWORD, "guess")):
        with pytest.raises((redis.AuthenticationError, redis.ResponseError)):
            redis.Redis.from_url(address).get("anything")


@pytest.mark.parametrize(
    "command",
    ["FLUSHALL", "CONFIG GET dir", "SHUTDOWN", "ACL LIST", "MODULE LIST", "KEYS *"],
)
def test_the_portal_may_not_run_the_server(url: str, command: str) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        redis.Redis.from_url(url).execute_command(*command.split())


@pytest.fixture
def worker(url: str, tmp_path: Path) -> Iterator[Path]:
    """A worker at that broker; yields its folder, with ``heartbeat`` and ``log``."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'portal.sqlite3'}",
        "CELERY_BROKER_URL": url,
        "PORTAL_HEARTBEAT_FILE": str(tmp_path / "heartbeat"),
    }
    command = [sys.executable, "-m", "celery", "-A", "portal", "worker", "-Q", "sync", "-c", "1"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "-P", "threads", "-l", "info"],
            cwd=ROOT, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            eventually(lambda: (tmp_path / "heartbeat").exists(), seconds=180)
            yield tmp_path
        finally:
            process.terminate()
            process.wait(180)


def test_worker_with_these_rights_works_takes_no_command_and_opens_no_pickle(
    url: str, worker: Path
) -> None:
    told = worker / "opened"
    with app.connection_for_write(url) as connection:
        evil = pickle.dumps(Opens(str(told)))
        connection.default_channel.queue_declare("sync")
        producer = connection.Producer(routing_key="sync")
        headers = {"task": "budgets.advance_in_force", "id": "evil"}
        producer.publish(
            evil, headers=headers, content_type="application/x-python-serialize",
            content_encoding="binary",
        )  # fmt: skip
        app.send_task("no.such.task", connection=connection, queue="sync")
        app.send_task("budgets.advance_in_force", connection=connection, queue="sync")
    # By an app of that broker: one of another sends its commands there.
    with Celery("asking", broker=url, set_as_current=False) as asking:
        answers = asking.control.inspect(timeout=1.0).ping()
    log = worker / "log"
    eventually(lambda: "budgets.advance_in_force" in log.read_text(), seconds=30)
    assert answers is None
    assert not redis.Redis.from_url(url).exists("_kombu.binding.celery.pidbox"), "nobody listens"
    assert not told.exists()
    before = (worker / "heartbeat").stat().st_mtime
    eventually(lambda: (worker / "heartbeat").stat().st_mtime > before)


class Opens:
    """What writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.path, "w"))


def test_cache_opens_no_pickle_and_survives_nonsense(url: str, settings, tmp_path: Path) -> None:
    told_by = "import json; from portal.settings import CACHES; print(json.dumps(CACHES))"
    environment = {**os.environ, "CELERY_BROKER_URL": url}
    said = subprocess.check_output([sys.executable, "-c", told_by], cwd=ROOT, env=environment)
    settings.CACHES = json.loads(said)
    cache, told = caches["default"], tmp_path / "opened"
    cache.set("numbers", [1, 2.5, "x"])
    assert cache.get("numbers") == [1, 2.5, "x"]
    direct = redis.Redis.from_url(url)
    too_long = b'"' + b"x" * 70_000 + b'"'
    for nonsense in (pickle.dumps(Opens(str(told))), b"\x00\xff", b"[" * 50_000, too_long):
        direct.set(cache.make_and_validate_key("evil"), nonsense)
        assert cache.get("evil") is None
    assert not told.exists()
