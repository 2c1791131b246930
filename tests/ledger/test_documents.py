"""Workload documents → stored fields → facts."""

from __future__ import annotations

import copy
import hashlib
import json

import pytest

from budgets.intervals import (
    Assignment,
    BadDocument,
    Condition,
    PodSet,
    WorkloadFacts,
    digest_of,
    needed_fields,
    read_payload,
)
from tests.ledger.story import at

GPU = "nvidia.com/gpu"
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {
        "name": "job-train-1a2b3",
        "namespace": "acme-vision",
        "uid": "u1",
        "resourceVersion": "77",
        "creationTimestamp": "2026-05-04T10:00:00Z",
        "labels": {"kueue.x-k8s.io/multikueue-origin": "portal-1", "team": "secret"},
        "annotations": {
            "kueue.x-k8s.io/multikueue-origin-uid": "m1",
            "kueue.x-k8s.io/workload-slice-replacement-for": "acme-vision/old",
        },
        "ownerReferences": [
            {"kind": "Job", "name": "train", "uid": "j1", "controller": True, "apiVersion": "x"}
        ],
    },
    "spec": {
        "queueName": "default",
        "priority": 5,
        "active": True,
        "podSets": [
            {
                "name": "main",
                "count": 4,
                "template": {
                    "spec": {
                        "initContainers": [
                            {"name": "i", "resources": {"requests": {GPU: "1"}}},
                        ],
                        "containers": [
                            {
                                "name": "c",
                                "env": [{"name": "TOKEN", "value": "hunter2"}],
                                "resources": {"limits": {GPU: 2}, "requests": {"cpu": "500m"}},
                            }
                        ],
                    }
                },
            }
        ],
    },
    "status": {
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "lastTransitionTime": "2026-05-04T10:00:05Z",
                "reason": "QuotaReserved",
                "message": "m",
            }
        ],
        "admission": {
            "clusterQueue": "acme-vision",
            "podSetAssignments": [
                {
                    "name": "main",
                    "count": 4,
                    "flavors": {"cpu": "host", GPU: "h100"},
                    "resourceUsage": {"cpu": "2", GPU: "8"},
                }
            ],
        },
        "reclaimablePods": [{"name": "main", "count": 1}],
        "clusterName": "west",
        "schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]},
    },
}


def facts_of(document: dict) -> WorkloadFacts:
    return read_payload(json.dumps(needed_fields(document))).facts


def test_facts_of_a_workload():
    facts = facts_of(WORKLOAD)
    assert (facts.namespace, facts.name, facts.created_at) == (
        "acme-vision",
        "job-train-1a2b3",
        at(0),
    )
    assert facts.pod_sets == (PodSet("main", 4, 2),)
    assert facts.assignments == (Assignment("main", "h100", 4, 8),)
    assert facts.conditions == (Condition("QuotaReserved", True, at(5), "QuotaReserved"),)
    assert (facts.origin, facts.manager_uid, facts.replaces) == (
        "portal-1",
        "m1",
        "acme-vision/old",
    )
    assert (facts.cluster_name, facts.cluster_queue, facts.queue) == (
        "west",
        "acme-vision",
        "default",
    )
    assert (facts.job_kind, facts.job_name, facts.job_uid) == ("Job", "train", "j1")
    assert (facts.priority, facts.reclaimable, facts.evictions) == (5, (("main", 1),), 2)
    assert facts.variant_of == ""


def changed(*path: str | int, to: object) -> dict:
    document = copy.deepcopy(WORKLOAD)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return document


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(WORKLOAD, id="the same again"),
        pytest.param(changed("metadata", "deletionTimestamp", to="2026-05-04T11:00:00Z"), id="del"),
        pytest.param(changed("spec", "priority", to=9), id="priority"),
        pytest.param(changed("spec", "active", to=False), id="deactivated"),
        pytest.param(changed("status", "admission", to=None), id="released"),
        pytest.param(changed("status", "reclaimablePods", to=[]), id="nothing to reclaim"),
        pytest.param(changed("status", "clusterName", to="east"), id="another worker"),
        pytest.param(changed("status", "schedulingStats", to=None), id="no statistics"),
        pytest.param(changed("status", "conditions", 0, "status", to="False"), id="condition"),
        pytest.param(
            changed("status", "admission", "podSetAssignments", 0, "resourceUsage", GPU, to="4"),
            id="fewer devices",
        ),
    ],
)
def test_state_read_by_the_one_before_says_the_same(after: dict):
    first, second = json.dumps(needed_fields(WORKLOAD)), json.dumps(needed_fields(after))
    for one, other in ((first, second), (second, first)):
        assert read_payload(other, before=read_payload(one)) == read_payload(other)


def test_what_is_written_as_in_the_state_before_is_not_read_again():
    ended = changed("status", "conditions", 0, "status", to="False")
    before = read_payload(json.dumps(needed_fields(WORKLOAD)))
    after = read_payload(json.dumps(needed_fields(ended)), before=before)
    assert after.facts != before.facts
    assert after.facts.pod_sets is before.facts.pod_sets
    assert after.facts.assignments is before.facts.assignments


