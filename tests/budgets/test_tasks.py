"""Tasks of one worker do not take each other's slots."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from budgets import tasks
from budgets.services.usage.meter import MeterSummary
from tests.waiting import PATIENCE_S


def test_second_meter_does_not_wait_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> MeterSummary:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return MeterSummary(None, None, written=3)

    monkeypatch.setattr(tasks.services, "meter_usage", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(tasks.meter_usage)
        assert begun.wait(PATIENCE_S)
        assert tasks.meter_usage() == {}
        go_on.set()
        assert first.result(PATIENCE_S) == {"written": 3, "removed": 0}
    assert tasks.meter_usage() == {"written": 3, "removed": 0}
