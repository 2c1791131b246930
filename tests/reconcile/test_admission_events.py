"""Events that the admission shift writes, and the PodsReady condition: values in, values out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.devcluster.cluster import ApiRequest, ClusterOptions, DevCluster
from clusters.jobs.batch import JOB
from clusters.kube import resources as r
from clusters.kueue.configuration import Configuration
from clusters.reconcile.admission.events import events_of
from clusters.reconcile.admission.pods_ready import changed_condition, first_condition
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.writer import Verb, Write

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
KEY = "team/job-train-12345"


def workload(*conditions: dict[str, str], name: str = "job-train-12345", **status: Any):
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "j",
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {"priority": 10, "maximumExecutionTimeSeconds": 60},
        "status": {
            "conditions": list(conditions),
            "admission": {"clusterQueue": "acme"},
            **status,
        },
    }


def entry(kind: str, status: str = "True", reason: str = "R", message: str = "M") -> dict[str, str]:
    at = "2026-01-01T12:00:10Z"
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": at,
    }  # fmt: skip


def write(step: str, resource=r.WORKLOAD, *, status: bool = True, decided: bool = False) -> Write:
    return Write(
        step, Verb.PATCH, resource, "team", "x", {}, "status" if status else "", decided=decided
    )


def told(write_: Write, document: Any, *, before: Any = None, others: tuple[Any, ...] = ()):
    cache = JobCache()
    for known in (before, *others):
        if known is not None:
            cache.put(r.WORKLOAD, known)
    return [
        (item.about.kind, item.is_warning, item.reason, item.message)
        for item in events_of(write_, document, KEY, cache, now=NOW)
    ]


@pytest.mark.parametrize(
    ("step", "document", "want"),
    [
        pytest.param(
            write("reserve", decided=True),
            workload(entry("QuotaReserved"), entry("Admitted")),
            [
                ("Workload", False, "QuotaReserved",
                 "Quota reserved in ClusterQueue acme, wait time since queued was 30s"),
                ("Workload", False, "Admitted",
                 "Admitted by ClusterQueue acme, wait time since reservation was 0s"),
            ],
            id="reserved and admitted at once",
        ),
        pytest.param(
            write("reserve", decided=True),
            workload(
                entry("QuotaReserved"), entry("Requeued"),
                admissionChecks=[{"name": "nodes", "state": "Pending", "message": "again"}],
            ),
            [
                ("Workload", False, "QuotaReserved",
                 "Quota reserved in ClusterQueue acme, wait time since queued was 20s"),
                ("Job", False, "UpdatedAdmissionCheck", "nodes: again"),
            ],
            id="reserved for the second time, waiting for a check",
        ),
        pytest.param(
            write("admit"),
            workload(entry("QuotaReserved"), entry("Admitted")),
            [("Workload", False, "Admitted",
              "Admitted by ClusterQueue acme, wait time since reservation was 20s")],
            id="checks are ready",
        ),
        pytest.param(
            write("explain", decided=True),
            workload(entry("QuotaReserved", "False", "WaitingForQuota", "no room")),
            [("Workload", True, "WaitingForQuota", "no room")],
            id="waits after a cycle",
        ),
        pytest.param(
            write("explain"),
            workload(entry("QuotaReserved", "False", "Suspended", "held")),
            [],
            id="waits outside of cycles",
        ),
        pytest.param(
            write("evict"),
            workload(entry("Evicted", reason="LocalQueueStopped", message="stopped")),
            [("Workload", False, "EvictedDueToLocalQueueStopped", "stopped")],
            id="evicted",
        ),
        pytest.param(
            write("target-deactivation"),
            workload(entry("DeactivationTarget", reason="MaximumExecutionTimeExceeded")),
            [("Workload", True, "MaximumExecutionTimeExceeded",
              "The maximum execution time (60s) exceeded")],
            id="too long",
        ),
        pytest.param(
            write("finish"),
            workload(entry("Finished")),
            [("Job", False, "FinishedWorkload", f"Workload '{KEY}' is declared finished")],
            id="finished",
        ),
        pytest.param(
            write("create-workload", status=False),
            workload(),
            [("Job", False, "CreatedWorkload", f"Created Workload: {KEY}")],
            id="made",
        ),
        pytest.param(write("queue-status", r.CLUSTER_QUEUE), workload(), [], id="a queue's status"),
    ],
)  # fmt: skip
def test_what_a_write_tells_users(step, document, want):
    assert told(step, document) == want


def test_preemption_is_told_to_both_sides():
    winner = workload(name="job-urgent-99999")
    winner["spec"]["priority"] = 100
    text = "Preempted to accommodate a workload (UID: uid-job-urgent-99999, JobUID: j)"
    victim = workload(
        entry("Preempted", message=text), entry("Evicted", reason="Preempted", message=text)
    )
    sides = (
        "preemptor effective priority: 100 (base: 100, boost: 0); "
        "preemptee effective priority: 10 (base: 10, boost: 0)"
    )
    assert told(write("preempt", decided=True), victim, others=(winner,)) == [
        ("Workload", False, "Preempted", f"{text}; {sides}"),
        ("Workload", False, "PreemptedWorkload",
         f"Preempted workload {KEY} (UID: uid-job-train-12345) in ClusterQueue acme; {sides}"),
        ("Workload", False, "EvictedDueToPreempted", text),
    ]  # fmt: skip


def test_job_is_told_why_it_was_stopped_and_that_it_started():
    job = {"metadata": {"name": "train", "namespace": "team", "uid": "j"}}
    evicted = workload(entry("Evicted", message="drained"))
    start, suspend = (write(step, r.JOB, status=False) for step in ("start", "suspend"))
    assert told(suspend, job, before=evicted) == [("Job", False, "Stopped", "drained")]
    assert told(suspend, job, before=workload()) == [
        ("Job", False, "Stopped", "Not admitted by cluster queue")
    ]
    assert told(start, job, before=workload()) == [
        ("Job", False, "Started", "Admitted by clusterQueue acme")
    ]


def test_long_messages_are_cut_to_what_the_api_server_takes():
    one = next(iter(events_of(
        write("explain", decided=True),
        workload(entry("QuotaReserved", "False", "WaitingForQuota", "x" * 5000)),
        KEY,
        JobCache(),
        now=NOW,
    )))  # fmt: skip
    document = one.document(now=NOW)
    assert len(document["message"]) == 1024
    assert document["type"] == "Warning"


def running(ready: int = 0, succeeded: int = 0, uncounted: int = 0) -> dict[str, Any]:
    names = [str(number) for number in range(uncounted)]
    status = {"ready": ready, "succeeded": succeeded}
    status["uncountedTerminatedPods"] = {"succeeded": names}
    return {"spec": {"parallelism": 2, "completions": 2}, "status": status}


@pytest.mark.parametrize(
    ("shown", "job", "want"),
    [
        pytest.param((), running(1), ("False", "WaitForStart"), id="nothing said yet"),
        pytest.param(("False", "WaitForStart"), running(1), None, id="still waits"),
        pytest.param(("False", "WaitForStart"), running(2), ("True", "Started"), id="all ready"),
        pytest.param(
            ("False", "WaitForStart"),
            running(1, uncounted=1),
            ("True", "Started"),
            id="one is done",
        ),
        pytest.param(("True", "Started"), running(1), ("False", "WaitForRecovery"), id="one lost"),
        pytest.param(("False", "WaitForRecovery"), running(1), None, id="still lost"),
        pytest.param(("False", "WaitForRecovery"), running(2), ("True", "Recovered"), id="back"),
        pytest.param(("True", "Recovered"), running(1, 1), None, id="stays recovered"),
    ],
)
def test_pods_ready_condition_follows_the_job(shown, job, want):
    conditions = [entry("PodsReady", *shown)] if shown else []
    found = changed_condition(workload(*conditions), job)
    assert (found and (str(found.status), found.reason)) == want


def test_first_word_on_pods_is_said_once_and_only_of_jobs():
    follows, ignores = Configuration(), Configuration(pods_ready=None)
    assert [item.reason for item in first_condition(workload(), follows)] == ["WaitForStart"]
    assert not first_condition(workload(), ignores)
    assert not first_condition(workload(entry("PodsReady", "False")), follows)
    without_owner = workload()
    del without_owner["metadata"]["ownerReferences"]
    assert not first_condition(without_owner, follows)


def test_restoring_leaves_the_labels_of_the_job_controller_alone():
    """They are required on the template of a Job that exists: without them all of it is refused."""
    own = {"batch.kubernetes.io/job-name": "train", "job-name": "train", "controller-uid": "j"}
    job = {
        "metadata": {"name": "train", "namespace": "team", "resourceVersion": "1", "uid": "j"},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "template": {
                "metadata": {"labels": {**own, "kueue.x-k8s.io/podset": "main"}},
                "spec": {"containers": [], "nodeSelector": {"gpu": "h100"}},
            },
        },
    }
    stored = {"name": "main", "count": 1, "template": {"spec": {"containers": []}}}
    patch = JOB.restore_patch(job, {"spec": {"podSets": [stored]}, "metadata": {"name": "w"}})
    assert patch is not None
    assert patch["spec"]["template"] == {
        "metadata": {"labels": {"kueue.x-k8s.io/podset": None}},
        "spec": {"nodeSelector": None},
    }


def test_embedded_cluster_keeps_the_newest_events_only(monkeypatch, tmp_path):
    monkeypatch.setattr("clusters.devcluster.cluster.EVENTS_KEPT", 3)
    options = ClusterOptions(name="east", file=tmp_path / "east.db")

    def kept(cluster: DevCluster) -> list[str]:
        events = cluster.store.all("/events")[1]
        return sorted(event["metadata"]["name"] for event in events)

    def create(cluster: DevCluster, *names: str) -> None:
        for name in names:
            body = {"metadata": {"name": name, "namespace": "default"}}
            path = "/api/v1/namespaces/default/events"
            reply = cluster.answer(ApiRequest("POST", path, {}, "admin", "test", body=body))
            assert reply.code == 201, reply.document

    cluster = DevCluster(options)
    create(cluster, "a", "z", "b", "c")
    assert kept(cluster) == ["b", "c", "z"]
    cluster.close()
    again = DevCluster(options)
    create(again, "d")
    assert kept(again) == ["b", "c", "d"]
    again.close()