def test_stored_fields_hold_no_pod_and_no_foreign_label():
    text = json.dumps(needed_fields(WORKLOAD))
    assert "hunter2" not in text
    assert "secret" not in text


def test_bare_workload_is_read():
    bare = {"metadata": {"name": "w", "creationTimestamp": "2026-05-04T10:00:00Z"}}
    facts = facts_of(bare)
    assert (facts.pod_sets, facts.assignments, facts.conditions) == ((), (), ())


def test_workload_of_a_workload_is_a_variant():
    document = copy.deepcopy(WORKLOAD)
    document["metadata"]["ownerReferences"][0]["kind"] = "Workload"
    assert facts_of(document).variant_of == "j1"


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            lambda d: d["metadata"].pop("creationTimestamp"), "creationTimestamp", id="no time"
        ),
        pytest.param(
            lambda d: d["status"]["conditions"][0].update(lastTransitionTime="soon"),
            "condition QuotaReserved",
            id="no RFC 3339",
        ),
        pytest.param(
            lambda d: d["status"]["admission"]["podSetAssignments"][0]["resourceUsage"].update(
                {GPU: "500m"}
            ),
            "resourceUsage of main",
            id="half a device",
        ),
    ],
)
def test_document_that_cannot_be_read_names_the_field(change, want):
    document = copy.deepcopy(WORKLOAD)
    change(document)
    with pytest.raises(BadDocument, match=want):
        facts_of(document)


@pytest.mark.parametrize(("quantity", "want"), [("8", 8), (8, 8), ("2k", 2000), ("1Ki", 1024)])
def test_device_counts_are_read_as_kubernetes_writes_them(quantity, want):
    document = copy.deepcopy(WORKLOAD)
    document["status"]["admission"]["podSetAssignments"][0]["resourceUsage"][GPU] = quantity
    assert facts_of(document).assignments[0].gpus == want


def test_digest_does_not_depend_on_the_order_of_keys():
    payload = needed_fields(WORKLOAD)
    backwards = json.loads(json.dumps(payload), object_pairs_hook=lambda p: dict(reversed(p)))
    assert digest_of(backwards) == digest_of(payload)
    assert digest_of({**payload, "afterGap": True}) != digest_of(payload)


def test_pod_sets_are_named_and_ask_for_what_they_request():
    """A limit stands for a request that is not there; a pod set without a name is the main one."""
    both = {"limits": {GPU: 9}, "requests": {GPU: "3"}}
    asked = [{"requests": {GPU: "1"}}, {"limits": {GPU: 2}}, both]
    document = copy.deepcopy(WORKLOAD)
    document["spec"]["podSets"] = [
        {"template": {"spec": {"containers": [{"resources": {"limits": {GPU: 1}}}]}}},
        {
            "name": "tail",
            "count": 2,
            "template": {"spec": {"containers": [{"resources": row} for row in asked]}},
        },
    ]
    document["status"]["admission"]["podSetAssignments"] = [
        {"flavors": {GPU: "h100"}, "resourceUsage": {GPU: "1"}},
        {"name": "tail", "count": 2, "flavors": {GPU: "l4"}, "resourceUsage": {GPU: "12"}},
    ]
    payload = needed_fields(document)
    assert payload["spec"]["podSets"] == [
        {"name": "main", "count": 0, "gpus": 1},
        {"name": "tail", "count": 2, "gpus": 6},
    ]
    facts = facts_of(document)
    assert facts.pod_sets == (PodSet("main", 0, 1), PodSet("tail", 2, 6))
    assert facts.assignments == (
        Assignment("main", "h100", 0, 1),
        Assignment("tail", "l4", 2, 12),
    )


def test_stored_fields_are_these_and_no_more():
    fields = needed_fields(WORKLOAD)
    assert fields == {
        "metadata": {
            "name": "job-train-1a2b3",
            "namespace": "acme-vision",
            "uid": "u1",
            "creationTimestamp": "2026-05-04T10:00:00Z",
            "labels": {"kueue.x-k8s.io/multikueue-origin": "portal-1"},
            "annotations": WORKLOAD["metadata"]["annotations"],
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j1", "controller": True}],
        },
        "spec": {
            "queueName": "default",
            "priority": 5,
            "active": True,
            "podSets": [{"name": "main", "count": 4, "gpus": 2}],
        },
        "status": {
            "reclaimablePods": [{"name": "main", "count": 1}],
            "clusterName": "west",
            "schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]},
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "True",
                    "lastTransitionTime": "2026-05-04T10:00:05Z",
                    "reason": "QuotaReserved",
                }
            ],
            "admission": WORKLOAD["status"]["admission"],
        },
    }
    deleted = changed("metadata", "deletionTimestamp", to="2026-05-04T11:00:00Z")
    assert needed_fields(deleted)["metadata"]["deletionTimestamp"] == "2026-05-04T11:00:00Z"
    assert needed_fields({}) == {
        "metadata": {"labels": {}, "annotations": {}, "ownerReferences": []},
        "spec": {"podSets": []},
        "status": {"conditions": []},
    }


