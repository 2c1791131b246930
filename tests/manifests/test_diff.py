"""Declared fields only, quantities by value, and who changed what."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clusters.manifests.diff import changes, is_ours, manager_of


def queue(nominal: str = "16") -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q", "labels": {"a": "1"}, "annotations": {"g": "2"}},
        "spec": {
            "stopPolicy": "None",
            "resourceGroups": [
                {
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": [
                        {
                            "name": "h100",
                            "resources": [{"name": "nvidia.com/gpu", "nominalQuota": nominal}],
                        }
                    ],
                }
            ],
        },
    }


NOMINAL = "spec.resourceGroups[0].flavors[h100].resources[nvidia.com/gpu].nominalQuota"


def live(**metadata: Any) -> dict[str, Any]:
    found = copy.deepcopy(queue())
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "finalizers": ["f"], **metadata}
    found["metadata"]["labels"]["somebody"] = "else"
    found["spec"]["queueingStrategy"] = "BestEffortFIFO"
    found["status"] = {"pendingWorkloads": 3}
    return found


def test_defaults_status_and_foreign_labels_are_no_difference() -> None:
    assert changes(queue(), live()) == ()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param("16", "16000m", id="thousandths"),
        pytest.param("2000", "2k", id="decimal suffix"),
        pytest.param("9223372036854775807", 9223372036854775807, id="a number"),
    ],
)
def test_equal_quantities_are_no_difference(wanted: str, found: object) -> None:
    other = live()
    other["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = found
    assert changes(queue(wanted), other) == ()


def test_a_changed_number_is_named_with_both_values() -> None:
    other = live()
    other["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "64"
    (change,) = changes(queue(), other)
    assert (change.path, change.wanted, change.found) == (NOMINAL, "16", "64")


def test_an_added_limit_inside_a_list_is_a_difference() -> None:
    other = live()
    other["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "9"
    (change,) = changes(queue(), other)
    assert change.path.endswith("resources[nvidia.com/gpu].borrowingLimit")
    assert (change.wanted, change.found) == (None, "9")


def test_an_added_flavor_is_named() -> None:
    other = live()
    flavors = other["spec"]["resourceGroups"][0]["flavors"]
    flavors.append({"name": "l4", "resources": []})
    (change,) = changes(queue(), other)
    assert (change.wanted, change.found) == (["h100"], ["h100", "l4"])


def test_a_removed_label_is_a_difference() -> None:
    other = live(labels={"somebody": "else"})
    (change,) = changes(queue(), other)
    assert (change.path, change.wanted, change.found) == ("metadata.labels.a", "1", None)


def entry(manager: str, time: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"manager": manager, "time": time, "fieldsV1": fields, **more}


OURS = entry("gpu-budget-portal", "2026-03-01T00:00:00Z", {"f:spec": {"f:stopPolicy": {}}})
THEIRS = entry(
    "kubectl-edit", "2026-03-02T00:00:00Z", {"f:spec": {"f:resourceGroups": {}}}, operation="Update"
)
STATUS = entry("kueue", "2026-03-03T00:00:00Z", {"f:status": {}}, subresource="status")


def test_the_owner_of_the_list_is_who_changed_a_number_in_it() -> None:
    other = live(managedFields=[OURS, THEIRS, STATUS])
    other["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "64"
    (change,) = changes(queue(), other)
    assert manager_of(change, other) == "kubectl-edit"


def test_a_field_that_we_own_ourselves_is_ours() -> None:
    other = live(managedFields=[OURS, THEIRS, STATUS])
    other["spec"]["stopPolicy"] = "Hold"
    (change,) = changes(queue(), other)
    assert is_ours(manager_of(change, other))


def test_a_field_that_is_gone_was_taken_by_the_last_writer() -> None:
    other = live(managedFields=[OURS, THEIRS, STATUS])
    del other["spec"]["stopPolicy"]
    (change,) = changes(queue(), other)
    assert manager_of(change, other) == "kubectl-edit"


def test_a_field_that_we_wrote_and_do_not_declare_any_more_is_a_difference() -> None:
    ours = entry("gpu-budget-portal", "2026-01-01T00:00:00Z", {"f:spec": {"f:fairSharing": {}}})
    other = live(managedFields=[{**ours, "operation": "Apply"}])
    other["spec"]["fairSharing"] = {"weight": "2"}
    (change,) = changes(queue(), other)
    assert (change.path, change.wanted, change.found) == (
        *("spec.fairSharing", None, {"weight": "2"}),
    )
    for entries in ([{**ours, "operation": "Update"}], [{**ours, "manager": "kubectl"}], []):
        other["metadata"]["managedFields"] = entries
        assert changes(queue(), other) == (), "somebody else's field is none of our business"
