"""Accidents over the whole road, judged by an onlooker that counts GPU-seconds by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.faults.accidents import DECK, KINDS, plan_of
from tests.faults.books import Hold, Row, compare, doubles, holds_of
from tests.faults.histories import told
from tests.faults.house import descendants
from tests.faults.observer import WORKLOADS
from tests.faults.whole_road import run
from tests.waiting import eventually

QUICK_SEED = 20261122


def seed_of_the_night() -> int:
    """Another one each time; ``FAULT_SEED`` repeats one."""
    return int(os.environ.get("FAULT_SEED") or int.from_bytes(os.urandom(3), "big"))


def test_plan_is_the_same_for_the_same_seed_alone():
    plan = plan_of(7, accidents=40, every_s=1)
    assert plan == plan_of(7, accidents=40, every_s=1)
    assert plan.accidents != plan_of(8, accidents=40, every_s=1).accidents
    assert {one.kind for one in plan_of(7, accidents=len(DECK), every_s=1).accidents} == KINDS


def test_one_process_of_a_tree_is_killed_alone():
    """As with a cluster's process, of which its worker is to know nothing before."""
    code = "import subprocess as s; s.run(['sh', '-c', 'sleep 60 & sleep 60 & wait']); input()"
    tree = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        shell, *sleeping = eventually(lambda: _three(descendants(tree.pid)))
        os.kill(sleeping[0], signal.SIGKILL)
        eventually(lambda: descendants(tree.pid) == [shell, sleeping[1]])
        assert tree.poll() is None
        os.kill(sleeping[1], signal.SIGKILL)
        eventually(lambda: descendants(tree.pid) == [])
    finally:
        tree.communicate(b"\n")


def _three(found: list[int]) -> list[int]:
    return found if len(found) == 3 else []


# The onlooker's own count.

UID = "u1"
HELD = Hold("w1", UID, "job", gpus=4, start=100, seen_start=101, end=160, seen_end=160)
BOOKED = Row("w1", UID, "job", 4, 100, 160, "closed", "billable", "")


def broken(holds, rows, **spans):
    books = compare(holds, rows, broken_at=spans.get("broken", {}), unwatched=spans.get("gap", {}))
    return books


def test_books_that_agree_have_no_fault():
    books = broken([HELD], [BOOKED])
    assert (books.faults, books.counted, books.booked) == ([], 240, 240)


def test_two_rows_of_one_admission_count_together():
    rows = [replace(BOOKED, end=130), replace(BOOKED, start=130, kind="race")]
    assert broken([HELD], rows).faults == []


@pytest.mark.parametrize(
    ("holds", "rows", "want"),
    [
        pytest.param([HELD], [], "lost", id="an admission that is in no row"),
        pytest.param([HELD], [replace(BOOKED, end=159)], "lost", id="a second less"),
        pytest.param([HELD], [replace(BOOKED, end=161)], "invented", id="a second more"),
        pytest.param([], [BOOKED], "invented", id="a row of what never was"),
        pytest.param([HELD], [BOOKED, replace(BOOKED, gpus=1)], "invented", id="counted twice"),
        pytest.param([HELD], [replace(BOOKED, end=None)], "still open", id="never closed"),
        pytest.param(
            [HELD],
            [replace(BOOKED, end=170, state="estimated")],
            "invented",
            id="an estimate that is more than was",
        ),
        pytest.param(
            [replace(HELD, start=700, end=760)],
            [replace(BOOKED, start=700, end=760)],
            "by its condition",
            id="a time ten minutes ahead",
        ),
    ],
)
def test_books_notice(holds, rows, want):
    faults = broken(holds, rows).faults
    assert any(want in words for words in faults), faults


def test_what_is_estimated_or_told_to_finance_is_counted_apart():
    short = broken([HELD], [replace(BOOKED, end=150, state="estimated")])
    assert (short.faults, short.estimated) == ([], 40)
    told_of = broken([HELD], [], gap={"w1": [(90, 170)]})
    assert (told_of.faults, told_of.told) == ([], 240)
    assert broken([HELD], [], gap={"w2": [(90, 170)]}).faults


def test_what_an_older_past_undid_is_not_judged():
    """The state that came back says when it began itself, which was before the admission."""
    undone = replace(HELD, end=100, seen_end=238)
    booked = [replace(BOOKED, end=230, state="estimated")]
    assert broken([undone], booked, broken={"w1": [(101, 240)]}).faults == []
    assert len(broken([undone], booked, broken={"w2": [(101, 240)]}).faults) == 2


def test_deletion_is_seen_by_two_a_moment_apart():
    gone = replace(HELD, by_deletion=True)
    assert broken([gone], [replace(BOOKED, end=162)]).faults == []
    assert broken([gone], [replace(BOOKED, end=164)]).faults


def test_two_workers_billed_for_one_job_at_a_time_are_noticed():
    other = replace(BOOKED, cluster="w2", uid="u2", start=150, end=170)
    assert list(doubles([BOOKED, replace(other, start=160)])) == []
    assert len(list(doubles([BOOKED, other]))) == 1


def workload(*conditions: tuple[str, str, int]):
    rows = [
        {
            "type": kind,
            "status": status,
            "lastTransitionTime": f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z",
        }
        for kind, status, at in conditions
    ]
    usage = {"name": "main", "resourceUsage": {"nvidia.com/gpu": "4"}}
    return {
        "metadata": {"name": "job", "uid": UID},
        "status": {"conditions": rows, "admission": {"podSetAssignments": [usage]}},
    }


def test_holds_are_read_from_conditions_and_deletions():
    admitted = workload(("QuotaReserved", "True", 90), ("Admitted", "True", 100))
    evicted = workload(("QuotaReserved", "False", 130), ("Admitted", "False", 130))
    again = workload(("QuotaReserved", "True", 140), ("Admitted", "True", 140))
    history = [
        told(101, "w1", WORKLOADS, admitted, "ADDED"),
        told(131, "w1", WORKLOADS, evicted, "MODIFIED"),
        told(141, "w1", WORKLOADS, again, "MODIFIED"),
        told(150, "w1", WORKLOADS, again, "DELETED"),
        told(150, "manager", WORKLOADS, admitted, "ADDED"),
    ]
    found = holds_of(history, wall_offset_s=0)
    assert [(h.start, h.end, h.by_deletion) for h in found] == [(100, 130, False), (140, 150, True)]


# The runs.


@pytest.mark.accidents
def test_whole_road_keeps_its_books_through_a_hundred_accidents():
    report = run(plan_of(QUICK_SEED, accidents=100, every_s=1.2))
    print(report.text())
    report.store()
    assert not report.broken
    assert report.holds
    assert report.done["child"]  # of the processes that a worker has for its clusters


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.django_db
def test_whole_road_keeps_its_books_through_a_thousand_accidents_on_real_api_servers():
    report = run(plan_of(seed_of_the_night(), accidents=1_000, every_s=1.2), is_real=True)
    print(report.text())
    report.store()
    assert not report.broken
