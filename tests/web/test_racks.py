"""Racks on pages: a topology out of the labels that nodes have, its check, and what is free."""

from __future__ import annotations

import re

import pytest

from budgets import services
from budgets.models import AuditEntry, Topology
from clusters.models import Cluster, NodeSight
from portal.web.fleet import DOMAINS_SHOWN
from tests.clusters.test_pod_places import admitted, show
from tests.clusters.test_workload_selectors import seen
from tests.web.conftest import Visitors

pytestmark = pytest.mark.django_db
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
PAGE, SET_UP = "/fleet/racks/", "/setup/topologies/"
NEW = {"section": "new", "slug": "racks", "name": "Racks", "first": BLOCK, "second": RACK}


def add_node(name: str, block: str, rack: str, *, used: int = 0) -> None:
    labels = {BLOCK: block, RACK: rack, HOST: name, "gpu": "h100"}
    kept = {key: value for key, value in labels.items() if value}
    NodeSight.objects.create(
        cluster="gpu-east", name=name, flavor="h100", labels=kept, gpus=8, used=used
    )


@pytest.fixture
def racked(visitors: Visitors) -> Visitors:
    """Two blocks of two racks of two nodes; of each rack 5 GPUs are in use."""
    Cluster.objects.create(
        slug="gpu-east", name="East", role="worker", mode="kueue", server="https://x",
        context="x", user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
    for number in range(8):
        rack = number // 2
        add_node(f"n{number}", f"b{rack // 2}", f"r{rack}", used=5 * (number % 2))
    return visitors


def given(visitors: Visitors) -> None:
    topology = services.create_topology(
        None, slug="racks", name="Racks", levels=[BLOCK, RACK, HOST]
    )
    services.give_topology(None, flavor=visitors.fleet.flavors["h100"], topology=topology)


def test_topology_is_made_of_labels_that_nodes_have_and_given_to_a_flavor(racked: Visitors):
    client = racked["admin"]
    text = racked.text("admin", SET_UP)
    assert "example.com/rack: 4 values on 8 nodes" in text
    assert client.post(SET_UP, {**NEW, "first": "example.com/row"}).status_code == 422
    made = client.post(SET_UP, {**NEW, "by_host": "on"})
    assert made["Location"] == "/setup/topologies/racks/"
    assert Topology.objects.get().levels == [BLOCK, RACK, HOST]
    assert "Every node has every label" in racked.text("admin", made["Location"])
    done = client.post(made["Location"], {"section": "give", "flavor": "h100"})
    assert done.status_code == 302
    racked.fleet.flavors["h100"].refresh_from_db()
    assert racked.fleet.flavors["h100"].topology == Topology.objects.get()
    assert AuditEntry.objects.get(action="flavor.topology").actor == racked.fleet.admin
    again = client.post(made["Location"], {"section": "give", "flavor": "h100"})
    assert again.status_code == 422


def test_what_labels_get_wrong_is_told_before_it_is_given(racked: Visitors):
    services.create_topology(None, slug="racks", name="Racks", levels=[BLOCK, RACK, HOST])
    add_node("n8", "b0", "")
    add_node("n9", "b1", "r0")
    text = racked.text("admin", "/setup/topologies/racks/")
    assert "1 of 10 node has no label example.com/rack: n8." in text
    assert "kubectl label node n8 example.com/rack=RACK" in text
    assert "The rack r0 is in 2 domains of the level block: b0, b1." in text


def test_without_nodes_the_form_says_what_to_do(visitors: Visitors):
    assert "Register a cluster" in visitors.text("admin", SET_UP)
    services.create_topology(None, slug="racks", name="Racks", levels=[RACK])
    assert "No node with GPUs is known yet." in visitors.text("admin", "/setup/topologies/racks/")
    assert "No flavor with a topology has nodes." in visitors.text("admin", PAGE)


def test_page_shows_blocks_then_racks_then_nodes_with_what_is_free(racked: Visitors):
    given(racked)
    (table,) = racked["auditor"].get(PAGE).context["tables"]
    assert [(row.name, row.gpus, row.free) for row, *_ in table["rows"]] == [
        ("b0", 32, 22),
        ("b1", 32, 22),
    ]
    assert (table["free"], table["gpus"], table["largest"]) == (44, 64, 22)
    address = table["rows"][0][1]
    (table,) = racked["auditor"].get(address).context["tables"]
    assert [(row.name, row.free) for row, *_ in table["rows"]] == [("r0", 11), ("r1", 11)]
    (table,) = racked["auditor"].get(table["rows"][0][1]).context["tables"]
    assert [(row.name, row.free, url) for row, url, _ in table["rows"]] == [
        ("n0", 8, ""),
        ("n1", 3, ""),
    ]
    assert racked["auditor"].get(PAGE, {"in": ["a", "b", "c", "d", "e"]}).status_code == 200


def test_only_who_sees_the_platform_sees_where_nodes_stand(racked: Visitors):
    given(racked)
    for role in ("owner", "viewer", "nobody"):
        for address in (PAGE, SET_UP, "/setup/topologies/racks/"):
            assert racked[role].get(address).status_code == 403
    for role in ("finance", "auditor", "owner"):
        assert racked[role].post(SET_UP, NEW).status_code == 403
    assert Topology.objects.count() == 1


def test_page_of_many_domains_is_bounded(racked: Visitors, django_assert_max_num_queries):
    given(racked)
    NodeSight.objects.bulk_create(
        NodeSight(
            cluster="gpu-east", name=f"m{n}", flavor="h100", gpus=8, used=0,
            labels={BLOCK: f"x{n:04}", RACK: "r", HOST: f"m{n}"},
        )
        for n in range(1000)
    )  # fmt: skip
    with django_assert_max_num_queries(25):
        answer = racked["admin"].get(PAGE)
    (table,) = answer.context["tables"]
    assert (len(table["rows"]), table["more"]) == (DOMAINS_SHOWN, 1002 - DOMAINS_SHOWN)
    assert len(answer.content) < 100_000


def test_budget_form_says_what_the_largest_job_in_one_domain_is(racked: Visitors):
    page = "/workspaces/acme-vision/budget/"
    assert "Largest job of" not in racked.text("owner", page)
    given(racked)
    text = " ".join(racked.text("owner", page).split())
    assert "Largest job of H100: 16 GPUs within one rack, 32 GPUs within one block." in text


def test_job_page_and_api_say_where_its_pods_are_to_who_may_see_the_job(racked: Visitors):
    given(racked)
    worker = Cluster.objects.get(slug="gpu-east")
    for namespace in ("acme-vision", "globex-search"):
        state = seen(worker, namespace, "train", "running", uid=f"uid-{namespace}")
        show(state, admitted(("n1",), ("n2",), ("n0",)))
    page, answer = "/jobs/gpu-east/uid-acme-vision/", "/api/v1/workloads/gpu-east/uid-acme-vision"
    text = " ".join(re.sub("<[^>]+>", " ", racked.text("owner", page)).split())
    assert "Where its pods are placed" in text
    assert "Block Rack Pods by node b0 r0 n0: 2, n1: 2 b0 r1 n2: 2" in text
    [places] = racked["owner"].get(answer).json()["pods"]
    assert places["levels"] == [BLOCK, RACK, HOST]
    assert places["domains"][0] == {"values": ["b0", "r0", "n0"], "pods": 2}
    for address in (page, answer):
        theirs = address.replace("acme-vision", "globex-search")
        assert racked["owner"].get(theirs).status_code == 404
        assert racked["auditor"].get(theirs).status_code == 200
