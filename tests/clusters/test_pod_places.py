"""Where the pods of a job are: what is kept of an admission, and what a person sees of it."""

from __future__ import annotations

from typing import Any

import pytest

from budgets import services
from clusters import selectors
from clusters.kueue.workload.placement import (
    PlacedPods,
    Placement,
    parse_placement,
    placement_document,
)
from clusters.models import NodeSight, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.record import DOMAINS_MOST, payload_of
from tests.builders import START, SmallFleet
from tests.clusters.test_workload_selectors import clusters as clusters  # the fixture
from tests.clusters.test_workload_selectors import dispatched, seen
from tests.reconcile.racks import BLOCK, HOST, RACK

GPU = "nvidia.com/gpu"


def admitted(*placed: tuple[str, ...], levels: tuple[str, ...] = (HOST,), pods: int = 2) -> Any:
    """A Workload of one pod set with so many pods in each domain."""
    domains = tuple(PlacedPods(values, pods) for values in placed)
    assignment = {
        "name": "main",
        "count": pods * len(placed),
        "flavors": {"cpu": "host", GPU: "h100"},
        "topologyAssignment": placement_document(Placement(levels, domains), splits_by_prefix=True),
    }
    return {
        "metadata": {"name": "train", "namespace": "acme-vision"},
        "spec": {"podSets": [{"name": "main", "count": assignment["count"]}]},
        "status": {"admission": {"podSetAssignments": [assignment]}},
    }


def kept_of(document: Any) -> Any:
    [assignment] = payload_of(document, gpu_resources=(GPU,))["status"]["admission"][
        "podSetAssignments"
    ]
    return assignment.get("topologyAssignment")


def test_a_recorded_state_keeps_where_pods_are():
    document = admitted(("n0",), ("n1",))
    [told] = document["status"]["admission"]["podSetAssignments"]
    assert kept_of(document) == told["topologyAssignment"]


def test_of_many_domains_the_first_are_kept():
    placement = parse_placement(kept_of(admitted(*((f"n{each:04}",) for each in range(3000)))))
    assert placement is not None
    assert [each.domain for each in placement.domains] == [f"n{n:04}" for n in range(DOMAINS_MOST)]


