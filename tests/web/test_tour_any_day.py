"""The demo's story is told on the first day of a month as on the last, of a fleet and of one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import time_machine

from budgets.models import BillingPeriod, Correction, User
from clusters.models import Cluster
from clusters.selectors import newest_preempted
from tests.web.test_tour import seed


@pytest.mark.slow
@pytest.mark.parametrize("is_one", [False, True], ids=["fleet", "one"])
@pytest.mark.parametrize(
    "now", [datetime(2026, 11, 1, 0, 5, tzinfo=UTC), datetime(2027, 1, 31, 23, 50, tzinfo=UTC)]
)
def test_the_story_is_told_on_any_day(
    db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: datetime, is_one: bool
) -> None:
    with time_machine.travel(now, tick=False):
        seed(monkeypatch, tmp_path, is_one=is_one)
        assert Cluster.objects.count() == (1 if is_one else 3)
        assert BillingPeriod.objects.filter(closed_at__isnull=False).count() == 1
        assert Correction.objects.exists()
        assert newest_preempted(User.objects.get(username="admin")) is not None
