"""What Kueue's webhooks deny, as the embedded cluster denies it (403, as the real ones do)."""

from __future__ import annotations

from typing import Any

import pytest

from clusters import errors
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from tests.kube.documents import STAMP, cluster_queue, condition, quota, workload

STATUS = WriteOptions(subresource="status")
GPU = "nvidia.com/gpu"


def groups(*quotas: Any, covered: tuple[str, ...] = (GPU,), flavor: str = "h100") -> list[Any]:
    flavors = [{"name": flavor, "resources": list(quotas)}]
    return [{"coveredResources": list(covered), "flavors": flavors}]


CASES = [
    pytest.param(
        r.CLUSTER_QUEUE,
        {"resourceGroups": groups(quota(GPU, "-1"))},
        "nominalQuota",
        "must be greater than or equal to 0",
        id="negative quota",
    ),
    pytest.param(
        r.CLUSTER_QUEUE,
        {"resourceGroups": groups(quota(GPU, "1", lendingLimit="1"))},
        "lendingLimit",
        "must be nil when cohort is empty",
        id="lending without a cohort",
    ),
    pytest.param(
        r.CLUSTER_QUEUE,
        {"cohortName": "c", "resourceGroups": groups(quota(GPU, "1", lendingLimit="2"))},
        "lendingLimit",
        "must be less than or equal to the nominalQuota",
        id="lending more than nominal",
    ),
    pytest.param(
        r.CLUSTER_QUEUE,
        {"resourceGroups": groups(quota("cpu", "1"), quota(GPU, "1"), covered=(GPU, "cpu"))},
        "resourceGroups[0].flavors[0]",
        "must match",
        id="order of resources",
    ),
    pytest.param(
        r.CLUSTER_QUEUE,
        {"resourceGroups": groups(quota(GPU, "1")) + groups(quota(GPU, "1"), flavor="a100")},
        "coveredResources[0]",
        "Duplicate value",
        id="resource in two groups",
    ),
    pytest.param(
        r.CLUSTER_QUEUE,
        {"resourceGroups": groups(quota(GPU, "1")) + groups(quota("cpu", "1"), covered=("cpu",))},
        "flavors[0].name",
        "Duplicate value",
        id="flavor in two groups",
    ),
    pytest.param(
        r.CLUSTER_QUEUE, {"fairSharing": {"weight": "-1"}}, "fairSharing", "", id="negative weight"
    ),
    pytest.param(
        r.CLUSTER_QUEUE,
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["nope"]}]}},
        "admissionChecksStrategy",
        "",
        id="check on a foreign flavor",
    ),
    pytest.param(
        r.COHORT,
        {"resourceGroups": groups(quota(GPU, "1", borrowingLimit="1"))},
        "borrowingLimit",
        "must be nil when parent is empty",
        id="cohort borrowing without a parent",
    ),
    pytest.param(
        r.RESOURCE_FLAVOR,
        {
            "nodeTaints": [
                {"key": "a", "effect": "NoSchedule"},
                {"key": "a", "value": "b", "effect": "NoSchedule"},
            ]
        },
        "nodeTaints[1]",
        "Duplicate value",
        id="taint twice",
    ),
]


def check_denied(
    client: KubeClient, resource: r.Resource, spec: Any, where: str, what: str
) -> None:
    """Creates and expects a denial that names the field; used against a real Kueue as well."""
    with pytest.raises(errors.AdmissionDenied) as caught:
        client.create(resource, {"metadata": {"name": "denied"}, "spec": spec})
    assert caught.value.status_code == 403
    assert f'admission webhook "v{resource.kind.lower()}.kb.io" denied' in caught.value.message
    assert where in caught.value.message
    assert what in caught.value.message


@pytest.mark.parametrize(("resource", "spec", "where", "what"), CASES)
def test_webhook_denies(
    client: KubeClient, resource: r.Resource, spec: Any, where: str, what: str
) -> None:
    check_denied(client, resource, spec, where, what)


