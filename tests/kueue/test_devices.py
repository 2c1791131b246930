"""Devices that pods claim: what they count as, and in which words they are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusters.kueue.configuration import Configuration, DeviceClasses, not_followed
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.workload.devices import (
    CLAIMS_MOST,
    REQUESTS_MOST,
    parse_claim_template,
    template_facts,
)
from tests.kueue.builders import (
    GPU,
    START,
    World,
    cluster_queue,
    flavor,
    group,
    local_queue,
    pod_set,
    quota,
    reserved,
    workload,
)

H100, CLASS, OTHER = "gpus.example.com/h100", "h100.gpu.example.com", "mig.gpu.example.com"
MAPPED = {"resources": {"deviceClassMappings": [{"name": H100, "deviceClassNames": [CLASS]}]}}
CLAIM = "spec.podSets[0].template.spec.resourceClaims[0]"
Document = dict[str, Any]


def template(name: str, *requests: Document) -> Document:
    devices = {"requests": list(requests)}
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"spec": {"devices": devices}},
    }


def exactly(count: int = 1, *, of: str = CLASS, **more: Any) -> Document:
    asked = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": "gpu", "exactly": asked}


def device_class(name: str, resource: str = "", *, day: int = 1) -> Document:
    created = f"2026-01-{day:02}T00:00:00Z"
    spec = {"extendedResourceName": resource} if resource else {}
    metadata = {"name": name, "creationTimestamp": created}
    return {"kind": "DeviceClass", "metadata": metadata, "spec": spec}


def by_template(*names: str) -> list[Document]:
    return [{"name": name, "resourceClaimTemplateName": name} for name in names]


def claiming(name: str, *claims: str, count: int = 1, **more: Any) -> Document:
    """A Workload whose pods claim by templates, beside one CPU."""
    pods = pod_set({"cpu": 1}, count=count, resourceClaims=by_template(*claims))
    return workload(name, "q", pods, **more)


def world(*documents: Document, nominal: int = 8, more: Document | None = None) -> World:
    """A queue with quota of the mapped resource."""
    queue = cluster_queue(
        "q", group(f0=quota(nominal, resource=H100)), group(host=quota(100, resource="cpu"))
    )
    return World({**MAPPED, **(more or {})}, flavor("host"), queue, *documents)


def usage_of(admission: Document) -> Document:
    return dict(admission["podSetAssignments"][0]["resourceUsage"])


# What is counted


@pytest.mark.parametrize(
    ("templates", "count", "want"),
    [
        pytest.param([template("t", exactly(2))], 1, 2, id="one request"),
        pytest.param([template("t", exactly(2), exactly(1))], 1, 3, id="requests of one template"),
        pytest.param([template("t", exactly(2)), template("u", exactly())], 1, 3, id="two claims"),
        pytest.param([template("t", exactly(2))], 4, 8, id="each pod has a claim of its own"),
        pytest.param(
            [template("t", {"name": "gpu", "exactly": {"deviceClassName": CLASS}})],
            1,
            1,
            id="what an API server fills in",
        ),
        pytest.param(
            [template("t", exactly(2)), template("u")], 1, 2, id="a template without requests"
        ),
    ],
)
def test_devices_of_claims_count_as_the_resource_of_their_class(templates, count, want):
    names = [item["metadata"]["name"] for item in templates]
    made = world(*templates, claiming("w", *names, count=count))
    assert usage_of(made.admitted()["w"]) == {H100: str(want), "cpu": str(count)}
    assert made.usage()["q"][("f0", H100)] == want


def test_classes_of_one_mapping_count_together_and_with_what_is_asked_for_by_name():
    classes = [{"name": GPU, "deviceClassNames": [CLASS, OTHER]}]
    queue = cluster_queue("q", group(f0=quota(8)))
    pods = pod_set({GPU: 1}, resourceClaims=by_template("t"))
    made = World(
        {"resources": {"deviceClassMappings": classes}},
        queue,
        template("t", exactly(2), exactly(3, of=OTHER)),
        workload("w", "q", pods),
    )
    assert usage_of(made.admitted()["w"]) == {GPU: "6"}


def test_what_a_mapping_yields_is_neither_excluded_nor_transformed():
    """Claims come in after both, as they are no requests of a container."""
    resources = {
        **MAPPED["resources"],
        "excludeResourcePrefixes": ["gpus.example.com"],
        "transformations": [{"input": H100, "strategy": "Replace", "outputs": {"cpu": "1"}}],
    }
    made = world(template("t", exactly(2)), claiming("w", "t"), more={"resources": resources})
    assert usage_of(made.admitted()["w"]) == {H100: "2", "cpu": "1"}


def test_device_beyond_all_counting_is_the_largest_amount_and_no_negative_one():
    most = 2**63 - 1
    made = world(template("t", exactly(most), exactly(most)), claiming("w", "t", count=3))
    assert made.admitted() == {}
    assert "insufficient quota" in made.message("w")


def test_job_that_does_not_fit_waits_with_the_number_of_devices_it_lacks():
    made = world(template("t", exactly(6)), claiming("a", "t"), claiming("b", "t", age=1))
    assert set(made.admitted()) == {"a"}
    assert made.message("b") == (
        "couldn't assign flavors to pod set main: insufficient unused quota for "
        f"{H100} in flavor f0, 4 more needed"
    )


def test_a_job_that_holds_devices_is_counted_by_its_admission_alone():
    """Its template may be gone by then, and no longer say what it was."""
    held = reserved(workload("w", "q", pod_set({H100: 5})), "q")
    held["spec"]["podSets"][0]["template"]["spec"] |= {"resourceClaims": by_template("gone")}
    assert world(held).usage()["q"] == {("f0", H100): 5}


# When it is counted


def test_job_goes_on_when_its_template_comes_and_stops_waiting_in_the_queue_without_it():
    made = world(claiming("w", "t"))
    assert made.admitted() == {}
    assert made.message("w") == (
        f"{CLAIM}: Internal error: failed to get claim spec for ResourceClaimTemplate t in podset "
        'main: ResourceClaimTemplate.resource.k8s.io "t" not found'
    )
    made.feed(template("t", exactly(9)))
    assert made.admitted() == {}
    assert "1 more needed" in made.message("w") or "insufficient quota" in made.message("w")
    made.engine.delete("ResourceClaimTemplate", key="ns/t", now=made.now)
    assert "not found" in made.message("w")
    made.feed(template("t", exactly(8)))
    assert usage_of(made.admitted()["w"])[H100] == "8"


def test_where_templates_may_not_be_read_that_is_said_and_not_that_there_is_none():
    blind = replace(Configuration.from_document(MAPPED), reads_templates=False)
    engine = Engine(blind)
    engine.upsert(claiming("w", "t"), now=START)
    refusal = engine.state.queues.refusal("ns/w")
    assert refusal is not None
    assert refusal.message.endswith("podset main: the portal may not read ResourceClaimTemplates")


def test_template_of_another_namespace_is_not_meant():
    elsewhere = template("t", exactly(2))
    elsewhere["metadata"]["namespace"] = "other"
    made = world(elsewhere, claiming("w", "t"))
    assert "not found" in made.message("w")


def test_template_makes_nothing_known_anew_that_does_not_claim_by_it():
    made = world(
        template("t", exactly(9)),
        claiming("w", "t"),
        claiming("v", "u"),
        workload("x", "q", pod_set({"cpu": 1})),
    )
    before = dict(made.engine.state.workloads)
    made.feed(template("u", exactly()))
    after = made.engine.state.workloads
    assert [key for key in after if after[key] is not before[key]] == ["ns/v"]
    assert made.engine.state.queues.waiting_for("ns/u") == [after["ns/v"]]
    made.feed(template("u", exactly()))
    assert after["ns/v"] is made.engine.state.workloads["ns/v"]


def test_two_jobs_of_different_templates_are_not_taken_for_alike():
    made = world(template("t", exactly(9)), template("u", exactly(9)))
    made.feed(claiming("a", "t"), claiming("b", "t"), claiming("c", "u"))
    hashes = {name: made.engine.state.workloads[f"ns/{name}"].shape_hash for name in "abc"}
    assert hashes["a"] == hashes["b"] != hashes["c"]


def test_a_copy_of_the_engine_knows_the_templates():
    made = world(template("t", exactly(2)))
    copy = made.engine.fork(now=made.now)
    copy.upsert(claiming("w", "t"), now=made.now)
    [admitted] = copy.cycle(made.now).admitted
    assert usage_of(dict(admitted.admission))[H100] == "2"


def test_requeued_that_kueue_wrote_of_a_claim_keeps_nobody_waiting():
    """Kueue says so of every claim that it could not count, and takes it back at admission."""
    conditions = [{"type": "Requeued", "status": "False", "reason": "Inadmissible"}]
    found = claiming("w", "t", status={"conditions": conditions})
    assert set(world(template("t", exactly()), found).admitted()) == {"w"}
    conditions[0]["reason"] = "PodsReadyTimeout"
    assert world(template("t", exactly()), found).admitted() == {}


# What is refused


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(
            {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": CLASS}]},
            "devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: FirstAvailable "
            "device selection is not supported",
            id="first available",
        ),
        pytest.param(
            {"name": "gpu"},
            "devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: Exactly must be "
            "set if FirstAvailable is nil",
            id="nothing",
        ),
        pytest.param(
            exactly(0, allocationMode="All"),
            'devices.requests[0].exactly.allocationMode: Invalid value: "All": '
            "ResourceClaimTemplate t: AllocationMode 'All' is not supported",
            id="all devices",
        ),
        pytest.param(
            exactly(allocationMode="Some"),
            'devices.requests[0].exactly.allocationMode: Invalid value: "Some": '
            "ResourceClaimTemplate t: unsupported allocation mode: Some",
            id="a mode of tomorrow",
        ),
        pytest.param(
            exactly(adminAccess=True),
            "devices.requests[0].exactly.adminAccess: Invalid value: null: "
            "ResourceClaimTemplate t: AdminAccess is not supported",
            id="admin access",
        ),
        pytest.param(
            exactly(2, of=OTHER),
            f'resourceClaimTemplateName: Not found: "DeviceClass {OTHER} is not mapped in DRA '
            'configuration for podset main"',
            id="a class that is not mapped",
        ),
        pytest.param(
            exactly(selectors=[{"cel": {"expression": "true"}}]),
            "devices.requests[0].exactly.selectors: Invalid value: null: ResourceClaimTemplate t: "
            "devices that are selected by CEL are not counted",
            id="selectors",
        ),
    ],
)
def test_claim_that_cannot_be_counted_is_refused_before_it_is_queued(request_, want):
    made = world(template("t", request_), claiming("w", "t"))
    assert made.cycle().heads == 0
    refusal = made.engine.state.queues.refusal("ns/w")
    assert refusal is not None
    assert (refusal.reason, refusal.message) == ("Misconfigured", f"{CLAIM}.{want}")


def test_constraints_and_configuration_of_a_template_are_no_matter_of_quota():
    found = template("t", exactly(2))
    found["spec"]["spec"]["devices"] |= {
        "constraints": [{"matchAttribute": "example.com/numa"}],
        "config": [{"opaque": {"driver": "example.com", "parameters": {}}}],
    }
    assert set(world(found, claiming("w", "t")).admitted()) == {"w"}


def test_claim_by_name_is_refused_before_any_template_is_looked_at():
    named = [{"name": "shared", "resourceClaimName": "mine"}]
    first = pod_set({"cpu": 1}, name="a", resourceClaims=by_template("t"))
    second = pod_set({"cpu": 1}, name="b", resourceClaims=named)
    made = world(workload("w", "q", first, second))
    assert made.message("w") == (
        "KueueDRAIntegration feature does not support use of resource claims"
    )


def test_refusal_of_a_claim_goes_before_that_of_a_queue():
    made = World(MAPPED, claiming("w", "t"))
    assert "not found" in made.message("w")
    made.feed(template("t", exactly()))
    assert made.message("w") == "LocalQueue q doesn't exist"


def test_without_a_mapping_no_claim_is_admitted_whatever_its_template_says():
    queue = cluster_queue("q", group(f0=quota(100, resource="cpu")))
    made = World({}, queue, claiming("w", "t"), workload("x", "q", pod_set({"cpu": 1})))
    assert set(made.admitted()) == {"x"}
    assert made.message("w") == (
        f'{CLAIM}.resourceClaimTemplateName: Not found: "DeviceClass of ResourceClaimTemplate t '
        'is not mapped in DRA configuration for podset main"'
    )


@pytest.mark.parametrize("claim", [{"resourceClaimTemplateName": "t"}, {"resourceClaimName": "c"}])
def test_where_the_gate_is_off_claims_are_refused_or_by_another_gate_ignored(claim):
    gates = {"KueueDRAIntegration": False, "KueueDRAIntegrationExtendedResource": False}
    pods = pod_set({"cpu": 1}, resourceClaims=[{"name": "a", **claim}])
    made = world(template("t", exactly(99)), workload("w", "q", pods), more={"featureGates": gates})
    assert made.message("w") == (
        "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
    )
    gates["KueueDRARejectWorkloadsWhenDRADisabled"] = False
    made = world(template("t", exactly(99)), workload("w", "q", pods), more={"featureGates": gates})
    assert usage_of(made.admitted()["w"]) == {"cpu": "1"}


def test_claim_that_names_nothing_asks_for_nothing():
    pods = pod_set({"cpu": 1}, resourceClaims=[{"name": "a"}])
    assert set(world(workload("w", "q", pods)).admitted()) == {"w"}


def test_class_that_counts_by_sources_is_refused_in_preflight_and_where_it_is_claimed():
    """Its devices count by what they consume, which only ResourceSlices tell."""
    mapping = MAPPED["resources"]["deviceClassMappings"][0] | {"sources": [{"counter": {}}]}
    document = {"resources": {"deviceClassMappings": [mapping]}}
    assert not_followed(document) == [
        f"resources.deviceClassMappings[0].sources: devices count as {H100} by what they consume, "
        "not one by one, and jobs that claim them are refused"
    ]
    made = world(template("t", exactly()), claiming("w", "t"), more=document)
    assert "counts by sources of its devices, which are not followed" in made.message("w")


# Devices that are asked for by the name of their class


def asking(name: str, resource: str, amount: object = 2, **more: Any) -> Document:
    return workload(name, "q", pod_set({"cpu": 1, resource: amount}, **more))


def test_device_that_is_asked_for_by_name_counts_as_its_class_is_mapped():
    """Beside claims of the same class, whose quota it shares."""
    pods = pod_set({"cpu": 1, "example.com/gpu": 2}, resourceClaims=by_template("t"))
    made = world(
        device_class(CLASS, "example.com/gpu"), template("t", exactly(3)), workload("w", "q", pods)
    )
    assert usage_of(made.admitted()["w"]) == {H100: "5", "cpu": "1"}


def test_class_that_comes_later_changes_what_waits_and_one_that_goes_changes_it_back():
    made = world(asking("w", "example.com/gpu"))
    assert made.admitted() == {}
    assert made.message("w").endswith("resource example.com/gpu unavailable in ClusterQueue")
    made.feed(device_class(CLASS, "example.com/gpu"))
    made.feed(device_class(CLASS))
    assert made.admitted() == {}
    made.feed(device_class(CLASS, "example.com/gpu"))
    assert usage_of(made.admitted()["w"]) == {H100: "2", "cpu": "1"}


def test_of_two_classes_of_one_name_the_newer_counts_and_of_equals_the_first_by_name():
    mapped = [
        {"name": H100, "deviceClassNames": ["a", "b"]},
        {"name": "example.com/old", "deviceClassNames": ["c"]},
    ]
    more = {"resources": {"deviceClassMappings": mapped}}
    name = "example.com/gpu"
    old, new = device_class("c", name), device_class("b", name, day=2)
    assert set(world(old, new, asking("w", name), more=more).admitted()) == {"w"}
    same = device_class("b", name), device_class("c", name)
    assert set(world(*same, asking("w", name), more=more).admitted()) == {"w"}
    assert (
        world(device_class("b", name), device_class("c", name, day=2), more=more)
        .feed(asking("w", name))
        .admitted()
        == {}
    )


def test_class_that_is_not_mapped_leaves_its_name_as_it_is():
    queue = cluster_queue("q", group(f0=quota(8, resource="example.com/gpu")))
    transformations = [{"input": "example.com/gpu", "strategy": "Replace", "outputs": {"x": "1"}}]
    resources = {**MAPPED["resources"], "transformations": transformations}
    made = World(
        {"resources": resources},
        queue,
        device_class(OTHER, "example.com/gpu"),
        workload("w", "q", pod_set({"example.com/gpu": 2})),
    )
    # As Kueue: the charge of a device comes after the transformations, and beside what they made.
    assert made.admitted() == {}
    assert "resource x unavailable" in made.message("w")


def test_init_containers_run_one_by_one_and_the_others_together():
    spec = pod_set({"cpu": 1, "example.com/gpu": 2})["template"]["spec"]
    spec["containers"] *= 2
    inits = [{"name": "i", "resources": {"limits": {"example.com/gpu": str(n)}}} for n in (5, 3)]
    spec["initContainers"] = inits
    pods = {"name": "main", "count": 1, "template": {"spec": spec}}
    made = world(device_class(CLASS, "example.com/gpu"), workload("w", "q", pods))
    assert usage_of(made.admitted()["w"]) == {H100: "5", "cpu": "2"}


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        ("1500m", 'Invalid value: "1500m": extended resource quantity must be an integer'),
        (2**63, f'Invalid value: "{2**63}": extended resource quantity must be an integer'),
    ],
)
def test_part_of_a_device_is_refused_where_a_class_stands_behind_its_name(amount, want):
    made = world(device_class(CLASS, "example.com/gpu"), asking("w", "example.com/gpu", amount))
    assert made.message("w") == (
        "spec.podSets[0].template.spec.containers[0].resources.requests.example.com/gpu: " + want
    )


def test_sum_that_nobody_can_count_is_refused():
    spec = pod_set({"example.com/gpu": 2**63 - 1})["template"]["spec"]
    spec["containers"] *= 2
    pods = {"name": "main", "count": 1, "template": {"spec": spec}}
    made = world(device_class(CLASS, "example.com/gpu"), workload("w", "q", pods))
    assert made.message("w").endswith("total extended resource quantity overflows int64")


def test_by_name_nothing_is_read_where_that_gate_is_off():
    gates = {"KueueDRAIntegrationExtendedResource": False}
    more = {"featureGates": gates}
    assert not Configuration.from_document({**MAPPED, **more}).counts_named_devices
    made = world(device_class(CLASS, "example.com/gpu"), asking("w", "example.com/gpu"), more=more)
    assert made.admitted() == {}
    assert made.message("w").endswith("resource example.com/gpu unavailable in ClusterQueue")


def test_named_device_that_counts_by_sources_is_refused():
    mapping = MAPPED["resources"]["deviceClassMappings"][0] | {"sources": [{"counter": {}}]}
    more = {"resources": {"deviceClassMappings": [mapping]}}
    found = [device_class(CLASS, "example.com/gpu"), asking("w", "example.com/gpu")]
    assert "with sources configured, which are not followed" in world(*found, more=more).message(
        "w"
    )


# What is read


def test_mapping_is_read_class_by_class():
    mappings = [
        {"name": H100, "deviceClassNames": [CLASS, "b"]},
        {"name": "mem", "deviceClassNames": ["c"], "sources": [{"counter": {"name": "memory"}}]},
        {"name": "cores", "deviceClassNames": ["c"], "sources": [{"counter": {"name": "cores"}}]},
    ]
    read = Configuration.from_document({"resources": {"deviceClassMappings": mappings}})
    want = DeviceClasses({CLASS: H100, "b": H100, "c": "mem"}, frozenset("c"))
    assert read.device_classes == want
    assert read.counts_claims
    assert read.counts_named_devices
    assert not Configuration().counts_claims


def mapping(name: object = H100, *classes: object) -> Document:
    return {"name": name, "deviceClassNames": list(classes)}


@pytest.mark.parametrize(
    ("mappings", "want"),
    [
        ([mapping("GPU!", "a")], "deviceClassMappings[0].name 'GPU!' is no qualified name"),
        ([mapping(7, "a")], "deviceClassMappings[0].name '7' is no qualified name"),
        ([mapping("x" * 254, "a")], "is no qualified name: write one such as example.com/gpu"),
        ([mapping(H100, "a b")], "deviceClassNames[0] 'a b' is no qualified name"),
        ([mapping(H100)], "deviceClassMappings[0].deviceClassNames is empty: name at least one"),
        ([mapping(H100, "a"), mapping(H100, "b")], "is that of a mapping before it: join the two"),
        (
            [mapping("x", "a"), mapping("y", "b", "a")],
            "deviceClassMappings[1].deviceClassNames[1] 'a' is mapped to x before",
        ),
        ([mapping(f"n{n}", f"c{n}") for n in range(17)], "has 17 entries, and Kueue takes 16"),
        ([mapping(H100, *map(str, range(9)))], "deviceClassNames has 9 entries, and Kueue takes 8"),
    ],
)
def test_mapping_that_kueue_does_not_start_with_is_refused_with_field_and_way_out(mappings, want):
    with pytest.raises(ValueError) as raised:
        Configuration.from_document({"resources": {"deviceClassMappings": mappings}})
    assert want in str(raised.value)


def test_template_is_kept_without_what_nobody_counts():
    found = template(
        "t",
        exactly(2, selectors=[{"cel": {"expression": "x" * 5000}}], tolerations=[{"key": "k"}]),
        {"name": "b", "firstAvailable": [{"name": "c"}]},
        *[exactly()] * 100,
    )
    found["metadata"]["annotations"] = {"long": "x" * 5000}
    found["spec"]["spec"]["devices"]["config"] = [{"opaque": {"parameters": {"x": "y" * 5000}}}]
    kept = template_facts(found)
    assert parse_claim_template(kept) == parse_claim_template(found)
    assert kept["metadata"] == {"namespace": "ns", "name": "t", "uid": "uid-t"}
    requests = kept["spec"]["spec"]["devices"]["requests"]
    assert len(requests) == REQUESTS_MOST + 1
    asked = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 2}
    assert requests[:2] == [{"exactly": asked | {"selectors": [{}]}}, {"firstAvailable": []}]


def test_more_requests_and_claims_than_are_read_are_refused():
    made = world(template("t", *[exactly()] * (REQUESTS_MOST + 1)), claiming("w", "t"))
    assert f"more than {REQUESTS_MOST} requests are not read" in made.message("w")
    with pytest.raises(ValueError, match=r"257 resource claims, and 256 are read at most"):
        made.feed(claiming("v", *["t"] * (CLAIMS_MOST + 1)))


@pytest.mark.parametrize("count", [-1, "many", 1.5, True])
def test_number_of_devices_that_is_none_makes_a_template_unreadable(count):
    with pytest.raises(ValueError, match=r"devices.requests\[0\].exactly.count: .* is no number"):
        world(template("t", exactly(count)))


def test_local_queue_of_another_namespace_with_a_longer_name_is_not_taken_for_it():
    made = world(template("t", exactly()))
    made.feed(local_queue("other", "q"))
    assert made.engine.state.queues.waiting_for("n/t") == []
