"""How old what a queue shows is: worked out from what was true, and when."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kube import resources as r
from tests.perf.bench_ages import Ages, Told, ages_of


def told(*each: tuple[float, str, int]) -> list[Told]:
    return [Told(at, what == "status", (number, 0, 0)) for at, what, number in each]


def test_status_that_is_not_right_is_as_old_as_it_was_written_or_last_right() -> None:
    each = told(
        (1.0, "true", 1),
        (2.0, "status", 1),
        (3.0, "true", 2),
        (3.5, "true", 3),
        (4.0, "status", 2),
        (6.0, "status", 9),
        (7.0, "true", 9),
    )
    moments = [0.5, 1.5, 2.5, 3.25, 3.75, 4.5, 5.9, 6.5, 7.5]
    want = [0.0, 0.5, 0.0, 0.25, 0.75, 0.5, 1.9, 0.5, 0.0]
    assert list(ages_of(each, moments)) == pytest.approx(want)


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
    # Of the ten seconds it was wrong in the first one, and for half a second from 3.0 on.
    assert found["age of ClusterQueues, p95 s"] == 0.4
    assert found["age of ClusterQueues, p99 s"] == 0.8
    # Nobody wrote the LocalQueue's: it is right only before anything is there.
    assert found["age of LocalQueues, p99 s"] == 9.8
    # The second had quota at once: there was nothing to tell.
    assert (found["told why"], found["told why after, p95 s"]) == (1, 2.0)
