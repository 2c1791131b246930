"""Kueue's upgrade under load: what the run would notice, and the run itself."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.controlplane import build
from tests.faults.histories import told
from tests.faults.kueue_upgrade import (
    OLD,
    Report,
    Step,
    arrivals_of,
    faults_of,
    order_of,
    own_seconds,
    run,
    short_of,
)
from tests.faults.limits import OutOfTime, no_longer_than
from tests.faults.observer import JOBS, WORKLOADS
from tests.lanes import IN_CI
from tests.servers import has_postgres

SEED = 20261125
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def test_workers_come_before_the_manager_unless_it_is_said_otherwise():
    assert order_of("workers") == ["w1", "w2", "manager"]
    assert order_of("manager") == ["manager", "w1", "w2"]


def test_jobs_are_the_same_for_the_same_seed_alone_and_many_are_long():
    one, again, other = (list(islice(arrivals_of(seed), 30)) for seed in (7, 7, 8))
    assert one == again != other
    assert sum(job.run_s >= 35 for job in one) == 10


def history(end: int, *, cluster: str = "w1", kind: str = "Complete") -> list:
    usage = {"name": "main", "resourceUsage": {"nvidia.com/gpu": "2"}}
    conditions = [{"type": "QuotaReserved", "status": "True"}]
    workload = {
        "metadata": {"name": "wl", "uid": "u1"},
        "status": {"conditions": conditions, "admission": {"podSetAssignments": [usage]}},
    }
    done = {"type": kind, "status": "True", "lastTransitionTime": f"1970-01-01T00:01:{end:02}Z"}
    job = {
        "metadata": {"name": "j", "uid": "u2", "labels": {PREBUILT: "wl"}},
        "status": {"startTime": "1970-01-01T00:01:00Z", "conditions": [done]},
    }
    return [told(1, cluster, WORKLOADS, workload, "ADDED"), told(2, cluster, JOBS, job, "ADDED")]


def test_own_seconds_are_from_the_start_to_the_end_of_each_job():
    assert own_seconds(history(30)) == {"wl": 60}
    assert own_seconds(history(30, kind="Failed")) == {"wl": 60}
    assert own_seconds(history(30, cluster="manager")) == {}
    assert own_seconds([*history(30), *history(10, cluster="w2")]) == {"wl": 80}


def test_a_second_that_the_ledger_lacks_is_noticed():
    assert list(short_of({"wl": 60}, {"wl": 60})) == []
    assert list(short_of({"wl": 60}, {"wl": 62})) == []
    assert list(short_of({"wl": 60}, {"wl": 59})) and list(short_of({"wl": 60}, {}))


def test_a_run_that_proves_nothing_and_a_check_with_a_fault_are_broken_rules():
    report = Report(1, "real", 0.0, order=["w1"], steps=[Step("w1", 1.0, ran_across=2)])
    assert not list(faults_of(report))
    report.steps[0].ran_across = 0
    report.checks_by["after w1"] = {"w1": [["Kueue controller", "fault", "Nobody served", ""]]}
    assert len(list(faults_of(report))) == 2


def test_what_takes_too_long_is_broken_off():
    with pytest.raises(OutOfTime, match="did not end"), no_longer_than(0.01):
        while True:
            pass


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.django_db
@pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL server")
def test_kueue_is_upgraded_under_load_without_a_lost_second():
    try:
        build.ensure([OLD])
    except build.PartMissingError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    report = run(SEED)
    print(report.text())
    report.store()
    assert not report.broken
    assert report.holds
