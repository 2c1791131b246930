"""The contract suite, part one: what both kinds of API server answer to reads and writes.

Every test runs on the embedded server and on a real kube-apiserver. Where they differ, the real
one is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clusters import errors
from clusters.kube import resources as r
from clusters.kube.client import (
    DeleteOptions,
    KubeClient,
    PatchType,
    Propagation,
    Selection,
    WriteOptions,
    is_allowed,
)
from clusters.kube.transport import Call
from tests.kube.documents import cluster_queue, config_map, workload
from tests.resources import CUSTOM_RESOURCE_DEFINITION
from tests.waiting import eventually

Unique = Callable[[str], str]
STATUS = WriteOptions(subresource="status")
# A real garbage collector looks for new kinds only every 30 s, and waits for that first.
COLLECTED_WITHIN_S = 120.0


def exists(client: KubeClient, resource: r.Resource, name: str, namespace: str) -> bool:
    try:
        client.get(resource, name, namespace=namespace)
    except errors.NotFound:
        return False
    return True


def test_list_reads_every_page_in_order(contract_client: KubeClient, namespace: str) -> None:
    for index in range(7):
        contract_client.create(r.CONFIG_MAP, config_map(namespace, f"item-{index}"))
    listed = contract_client.list(
        r.CONFIG_MAP, Selection(namespace, fields="metadata.name!=kube-root-ca.crt"), page_size=3
    )
    assert [item["metadata"]["name"] for item in listed.items] == [f"item-{i}" for i in range(7)]
    assert all(item["kind"] == "ConfigMap" for item in listed.items)
    assert int(listed.resource_version) > 0


def test_list_page_carries_continue_token(contract_client: KubeClient, namespace: str) -> None:
    for index in range(3):
        contract_client.create(
            r.SECRET, {"metadata": {"name": f"s{index}", "namespace": namespace}}
        )
    path = r.SECRET.path(namespace=namespace)
    page = contract_client.request(Call("GET", path, query={"limit": 2}))
    assert len(page["items"]) == 2
    assert page["metadata"]["continue"]
    assert page["metadata"]["remainingItemCount"] == 1


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param("tier=gold", ["a"], id="equality"),
        pytest.param("tier!=gold", ["b", "c"], id="inequality also means absent"),
        pytest.param("tier in (gold,silver)", ["a", "b"], id="set"),
        pytest.param("tier notin (gold)", ["b", "c"], id="not in set also means absent"),
        pytest.param("tier", ["a", "b"], id="present"),
        pytest.param("!tier", ["c"], id="absent"),
        pytest.param("tier in (gold,silver),zone=x", ["b"], id="both"),
    ],
)
def test_list_label_selector_matches(
    contract_client: KubeClient, namespace: str, labels: str, want: list[str]
) -> None:
    wanted: dict[str, dict[str, str]] = {
        "a": {"tier": "gold"},
        "b": {"tier": "silver", "zone": "x"},
        "c": {},
    }
    for name, carried in wanted.items():
        document = {"metadata": {"name": name, "namespace": namespace, "labels": carried}}
        contract_client.create(r.SECRET, document)
    listed = contract_client.list(r.SECRET, Selection(namespace, labels=labels))
    assert [item["metadata"]["name"] for item in listed.items] == want


def test_list_field_selector_finds_workloads_of_a_queue(
    contract_client: KubeClient, namespace: str
) -> None:
    contract_client.create(r.WORKLOAD, workload(namespace, "one"))
    contract_client.create(r.WORKLOAD, workload(namespace, "two"))
    admission = {
        "clusterQueue": "team-q",
        "podSetAssignments": [{"name": "main", "count": 1}],
    }
    contract_client.patch(
        r.WORKLOAD, "two", {"status": {"admission": admission}}, namespace=namespace, options=STATUS
    )
    selection = Selection(namespace, fields="status.admission.clusterQueue=team-q")
    listed = contract_client.list(r.WORKLOAD, selection)
    assert [item["metadata"]["name"] for item in listed.items] == ["two"]


def test_list_unknown_field_selector_is_invalid(
    contract_client: KubeClient, namespace: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        contract_client.list(r.CONFIG_MAP, Selection(namespace, fields="data.x=1"))
    assert caught.value.status_code == 400


def test_create_fills_in_identity(contract_client: KubeClient, namespace: str) -> None:
    made = contract_client.create(r.CONFIG_MAP, config_map(namespace, "one", a="1"))
    metadata = made["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["resourceVersion"]
    assert "generation" not in metadata
    managed = metadata["managedFields"]
    assert [(e["manager"], e["operation"]) for e in managed] == [("gpu-budget-portal", "Update")]


def test_create_twice_already_exists(contract_client: KubeClient, namespace: str) -> None:
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"))
    with pytest.raises(errors.AlreadyExists) as caught:
        contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"))
    assert caught.value.message == 'configmaps "one" already exists'


def test_create_generate_name_makes_distinct_names(
    contract_client: KubeClient, namespace: str
) -> None:
    document = {"metadata": {"generateName": "gen-", "namespace": namespace}}
    names = {contract_client.create(r.SECRET, document)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)


def test_create_in_missing_namespace_not_found(contract_client: KubeClient, unique: Unique) -> None:
    with pytest.raises(errors.NotFound) as caught:
        contract_client.create(r.CONFIG_MAP, config_map(unique("nowhere"), "one"))
    assert caught.value.status_code == 404
    assert caught.value.message.startswith("namespaces ")


def test_create_custom_resource_fills_in_defaults(
    contract_client: KubeClient, unique: Unique
) -> None:
    made = contract_client.create(r.CLUSTER_QUEUE, cluster_queue(unique("queue")))
    spec = made["spec"]
    assert spec["queueingStrategy"] == "BestEffortFIFO"
    assert spec["stopPolicy"] == "None"
    assert spec["flavorFungibility"] == {
        "whenCanBorrow": "MayStopSearch",
        "whenCanPreempt": "TryNextFlavor",
    }
    assert spec["preemption"] == {
        "withinClusterQueue": "Never",
        "reclaimWithinCohort": "Never",
        "borrowWithinCohort": {"policy": "Never"},
    }
    assert made["metadata"]["generation"] == 1
    contract_client.delete(r.CLUSTER_QUEUE, made["metadata"]["name"])


def test_create_drops_unknown_fields_and_status(
    contract_client: KubeClient, unique: Unique
) -> None:
    document = cluster_queue(unique("queue"), surprise=1)
    document["status"] = {"pendingWorkloads": 7}
    made = contract_client.create(r.CLUSTER_QUEUE, document)
    assert "surprise" not in made["spec"]
    assert "pendingWorkloads" not in made.get("status", {})
    contract_client.delete(r.CLUSTER_QUEUE, made["metadata"]["name"])


def test_replace_with_stale_version_conflicts(contract_client: KubeClient, namespace: str) -> None:
    first = contract_client.create(r.CONFIG_MAP, config_map(namespace, "one", a="1"))
    second = contract_client.replace(r.CONFIG_MAP, first | {"data": {"a": "2"}})
    with pytest.raises(errors.Conflict):
        contract_client.replace(r.CONFIG_MAP, first | {"data": {"a": "3"}})
    live = contract_client.get(r.CONFIG_MAP, "one", namespace=namespace)
    assert live["data"] == {"a": "2"}
    assert live["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_replace_custom_resource_needs_a_version(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    contract_client.create(r.CLUSTER_QUEUE, cluster_queue(name))
    with pytest.raises(errors.Invalid) as caught:
        contract_client.replace(r.CLUSTER_QUEUE, cluster_queue(name, stopPolicy="Hold"))
    assert [fault.field for fault in caught.value.fields] == ["metadata.resourceVersion"]
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_merge_patch_with_stale_version_conflicts(
    contract_client: KubeClient, namespace: str
) -> None:
    first = contract_client.create(r.CONFIG_MAP, config_map(namespace, "one", a="1"))
    contract_client.patch(r.CONFIG_MAP, "one", {"data": {"a": "2"}}, namespace=namespace)
    stale = {
        "metadata": {"resourceVersion": first["metadata"]["resourceVersion"]},
        "data": {"a": "3"},
    }
    with pytest.raises(errors.Conflict):
        contract_client.patch(r.CONFIG_MAP, "one", stale, namespace=namespace)
    assert contract_client.get(r.CONFIG_MAP, "one", namespace=namespace)["data"] == {"a": "2"}


def test_merge_patch_null_deletes_and_lists_are_replaced(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    contract_client.create(r.CLUSTER_QUEUE, cluster_queue(name, cohortName="team"))
    body = {"spec": {"cohortName": None, "resourceGroups": []}}
    patched = contract_client.patch(r.CLUSTER_QUEUE, name, body)
    assert "cohortName" not in patched["spec"]
    assert patched["spec"]["resourceGroups"] == []
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_json_patch_tests_and_changes(contract_client: KubeClient, namespace: str) -> None:
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one", a="1", b="2"))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/data/c~1d", "value": "4"},
    ]
    patched = contract_client.patch(
        r.CONFIG_MAP, "one", operations[:3], namespace=namespace, patch_type=PatchType.JSON
    )
    assert patched["data"] == {"a": "9"}
    with pytest.raises(errors.Invalid) as caught:
        contract_client.patch(
            r.CONFIG_MAP, "one", operations, namespace=namespace, patch_type=PatchType.JSON
        )
    assert caught.value.status_code == 422
    assert contract_client.get(r.CONFIG_MAP, "one", namespace=namespace)["data"] == {"a": "9"}


def test_unchanged_write_keeps_version(contract_client: KubeClient, namespace: str) -> None:
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one", a="1"))
    first = contract_client.patch(r.CONFIG_MAP, "one", {"data": {"a": "1"}}, namespace=namespace)
    again = contract_client.patch(r.CONFIG_MAP, "one", {"data": {"a": "1"}}, namespace=namespace)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_status_is_written_only_through_its_subresource(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    contract_client.create(r.CLUSTER_QUEUE, cluster_queue(name))
    main = contract_client.patch(r.CLUSTER_QUEUE, name, {"status": {"pendingWorkloads": 3}})
    assert "pendingWorkloads" not in main.get("status", {})
    body = {
        "status": {"pendingWorkloads": 3},
        "spec": {"stopPolicy": "Hold"},
        "metadata": {"labels": {"a": "b"}},
    }
    through = contract_client.patch(r.CLUSTER_QUEUE, name, body, options=STATUS)
    assert through["status"]["pendingWorkloads"] == 3
    assert through["spec"]["stopPolicy"] == "None"
    assert "labels" not in through["metadata"]
    assert through["metadata"]["generation"] == 1
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_generation_follows_spec_alone(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    contract_client.create(r.CLUSTER_QUEUE, cluster_queue(name))
    labelled = contract_client.patch(r.CLUSTER_QUEUE, name, {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    changed = contract_client.patch(r.CLUSTER_QUEUE, name, {"spec": {"stopPolicy": "Hold"}})
    assert changed["metadata"]["generation"] == 2
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_dry_run_changes_nothing(contract_client: KubeClient, namespace: str) -> None:
    dry = WriteOptions(dry_run=True)
    made = contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"), options=dry)
    assert made["metadata"]["uid"]
    assert not exists(contract_client, r.CONFIG_MAP, "one", namespace)
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one", a="1"))
    patched = contract_client.patch(
        r.CONFIG_MAP, "one", {"data": {"a": "2"}}, namespace=namespace, options=dry
    )
    assert patched["data"] == {"a": "2"}
    contract_client.delete(
        r.CONFIG_MAP, "one", namespace=namespace, options=DeleteOptions(dry_run=True)
    )
    assert contract_client.get(r.CONFIG_MAP, "one", namespace=namespace)["data"] == {"a": "1"}


def test_delete_preconditions_hold(contract_client: KubeClient, namespace: str) -> None:
    made = contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"))
    metadata = made["metadata"]
    for wrong in (DeleteOptions(uid="other"), DeleteOptions(resource_version="1")):
        with pytest.raises(errors.Conflict):
            contract_client.delete(r.CONFIG_MAP, "one", namespace=namespace, options=wrong)
    right = DeleteOptions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    contract_client.delete(r.CONFIG_MAP, "one", namespace=namespace, options=right)
    assert not exists(contract_client, r.CONFIG_MAP, "one", namespace)


def test_delete_waits_for_finalizers(contract_client: KubeClient, namespace: str) -> None:
    document = workload(namespace, "held")
    document["metadata"]["finalizers"] = ["example.com/hold"]
    contract_client.create(r.WORKLOAD, document)
    contract_client.delete(r.WORKLOAD, "held", namespace=namespace)
    held = contract_client.get(r.WORKLOAD, "held", namespace=namespace)
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["generation"] == 2
    with pytest.raises(errors.Invalid):
        contract_client.patch(
            r.WORKLOAD,
            "held",
            {"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}},
            namespace=namespace,
        )
    contract_client.patch(
        r.WORKLOAD, "held", {"metadata": {"finalizers": None}}, namespace=namespace
    )
    assert not exists(contract_client, r.WORKLOAD, "held", namespace)


def _owned(namespace: str, name: str, owner: dict[str, Any]) -> dict[str, Any]:
    document = config_map(namespace, name)
    document["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
    ]
    return document


@pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND])
def test_owner_deletion_takes_dependents_along(
    contract_client: KubeClient, namespace: str, propagation: Propagation
) -> None:
    owner = contract_client.create(r.CONFIG_MAP, config_map(namespace, "owner"))
    contract_client.create(r.CONFIG_MAP, _owned(namespace, "dependent", owner))
    contract_client.delete(
        r.CONFIG_MAP, "owner", namespace=namespace, options=DeleteOptions(propagation=propagation)
    )
    for name in ("dependent", "owner"):
        assert eventually(
            lambda name=name: not exists(contract_client, r.CONFIG_MAP, name, namespace),
            seconds=COLLECTED_WITHIN_S,
        )


def test_orphaned_dependents_stay(contract_client: KubeClient, namespace: str) -> None:
    owner = contract_client.create(r.CONFIG_MAP, config_map(namespace, "owner"))
    contract_client.create(r.CONFIG_MAP, _owned(namespace, "dependent", owner))
    options = DeleteOptions(propagation=Propagation.ORPHAN)
    contract_client.delete(r.CONFIG_MAP, "owner", namespace=namespace, options=options)
    assert eventually(
        lambda: not exists(contract_client, r.CONFIG_MAP, "owner", namespace),
        seconds=COLLECTED_WITHIN_S,
    )
    left = contract_client.get(r.CONFIG_MAP, "dependent", namespace=namespace)
    assert "ownerReferences" not in left["metadata"]


def test_access_review_token_request_and_version(
    contract_client: KubeClient, namespace: str
) -> None:
    attributes = {"verb": "patch", "group": r.KUEUE_GROUP, "resource": "clusterqueues"}
    assert is_allowed(contract_client, attributes)
    document = {"metadata": {"name": "robot", "namespace": namespace}}
    contract_client.create(r.SERVICE_ACCOUNT, document)
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    path = r.SERVICE_ACCOUNT.path("robot", namespace=namespace, subresource="token")
    answer = contract_client.request(Call("POST", path, body=body))
    assert answer["status"]["token"]
    assert answer["status"]["expirationTimestamp"].endswith("Z")
    probe = contract_client.probe()
    assert probe.version.startswith("v1.")
    assert probe.server_time is not None


def test_discovery_names_served_kueue_version(contract_client: KubeClient) -> None:
    group = contract_client.request(Call("GET", f"/apis/{r.KUEUE_GROUP}"))
    assert "v1beta2" in [version["version"] for version in group["versions"]]
    kinds = contract_client.request(Call("GET", f"/apis/{r.KUEUE_GROUP}/v1beta2"))
    assert {"clusterqueues", "clusterqueues/status", "workloads"} <= {
        entry["name"] for entry in kinds["resources"]
    }
    crd = contract_client.get(CUSTOM_RESOURCE_DEFINITION, "workloads.kueue.x-k8s.io")
    assert crd["spec"]["group"] == r.KUEUE_GROUP


def test_unknown_resource_not_found(contract_client: KubeClient) -> None:
    with pytest.raises(errors.NotFound):
        contract_client.list(replace(r.CLUSTER_QUEUE, plural="nosuchthings"))