def test_cohort_may_lend_more_than_its_own_quota(client: KubeClient) -> None:
    spec = {"parentName": "p", "resourceGroups": groups(quota(GPU, "1", lendingLimit="9"))}
    made = client.create(r.COHORT, {"metadata": {"name": "c"}, "spec": spec})
    assert made["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] == "9"


def reserved(client: KubeClient) -> None:
    client.create(r.WORKLOAD, workload("default", "w", count=2))
    assignment = {"name": "main", "flavors": {GPU: "h100"}, "resourceUsage": {GPU: "2"}, "count": 2}
    admission = {"clusterQueue": "q", "podSetAssignments": [assignment]}
    status = {"admission": admission, "conditions": [condition("QuotaReserved")]}
    client.patch(r.WORKLOAD, "w", {"status": status}, namespace="default", options=STATUS)


def denied_status(client: KubeClient, status: Any) -> str:
    with pytest.raises(errors.AdmissionDenied) as caught:
        client.patch(r.WORKLOAD, "w", {"status": status}, namespace="default", options=STATUS)
    return caught.value.message


def test_workload_reservation_needs_an_admission(client: KubeClient) -> None:
    client.create(r.WORKLOAD, workload("default", "w"))
    message = denied_status(client, {"conditions": [condition("QuotaReserved")]})
    assert "status.admission" in message


def test_workload_usage_is_a_multiple_of_its_count(client: KubeClient) -> None:
    client.create(r.WORKLOAD, workload("default", "w", count=2))
    assignment = {"name": "main", "flavors": {GPU: "h100"}, "resourceUsage": {GPU: "3"}, "count": 2}
    admission = {"clusterQueue": "q", "podSetAssignments": [assignment]}
    message = denied_status(
        client, {"admission": admission, "conditions": [condition("QuotaReserved")]}
    )
    assert "is not a multiple of 2" in message


def test_workload_is_fixed_under_reservation(client: KubeClient) -> None:
    reserved(client)
    with pytest.raises(errors.AdmissionDenied) as caught:
        body = {"spec": {"podSets": workload("default", "w", count=1)["spec"]["podSets"]}}
        client.patch(r.WORKLOAD, "w", body, namespace="default")
    assert "spec.podSets" in caught.value.message
    message = denied_status(client, {"admission": {"clusterQueue": "other"}})
    assert "status.admission" in message


def test_workload_cluster_must_have_been_nominated(client: KubeClient) -> None:
    reserved(client)
    message = denied_status(client, {"clusterName": "w1"})
    assert "when setting clusterName it must be one of the nominatedClusterNames" in message
    nominated = {"nominatedClusterNames": ["w1", "w2"]}
    client.patch(r.WORKLOAD, "w", {"status": nominated}, namespace="default", options=STATUS)
    chosen = {"nominatedClusterNames": None, "clusterName": "w1"}
    done = client.patch(r.WORKLOAD, "w", {"status": chosen}, namespace="default", options=STATUS)
    assert done["status"]["clusterName"] == "w1"


def test_workload_pod_set_updates_are_fixed_while_ready(client: KubeClient) -> None:
    reserved(client)
    check = {"name": "a", "state": "Ready", "message": "", "lastTransitionTime": STAMP}
    client.patch(
        r.WORKLOAD,
        "w",
        {"status": {"admissionChecks": [check]}},
        namespace="default",
        options=STATUS,
    )
    changed = check | {"podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}
    assert "podSetUpdates" in denied_status(client, {"admissionChecks": [changed]})


def test_cluster_queue_with_every_shape_the_portal_writes_is_accepted(
    client: KubeClient,
) -> None:
    unlimited = "9223372036854775807"
    spec: dict[str, Any] = {
        "cohortName": "acme",
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["acme-nlp"]}
            ]
        },
        "resourceGroups": [
            *groups(quota(GPU, "16", borrowingLimit="0", lendingLimit="16")),
            *groups(
                quota("cpu", unlimited),
                quota("memory", unlimited),
                covered=("cpu", "memory"),
                flavor="host",
            ),
        ],
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    }
    made = client.create(r.CLUSTER_QUEUE, cluster_queue("acme-nlp") | {"spec": spec})
    assert made["metadata"]["generation"] == 1
