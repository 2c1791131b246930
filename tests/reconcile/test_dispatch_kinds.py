"""Dispatch of kinds other than Job: named by an admin, known by shape, missing on a worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clusters.documents import labels
from clusters.documents.keys import annotations_of, labels_of
from clusters.documents.resources import Resource
from clusters.jobs.remote import CopyMarks
from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.reconcile.dispatch.body import DispatchBody
from clusters.reconcile.runtime.watches import Seen
from tests.reconcile.admission_harness import (
    INSTALLATION,
    NS,
    Document,
    Embedded,
    condition,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.custom_kinds import (
    INTEGRATIONS,
    PYTORCH,
    TRAINING,
    custom_job,
    serve,
    workload_for,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.test_admission_jobs import NOW
from tests.waiting import eventually

WORKERS = ("w1", "w2")
TRAININGS, PYTORCHJOBS = TRAINING, PYTORCH
CONFIGURATION = {
    "integrations": {"frameworks": ["batch/job", "kubeflow.org/pytorchjob"]},
    "multiKueue": {"externalFrameworks": [{"name": TRAINING.full_name}], "workerLostTimeout": "2s"},
}
WORKLOAD_STATUS = WriteOptions(subresource="status")


@pytest.fixture
def fleet(monkeypatch) -> Iterator[Embedded]:
    """Manager and workers that serve the kinds, with quota, at work; invariants are watched."""
    serve(monkeypatch, TRAINING, PYTORCH)
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        fleet.start("manager", "admission")
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8))
            fleet.start(worker, "admission")
        kinds = (f"{TRAINING.group}/{TRAINING.plural}", f"{PYTORCH.group}/{PYTORCH.plural}")
        with Watcher(fleet, origin=INSTALLATION, kinds=kinds) as watcher:
            yield fleet
        watcher.judge()
        assert all(shift.error is None for shift in fleet.shifts), fleet.shifts


def dispatch(fleet: Embedded) -> None:
    fleet.start("manager", "dispatch", workers=WORKERS, kueue_configuration=CONFIGURATION)


def submit(fleet: Embedded, document: Document, *, gpus: int = 8) -> None:
    """The job, and the Workload that its owner makes for it."""
    kind = Resource.guessed(document["kind"], document["apiVersion"].split("/")[1], "x")
    resource = TRAININGS if kind.kind == TRAINING.kind else PYTORCHJOBS
    made = fleet["manager"].client.create(resource, document)
    fleet["manager"].create(workload_for(made, gpus=gpus))


def placed(fleet: Embedded, name: str) -> str:
    workload = fleet["manager"].workload_of(name) or {}
    return (workload.get("status") or {}).get("clusterName") or ""


def finish(fleet: Embedded, worker: str, name: str, status: Document) -> None:
    """Play the owner of the kind on a worker: its job is done, and so is its Workload."""
    place = fleet[worker]
    place.client.patch(TRAININGS, name, {"status": status}, namespace=NS, options=WORKLOAD_STATUS)
    ended = {
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "all steps done",
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    }  # fmt: skip
    found = place.client.get(r.WORKLOAD, f"of-{name}", namespace=NS)
    conditions = [*found["status"]["conditions"], ended]
    place.client.patch(
        r.WORKLOAD, f"of-{name}", {"status": {"conditions": conditions}},
        namespace=NS, options=WORKLOAD_STATUS,
    )  # fmt: skip


@pytest.mark.embedded
def test_a_kind_that_an_admin_named_runs_on_one_worker_and_its_status_comes_back_whole(fleet):
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train"))
    worker = eventually(lambda: placed(fleet, "train"))
    copied = eventually(lambda: fleet[worker].get(TRAININGS, "train", NS))
    assert copied["spec"] == {"steps": [{"name": "one"}]}
    assert annotations_of(copied)[labels.PREBUILT] == "of-train"
    assert labels_of(copied)[labels.ORIGIN] == INSTALLATION
    fleet[worker].client.patch(
        TRAININGS, "train", {"status": {"step": "one", "of": {"x": [1]}}},
        namespace=NS, options=WORKLOAD_STATUS,
    )  # fmt: skip
    own = lambda: fleet["manager"].get(TRAININGS, "train", NS).get("status")  # noqa: E731
    eventually(lambda: own() == {"step": "one", "of": {"x": [1]}})
    finish(fleet, worker, "train", {"step": None, "of": None, "done": True})
    eventually(lambda: is_true(fleet["manager"].workload_of("train"), "Finished"))
    assert own() == {"done": True}
    eventually(lambda: not fleet[worker].all(TRAININGS) and not fleet[worker].all(r.WORKLOAD))


@pytest.mark.embedded
def test_the_last_status_comes_back_though_the_watch_of_jobs_is_late(fleet, monkeypatch):
    """Workloads and jobs come by two watches, and this kind does not tell its end."""
    tell, is_late = DispatchBody.tell, threading.Event()

    def tell_late(body: DispatchBody, seen: Seen) -> None:
        if not (is_late.is_set() and seen.cluster in WORKERS and seen.resource == TRAININGS):
            tell(body, seen)

    monkeypatch.setattr(DispatchBody, "tell", tell_late)
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train"))
    worker = eventually(lambda: placed(fleet, "train"))
    eventually(lambda: fleet[worker].get(TRAININGS, "train", NS))
    is_late.set()
    finish(fleet, worker, "train", {"done": True})
    eventually(lambda: is_true(fleet["manager"].workload_of("train"), "Finished"))
    assert fleet["manager"].get(TRAININGS, "train", NS).get("status") == {"done": True}


@pytest.mark.embedded
def test_a_known_kind_is_sent_suspended_and_without_what_would_remove_it(fleet):
    dispatch(fleet)
    policy = {"managedBy": labels.MULTIKUEUE, "ttlSecondsAfterFinished": 1, "backoffLimit": 2}
    document = custom_job(PYTORCH, "ddp", runPolicy=policy)
    submit(fleet, document)
    worker = eventually(lambda: placed(fleet, "ddp"))
    copied = eventually(lambda: fleet[worker].get(PYTORCHJOBS, "ddp", NS))
    assert copied["spec"]["runPolicy"] == {"backoffLimit": 2, "suspend": True}


@pytest.mark.embedded
def test_a_kind_that_its_own_cluster_would_run_is_rejected(fleet):
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train", managedBy="example.test/itself"))
    evicted = eventually(lambda: condition(fleet["manager"].workload_of("train"), "Evicted"))
    assert 'Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue"' in evicted["message"]
    assert not any(fleet[worker].all(r.WORKLOAD) for worker in WORKERS)


@pytest.mark.embedded
def test_a_kind_that_nobody_named_is_rejected_with_its_name(fleet):
    dispatch(fleet)
    metadata = {"name": "train", "namespace": NS}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    owner = fleet["manager"].client.create(r.CONFIG_MAP, document)
    fleet["manager"].create(workload_for(owner, gpus=1))
    evicted = eventually(
        lambda: condition(fleet["manager"].workload_of("train"), "Evicted"),
        why=lambda: str(fleet["manager"].all(r.WORKLOAD)),
    )
    assert 'No multikueue adapter found for owner kind "v1, Kind=ConfigMap"' in (evicted["message"])


@pytest.mark.embedded
def test_a_kind_missing_on_one_worker_costs_only_that_kind_there_and_is_told(fleet):
    fleet["w1"].server.cluster.faults.fail(404, count=100_000, path="/apis/example.test/")
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train"))
    assert eventually(lambda: placed(fleet, "train")) == "w2"
    told = lambda: condition(fleet["manager"].get(r.MULTIKUEUE_CLUSTER, "w1"), "Active")  # noqa: E731
    shown = eventually(lambda: told().get("status") == "True" and told())
    assert "takes no Training.v1.example.test" in shown["message"]
    # w1 takes everything else.
    fleet["manager"].create(job("plain", gpus=8, run_s=60, managed=True))
    assert eventually(lambda: placed(fleet, "plain")) == "w1"
    # And the kind as well, as soon as it is served.
    fleet["manager"].client.delete(r.JOB, "plain", namespace=NS)
    fleet["w1"].server.cluster.faults.clear()
    submit(fleet, custom_job(TRAINING, "more"))
    assert eventually(lambda: placed(fleet, "more")) == "w1"


@pytest.mark.embedded
def test_a_kind_leaves_nothing_behind_when_it_is_deleted(fleet):
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train"))
    worker = eventually(lambda: placed(fleet, "train"))
    eventually(lambda: fleet[worker].all(TRAININGS))
    fleet["manager"].client.delete(TRAININGS, "train", namespace=NS)
    eventually(lambda: not fleet[worker].all(TRAININGS) and not fleet[worker].all(r.WORKLOAD))


@pytest.mark.embedded
def test_a_kind_that_nobody_adopts_is_not_made_again_under_the_same_reservation(fleet):
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train"))
    worker = eventually(lambda: placed(fleet, "train"))
    first = eventually(lambda: fleet[worker].get(TRAININGS, "train", NS))
    fleet[worker].client.delete(TRAININGS, "train", namespace=NS)

    def again() -> Document | None:
        made = [item for place in WORKERS for item in fleet[place].all(TRAININGS)]
        return made[0] if made and made[0]["metadata"]["uid"] != first["metadata"]["uid"] else None

    second = eventually(again)
    attempts = [annotations_of(item)[labels.ATTEMPT] for item in (first, second)]
    assert attempts[0] != attempts[1]


@pytest.mark.embedded
def test_a_kind_without_pod_counts_starts_over_when_its_worker_is_lost(fleet):
    dispatch(fleet)
    submit(fleet, custom_job(TRAINING, "train"))
    worker = eventually(lambda: placed(fleet, "train"))
    server = fleet[worker].server
    server.cluster.faults.is_refusing = True
    server.drop_connections()
    eventually(lambda: placed(fleet, "train") not in ("", worker))
    server.cluster.faults.clear()
    eventually(lambda: not fleet[worker].all(TRAININGS))


# Shapes by themselves


def adapters(*names: str) -> JobKinds:
    return JobKinds(
        DispatchSettings.from_document({"integrations": {"frameworks": list(names)}}).kinds
    )


@pytest.mark.parametrize(
    ("name", "running", "want_inactive"),
    [
        pytest.param(
            "jobset.x-k8s.io/jobset",
            {"replicatedJobsStatus": [{"name": "a", "active": 2}, {"name": "b", "active": 0}]},
            {"replicatedJobsStatus": [{"name": "a", "active": 0}, {"name": "b", "active": 0}]},
            id="JobSet",
        ),
        pytest.param(
            "kubeflow.org/pytorchjob",
            {"replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 3, "failed": 1}}},
            {"replicaStatuses": {"Master": {"active": 0}, "Worker": {"active": 0, "failed": 1}}},
            id="PyTorchJob",
        ),
        pytest.param(
            "ray.io/rayjob",
            {"jobDeploymentStatus": "Running"},
            {"jobDeploymentStatus": "Suspended"},
            id="RayJob",
        ),
        pytest.param(
            "workload.codeflare.dev/appwrapper",
            {"phase": "Running"},
            {"phase": "Suspended"},
            id="AppWrapper",
        ),
        pytest.param(
            "trainer.kubeflow.org/trainjob",
            {"jobsStatus": [{"name": "node", "active": 1}]},
            {"jobsStatus": [{"name": "node", "active": 0}]},
            id="TrainJob",
        ),
    ],
)
def test_known_kind_tells_whether_it_is_active(name, running, want_inactive):
    [adapter] = [item for item in adapters(name) if item.resource != r.JOB]
    document = custom_job(INTEGRATIONS[name], "train")
    document["metadata"]["resourceVersion"] = "7"
    assert not adapter.is_active(document)
    document["status"] = running
    assert adapter.is_active(document)
    patch = adapter.inactive_patch(document, now=NOW)
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["status"] == want_inactive


def test_status_is_taken_over_whole_and_only_when_it_changed():
    adapter = adapters("ray.io/rayjob").of(custom_job(INTEGRATIONS["ray.io/rayjob"], "train"))
    local = {"metadata": {"resourceVersion": "1"}, "status": {"old": 1, "kept": {"a": 1}}}
    assert adapter.status_patch(local, {}, now=NOW) is None
    assert adapter.status_patch(local, {"status": {"old": 1, "kept": {"a": 1}}}, now=NOW) is None
    assert adapter.status_patch(local, {"status": {"kept": {"b": 2}}}, now=NOW)["status"] == {
        "old": None,
        "kept": {"a": None, "b": 2},
    }


def test_only_named_kinds_are_followed():
    assert [kind.kind for kind in adapters().resources] == ["Job"]
    named = adapters("ray.io/rayjob", "deployment", "pod")
    assert [kind.kind for kind in named.resources] == ["Job", "Pod", "RayJob"]
    with pytest.raises(ValueError, match=r"RayJob.v1.ray.io is known"):
        DispatchSettings.from_document(
            {"multiKueue": {"externalFrameworks": [{"name": "RayJob.v1.ray.io"}]}}
        )


@pytest.mark.parametrize(
    ("kind", "want_plural"),
    [("PipelineRun", "pipelineruns"), ("Policy", "policies"), ("Bus", "buses")],
)
def test_plural_is_built_as_clients_do(kind, want_plural):
    assert Resource.guessed(kind, "v1", "a.b").plural == want_plural


def test_copy_does_not_change_the_managers_object():
    document = custom_job(PYTORCH, "ddp", runPolicy={"managedBy": labels.MULTIKUEUE})
    document["metadata"]["uid"] = "u"
    adapter = adapters("kubeflow.org/pytorchjob").of(document)
    marks = CopyMarks("here", "a")
    adapter.copy_of(document, workload_for(document, gpus=1), marks=marks)
    assert document["spec"]["runPolicy"] == {"managedBy": labels.MULTIKUEUE}