@pytest.mark.parametrize(
    "told",
    [
        {"slices": [{"domainCount": 3}]},
        {"slices": [{"domainCount": 10**9, "valuesPerLevel": [], "podCounts": {"universal": 1}}]},
        {"levels": [HOST], "slices": "x"},
        {"levels": ["x" * 200_000], "slices": []},
        "nonsense",
    ],
)
def test_what_nobody_can_read_of_it_is_left_out(told: Any):
    document = admitted(("n0",))
    document["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = told
    assert kept_of(document) is None


def show(state: WorkloadState, document: Any, *, version: str = "1") -> None:
    WorkloadEvent.objects.create(
        cluster=state.cluster.slug, uid=state.uid, resource_version=version, type="SEEN",
        namespace=state.namespace, name=state.name, observed_at=START, digest="0" * 64,
        payload=payload_of(document, gpu_resources=(GPU,)),
    )  # fmt: skip


def racks_of(fleet: SmallFleet, cluster: str = "gpu-east") -> None:
    """Two racks of two nodes, and the topology that says so."""
    topology = services.create_topology(
        None, slug="racks", name="Racks", levels=[BLOCK, RACK, HOST]
    )
    services.give_topology(None, flavor=fleet.flavors["h100"], topology=topology)
    for number in range(4):
        labels = {BLOCK: "b0", RACK: f"r{number // 2}", HOST: f"n{number}"}
        NodeSight.objects.create(
            cluster=cluster, name=f"n{number}", flavor="h100", labels=labels, gpus=8, used=0
        )


@pytest.mark.django_db
def test_an_owner_sees_block_rack_and_nodes_of_a_job_on_its_worker(
    fleet: SmallFleet, clusters: Any, django_assert_max_num_queries: Any
):
    racks_of(fleet)
    own, copy = dispatched(clusters, "acme-vision", "train")
    show(copy, admitted(("n0",), ("n3",), pods=1), version="0")
    show(copy, admitted(("n1",), ("n2",), ("n0",)))
    with django_assert_max_num_queries(10):
        [places] = selectors.workload_detail(fleet.owner, "hub", own.uid).pods
    assert (places.cluster, places.pod_set, places.more) == ("gpu-east", "main", 0)
    assert places.levels == (BLOCK, RACK, HOST)
    assert [(each.values, each.pods) for each in places.domains] == [
        (("b0", "r0", "n0"), 2),
        (("b0", "r0", "n1"), 2),
        (("b0", "r1", "n2"), 2),
    ]
    assert [(at, len(found)) for at, found in places.together()] == [
        (("b0", "r0"), 2),
        (("b0", "r1"), 1),
    ]
    assert places.columns == "Block|Rack|Pods by node"


@pytest.mark.django_db
def test_nobody_sees_it_of_a_job_of_others(fleet: SmallFleet, clusters: Any):
    other = seen(clusters["hub"], "globex-search", "theirs", "running")
    show(other, admitted(("n0",)))
    assert selectors.workload_detail(fleet.admin, "hub", other.uid).pods
    with pytest.raises(WorkloadState.DoesNotExist):
        selectors.workload_detail(fleet.owner, "hub", other.uid)


@pytest.mark.django_db
def test_a_job_that_holds_no_quota_any_more_has_no_places(fleet: SmallFleet, clusters: Any):
    for phase in ("pending", "finished", "failed", "gone"):
        state = seen(clusters["hub"], "acme-vision", phase, phase)
        show(state, admitted(("n0",)))
        assert selectors.workload_detail(fleet.owner, "hub", state.uid).pods == ()


@pytest.mark.django_db
def test_levels_that_an_admission_names_are_told_as_they_are(fleet: SmallFleet, clusters: Any):
    state = seen(clusters["hub"], "acme-vision", "train", "running")
    show(state, admitted(("b0", "r0"), ("b0", "r1"), levels=(BLOCK, RACK)))
    [places] = selectors.workload_detail(fleet.owner, "hub", state.uid).pods
    assert places.levels == (BLOCK, RACK)
    assert [each.values for each in places.domains] == [("b0", "r0"), ("b0", "r1")]


@pytest.mark.django_db
def test_what_is_not_known_of_a_node_stays_empty_and_what_is_not_listed_is_counted(
    fleet: SmallFleet, clusters: Any
):
    racks_of(fleet)
    # Called n9, and labelled as another node: an admission names labels.
    NodeSight.objects.filter(name="n3").update(name="n9")
    state = seen(clusters["gpu-east"], "acme-vision", "train", "running")
    show(state, admitted(("n9",), *((f"m{each:04}",) for each in range(DOMAINS_MOST))))
    [places] = selectors.workload_detail(fleet.admin, "gpu-east", state.uid).pods
    assert places.domains[-1].values == ("", "", "n9")
    assert places.more == 2
    assert len(places.domains) == DOMAINS_MOST


@pytest.mark.django_db
@pytest.mark.parametrize(
    "nonsense",
    [
        {"count": "many"},
        {"count": None, "flavors": None},
        {"flavors": ["h100"]},
        {"flavors": {GPU: ["h100"], "cpu": {}}},
        {"name": {"a": 1}},
    ],
    ids=str,
)
def test_what_a_cluster_tells_wrongly_beside_it_breaks_no_page(
    fleet: SmallFleet, clusters: Any, nonsense: dict[str, Any]
):
    racks_of(fleet)
    state = seen(clusters["gpu-east"], "acme-vision", "train", "running")
    document = admitted(("n0",))
    document["status"]["admission"]["podSetAssignments"][0] |= nonsense
    show(state, document)
    [places] = selectors.workload_detail(fleet.admin, "gpu-east", state.uid).pods
    assert [(each.name, each.pods) for each in places.domains] == [("n0", 2)]
    assert places.more == 0


@pytest.mark.parametrize("value", [7, None, ["n0"], {"n": 0}], ids=str)
def test_a_domain_whose_name_is_no_text_is_not_kept(value: Any):
    document = admitted(("n0",))
    [assignment] = document["status"]["admission"]["podSetAssignments"]
    assignment["topologyAssignment"]["slices"][0]["valuesPerLevel"] = [{"universal": value}]
    kept = kept_of(document)
    placement = parse_placement(kept) if kept else None
    assert placement is None or all(isinstance(each.domain, str) for each in placement.domains)
