"""Two processes run beat over one database: one sends, and the other one soon after it has gone.

Nobody takes what they send, so it lies in Redis in the order in which it came, each message with
the process that sent it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from portal.beat import LEASE_S, RENEW_S
from tests.controlplane.processes import Program
from tests.lanes import ROOT
from tests.servers import has_postgres, postgres_server, redis_server
from tests.waiting import eventually

pytestmark = pytest.mark.redis
TAKEN_OVER_S = LEASE_S + 2 * RENEW_S
SLACK_S = 10.0
"""For a machine that has other work."""
WATCHED_S = 6.0


class Beats:
    """Some processes, and what they sent."""

    def __init__(self, folder: Path, environment: dict[str, str], broker: str) -> None:
        self._folder, self._environment = folder, environment
        self._redis = redis.Redis.from_url(broker)
        self.programs: dict[str, Program] = {}

    def start(self, name: str) -> None:
        schedule = str(self._folder / f"schedule-{name}")
        command = [sys.executable, "-m", "celery", "-A", "portal", "beat", "-s", schedule]
        self.programs[name] = Program(
            [*command, "--pidfile=", "-l", "info"],
            name=name,
            log=self._folder / f"{name}.log",
            environment=self._environment,
        )

    def senders(self, queue: str = "sync") -> list[int]:
        """The process of each message, the oldest first."""
        lying = reversed(self._redis.lrange(queue, 0, -1))
        origins = [json.loads(message)["headers"]["origin"] for message in lying]
        return [int(origin.removeprefix("gen").partition("@")[0]) for origin in origins]

    def stop(self, name: str) -> None:
        """Not in the middle of sending: that message would come when it goes on."""
        eventually(lambda: self._is_stopped_between(name), seconds=SLACK_S)

    def _is_stopped_between(self, name: str) -> bool:
        program = self.programs[name]
        program.pause()
        announced = (self._folder / f"{name}.log").read_text().count("Sending due task")
        if self._sent_by(program.process_id) == announced:
            return True
        program.resume()
        return False

    def _sent_by(self, process: int) -> int:
        return sum(self.senders(queue).count(process) for queue in ("sync", "meter"))

    def sends(self, name: str) -> bool:
        return self.programs[name].process_id in self.senders()

    def wait_for(self, name: str, *, seconds: float) -> float:
        """Seconds until the first message of one of them."""
        begun = time.monotonic()
        log = self._folder / f"{name}.log"
        eventually(lambda: self.sends(name), seconds=seconds, why=log.read_text)
        return time.monotonic() - begun


@pytest.fixture
def beats(tmp_path: Path) -> Iterator[Beats]:
    with ExitStack() as stack:
        database = f"sqlite:///{tmp_path}/portal.sqlite3"
        if has_postgres():
            database = stack.enter_context(postgres_server())
        broker = stack.enter_context(redis_server())
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": database,
            "CELERY_BROKER_URL": broker,
            "PYTHONPATH": str(ROOT),
        }
        migrate = [sys.executable, "manage.py", "migrate", "-v0", "--skip-checks"]
        subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
        beats = Beats(tmp_path, environment, broker)
        yield beats
        for program in beats.programs.values():
            program.resume()
            program.kill()


def test_beat_that_is_killed_or_stopped_is_taken_over_and_sends_nothing_late(beats: Beats) -> None:
    beats.start("one")
    beats.wait_for("one", seconds=60)
    beats.start("other")
    time.sleep(WATCHED_S)
    assert not beats.sends("other")

    beats.programs["one"].kill()
    after_kill = beats.wait_for("other", seconds=TAKEN_OVER_S + SLACK_S)

    beats.start("one")
    time.sleep(WATCHED_S)
    assert not beats.sends("one")
    beats.stop("other")
    after_stop = beats.wait_for("one", seconds=TAKEN_OVER_S + SLACK_S)
    beats.programs["other"].resume()
    time.sleep(WATCHED_S)

    senders = beats.senders()
    one = beats.programs["one"].process_id
    assert set(senders[senders.index(one) :]) == {one}
    print(f"taken over {after_kill:.1f} s after a kill and {after_stop:.1f} s after a stop")
