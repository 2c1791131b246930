"""A worker that loses its broker while it works goes on, and one that breaks then ends at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.celery import app
from tests.controlplane.processes import Program, free_port
from tests.lanes import ROOT
from tests.servers import redis_binary
from tests.waiting import eventually

pytestmark = pytest.mark.redis
WORKS_S = 90.0
"""Longer than anything is waited for here."""


class House:
    """Redis, and a worker with two slots."""

    def __init__(self, folder: Path, *, breaks: bool) -> None:
        self._folder = folder
        port = free_port()
        self._broker = f"redis://127.0.0.1:{port}/0"
        place = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": f"sqlite:///{folder / 'portal.sqlite3'}",
            "CELERY_BROKER_URL": self._broker,
            "PYTHONPATH": str(ROOT),
            "BREAKS": "1" if breaks else "",
        }
        self.redis = Program(
            [redis_binary(), *place], name="redis", log=folder / "redis.log", environment={}
        )
        words = ["-m", "celery", "-A", "tests.faults.slow_worker", "worker", "-P", "threads"]
        self.worker = Program(
            [sys.executable, *words, "-Q", "sync", "-c", "2", "-l", "info"],
            name="worker", log=folder / "worker.log", environment=environment,
        )  # fmt: skip

    def send(self, name: str) -> Path:
        """Have a file touched, which is returned."""
        mark = self._folder / name
        with app.connection_for_write(self._broker) as connection:
            app.send_task(
                "tests.slow", (str(mark), WORKS_S), connection=connection, queue="sync", retry=False
            )
        return mark

    def lose_the_broker(self) -> None:
        self.redis.kill()
        time.sleep(1.0)
        self.redis.start()

    def log(self) -> str:
        return (self._folder / "worker.log").read_text()


@pytest.fixture
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    house = House(tmp_path, breaks=getattr(request, "param", False))
    try:
        eventually(lambda: "ready" in house.log(), seconds=60, why=house.log)
        eventually(house.send("first").exists, seconds=30, why=house.log)
        yield house
    finally:
        house.worker.kill()
        house.redis.kill()


def test_worker_that_loses_its_broker_while_it_works_goes_on(house: House) -> None:
    for number in range(3):
        house.lose_the_broker()
        mark = house.send(f"after-{number}")
        if number == 0:  # then its slots are taken
            eventually(mark.exists, seconds=20, why=house.log)
        time.sleep(2.0)
        assert house.worker.is_running(), house.log()
    assert "Unrecoverable" not in house.log()


@pytest.mark.parametrize("house", [True], indirect=True)
def test_worker_whose_consumer_breaks_gives_back_what_it_works_on(house: House) -> None:
    house.lose_the_broker()
    eventually(lambda: not house.worker.is_running(), seconds=20, why=house.log)
    assert "of a test" in house.log()
