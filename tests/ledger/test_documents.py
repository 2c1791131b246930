"""Workload documents → stored fields → facts."""

from __future__ import annotations

import copy
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
