"""The contract suite, part three: server-side apply, ownership and pruning, on both servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clusters import errors
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from tests.kube.apply import ObjectKey, apply_documents, prune
from tests.kube.documents import (
    STAMP,
    cluster_queue,
    condition,
    config_map,
    conflicts_of,
    workload,
)

Unique = Callable[[str], str]
Document = dict[str, Any]


def by(manager: str, *, force: bool = False, subresource: str = "") -> WriteOptions:
    return WriteOptions(field_manager=manager, force=force, subresource=subresource)


def owners(document: Document) -> dict[tuple[str, str, str], Any]:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in document["metadata"].get("managedFields", [])
    }


def queue_with(name: str, **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": spec}


def test_apply_creates_and_owns_only_what_it_says(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    made = contract_client.apply(r.CLUSTER_QUEUE, cluster_queue(name, cohortName="team"))
    assert made["spec"]["stopPolicy"] == "None"
    assert owners(made) == {
        ("gpu-budget-portal", "Apply", ""): {"f:spec": {"f:cohortName": {}, "f:resourceGroups": {}}}
    }
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_again_changes_nothing(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    first = contract_client.apply(r.CLUSTER_QUEUE, cluster_queue(name))
    again = contract_client.apply(r.CLUSTER_QUEUE, cluster_queue(name))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_conflict_names_manager_and_field(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    contract_client.apply(r.CLUSTER_QUEUE, queue_with(name, stopPolicy="Hold", cohortName="a"))
    body = {"spec": {"queueingStrategy": "StrictFIFO"}}
    contract_client.patch(r.CLUSTER_QUEUE, name, body, options=by("hand"))
    wish = queue_with(name, stopPolicy="None", queueingStrategy="BestEffortFIFO")
    with pytest.raises(errors.ApplyConflict) as caught:
        contract_client.apply(r.CLUSTER_QUEUE, wish, options=by("other"))
    assert set(conflicts_of(caught.value)) == {
        ("gpu-budget-portal", ".spec.stopPolicy"),
        ("hand", ".spec.queueingStrategy"),
    }
    assert caught.value.status_code == 409
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_force_takes_over(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    contract_client.apply(r.CLUSTER_QUEUE, queue_with(name, stopPolicy="Hold"), options=by("a"))
    forced = contract_client.apply(
        r.CLUSTER_QUEUE, queue_with(name, stopPolicy="None"), options=by("b", force=True)
    )
    assert forced["spec"]["stopPolicy"] == "None"
    assert set(owners(forced)) == {("b", "Apply", "")}
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_same_value_is_shared_and_survives_one_owner(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    for manager in ("a", "b"):
        wish = queue_with(name, cohortName="team")
        contract_client.apply(r.CLUSTER_QUEUE, wish, options=by(manager))
    left = contract_client.apply(r.CLUSTER_QUEUE, queue_with(name), options=by("a"))
    assert left["spec"]["cohortName"] == "team"
    assert owners(left)["a", "Apply", ""] == {"f:spec": {}}
    assert owners(left)["b", "Apply", ""] == {"f:spec": {"f:cohortName": {}}}
    gone = contract_client.apply(r.CLUSTER_QUEUE, queue_with(name), options=by("b"))
    assert "cohortName" not in gone["spec"]
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_prunes_fields_it_no_longer_says(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    document = cluster_queue(name, fairSharing={"weight": "2"})
    document["metadata"]["labels"] = {"a": "1", "b": "2"}
    contract_client.apply(r.CLUSTER_QUEUE, document)
    contract_client.patch(
        r.CLUSTER_QUEUE, name, {"metadata": {"labels": {"c": "3"}}}, options=by("hand")
    )
    document = cluster_queue(name)
    document["metadata"]["labels"] = {"b": "2"}
    pruned = contract_client.apply(r.CLUSTER_QUEUE, document)
    assert "fairSharing" not in pruned["spec"]
    assert pruned["metadata"]["labels"] == {"b": "2", "c": "3"}
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_empties_a_map_and_leaves_no_owner(
    contract_client: KubeClient, namespace: str
) -> None:
    contract_client.apply(r.CONFIG_MAP, config_map(namespace, "one", a="1"))
    emptied = contract_client.apply(
        r.CONFIG_MAP, {"metadata": {"name": "one", "namespace": namespace}}
    )
    assert "data" not in emptied
    assert owners(emptied) == {}


def test_update_takes_ownership_from_applier(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    contract_client.apply(r.CLUSTER_QUEUE, queue_with(name, stopPolicy="Hold", cohortName="a"))
    body = {"spec": {"stopPolicy": "None"}}
    patched = contract_client.patch(r.CLUSTER_QUEUE, name, body, options=by("hand"))
    assert owners(patched) == {
        ("gpu-budget-portal", "Apply", ""): {"f:spec": {"f:cohortName": {}}},
        ("hand", "Update", ""): {"f:spec": {"f:stopPolicy": {}}},
    }
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_lists_that_are_maps_item_by_item(
    contract_client: KubeClient, namespace: str
) -> None:
    contract_client.create(r.WORKLOAD, workload(namespace, "one"))

    def check(manager: str, *names: str, state: str = "Pending") -> Document:
        entries = [
            {"name": name, "state": state, "message": "", "lastTransitionTime": STAMP}
            for name in names
        ]
        document = {
            "metadata": {"name": "one", "namespace": namespace},
            "status": {"admissionChecks": entries},
        }
        options = by(manager, subresource="status")
        return contract_client.apply(r.WORKLOAD, document, options=options)

    check("kueue", "budget", "multikueue")
    both = check("portal", "spend")
    assert [entry["name"] for entry in both["status"]["admissionChecks"]] == [
        "budget",
        "multikueue",
        "spend",
    ]
    with pytest.raises(errors.ApplyConflict) as caught:
        check("portal", "spend", "budget", state="Ready")
    assert conflicts_of(caught.value) == [("kueue", '.status.admissionChecks[name="budget"].state')]
    left = check("kueue", "multikueue")
    assert [entry["name"] for entry in left["status"]["admissionChecks"]] == [
        "multikueue",
        "spend",
    ]


def test_ownership_of_status_is_apart_from_spec(
    contract_client: KubeClient, unique: Unique
) -> None:
    name = unique("queue")
    contract_client.apply(r.CLUSTER_QUEUE, queue_with(name, stopPolicy="Hold"))
    document = queue_with(name, stopPolicy="None") | {
        "status": {"conditions": [condition("Active")]}
    }
    applied = contract_client.apply(
        r.CLUSTER_QUEUE, document, options=by("gpu-budget-portal", subresource="status", force=True)
    )
    assert applied["spec"]["stopPolicy"] == "Hold"
    found = owners(applied)
    assert found["gpu-budget-portal", "Apply", ""] == {"f:spec": {"f:stopPolicy": {}}}
    assert set(found["gpu-budget-portal", "Apply", "status"]) == {"f:status"}
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_ownership_can_be_handed_over_by_hand(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    made = contract_client.apply(
        r.CLUSTER_QUEUE, queue_with(name, stopPolicy="Hold", cohortName="a"), options=by("a")
    )
    entry = dict(made["metadata"]["managedFields"][0])
    kept = entry | {"fieldsV1": {"f:spec": {"f:cohortName": {}}}}
    given = entry | {"fieldsV1": {"f:spec": {"f:stopPolicy": {}}}, "manager": "b"}
    body = {
        "metadata": {
            "resourceVersion": made["metadata"]["resourceVersion"],
            "managedFields": [kept, given],
        }
    }
    patched = contract_client.patch(r.CLUSTER_QUEUE, name, body, options=by("c"))
    assert owners(patched) == {
        ("a", "Apply", ""): {"f:spec": {"f:cohortName": {}}},
        ("b", "Apply", ""): {"f:spec": {"f:stopPolicy": {}}},
    }
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_refuses_unknown_fields(contract_client: KubeClient, unique: Unique) -> None:
    with pytest.raises(errors.Invalid) as caught:
        contract_client.apply(r.CLUSTER_QUEUE, queue_with(unique("queue"), surprise=1))
    assert ".spec.surprise: field not declared in schema" in caught.value.message


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"cohortName": None}, {"spec.cohortName"}, id="no default: refused"),
        pytest.param({"stopPolicy": None, "fairSharing": {"weight": None}}, set(), id="default"),
    ],
)
def test_apply_takes_null_only_for_a_default(
    contract_client: KubeClient, unique: Unique, spec: Document, want: set[str]
) -> None:
    name = unique("queue")
    document = queue_with(name, **spec)
    if want:
        with pytest.raises(errors.Invalid) as caught:
            contract_client.apply(r.CLUSTER_QUEUE, document)
        assert {fault.field for fault in caught.value.fields} >= want
        return
    made = contract_client.apply(r.CLUSTER_QUEUE, document)
    assert (made["spec"]["stopPolicy"], made["spec"]["fairSharing"]) == ("None", {"weight": 1})
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_create_leaves_null_out(contract_client: KubeClient, unique: Unique) -> None:
    made = contract_client.create(r.CLUSTER_QUEUE, queue_with(unique("queue"), cohortName=None))
    assert "cohortName" not in made["spec"]
    contract_client.delete(r.CLUSTER_QUEUE, made["metadata"]["name"])


def test_apply_with_stale_version_conflicts(contract_client: KubeClient, unique: Unique) -> None:
    name = unique("queue")
    first = contract_client.apply(r.CLUSTER_QUEUE, queue_with(name, cohortName="a"))
    contract_client.apply(r.CLUSTER_QUEUE, queue_with(name, cohortName="b"))
    stale = queue_with(name, cohortName="c")
    stale["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]
    with pytest.raises(errors.Conflict):
        contract_client.apply(r.CLUSTER_QUEUE, stale)
    assert contract_client.get(r.CLUSTER_QUEUE, name)["spec"]["cohortName"] == "b"
    contract_client.delete(r.CLUSTER_QUEUE, name)


def test_apply_status_of_missing_object_not_found(
    contract_client: KubeClient, namespace: str
) -> None:
    document = {
        "metadata": {"name": "nobody", "namespace": namespace},
        "status": {"conditions": [condition("Active")]},
    }
    with pytest.raises(errors.NotFound):
        contract_client.apply(
            r.WORKLOAD, document, options=by("x", subresource="status", force=True)
        )


def test_apply_documents_then_prune_leaves_what_is_wanted(
    contract_client: KubeClient, namespace: str, unique: Unique
) -> None:
    mark = {"portal-test": unique("mark")}
    names = [unique("queue") for _ in range(3)]

    def document(name: str) -> Document:
        made = cluster_queue(name)
        made["metadata"]["labels"] = dict(mark)
        return made

    secret = {"apiVersion": "v1", "kind": "Secret"}
    secret |= {"metadata": {"name": "s", "namespace": namespace, "labels": dict(mark)}}
    foreign = unique("foreign")
    contract_client.create(r.CLUSTER_QUEUE, cluster_queue(foreign))
    report = apply_documents(contract_client, [*map(document, names), secret])
    assert report.is_complete
    assert [a.key.resource.kind for a in report.applied] == ["Secret", *["ClusterQueue"] * 3]

    labels = f"portal-test={mark['portal-test']}"
    keep = {ObjectKey(r.CLUSTER_QUEUE, "", names[0])}
    pruned = prune(contract_client, [r.SECRET, r.CLUSTER_QUEUE], labels=labels, keep=keep)
    assert [key.resource.kind for key in pruned.deleted] == ["ClusterQueue"] * 2 + ["Secret"]
    left = {item["metadata"]["name"] for item in contract_client.list(r.CLUSTER_QUEUE).items}
    assert names[0] in left
    assert foreign in left
    assert not {names[1], names[2]} & left
    for name in (names[0], foreign):
        contract_client.delete(r.CLUSTER_QUEUE, name)
