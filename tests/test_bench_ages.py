"""How old what a queue shows is: worked out from what was true, and when."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kube import resources as r
from tests.perf.bench_ages import Ages, History, age


def history(*told: tuple[float, int]) -> History:
    made = History()
    for at, value in told:
        made.note(at, value)
    return made


@pytest.mark.parametrize(
    ("at", "want"),
    [
        (0.5, 0.0),  # nothing is there, nothing is shown
        (1.5, 0.5),  # 1 is true since 1.0; 0 is shown, which was true until then
        (2.5, 0.0),
        (4.5, 0.5),  # 3 is true, 2 is shown, which was true until 4.0
        (5.75, 0.25),  # 5 is shown, and true from 6.0 on
        (9.0, 8.0),  # 7 is shown and was never true: as old as all that is known
    ],
)
def test_age_is_the_time_since_what_is_shown_was_true(at: float, want: float) -> None:
    true = history((1.0, 1), (3.0, 2), (4.0, 3), (6.0, 5))
    shown = history((2.0, 1), (3.5, 2), (5.5, 5), (8.0, 7))
    assert age(shown, true, at, since=1.0) == want


def test_what_becomes_true_again_is_not_old() -> None:
    true = history((1.0, 1), (2.0, 2), (3.0, 1))
    assert age(history((1.0, 1)), true, 2.25, since=0.0) == 0.25
    assert age(history((1.0, 1)), true, 2.75, since=0.0) == 0.25, "it is true again from 3.0 on"
    assert age(history((1.0, 1)), true, 3.5, since=0.0) == 0.0


def workload(*conditions: tuple[str, str], name: str = "a") -> dict[str, Any]:
    told = [{"type": kind, "status": status} for kind, status in conditions]
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"queueName": "cq"},
        "status": {"conditions": told},
    }


def status(kind: r.Resource, pending: int, reserving: int, admitted: int) -> dict[str, Any]:
    numbers = zip(("pending", "reserving", "admitted"), (pending, reserving, admitted), strict=True)
    place = {"namespace": "team"} if kind is r.LOCAL_QUEUE else {}
    return {
        "metadata": {"name": "cq", **place},
        "status": {f"{name}Workloads": number for name, number in numbers},
    }


def test_both_queues_of_a_workload_are_followed() -> None:
    ages = Ages()
    ages.workload(workload(), 0.0, is_gone=False)
    ages.queue("ClusterQueue", status(r.CLUSTER_QUEUE, 1, 0, 0), 1.0)
    ages.workload(workload(("QuotaReserved", "False")), 2.0, is_gone=False)
    reserved = ("QuotaReserved", "True")
    ages.workload(workload(reserved, ("Admitted", "True")), 3.0, is_gone=False)
    ages.queue("ClusterQueue", status(r.CLUSTER_QUEUE, 0, 1, 1), 3.5)
    ages.workload(workload(reserved, name="b"), 4.0, is_gone=False)
    ages.queue("ClusterQueue", status(r.CLUSTER_QUEUE, 0, 2, 1), 4.0)
    ages.workload(workload(("Finished", "True")), 10.0, is_gone=False)
    ages.workload(workload(name="b"), 10.0, is_gone=True)
    found = ages.figures()
    assert found["age of ClusterQueues, p50 s"] == 0.0
    assert found["age of ClusterQueues, p99 s"] == 0.8
    # The LocalQueue's status says nothing, as was true before 3.0, and is again from 10.0 on.
    assert found["age of LocalQueues, p99 s"] == 4.9
    # The second had quota at once: there was nothing to tell.
    assert (found["told why"], found["told why after, p95 s"]) == (1, 2.0)
