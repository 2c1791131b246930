"""The contract suite, part two: what both kinds of API server refuse, and with which causes.

Every test runs on the embedded server and on a real kube-apiserver. Where they differ, the real
one is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clusters import errors
from clusters.kube import resources as r
from clusters.kube.client import (
    KubeClient,
    WriteOptions,
)
from clusters.kube.transport import Call
from tests.kube.documents import condition, config_map, job, quota, workload
from tests.resources import TOPOLOGY

Unique = Callable[[str], str]
STATUS = WriteOptions(subresource="status")


def _flavors(*quotas: Any) -> list[Any]:
    return [{"name": "h100", "resources": list(quotas)}]


@pytest.mark.parametrize(
    ("resource", "spec", "want_fields", "want_reason"),
    [
        pytest.param(
            r.CLUSTER_QUEUE,
            {"stopPolicy": "Pause"},
            {"spec.stopPolicy"},
            "FieldValueNotSupported",
            id="enum",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {"cohortName": "Not A Name"},
            {"spec.cohortName"},
            "FieldValueInvalid",
            id="pattern",
        ),
        pytest.param(
            r.CLUSTER_QUEUE, {"queueingStrategy": 3}, {"spec.queueingStrategy"}, None, id="type"
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["gpu"],
                        "flavors": _flavors(quota("gpu", "1", borrowingLimit="1")),
                    }
                ]
            },
            {"spec"},
            "FieldValueInvalid",
            id="borrowing without a cohort",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {
                "resourceGroups": [
                    {"coveredResources": ["gpu", "cpu"], "flavors": _flavors(quota("gpu", "1"))}
                ]
            },
            {"spec.resourceGroups[0]"},
            "FieldValueInvalid",
            id="fewer resources than covered",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {
                "resourceGroups": [
                    {"coveredResources": ["gpu"], "flavors": _flavors({"name": "gpu"})}
                ]
            },
            {"spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"},
            "FieldValueRequired",
            id="quota missing",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {
                "resourceGroups": [
                    {"coveredResources": ["gpu"], "flavors": _flavors(quota("gpu", "1")) * 2}
                ]
            },
            {"spec.resourceGroups[0].flavors[1]"},
            "FieldValueDuplicate",
            id="flavor twice",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {
                "preemption": {
                    "reclaimWithinCohort": "Never",
                    "borrowWithinCohort": {"policy": "LowerPriority"},
                }
            },
            {"spec.preemption"},
            "FieldValueInvalid",
            id="borrowing preemption without reclaim",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {
                "flavorFungibility": {
                    "whenCanBorrow": "MayStopSearch",
                    "preference": "BorrowingOverPreemption",
                }
            },
            {"spec.flavorFungibility"},
            "FieldValueInvalid",
            id="preference without both",
        ),
        pytest.param(
            r.CLUSTER_QUEUE,
            {"admissionChecksStrategy": {"admissionChecks": []}},
            {"spec.admissionChecksStrategy.admissionChecks"},
            "FieldValueInvalid",
            id="no checks",
        ),
        pytest.param(
            r.MULTIKUEUE_CONFIG,
            {"clusters": []},
            {"spec.clusters"},
            "FieldValueInvalid",
            id="no clusters",
        ),
        pytest.param(r.MULTIKUEUE_CONFIG, {"clusters": ["a", "a"]}, None, None, id="cluster twice"),
        pytest.param(
            r.MULTIKUEUE_CONFIG,
            {"clusters": [f"c{i}" for i in range(21)]},
            {"spec.clusters"},
            "FieldValueTooMany",
            id="21 clusters",
        ),
        pytest.param(
            r.MULTIKUEUE_CLUSTER, {}, {"spec.clusterSource"}, "FieldValueRequired", id="no source"
        ),
        pytest.param(
            r.MULTIKUEUE_CLUSTER,
            {"clusterSource": {}},
            {"spec.clusterSource"},
            "FieldValueInvalid",
            id="empty source",
        ),
        pytest.param(
            r.ADMISSION_CHECK,
            {"controllerName": ""},
            {"spec.controllerName"},
            "FieldValueInvalid",
            id="no controller",
        ),
        pytest.param(
            r.ADMISSION_CHECK,
            {
                "controllerName": "x",
                "parameters": {"apiGroup": "a.b", "kind": "K", "name": "dotted.name"},
            },
            {"spec.parameters.name"},
            "FieldValueInvalid",
            id="dotted parameter name",
        ),
        pytest.param(
            r.RESOURCE_FLAVOR,
            {"topologyName": "rack"},
            None,
            "FieldValueInvalid",
            id="topology without labels",
        ),
        pytest.param(
            r.RESOURCE_FLAVOR,
            {"tolerations": [{"operator": "Equal"}]},
            None,
            "FieldValueInvalid",
            id="toleration without key",
        ),
        pytest.param(
            r.RESOURCE_FLAVOR,
            {"nodeTaints": [{"key": "a", "effect": "Sometimes"}]},
            None,
            "FieldValueInvalid",
            id="taint effect",
        ),
        pytest.param(
            r.RESOURCE_FLAVOR,
            {"nodeLabels": {f"l{i}": "x" for i in range(9)}},
            {"spec.nodeLabels"},
            "FieldValueTooMany",
            id="9 labels",
        ),
        pytest.param(
            TOPOLOGY,
            {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]},
            {"spec.levels"},
            "FieldValueInvalid",
            id="hostname not last",
        ),
    ],
)
def test_create_invalid_tells_causes(
    contract_client: KubeClient,
    unique: Unique,
    resource: r.Resource,
    spec: dict[str, Any],
    want_fields: set[str] | None,
    want_reason: str | None,
) -> None:
    document = {"apiVersion": resource.api_version, "kind": resource.kind}
    document |= {"metadata": {"name": unique("bad")}, "spec": spec}
    with pytest.raises(errors.Invalid) as caught:
        contract_client.create(resource, document)
    assert caught.value.status_code == 422
    if want_fields is not None:
        assert {fault.field for fault in caught.value.fields} >= want_fields
    if want_reason is not None:
        assert want_reason in {fault.reason for fault in caught.value.fields}


def test_create_invalid_name_and_label(contract_client: KubeClient, namespace: str) -> None:
    document = config_map(namespace, "Not_A_Name")
    document["metadata"]["labels"] = {"a b": "c"}
    with pytest.raises(errors.Invalid) as caught:
        contract_client.create(r.CONFIG_MAP, document)
    assert {fault.field for fault in caught.value.fields} == {"metadata.name", "metadata.labels"}


def test_local_queue_cannot_change_its_cluster_queue(
    contract_client: KubeClient, namespace: str
) -> None:
    document = {
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {"clusterQueue": "a"},
    }
    contract_client.create(r.LOCAL_QUEUE, document)
    with pytest.raises(errors.Invalid) as caught:
        contract_client.patch(
            r.LOCAL_QUEUE, "default", {"spec": {"clusterQueue": "b"}}, namespace=namespace
        )
    assert [fault.field for fault in caught.value.fields] == ["spec.clusterQueue"]


@pytest.mark.parametrize(
    ("status", "want_message"),
    [
        pytest.param({"clusterName": "w2"}, "clusterName is immutable once set", id="another"),
        pytest.param(
            {"nominatedClusterNames": ["w2"]},
            "clusterName and nominatedClusterNames are mutually exclusive",
            id="nominated as well",
        ),
    ],
)
def test_workload_cluster_name_rules(
    contract_client: KubeClient, namespace: str, status: dict[str, Any], want_message: str
) -> None:
    contract_client.create(r.WORKLOAD, workload(namespace, "one"))
    patch = {"status": {"clusterName": "w1"}}
    contract_client.patch(r.WORKLOAD, "one", patch, namespace=namespace, options=STATUS)
    with pytest.raises(errors.Invalid) as caught:
        contract_client.patch(
            r.WORKLOAD, "one", {"status": status}, namespace=namespace, options=STATUS
        )
    assert want_message in caught.value.message


def test_workload_queue_name_is_fixed_under_reservation(
    contract_client: KubeClient, namespace: str
) -> None:
    contract_client.create(r.WORKLOAD, workload(namespace, "one"))
    contract_client.patch(
        r.WORKLOAD,
        "one",
        {"status": {"conditions": [condition("QuotaReserved")]}},
        namespace=namespace,
        options=STATUS,
    )
    with pytest.raises(errors.Invalid) as caught:
        contract_client.patch(
            r.WORKLOAD, "one", {"spec": {"queueName": "other"}}, namespace=namespace
        )
    assert "queueName is immutable while workload quota reserved" in caught.value.message


def test_job_gets_selector_labels_and_defaults(contract_client: KubeClient, namespace: str) -> None:
    made = contract_client.create(r.JOB, job(namespace, "train"))
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert made["spec"]["template"]["metadata"]["labels"]["job-name"] == "train"
    assert (made["spec"]["parallelism"], made["spec"]["completions"]) == (1, 1)
    assert made["metadata"]["generation"] == 1


def test_job_that_says_how_many_pods_run_side_by_side_gets_no_number_of_completions(
    contract_client: KubeClient, namespace: str
) -> None:
    document = job(namespace, "wide")
    document["spec"] = {k: v for k, v in document["spec"].items() if k != "completions"}
    made = contract_client.create(
        r.JOB, {**document, "spec": document["spec"] | {"parallelism": 3}}
    )
    assert "completions" not in made["spec"]


@pytest.mark.parametrize(
    ("spec", "want_field"),
    [
        pytest.param({"completions": 3}, "spec.completions", id="completions"),
        pytest.param(
            {"template": {"spec": {"activeDeadlineSeconds": 5}}},
            "spec.template.spec",
            id="template",
        ),
        pytest.param({"managedBy": "example.com/other"}, "spec.managedBy", id="manager"),
    ],
)
def test_job_refuses_changes(
    contract_client: KubeClient, namespace: str, spec: dict[str, Any], want_field: str
) -> None:
    contract_client.create(r.JOB, job(namespace, "train"))
    with pytest.raises(errors.Invalid) as caught:
        contract_client.patch(r.JOB, "train", {"spec": spec}, namespace=namespace)
    assert want_field in {fault.field for fault in caught.value.fields}


def test_job_template_takes_scheduling_directives_while_suspended(
    contract_client: KubeClient, namespace: str
) -> None:
    contract_client.create(r.JOB, job(namespace, "train"))
    spec = {"suspend": False, "template": {"spec": {"nodeSelector": {"gpu": "h100"}}}}
    started = contract_client.patch(r.JOB, "train", {"spec": spec}, namespace=namespace)
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert started["spec"]["suspend"] is False
    assert started["metadata"]["generation"] == 2


def test_job_needs_restart_policy_and_no_selector(
    contract_client: KubeClient, namespace: str
) -> None:
    document = job(namespace, "train", selector={"matchLabels": {"a": "b"}})
    del document["spec"]["template"]["spec"]["restartPolicy"]
    with pytest.raises(errors.Invalid) as caught:
        contract_client.create(r.JOB, document)
    fields = {fault.field for fault in caught.value.fields}
    assert fields >= {"spec.selector", "spec.template.spec.restartPolicy"}


def test_create_custom_resource_without_type_is_invalid(
    contract_client: KubeClient, unique: Unique
) -> None:
    body = {"metadata": {"name": unique("untyped")}, "spec": {}}
    with pytest.raises(errors.Invalid) as caught:
        contract_client.request(Call("POST", r.COHORT.path(), body=body))
    assert caught.value.status_code == 400
