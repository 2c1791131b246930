"""Jobs as documents: their Workloads, what starts and stops them, their copies on workers."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.documents import labels
from clusters.documents.conditions import Condition, condition, with_conditions
from clusters.jobs import batch, remote
from clusters.jobs.batch import JOB
from clusters.jobs.kind import Priority
from clusters.jobs.marking import StartRefused
from clusters.jobs.workloads import workload_name
from clusters.kueue.cycle.decisions import Admit
from clusters.kueue.lifecycle.steps import Evict
from clusters.reconcile import workload_status as status
from clusters.reconcile.runtime.job_cache import JobCache
from tests.reconcile.admission_harness import GPU, job, r

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MARKS = remote.CopyMarks(origin="us", attempt="u@t")


def live(name: str = "train", **changes: Any) -> dict[str, Any]:
    """A Job as an API server has it."""
    document = job(name, **changes)
    document["metadata"] |= {
        "uid": "job-uid",
        "resourceVersion": "7",
        "creationTimestamp": "2026-03-01T00:00:00Z",
    }
    generated = dict.fromkeys(labels.GENERATED_LABELS, "x")
    document["spec"]["template"]["metadata"] = {"labels": {"team": "a", **generated}}
    document["spec"]["selector"] = {"matchLabels": {"controller-uid": "x"}}
    return document


def workload_of(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    made = JOB.workload_for(document, priority=Priority())
    made["metadata"] |= {"uid": "w-uid", "resourceVersion": "9"}
    return made | changes


def admitted(document: dict[str, Any], *, count: int = 1, flavor: str = "h100") -> dict[str, Any]:
    made = workload_of(document)
    assignment = {"name": "main", "count": count, "flavors": {GPU: flavor}}
    made["status"] = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    return made


FLAVORS = {
    "h100": {
        "spec": {
            "nodeLabels": {"gpu": "h100"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    }
}


def merged(document: Any, patch: Any) -> Any:
    """What an API server makes of a merge patch."""
    if not isinstance(patch, dict):
        return patch
    base = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), value)
    return base


def test_workload_name_depends_on_the_uid_and_is_cut():
    first = workload_name(kind="Job", group="batch", name="train", uid="1")
    assert first.startswith("job-train-")
    assert first != workload_name(kind="Job", group="batch", name="train", uid="2")
    long = workload_name(kind="Job", group="batch", name="x" * 300, uid="1")
    assert len(long) == 253


def test_workload_for_carries_queue_pods_owner_and_no_generated_labels():
    made = JOB.workload_for(live(gpus=2, pods=3), priority=Priority(5))
    [pods] = made["spec"]["podSets"]
    assert (pods["name"], pods["count"]) == ("main", 3)
    assert pods["template"]["metadata"] == {"labels": {"team": "a"}}
    assert made["spec"]["queueName"] == "default"
    assert made["spec"]["priority"] == 5
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "job-uid"}
    assert made["metadata"]["ownerReferences"][0]["controller"] is True


@pytest.mark.parametrize(
    ("parallelism", "completions", "want"),
    [(4, None, 4), (4, 2, 2), (2, 8, 2)],
)
def test_pod_count_is_what_runs_side_by_side(parallelism, completions, want):
    document = live()
    document["spec"] |= {"parallelism": parallelism, "completions": completions}
    assert batch.pod_count(document) == want


def test_partial_admission_starts_with_fewer_pods_and_a_stop_restores_them():
    document = live(pods=8)
    document["metadata"]["annotations"][labels.MIN_PARALLELISM] = "2"
    workload = admitted(document, count=4)
    assert workload["spec"]["podSets"][0]["minCount"] == 2
    started = merged(document, JOB.start_patch(document, workload, flavors=FLAVORS))
    assert started["spec"]["parallelism"] == 4
    assert JOB.is_in_sync(started, workload)
    stopped = merged(started, JOB.suspend_patch(started))
    restored = merged(stopped, JOB.restore_patch(stopped, workload))
    assert restored["spec"]["parallelism"] == 8


def test_start_and_restore_leave_the_template_as_it_was():
    document = live()
    before = copy.deepcopy(document["spec"]["template"])
    workload = admitted(document)
    started = merged(document, JOB.start_patch(document, workload, flavors=FLAVORS))
    pod = started["spec"]["template"]["spec"]
    assert started["spec"]["suspend"] is False
    assert pod["nodeSelector"] == {"gpu": "h100"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert started["spec"]["template"]["metadata"]["labels"][labels.POD_SET] == "main"
    stopped = merged(started, JOB.suspend_patch(started))
    restored = merged(stopped, JOB.restore_patch(stopped, workload))
    assert restored["spec"]["template"] == before
    assert JOB.restore_patch(restored, workload) is None


def test_a_second_start_on_another_flavor_takes_the_first_ones_marks_off():
    document = live()
    first = admitted(document)
    started = merged(document, JOB.start_patch(document, first, flavors=FLAVORS))
    started["spec"]["suspend"] = True
    other = {"l4": {"spec": {"nodeLabels": {"gpu": "l4"}}}}
    again = JOB.start_patch(started, admitted(document, flavor="l4"), flavors=other)
    assert merged(started, again)["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "l4"}
    assert "tolerations" not in merged(started, again)["spec"]["template"]["spec"]


def test_start_refuses_a_selector_that_contradicts_the_flavor():
    document = live()
    document["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "a100"}
    with pytest.raises(StartRefused, match="gpu is a100 already"):
        JOB.start_patch(document, admitted(document), flavors=FLAVORS)


def test_a_started_job_cannot_be_restored_before_its_stop_is_noted():
    document = live()
    document["status"] = {"startTime": "2026-03-01T00:00:00Z"}
    assert JOB.restore_patch(document, workload_of(document)) is None


def test_job_copy_is_suspended_linked_and_stays_when_done():
    document = live(managed=True, ttlSecondsAfterFinished=5)
    sent = JOB.copy_of(document, workload_of(document), marks=MARKS)
    assert sent["spec"]["suspend"] is True
    assert not {"selector", "managedBy", "ttlSecondsAfterFinished"} & sent["spec"].keys()
    assert sent["metadata"]["labels"][labels.ORIGIN] == "us"
    assert (
        sent["metadata"]["annotations"][labels.PREBUILT]
        == workload_of(document)["metadata"]["name"]
    )
    assert sent["spec"]["template"]["metadata"]["labels"] == {"team": "a"}


def test_job_copy_does_not_carry_the_managers_start_to_the_worker():
    document = live(managed=True)
    workload = admitted(document)
    started = merged(document, JOB.start_patch(document, workload, flavors=FLAVORS))
    sent = JOB.copy_of(started, workload, marks=MARKS)
    assert "nodeSelector" not in sent["spec"]["template"]["spec"]


def test_workload_copy_has_no_owner_and_no_job_uid():
    document = live()
    sent = remote.workload_copy(workload_of(document), JOB.pod_sets(document), marks=MARKS)
    assert "ownerReferences" not in sent["metadata"]
    assert labels.JOB_UID not in sent["metadata"]["labels"]
    assert sent["metadata"]["annotations"][labels.SENT_DIGEST] == remote.digest_of(sent["spec"])
    changed = copy.deepcopy(sent["spec"])
    changed["podSets"][0]["count"] = 9
    assert remote.digest_of(changed) != remote.digest_of(sent["spec"])


def status_after(local: dict[str, Any], far: dict[str, Any]) -> Any:
    return batch.status_copy(local, far, now=NOW)


def test_status_of_a_running_copy_waits_until_the_managers_job_is_started():
    local, far = live(managed=True), live(suspend=False)
    far["status"] = {"active": 1, "startTime": "2026-03-01T00:00:00Z"}
    first = status_after(local, far)
    assert "startTime" not in first
    local["status"] = dict(first)
    assert condition(local, "Suspended")["reason"] == "MultiKueueAdapter"
    assert status_after(local, far) is None
    local["spec"]["suspend"] = False
    assert status_after(local, far)["active"] == 1


def test_status_of_a_finished_copy_is_copied_to_a_suspended_job():
    local, far = live(managed=True), live(suspend=False)
    done = {"type": "Complete", "status": "True"}
    far["status"] = {"succeeded": 1, "startTime": "s", "conditions": [done]}
    assert status_after(local, far)["succeeded"] == 1


@pytest.mark.parametrize("announced", ["SuccessCriteriaMet", "FailureTarget"])
def test_end_of_a_copy_is_not_announced_before_it_is_there(announced):
    """An API server keeps these conditions for ever, and the job may have to run once more."""
    local, far = live(suspend=False), live(suspend=False)
    soon = {"type": announced, "status": "True"}
    far["status"] = {"active": 1, "conditions": [soon]}
    assert batch.status_copy(local, far, now=NOW) == {"active": 1}
    far["status"] = {"conditions": [soon, {"type": "Complete", "status": "True"}]}
    assert batch.status_copy(local, far, now=NOW) == far["status"]


def test_start_time_stays_until_the_managers_own_job_is_suspended():
    local, far = live(managed=True, suspend=False), live()
    local["status"] = {"active": 1, "startTime": "s"}
    far["status"] = {"active": 0}
    assert status_after(local, far) == {"active": 0, "startTime": "s"}
    local["spec"]["suspend"] = True
    assert status_after(local, far) == {"active": 0}


def test_status_patch_replaces_maps_inside_maps():
    local = live()
    local["status"] = {"active": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}}
    wanted = {"active": 0, "uncountedTerminatedPods": {}}
    patch = remote.status_patch(local, wanted)
    assert merged(local, patch)["status"] == wanted
    assert patch["metadata"]["resourceVersion"] == "7"


def test_inactive_status_frees_a_job_whose_copy_is_gone():
    local = live()
    local["status"] = {"active": 3, "ready": 3, "startTime": "s", "failed": 1}
    freed = batch.inactive_status(local, now=NOW)
    assert (freed["active"], freed["failed"]) == (0, 1)
    assert "startTime" not in freed


def test_transition_time_moves_only_with_the_status():
    document = {"metadata": {}, "status": {"conditions": []}}
    first = with_conditions(document, [Condition("X", True, "A")], now=NOW)
    document["status"]["conditions"] = first
    later = NOW.replace(hour=13)
    same = with_conditions(document, [Condition("X", True, "B")], now=later)
    other = with_conditions(document, [Condition("X", False, "B")], now=later)
    assert same[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert other[0]["lastTransitionTime"] == "2026-03-01T13:00:00Z"


def decision(**changes: Any) -> Admit:
    fields = {
        "key": "ns/w",
        "admission": {"clusterQueue": "q"},
        "is_admitted": True,
        "checks": (),
        "message": "Quota reserved in ClusterQueue q",
    }
    return Admit(**(fields | changes))


def test_admit_patch_ends_an_eviction_and_is_guarded():
    workload = workload_of(live())
    evicted = {"type": "Evicted", "status": "True", "message": "m", "lastTransitionTime": "t"}
    workload["status"] = {"conditions": [evicted]}
    patch = status.admit_patch(workload, decision(), now=NOW)
    after = merged(workload, patch)
    assert patch["metadata"]["resourceVersion"] == "9"
    assert condition(after, "Evicted")["status"] == "False"
    assert condition(after, "Evicted")["message"] == "Previously: m"
    assert condition(after, "Admitted")["status"] == "True"


def test_admit_patch_with_open_checks_reserves_only():
    reserves = decision(is_admitted=False, checks=("mk",))
    open_checks = {"Admitted": ("False", "UnsatisfiedAdmissionChecks")}
    for is_fine, more in ((True, open_checks), (False, {})):
        patch = status.admit_patch(workload_of(live()), reserves, now=NOW, is_fine=is_fine)
        shown = {c["type"]: (c["status"], c["reason"]) for c in patch["status"]["conditions"]}
        assert shown == {"QuotaReserved": ("True", "QuotaReserved"), **more}
    [check] = patch["status"]["admissionChecks"]
    assert (check["name"], check["state"]) == ("mk", "Pending")


def test_evict_patch_resets_checks_and_counts():
    workload = workload_of(live())
    ready = {"name": "mk", "state": "Retry", "message": "x", "lastTransitionTime": "t"}
    workload["status"] = {"admissionChecks": [ready], "clusterName": "w1"}
    patch = status.evict_patch(workload, Evict("AdmissionCheck", "m"), now=NOW)
    after = merged(workload, patch)["status"]
    assert "clusterName" not in after
    [check] = after["admissionChecks"]
    assert check["state"] == "Pending"
    assert check["retryCount"] == 1
    assert check["message"] == "Reset to Pending after eviction. Previously: Retry"
    assert after["schedulingStats"]["evictions"][0]["count"] == 1


def test_release_patch_adds_up_the_time_that_the_job_ran():
    workload = workload_of(live())
    workload["status"] = {
        "admission": {"clusterQueue": "q"},
        "accumulatedPastExecutionTimeSeconds": 10,
        "conditions": [
            {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-03-01T11:59:30Z"},
            {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "m"},
        ],
    }
    after = merged(workload, status.release_patch(workload, now=NOW))
    assert "admission" not in after["status"]
    assert after["status"]["accumulatedPastExecutionTimeSeconds"] == 40
    assert condition(after, "Requeued")["status"] == "True"
    assert condition(after, "QuotaReserved")["reason"] == "Pending"


def test_image_keeps_the_newer_state_whatever_comes_in_last():
    image, old, new = JobCache(), live(), live()
    new["metadata"]["resourceVersion"] = "8"
    assert image.put(r.JOB, new)
    assert not image.put(r.JOB, old)
    assert image.drop(r.JOB, new)
    assert not image.put(r.JOB, old)
    assert image.jobs_for("acme-vision/none") == []


def test_a_copy_that_an_engine_wrote_back_with_empty_fields_is_still_as_it_was_sent():
    template = {"spec": {"containers": [{"name": "main", "image": "a"}]}}
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]}
    marks = {labels.SENT_DIGEST: remote.digest_of(spec)}
    written = {**template, "metadata": {}, "spec": {**template["spec"], "volumes": []}}
    again = {**spec, "podSets": [{"name": "main", "count": 1, "template": written}]}
    metadata = {"annotations": marks}
    assert remote.is_as_sent({"metadata": metadata, "spec": again})
    again["podSets"][0]["count"] = 2
    assert not remote.is_as_sent({"metadata": metadata, "spec": again})
    assert remote.is_as_sent({"metadata": {}, "spec": again})
