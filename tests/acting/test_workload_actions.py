"""Cancelling, putting back and deleting jobs: who may, what is written, what of failures."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry
from budgets.selectors import utc_now
from clusters import selectors, services
from clusters.devcluster.server import DevServer
from clusters.documents.labels import STOPPED_BECAUSE
from clusters.errors import NotFound, TimedOut
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.models import Cluster, WorkloadAction, WorkloadState
from clusters.reconcile import acting
from clusters.reconcile.acting import carry_out_due
from clusters.reconcile.identity import uid_of
from clusters.reconcile.reactivation import REJECTED, reactivation
from clusters.vault import seal
from tests.acting.conftest import NAMESPACE, SubmitJob, seen
from tests.builders import START, SmallFleet
from tests.factories import WorkloadUsageFactory
from tests.reconcile.fleet_rows import dev_server, register
from tests.web.conftest import Visitors

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]


def ask(fleet: SmallFleet, state: WorkloadState, verb: str, actor=None) -> WorkloadAction:
    (action,) = services.act_on_workloads(
        actor or fleet.owner,
        jobs=[(state.cluster.slug, state.uid)],
        verb=verb,
        reason="wrong data",
    )
    return action


def workload(kube: KubeClient, state: WorkloadState) -> dict:
    return kube.get(r.WORKLOAD, state.name, namespace=NAMESPACE)


def later(action: WorkloadAction) -> WorkloadAction:
    """After everything that is due within the hour was attempted once."""
    services.run_workload_actions(now=utc_now() + timedelta(hours=1))
    action.refresh_from_db()
    return action


def test_cancelling_deactivates_with_the_reason_and_is_undone(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    action = later(ask(fleet, state, "deactivate"))
    assert (action.state, action.message) == ("done", "")
    live = workload(kube, state)
    assert live["spec"]["active"] is False
    assert live["metadata"]["annotations"][STOPPED_BECAUSE] == "wrong data"
    assert kube.get(r.JOB, "train", namespace=NAMESPACE), "the job stays"
    WorkloadState.objects.filter(pk=state.pk).update(phase="pending", reason="Deactivated")
    later(ask(fleet, state, "activate"))
    live = workload(kube, state)
    assert live["spec"]["active"] is True
    assert STOPPED_BECAUSE not in live["metadata"].get("annotations", {})
    told = AuditEntry.objects.filter(action__startswith="workload.").order_by("pk")
    assert [(row.action, row.workspace, row.actor, row.reason) for row in told] == [
        ("workload.deactivate", fleet.vision, fleet.owner, "wrong data"),
        ("workload.activate", fleet.vision, fleet.owner, "wrong data"),
    ]


def test_deleting_removes_the_job_that_was_meant_and_no_other(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob
) -> None:
    state, other = submit("train"), submit("again")
    action = later(ask(fleet, state, "delete_job"))
    assert action.state == "done"
    with pytest.raises(NotFound):
        kube.get(r.JOB, "train", namespace=NAMESPACE)
    kube.delete(r.WORKLOAD, other.name, namespace=NAMESPACE)
    action = later(ask(fleet, other, "delete_job"))
    assert (action.state, action.message) == ("done", "It was gone already.")
    assert kube.get(r.JOB, "again", namespace=NAMESPACE)


def test_a_kind_that_is_not_known_is_left_to_its_maker(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    owner = {**workload(kube, state)["metadata"]["ownerReferences"][0], "kind": "Odd"}
    kube.patch(
        r.WORKLOAD, state.name, {"metadata": {"ownerReferences": [owner]}}, namespace=NAMESPACE
    )
    action = later(ask(fleet, state, "delete_job"))
    assert action.state == "failed"
    assert f"kubectl -n {NAMESPACE} delete odd train" in action.message


def test_deleting_removes_a_single_pod_whose_group_has_no_name(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    container = {"name": "main", "image": "busybox"}
    body = {
        "metadata": {"name": "alone", "namespace": NAMESPACE},
        "spec": {"containers": [container]},
    }
    pod = kube.create(r.POD, body)
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "alone",
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    kube.patch(
        r.WORKLOAD, state.name, {"metadata": {"ownerReferences": [owner]}}, namespace=NAMESPACE
    )
    action = ask(fleet, state, "delete_job")
    found = carry_out_due(lambda slug: kube, kinds=(r.POD,), now=utc_now() + timedelta(hours=1))
    action.refresh_from_db()
    assert (found, action.state, action.message) == ({"done": 1}, "done", "")
    with pytest.raises(NotFound):
        kube.get(r.POD, "alone", namespace=NAMESPACE)


def test_a_restart_goes_on_only_when_the_quota_is_free(
    worker: Cluster, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "x",
        "message": "",
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    }

    def set_status(status: str) -> None:
        part = {"name": "main", "count": 1}
        admission = {"clusterQueue": NAMESPACE, "podSetAssignments": [part]}
        changed = {
            "admission": admission if status == "True" else None,
            "conditions": [{**reserved, "status": status}],
        }
        kube.patch(
            r.WORKLOAD,
            state.name,
            {"status": changed},
            namespace=NAMESPACE,
            options=WriteOptions(subresource="status"),
        )

    set_status("True")
    action = WorkloadAction.objects.create(
        cluster=worker,
        uid=state.uid,
        namespace=NAMESPACE,
        name=state.name,
        verb="restart",
        reason="maintenance",
        next_attempt_at=utc_now(),
    )
    later(action)
    assert (action.state, action.is_stopped) == ("waiting", True)
    assert workload(kube, state)["spec"]["active"] is False
    services.run_workload_actions(now=utc_now() + timedelta(hours=2))
    assert workload(kube, state)["spec"]["active"] is False, "it still holds quota"
    set_status("False")
    services.run_workload_actions(now=utc_now() + timedelta(hours=3))
    action.refresh_from_db()
    assert action.state == "done"
    assert workload(kube, state)["spec"]["active"] is True


@pytest.mark.parametrize("answer", [{}, {"metadata": []}, {"metadata": {"uid": 7}, "spec": 7}])
def test_what_one_cluster_answers_ends_no_action_on_another(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob, answer: dict
) -> None:
    state = submit("train")
    strange = seen(register("gpu-apart", "{}"), "odd", uid="7")
    first, second = (ask(fleet, each, "deactivate", fleet.admin) for each in (strange, state))

    class Strange:
        def get(self, *_: object, **__: object) -> dict:
            return answer

    clients = {"gpu-apart": Strange(), "gpu-east": kube}
    now = utc_now() + timedelta(hours=1)
    found = carry_out_due(clients.__getitem__, kinds=(), now=now)  # type: ignore[arg-type]
    assert found in ({"waiting": 1, "done": 1}, {"done": 2})
    second.refresh_from_db()
    assert second.state == "done" and first.pk < second.pk


def test_a_cluster_that_does_not_answer_takes_the_time_of_one_action(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob
) -> None:
    state, asked = submit("train"), [0]
    apart = register("gpu-apart", "{}")
    for number in range(3):
        ask(fleet, seen(apart, f"odd-{number}"), "deactivate", fleet.admin)
    action = ask(fleet, state, "deactivate")

    class Silent:
        def get(self, *_: object, **__: object) -> dict:
            asked[0] += 1
            raise TimedOut("nothing came")

    clients = {"gpu-apart": Silent(), "gpu-east": kube}
    now = utc_now() + timedelta(hours=1)
    carry_out_due(clients.__getitem__, kinds=(), now=now)  # type: ignore[arg-type]
    action.refresh_from_db()
    assert (asked[0], action.state) == (1, "done")


def test_a_cluster_that_answers_slowly_takes_the_time_of_one_action(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = submit("train")
    apart = register("gpu-apart", "{}")
    for number in range(3):
        ask(fleet, seen(apart, f"odd-{number}"), "deactivate", fleet.admin)
    action = ask(fleet, state, "deactivate")

    class Slow:
        def get(self, *_: object, **__: object) -> dict:
            raise NotFound("gone")

    monkeypatch.setattr(acting, "SLOW_S", -1.0)  # whatever it took
    clients = {"gpu-apart": Slow(), "gpu-east": kube}
    now = utc_now() + timedelta(hours=1)
    found = carry_out_due(clients.__getitem__, kinds=(), now=now)  # type: ignore[arg-type]
    action.refresh_from_db()
    assert (found, action.state) == ({"done": 2}, "done")


def test_nothing_is_done_on_another_cluster(
    fleet: SmallFleet, worker: Cluster, kube: KubeClient, submit: SubmitJob
) -> None:
    """Where the job is not found, it would count as gone."""
    Cluster.objects.update(uid=uid_of(kube))
    action = ask(fleet, submit("train"), "deactivate")
    with dev_server("gpu-west") as west:
        Cluster.objects.update(kubeconfig_sealed=seal(west.kubeconfig))
        later(action)
    assert action.state == "waiting"
    assert f"has UID {uid_of(kube)}" in action.message


REJECTED_BY_CHECK = {
    "type": "Requeued", "status": "False", "reason": REJECTED, "message": "the budget is used up",
    "lastTransitionTime": "2026-03-01T00:00:00Z",
}  # fmt: skip
STOPPING = {**REJECTED_BY_CHECK, "type": "QuotaReserved", "status": "True"}


def stop_for_a_check(kube: KubeClient, state: WorkloadState, *conditions: dict) -> None:
    """What is left of a job that a check rejected, as Kueue leaves it."""
    place: dict = {"namespace": NAMESPACE}
    kube.patch(r.WORKLOAD, state.name, {"spec": {"active": False}}, **place)
    holds = any(entry["status"] == "True" for entry in conditions)
    part = {"name": "main", "count": 1}
    admission = {"clusterQueue": NAMESPACE, "podSetAssignments": [part]} if holds else None
    status = {"status": {"conditions": list(conditions), "admission": admission}}
    to_status = WriteOptions(subresource="status")
    kube.patch(r.WORKLOAD, state.name, status, options=to_status, **place)
    WorkloadState.objects.filter(pk=state.pk).update(phase="pending", reason="Deactivated")


def test_putting_back_what_a_check_rejected_takes_the_mark_of_that_away(
    fleet: SmallFleet, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    stop_for_a_check(kube, state, STOPPING)
    action = later(ask(fleet, state, "activate"))
    assert (action.state, action.message) == ("waiting", "It is being stopped.")
    assert workload(kube, state)["spec"]["active"] is False, "the mark would come after that"
    stop_for_a_check(kube, state, {**STOPPING, "status": "False"}, REJECTED_BY_CHECK)
    services.run_workload_actions(now=utc_now() + timedelta(hours=2))
    action.refresh_from_db()
    assert (action.state, action.message) == ("done", "")
    live = workload(kube, state)
    assert live["spec"]["active"] is True
    assert [entry["type"] for entry in live["status"]["conditions"]] == ["QuotaReserved"]
    assert reactivation(live) is None


def test_a_cluster_that_does_not_answer_is_tried_until_it_does(
    fleet: SmallFleet, east: DevServer, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    action = ask(fleet, state, "deactivate")
    east.cluster.faults.fail(503, count=50, path="workloads")
    services.run_workload_actions(now=action.next_attempt_at)
    action.refresh_from_db()
    assert (action.state, action.attempts) == ("waiting", 1)
    assert "does not answer" in action.message
    assert selectors.stuck_actions(fleet.owner) == [action]
    assert selectors.stuck_actions(fleet.admin) == [action]
    east.cluster.faults.clear()
    assert later(action).state == "done"
    assert workload(kube, state)["spec"]["active"] is False
    assert selectors.stuck_actions(fleet.owner) == []


def test_a_missing_right_is_told_and_not_tried_again(
    fleet: SmallFleet, east: DevServer, submit: SubmitJob
) -> None:
    state = submit("train")
    east.cluster.faults.fail(403, count=1, method="PATCH", path="workloads")
    action = later(ask(fleet, state, "deactivate"))
    assert action.state == "failed"
    assert "no right" in action.message
    assert ask(fleet, state, "deactivate").state == "waiting", "it can be asked for again"


def test_nothing_is_written_while_an_admin_has_stopped_it(
    fleet: SmallFleet, worker: Cluster, kube: KubeClient, submit: SubmitJob
) -> None:
    state = submit("train")
    Cluster.objects.update(writes_enabled=False)
    action = later(ask(fleet, state, "deactivate"))
    assert (action.state, action.message) == (
        "waiting",
        "Writing to this cluster is stopped by an admin.",
    )
    assert workload(kube, state)["spec"].get("active", True) is True
    services.withdraw_action(fleet.owner, action=action)
    Cluster.objects.update(writes_enabled=True)
    assert later(action).state == "withdrawn"
    assert workload(kube, state)["spec"].get("active", True) is True
    with pytest.raises(Rejected):
        services.withdraw_action(fleet.owner, action=action)


@pytest.mark.parametrize(
    ("role", "raises"),
    [("viewer", NotAllowed), ("finance", NotAllowed), ("stranger", Rejected)],
)
def test_only_owners_and_admins_act_on_a_job(
    visitors: Visitors, worker: Cluster, role: str, raises: type[Exception]
) -> None:
    state = seen(worker, "train")
    user = visitors.users[role]
    key = (worker.slug, state.uid)
    with pytest.raises(raises):
        services.act_on_workloads(user, jobs=[key], verb="deactivate", reason="x")
    assert not WorkloadAction.objects.exists()
    with pytest.raises(raises):
        services.jobs_at_stake(user, jobs=[key], verb="deactivate")
    (action,) = services.act_on_workloads(
        visitors.fleet.owner, jobs=[key], verb="deactivate", reason="x"
    )
    with pytest.raises(NotAllowed):
        services.withdraw_action(user, action=action)


def test_many_are_asked_for_together_or_not_at_all(fleet: SmallFleet, worker: Cluster) -> None:
    jobs = [seen(worker, name, phase="pending", gpus={"": 8}) for name in ("a", "b")]
    over = seen(worker, "c", phase="finished")
    WorkloadUsageFactory(workspace=fleet.vision, uid=jobs[0].uid, committed_used=7200, burst=3600)
    keys = [(worker.slug, state.uid) for state in (*jobs, over)]
    stakes = services.jobs_at_stake(fleet.owner, jobs=keys, verb="deactivate")
    assert [(stake.gpu_seconds, bool(stake.fault)) for stake in stakes] == [
        (10_800, False),
        (0, False),
        (0, True),
    ]
    with pytest.raises(Rejected) as caught:
        services.act_on_workloads(fleet.owner, jobs=keys, verb="deactivate", reason="x")
    assert [fault.message for fault in caught.value.faults] == [
        "acme-vision/c: it is neither waiting nor running, but finished"
    ]
    made = services.act_on_workloads(fleet.owner, jobs=keys[:2], verb="deactivate", reason="x")
    assert len(made) == 2
    again = {"cluster": worker, "uid": jobs[0].uid, "verb": "deactivate", "next_attempt_at": START}
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkloadAction.objects.create(**again)
    with pytest.raises(Rejected, match="an earlier action has not been carried out"):
        services.act_on_workloads(fleet.owner, jobs=keys[:1], verb="delete_job", reason="x")


@pytest.mark.parametrize(
    ("changes", "verb", "words"),
    [
        ({"is_remote_copy": True}, "deactivate", "a copy on a worker"),
        ({"phase": "pending", "reason": "Deactivated"}, "deactivate", "already been cancelled"),
        ({}, "activate", "not been cancelled"),
        ({"phase": "gone"}, "delete_job", "already been deleted"),
        ({"job_name": ""}, "delete_job", "no job that owns it is known"),
        ({}, "restart", "no action"),
    ],
)
def test_what_cannot_be_done_is_said(
    fleet: SmallFleet, worker: Cluster, changes: dict, verb: str, words: str
) -> None:
    state = seen(worker, "train", **changes)
    with pytest.raises(Rejected, match=words):
        services.act_on_workloads(
            fleet.admin, jobs=[(worker.slug, state.uid)], verb=verb, reason="x"
        )


def test_a_reason_a_job_and_not_too_many_are_asked_for(fleet: SmallFleet, worker: Cluster) -> None:
    state = seen(worker, "train")
    key = (worker.slug, state.uid)
    for jobs, reason, words in (
        ([key], " ", "Say why"),
        ([], "x", "at least one"),
        ([(worker.slug, f"u{n}") for n in range(201)], "x", "too many"),
        ([("gpu-east", "nothing")], "x", "There is no job gpu-east/nothing"),
    ):
        with pytest.raises(Rejected, match=words):
            services.act_on_workloads(fleet.admin, jobs=jobs, verb="deactivate", reason=reason)


def test_an_attempt_that_somebody_else_makes_is_left_to_them(
    fleet: SmallFleet, submit: SubmitJob
) -> None:
    action = ask(fleet, submit("train"), "deactivate")
    now = action.next_attempt_at
    WorkloadAction.objects.update(attempts=1, next_attempt_at=now + timedelta(seconds=60))
    assert services.run_workload_actions(now=now) == {}
    assert services.run_workload_actions(now=now + timedelta(seconds=61)) == {"done": 1}
