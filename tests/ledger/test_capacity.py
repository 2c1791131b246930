"""The capacity identity and the cross-check of queues, as pure sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from budgets.metering import CapacityFact, CapacitySample, QueueSample, lasting_mismatch
from budgets.metering.capacity import HOLD, capacity_parts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def sample(at: datetime = NOON, **more) -> CapacitySample:
    return CapacitySample(at, **{"ready": 16, "down": 8, "used": 5, "held": 5, **more})


def fact(**more) -> CapacityFact:
    given = {"measured_s": 3600, "capacity": 86400, "free": 86400, **more}
    return CapacityFact(NOON, "east", "h100", **given)


def test_a_sample_stands_until_the_next_one_cut_at_the_hour():
    begun = NOON - timedelta(seconds=10)
    parts = list(capacity_parts(sample(begun), NOON + timedelta(seconds=5)))

    assert [(part.hour, part.seconds) for part in parts] == [
        (NOON - timedelta(hours=1), 10),
        (NOON, 5),
    ]
    last = parts[1]
    assert (last.capacity, last.down, last.free) == (24 * 5, 8 * 5, 11 * 5)


def test_a_sample_stands_for_five_minutes_at_most_and_never_backwards():
    parts = list(capacity_parts(sample(), NOON + timedelta(hours=3)))
    assert sum(part.seconds for part in parts) == HOLD.total_seconds()
    assert list(capacity_parts(sample(), NOON - timedelta(seconds=1))) == []


@pytest.mark.parametrize(
    ("more", "want_free", "want_over"),
    [
        pytest.param({}, 11, 0, id="free is what no pod takes"),
        pytest.param({"by_pods": False, "held": 7}, 9, 0, id="without pods workloads take"),
        pytest.param({"held": 20}, 11, 4, id="more is held than is ready"),
        pytest.param({"used": 20}, 0, 0, id="never less than nothing is free"),
    ],
)
def test_what_a_sample_says(more, want_free: int, want_over: int):
    found = sample(**more)
    assert (found.free, found.over_admitted) == (want_free, want_over)


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({}, 0, id="all of it is free"),
        pytest.param(
            {
                "free": 0,
                "committed_used": 3600,
                "burst": 7200,
                "race": 10800,
                "undecided": 3600,
                "outside": 3600,
                "starting": 3600,
                "down": 57600,
                "over_admitted": 3600,
            },
            0,
            id="every part stands in it once",
        ),
        pytest.param({"free": 0}, 86400, id="a machine that nobody knows of"),
        pytest.param({"burst": 3600}, -3600, id="billed and free at once"),
    ],
)
def test_what_is_unexplained(more, want: int):
    found = fact(**more)
    assert found.unexplained == want
    assert found.is_explained == (abs(want) <= found.tolerance)


def test_an_hour_that_was_not_measured_explains_nothing():
    assert fact().is_explained
    assert not fact(measured_s=3599).is_explained


def test_the_tolerance_is_a_fiftieth_and_half_a_gpu_hour_at_least():
    assert fact(capacity=8 * 3600).tolerance == 1800
    assert fact(capacity=1000 * 3600).tolerance == 72000


def told(minute: int, total: int = 8, borrowed: int = 0, nominal: int = 8) -> QueueSample:
    return QueueSample(NOON + timedelta(minutes=minute), total, borrowed, nominal)


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param([8, 8, 8, 8, 8], 0, id="both agree"),
        pytest.param([0, 0, 0, 8, 0], 0, id="three in a row are lag"),
        pytest.param([8, 0, 0, 0, 0], 4, id="four in a row are not"),
    ],
)
def test_a_mismatch_lasts_when_more_than_three_samples_in_a_row_show_it(held, want: int):
    samples = [told(minute) for minute in range(len(held))]
    at = {row.at: gpus for row, gpus in zip(samples, held, strict=True)}
    assert len(lasting_mismatch(samples, at.__getitem__)) == want


def test_what_a_queue_borrows_is_compared_over_the_applied_floor():
    samples = [told(minute, total=12, borrowed=2) for minute in range(4)]
    assert lasting_mismatch(samples, lambda _: 12)
    assert not lasting_mismatch([told(m, total=12, borrowed=4) for m in range(4)], lambda _: 12)
