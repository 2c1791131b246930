"""Forecasts: how often ranges hold, what is left unknown, and that the same question is answered
the same."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from clusters.forecasting import (
    Ahead,
    Confidence,
    HeldGpus,
    Run,
    RunTimes,
    StartQuestion,
    forecast_start,
    kind_of,
)

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def runs(*minutes: float) -> RunTimes:
    return RunTimes(Run(each * 60) for each in minutes)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def lognormal(rng: random.Random) -> float:
    return rng.lognormvariate(8.0, 0.7)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("train-17", "train", id="number"),
        pytest.param("train-17-x8f2c", "train", id="number and generated suffix"),
        pytest.param("train17", "train", id="number without a dash"),
        pytest.param("eval-2024-11-02", "eval", id="date"),
        pytest.param("sweep-3fa91bc20d", "sweep", id="hash"),
        pytest.param("bert", "bert", id="plain"),
        pytest.param("123", "123", id="nothing but a number"),
    ],
)
def test_kind_is_what_repetitions_share(name: str, want: str):
    assert kind_of(name) == want


@pytest.mark.parametrize("records", [5, 12, 40], ids=lambda count: f"{count} records")
def test_range_holds_as_often_as_it_says(records: int):
    """Synthetic histories: one holder, started some time ago, run times of one distribution."""
    rng = random.Random(20260302)
    hits, promised, asked = 0, 0.0, 400
    for seed in range(asked):
        history = RunTimes(Run(lognormal(rng)) for _ in range(records))
        elapsed = rng.random() * 1500
        total = lognormal(rng)
        while total <= elapsed:
            total = lognormal(rng)
        held = [HeldGpus(8, NOW - timedelta(seconds=elapsed), history)]
        found = forecast_start(StartQuestion(gpus=8, free=0, held=held), now=NOW, seed=seed)
        if found.earliest is None or found.latest is None:
            asked -= 1
            continue
        promised += found.coverage
        hits += found.earliest <= NOW + timedelta(seconds=total - elapsed) <= found.latest
    assert asked > 200
    assert hits / asked == pytest.approx(promised / asked, abs=0.06)
    if records == 40:
        assert promised / asked == pytest.approx(0.8, abs=0.02)


def test_range_holds_for_several_holders_and_those_ahead():
    rng = random.Random(7)
    hits = 0
    for seed in range(300):
        history = RunTimes(Run(lognormal(rng)) for _ in range(30))
        ends = [lognormal(rng) for _ in range(4)]
        found = forecast_start(
            StartQuestion(
                gpus=8,
                free=0,
                held=[HeldGpus(8, NOW, history) for _ in ends],
                ahead=[Ahead(8, history)],
            ),
            now=NOW,
            seed=seed,
        )
        assert found.earliest is not None and found.latest is not None
        first, second = sorted(ends)[:2]
        start = min(second, first + lognormal(rng))
        hits += found.earliest <= NOW + timedelta(seconds=start) <= found.latest
    assert hits / 300 == pytest.approx(0.8, abs=0.08)


def test_same_question_has_the_same_answer():
    question = StartQuestion(gpus=8, free=0, held=[HeldGpus(8, ago(5), runs(10, 20, 30, 40, 50))])
    first, again = (forecast_start(question, now=NOW, seed=4) for _ in range(2))
    assert first == again


def test_few_records_promise_less():
    few = StartQuestion(gpus=8, free=0, held=[HeldGpus(8, NOW, runs(30, 60, 90))])
    many = StartQuestion(gpus=8, free=0, held=[HeldGpus(8, NOW, runs(*range(30, 90, 2)))])
    one, other = (forecast_start(item, now=NOW, seed=1) for item in (few, many))
    assert (one.confidence, other.confidence) == (Confidence.FAIR, Confidence.GOOD)
    assert one.coverage < other.coverage


@pytest.mark.parametrize(
    ("question", "want"),
    [
        pytest.param(StartQuestion(8, 0, [HeldGpus(8, NOW, runs())]), "no run", id="no record"),
        pytest.param(StartQuestion(8, 0, [HeldGpus(8, NOW, runs(5))]), "too few", id="one record"),
        pytest.param(
            StartQuestion(8, 0, [HeldGpus(8, ago(600), runs(*range(1, 30)))]),
            "too few",
            id="runs longer than any record",
        ),
        pytest.param(
            StartQuestion(8, 0, [HeldGpus(8, None, runs(*range(1, 30)))]),
            "too few",
            id="start not known",
        ),
        pytest.param(
            StartQuestion(64, 0, [HeldGpus(8, NOW, runs(*range(1, 30)))], most=32),
            "never",
            id="too large",
        ),
        pytest.param(
            StartQuestion(16, 0, [HeldGpus(8, NOW, runs(*range(1, 30)))]),
            "too few",
            id="never enough free",
        ),
    ],
)
def test_unknown_is_said(question: StartQuestion, want: str):
    found = forecast_start(question, now=NOW, seed=1)
    assert found.confidence is Confidence.UNKNOWN
    assert found.earliest is None and found.latest is None
    assert want in found.why_unknown or want == "never"


def test_runs_that_were_cut_off_count_as_longer():
    cut = RunTimes([Run(60, is_cut_off=True)] * 20 + [Run(600 + index) for index in range(20)])
    rng = random.Random(3)
    draws = [cut.draw(rng) for _ in range(400)]
    # All that land on a cut-off run go on among the complete ones.
    assert sum(1 for value in draws if value is not None and value < 60) == 0


def test_those_ahead_are_served_first():
    history = runs(*range(100, 130))
    alone = StartQuestion(gpus=8, free=0, held=[HeldGpus(8, NOW, history)])
    behind = StartQuestion(
        gpus=8, free=0, held=[HeldGpus(8, NOW, history)], ahead=[Ahead(8, history)]
    )
    first, second = (forecast_start(item, now=NOW, seed=2) for item in (alone, behind))
    assert first.latest is not None and second.earliest is not None
    assert second.earliest > first.latest


def test_ceiling_needs_an_own_job_to_end():
    early, late = runs(*range(10, 30)), runs(*range(200, 230))
    held = [HeldGpus(8, NOW, early, is_own=False), HeldGpus(8, NOW, late)]
    bounded = StartQuestion(gpus=8, free=0, room=0, held=held)
    free = StartQuestion(gpus=8, free=0, room=8, held=held)
    first, second = (forecast_start(item, now=NOW, seed=2) for item in (free, bounded))
    assert first.latest is not None and first.latest <= NOW + timedelta(minutes=31)
    assert second.earliest is not None and second.earliest >= NOW + timedelta(minutes=100)


def test_naive_time_is_refused():
    with pytest.raises(ValueError, match="aware"):
        forecast_start(StartQuestion(8, 0, []), now=datetime(2026, 1, 1), seed=0)  # noqa: DTZ001
