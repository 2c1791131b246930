"""The table of all contenders: what is still to be run, and what it says of what ran."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane import build
from tests.perf import against_kueue
from tests.perf.contenders import CONTENDERS

KUEUE = build.kueue_version("kueue")


@pytest.fixture(autouse=True)
def _a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = {name: "c0ffee" if each.is_portal else KUEUE for name, each in CONTENDERS.items()}
    monkeypatch.setattr(against_kueue, "subject_of", lambda contender: subjects[contender.name])


def row(name: str, wall_s: float, **changed: Any) -> dict[str, Any]:
    is_portal = CONTENDERS[name].is_portal
    return {
        "config": "baseline",
        "scale": 1.0,
        "contender": name,
        "subject": "c0ffee" if is_portal else KUEUE,
        "date": "2026-11-26",
        "load_average_before": 0.1,
        "requests": {"patch workloads/status": 15_000},
        "wall_s": wall_s,
        **changed,
    }


def names(rows: list[dict[str, Any]], *chosen: str) -> list[str]:
    found = against_kueue.missing(rows, "baseline", 1.0, 2, chosen or None)
    return [contender.name for contender in found]


def test_what_ran_is_not_run_again() -> None:
    done = [row("minimalkueue", 387), row("minimalkueue", 388), row("run_shift", 187)]
    everyone = list(CONTENDERS)
    assert names([]) == everyone * 2
    rest = [name for name in everyone if name not in {"minimalkueue", "run_shift"}]
    assert names(done) == [*rest, *(name for name in everyone if name != "minimalkueue")]
    assert names(done, "run_shift") == ["run_shift"]


@pytest.mark.parametrize(
    "changed", [{"subject": "0ld"}, {"scale": 0.1}, {"config": "large"}], ids=str
)
def test_a_run_of_something_else_does_not_count(changed: dict[str, Any]) -> None:
    assert names([row("run_shift", 187, **changed)] * 2, "run_shift") == ["run_shift"] * 2


def test_table_shows_medians_of_the_newest_and_what_bounds_each() -> None:
    old = row("run_shift", 999, subject="0ld")
    of_ours = [row("run_shift", seconds) for seconds in (187, 181, 185)]
    told = row("minimalkueue", 387, requests={"apply workloads/status": 33_314})
    lines = list(against_kueue.table([old, told, *of_ours], "baseline", 1.0))
    assert "| | minimalkueue | run_shift |" in lines
    assert "| seconds | 387 | 185 |" in lines
    assert "| apply workloads/status | 33,314 | 0 |" in lines
    assert f"| subject | {KUEUE} | c0ffee |" in lines
    assert lines[-2:] == [
        f"{name} is bound by {CONTENDERS[name].bounds}." for name in ("minimalkueue", "run_shift")
    ]
    assert not list(against_kueue.table([], "baseline", 1.0))
