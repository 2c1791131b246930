"""Bounds and messages of reading Workload documents, and what facts say of themselves."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from budgets.intervals import (
    Assignment,
    BadDocument,
    ClockSettings,
    ClockStart,
    Condition,
    PodSet,
    WorkloadFacts,
    needed_fields,
    read_payload,
)
from budgets.units import MOST_COUNTED_GPUS
from tests.ledger.story import at
from tests.ledger.test_documents import GPU, WORKLOAD, changed, facts_of

NO_WHOLE = "is not a whole number of devices"


def asking(quantity: Any) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"resources": {"requests": {GPU: quantity}}}]}}
    return changed("spec", "podSets", 0, "template", to=pod)


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        (0, 0),
        ("12", 12),
        ("2e3", 2000),
        ("2E+3", 2000),
        ("2e0", 2),
        ("1e12", 10**12),
        *((f"3{unit}", 3 * 1000**power) for power, unit in enumerate("kMGTPE", start=1)),
        *((f"3{unit}i", 3 * 1024**power) for power, unit in enumerate("KMGTPE", start=1)),
    ],
)
def test_quantity_of_whole_devices_is_read(quantity, want):
    assert needed_fields(asking(quantity))["spec"]["podSets"][0]["gpus"] == want


@pytest.mark.parametrize(
    "quantity",
    [
        "",
        "-1",
        "1.5",
        "500m",
        "1e-3",
        "2e",
        "1K",
        "1ki",
        "1mi",
        "2e100",
        "٣",
        " 1",
        "1 ",
        1.5,
        None,
    ],
)
def test_quantity_of_no_whole_devices_is_told(quantity):
    with pytest.raises(BadDocument) as refused:
        needed_fields(asking(quantity))
    assert str(refused.value) == f"request of {GPU}: {str(quantity)!r} {NO_WHOLE}"


def assigned(*sets: dict[str, Any]) -> dict[str, Any]:
    return changed("status", "admission", "podSetAssignments", to=list(sets))


def assignment(name: str = "main", gpus: Any = "8", **more: Any) -> dict[str, Any]:
    given = {"flavors": {GPU: "h100"}, "resourceUsage": {GPU: gpus}, "count": 4, **more}
    return {"name": name, **given}


def test_most_devices_that_anybody_has_are_counted_and_no_more():
    (found,) = facts_of(assigned(assignment(gpus=MOST_COUNTED_GPUS))).assignments
    assert found.gpus == 2**31 - 1
    with pytest.raises(BadDocument) as refused:
        facts_of(assigned(assignment(gpus=2**31)))
    assert str(refused.value) == "resourceUsage of main: nobody has 2147483648 devices"
    with pytest.raises(BadDocument) as refused:
        facts_of(assigned(assignment(gpus="half")))
    assert str(refused.value) == f"resourceUsage of main: 'half' {NO_WHOLE}"


def test_assignments_are_sorted_and_what_they_do_not_say_is_nothing():
    document = assigned(
        assignment("tail", "2"),
        assignment("bare", count=None, resourceUsage=None),
        {"name": "none"},
        assignment("other", flavors={"cpu": "host"}),
    )
    assert facts_of(document).assignments == (
        Assignment("bare", "h100", 0, 0),
        Assignment("tail", "h100", 4, 2),
    )
    assert facts_of(changed("status", "admission", to={"clusterQueue": "q"})).assignments == ()


@pytest.mark.parametrize(
    ("statistics", "want"),
    [
        (None, 0),
        ({}, 0),
        ({"evictions": None}, 0),
        ({"evictions": [{"count": 2}, {"reason": "Preempted"}, {"count": 3}]}, 5),
        ({"evictions": [{"count": MOST_COUNTED_GPUS}, {"count": 1}]}, MOST_COUNTED_GPUS),
    ],
)
def test_evictions_add_up_within_what_is_stored(statistics, want):
    assert facts_of(changed("status", "schedulingStats", to=statistics)).evictions == want


def test_reclaimable_pods_and_conditions_are_sorted():
    rows = [{"name": "tail", "count": 2}, {"name": "head", "count": "1"}]
    document = changed("status", "reclaimablePods", to=rows)
    time = "2026-05-04T10:00:05Z"
    document["status"]["conditions"] = [
        {"type": "QuotaReserved", "status": "True", "lastTransitionTime": time, "reason": None},
        {"type": "Admitted", "status": "False", "lastTransitionTime": time, "reason": "No"},
        {"status": "Unknown", "lastTransitionTime": time},
    ]
    facts = facts_of(document)
    assert facts.reclaimable == (("head", 1), ("tail", 2))
    assert facts.conditions == (
        Condition("", False, at(5), ""),
        Condition("Admitted", False, at(5), "No"),
        Condition("QuotaReserved", True, at(5), ""),
    )


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, (True, 0, ""), id="not there"),
        pytest.param({"active": None, "priority": None}, (True, 0, ""), id="null"),
        pytest.param({"active": False, "priority": -5}, (False, -5, ""), id="stopped"),
        pytest.param({"queueName": "q", "priority": "7"}, (True, 7, "q"), id="of a queue"),
    ],
)
def test_what_a_spec_does_not_say_is_the_usual(given, want):
    facts = facts_of(changed("spec", to=given))
    assert (facts.is_active, facts.priority, facts.queue) == want
    assert facts.pod_sets == ()


NO_TIME, NO_RFC = "there is no time", "is not an RFC 3339 time"
NO_ZONE, NO_YEAR = "has no time zone", "lies in no year that anything is metered in"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, NO_TIME),
        (5, NO_TIME),
        ("soon", f"'soon' {NO_RFC}"),
        ("2026-05-04T10:00:00", f"'2026-05-04T10:00:00' {NO_ZONE}"),
        ("1999-12-31T23:59:59Z", f"'1999-12-31T23:59:59Z' {NO_YEAR}"),
        ("2200-01-01T00:00:00Z", f"'2200-01-01T00:00:00Z' {NO_YEAR}"),
    ],
)
def test_time_that_cannot_be_read_is_told_with_its_field(text, want):
    def told(document: dict[str, Any]) -> str:
        with pytest.raises(BadDocument) as refused:
            facts_of(document)
        return str(refused.value)

    created = changed("metadata", "creationTimestamp", to=text)
    assert told(created) == f"creationTimestamp: {want}"
    condition = changed("status", "conditions", 0, "lastTransitionTime", to=text)
    assert told(condition) == f"condition QuotaReserved: {want}"
    if text is not None:
        deleted = changed("metadata", "deletionTimestamp", to=text)
        assert told(deleted) == f"deletionTimestamp: {want}"


@pytest.mark.parametrize("text", ["2000-01-01T00:00:00Z", "2199-12-31T23:59:59.999999Z"])
def test_years_that_are_metered_are_read_in_whole_seconds(text):
    found = facts_of(changed("metadata", "creationTimestamp", to=text)).created_at
    assert found.isoformat() == text[:19] + "+00:00"


def test_deletion_time_that_cannot_be_read_is_stood_in_for_and_told():
    told: list[str] = []

    def stand_in(text: str):
        told.append(text)
        return at(9)

    payload = json.dumps(needed_fields(changed("metadata", "deletionTimestamp", to="now")))
    facts = read_payload(payload, unread=stand_in).facts
    assert (facts.created_at, facts.deleting_since, told) == (
        at(0),
        at(9),
        ["deletionTimestamp: 'now'"],
    )


def test_payload_says_what_was_watched_and_when_a_job_ended():
    payload = needed_fields(WORKLOAD)
    plain = read_payload(json.dumps(payload))
    assert (plain.after_gap, plain.completed_at) == (False, None)
    more = {**payload, "afterGap": True, "completedAt": "2026-05-04T10:01:00Z"}
    told = read_payload(json.dumps(more))
    assert (told.after_gap, told.completed_at) == (True, at(60))
    with pytest.raises(BadDocument) as refused:
        _ = read_payload(json.dumps({**payload, "completedAt": "soon"})).completed_at
    assert str(refused.value) == f"completedAt: 'soon' {NO_RFC}"


@pytest.mark.parametrize("payload", ["", "[]", "{}", '{"metadata": {}, "spec": {}, "status": 1}'])
def test_text_that_is_no_payload_is_told_with_its_cause(payload):
    with pytest.raises(BadDocument) as refused:
        read_payload(payload)
    assert refused.value.__cause__ is not None
    assert str(refused.value) == str(refused.value.__cause__)


def test_devices_of_other_resources_are_no_devices():
    document = copy.deepcopy(WORKLOAD)
    fields = needed_fields(document, gpu_resources={"amd.com/gpu"})
    assert fields["spec"]["podSets"] == [{"name": "main", "count": 4, "gpus": 0}]
    facts = read_payload(json.dumps(fields), gpu_resources={"amd.com/gpu"}).facts
    assert facts.assignments == ()


# Facts


def told(**more: Any) -> WorkloadFacts:
    return WorkloadFacts("acme-vision", "train", at(0), **more)


@pytest.mark.parametrize(
    ("sets", "want"),
    [
        ((), 0),
        ((PodSet("a", 2, 3), PodSet("b", 1, 4)), 10),
        ((PodSet("a", 2**31, 1),), 2**31 - 1),
    ],
)
def test_requested_gpus_add_up_within_what_is_stored(sets, want):
    assert told(pod_sets=sets).requested_gpus == want


@pytest.mark.parametrize(
    ("sets", "reclaimable", "want"),
    [
        pytest.param((), (), 4, id="as admitted"),
        pytest.param((PodSet("main", 6, 1),), (), 4, id="fewer than it asked for"),
        pytest.param((PodSet("main", 3, 1),), (), 3, id="it shrank"),
        pytest.param((PodSet("tail", 1, 1),), (("tail", 9),), 4, id="another pod set"),
        pytest.param((PodSet("main", 3, 1),), (("main", 1),), 2, id="some are done"),
        pytest.param((), (("main", 5),), 0, id="never fewer than none"),
    ],
)
def test_pods_that_still_need_their_devices(sets, reclaimable, want):
    facts = told(pod_sets=sets, reclaimable=reclaimable)
    assert facts.pods_kept(Assignment("main", "h100", 4, 8)) == want


def test_condition_is_found_by_its_type():
    on, off = Condition("Admitted", True, at(3)), Condition("Evicted", False, at(4))
    facts = told(conditions=(on, off))
    assert [facts.condition(kind) for kind in ("Admitted", "Evicted", "X")] == [on, off, None]
    assert [facts.true_since(kind) for kind in ("Admitted", "Evicted", "X")] == [at(3), None, None]


def test_clock_of_an_admission_is_that_of_its_reservation():
    dated = [(at(20), ClockStart.PODS_READY), (at(10), ClockStart.QUOTA_RESERVED)]
    clock = ClockSettings({"h100": dated}, default=ClockStart.ADMITTED)
    found = [clock.start_of("h100", reserved_at=at(second)) for second in (9, 10, 19, 20, 99)]
    assert [start.value for start in found] == [
        "Admitted",
        "QuotaReserved",
        "QuotaReserved",
        "PodsReady",
        "PodsReady",
    ]
    assert clock.start_of("l4", reserved_at=at(99)) is ClockStart.ADMITTED