def test_facts_of_a_bare_and_of_a_stopped_workload_are_these_and_no_more():
    bare = {"metadata": {"creationTimestamp": "2026-05-04T10:00:00Z"}}
    assert facts_of(bare) == WorkloadFacts(namespace="", name="", created_at=at(0))
    document = changed("metadata", "deletionTimestamp", to="2026-05-04T12:00:00.5+02:00")
    document["spec"]["active"] = False
    document["metadata"]["ownerReferences"][0]["kind"] = "Workload"
    assert facts_of(document) == WorkloadFacts(
        namespace="acme-vision",
        name="job-train-1a2b3",
        created_at=at(0),
        deleting_since=at(0),
        queue="default",
        priority=5,
        job_kind="Workload",
        job_name="train",
        job_uid="j1",
        is_active=False,
        pod_sets=(PodSet("main", 4, 2),),
        conditions=(Condition("QuotaReserved", True, at(5), "QuotaReserved"),),
        cluster_queue="acme-vision",
        assignments=(Assignment("main", "h100", 4, 8),),
        reclaimable=(("main", 1),),
        origin="portal-1",
        manager_uid="m1",
        cluster_name="west",
        replaces="acme-vision/old",
        variant_of="j1",
        evictions=2,
    )


def test_owner_is_the_controller_else_the_first():
    first, second = {"kind": "Job", "uid": "a"}, {"kind": "JobSet", "uid": "b", "name": "n"}
    owners = [first, {**second, "controller": True}]
    facts = facts_of(changed("metadata", "ownerReferences", to=owners))
    assert (facts.job_kind, facts.job_name, facts.job_uid) == ("JobSet", "n", "b")
    facts = facts_of(changed("metadata", "ownerReferences", to=[first, second]))
    assert (facts.job_kind, facts.job_name, facts.job_uid) == ("Job", "", "a")


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param({"containers": [1, 2]}, 3, id="containers add up"),
        pytest.param({"initContainers": [4, 5], "containers": [1, 2]}, 5, id="the largest start"),
        pytest.param({"initContainers": [2, 1], "containers": [1, 2]}, 3, id="a smaller start"),
        pytest.param({"sidecars": [4, 1], "containers": [2]}, 7, id="sidecars run beside"),
        pytest.param({"sidecars": [1], "initContainers": [5], "containers": [2]}, 5, id="all"),
    ],
)
def test_devices_of_a_pod_are_what_it_needs_at_once(pod, want):
    def rows(name: str, **more: str) -> list[dict]:
        return [{"resources": {"requests": {GPU: n}}, **more} for n in pod.get(name, ())]

    spec = {"containers": rows("containers")}
    spec["initContainers"] = rows("initContainers") + rows("sidecars", restartPolicy="Always")
    fields = needed_fields(changed("spec", "podSets", 0, "template", to={"spec": spec}))
    assert fields["spec"]["podSets"] == [{"name": "main", "count": 4, "gpus": want}]


def test_devices_of_several_resources_add_up():
    requests = {"resources": {"requests": {GPU: 1, "amd.com/gpu": "2"}}}
    document = changed(
        "spec", "podSets", 0, "template", to={"spec": {"containers": [requests] * 2}}
    )
    document["status"]["admission"]["podSetAssignments"][0] |= {
        "flavors": {GPU: "h100", "amd.com/gpu": "h100", "cpu": "host"},
        "resourceUsage": {GPU: 8, "amd.com/gpu": "16", "cpu": "2"},
    }
    resources = {GPU, "amd.com/gpu"}
    fields = needed_fields(document, gpu_resources=resources)
    facts = read_payload(json.dumps(fields), gpu_resources=resources).facts
    assert facts.pod_sets == (PodSet("main", 4, 6),)
    assert facts.assignments == (Assignment("main", "h100", 4, 24),)


def test_times_that_cannot_be_read_are_stood_in_for_and_told():
    document = changed("metadata", "creationTimestamp", to="soon")
    document["status"]["conditions"][0]["lastTransitionTime"] = "later"
    told: list[str] = []

    def stand_in(text: str):
        told.append(text)
        return at(9)

    payload = json.dumps(needed_fields(document))
    facts = read_payload(payload, unread=stand_in).facts
    assert facts.created_at == at(9)
    assert facts.conditions == (Condition("QuotaReserved", True, at(9), "QuotaReserved"),)
    assert told[0] == "creationTimestamp: 'soon'"
    assert [json.loads(text)["lastTransitionTime"] for text in told[1:]] == ["later"]
    whole = read_payload(json.dumps(needed_fields(WORKLOAD)), unread=stand_in)
    assert (whole.facts, len(told)) == (facts_of(WORKLOAD), 2)


def test_digest_is_that_of_the_sorted_ascii_text():
    text = b'{"a":{"d":"\\u00f6","e":[1,2]},"b":1}'
    payload = {"b": 1, "a": {"e": [1, 2], "d": "ö"}}
    assert digest_of(payload) == hashlib.sha256(text).hexdigest()
