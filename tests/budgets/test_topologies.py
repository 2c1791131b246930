"""Topologies: what is refused, what they become on clusters, and what a flavor keeps."""

from __future__ import annotations

import pytest

from budgets import services
from budgets.errors import Rejected
from budgets.models import AuditEntry, Topology
from budgets.plan import ClusterPlace, plan_quota
from budgets.selectors import promises_in_force
from clusters.manifests.translate import Site, render
from tests.builders import SmallFleet, line

pytestmark = pytest.mark.django_db
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
PLACES = (
    ClusterPlace("manager", True, workers=("gpu-east",)),
    ClusterPlace("gpu-east", False),
    ClusterPlace("alone", False, is_single=True),
)


def racks(fleet: SmallFleet, *levels: str) -> Topology:
    return services.create_topology(
        fleet.admin, slug="racks", name="Racks", levels=levels or (BLOCK, RACK, HOST)
    )


def rendered(place: ClusterPlace) -> dict[tuple[str, str], dict]:
    documents = render(plan_quota(promises_in_force(), place), site=Site("test"))
    return {(row["kind"], row["metadata"]["name"]): row for row in documents}


def test_topology_stands_on_every_cluster_before_the_flavor_that_has_it(fleet: SmallFleet):
    services.give_topology(fleet.admin, flavor=fleet.flavors["h100"], topology=racks(fleet))
    for place in PLACES:
        found = rendered(place)
        keys = list(found)
        topology, flavor = ("Topology", "racks"), ("ResourceFlavor", "h100")
        assert keys.index(topology) < keys.index(flavor)
        levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
        assert found[topology]["spec"] == {"levels": levels}
        assert found[flavor]["spec"]["topologyName"] == "racks"
        assert "topologyName" not in found["ResourceFlavor", "l4"]["spec"]


def test_what_the_host_has_counts_in_the_flavor_of_placed_gpus(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 8), line("l4", 4))
    fleet.revise(fleet.search, line("l4", 4))

    def groups(queue: str) -> list[tuple[list[str], list[str]]]:
        spec = rendered(PLACES[1])["ClusterQueue", queue]["spec"]
        return [
            (group["coveredResources"], [flavor["name"] for flavor in group["flavors"]])
            for group in spec["resourceGroups"]
        ]

    host = ["cpu", "memory", "ephemeral-storage"]
    apart = [(["nvidia.com/gpu"], ["h100", "l4"]), (host, ["host"])]
    assert groups("acme-vision") == apart
    before = {row.namespace: row.generation for row in promises_in_force().workspaces}
    services.give_topology(fleet.admin, flavor=fleet.flavors["h100"], topology=racks(fleet))
    assert groups("acme-vision") == [(["nvidia.com/gpu", *host], ["h100", "l4"])]
    assert groups("globex-search")[-1] == (host, ["host"])
    after = {row.namespace: row.generation for row in promises_in_force().workspaces}
    assert {name for name in after if after[name] != before[name]} == {"acme-vision"}
    for group in rendered(PLACES[0])["ClusterQueue", "acme-vision"]["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            assert [row["name"] for row in flavor["resources"]] == group["coveredResources"]


@pytest.mark.parametrize(
    ("levels", "code"),
    [
        pytest.param((), "count", id="none"),
        pytest.param(tuple(f"l{n}" for n in range(17)), "count", id="too many"),
        pytest.param((RACK, RACK), "twice", id="twice"),
        pytest.param((HOST, RACK), "hostname_last", id="hostname above others"),
        pytest.param(("a rack",), "not_a_label", id="no label"),
        pytest.param(("x" * 400,), "not_a_label", id="too long"),
    ],
)
def test_levels_that_kueue_would_refuse_are_refused(fleet: SmallFleet, levels, code: str):
    with pytest.raises(Rejected) as caught:
        services.create_topology(fleet.admin, slug="racks", name="Racks", levels=levels)
    assert code in {fault.code for fault in caught.value.faults}
    assert not Topology.objects.exists()


def test_a_flavor_keeps_its_topology_and_what_it_finds_nodes_by(fleet: SmallFleet):
    h100, topology = fleet.flavors["h100"], racks(fleet)
    services.give_topology(fleet.admin, flavor=h100, topology=topology)
    entry = AuditEntry.objects.get(action="flavor.topology")
    assert (entry.subject, entry.after) == ("flavor:h100", {"topology": "racks"})
    other = services.create_topology(fleet.admin, slug="other", name="Other", levels=[RACK])
    with pytest.raises(Rejected, match="Make a new flavor"):
        services.give_topology(fleet.admin, flavor=h100, topology=other)
    toleration = [{"key": "gpu", "operator": "Exists"}]
    for change in ({"node_labels": {"gpu": "new"}}, {"tolerations": toleration}):
        with pytest.raises(Rejected, match="never change"):
            services.edit_flavor(fleet.admin, flavor=h100, **change)
    services.edit_flavor(fleet.admin, flavor=h100, name="H100 SXM", node_labels={"gpu": "h100"})
    with pytest.raises(Rejected, match="archive the flavor first"):
        services.archive_topology(fleet.admin, topology=topology, reason="over")
    services.archive_topology(fleet.admin, topology=other, reason="over")
    assert ("Topology", "other") not in rendered(PLACES[0])


def test_a_flavor_without_labels_gets_no_topology(fleet: SmallFleet):
    bare = services.create_flavor(fleet.admin, slug="bare", name="Bare")
    with pytest.raises(Rejected, match="no node labels"):
        services.give_topology(fleet.admin, flavor=bare, topology=racks(fleet))
