"""What a reader calls flavors, topologies, clusters and queues: by name, not by slug."""

from __future__ import annotations

import pytest

from budgets import services
from clusters.models import Cluster
from clusters.selectors.names import every_name, reader_names
from tests.builders import SmallFleet
from tests.reconcile.fleet_rows import register

pytestmark = pytest.mark.django_db


@pytest.fixture
def named(fleet: SmallFleet) -> Cluster:
    levels = ["example.com/block", "example.com/rack"]
    services.create_topology(fleet.admin, slug="racks", name="Racks", levels=levels)
    services.create_pool(fleet.admin, slug="spare", name="Spare GPUs")
    return register("gpu-east", "{}")


def test_who_sees_everything_reads_every_name(
    fleet: SmallFleet, named: Cluster, django_assert_num_queries
):
    with django_assert_num_queries(1):
        names = every_name()
    assert reader_names(fleet.auditor) == names
    assert names.sees_everything
    assert (names.flavor("h100-spot"), names.topology("racks")) == ("H100-SPOT", "Racks")
    assert names.cluster("gpu-east") == named.name
    queues = ("acme-vision", "globex-search", "acme", "pool-spare")
    assert [names.queue(name) for name in queues] == [
        "workspace Vision of Acme",
        "workspace Search of Globex",
        "account Acme",
        "platform pool Spare GPUs",
    ]
    # What the portal does not know goes by the name that it has on the cluster.
    assert [names.queue("by-hand"), names.cluster("moon"), names.flavor("x")] == [
        "by-hand",
        "moon",
        "x",
    ]


def test_an_owner_reads_names_of_things_that_are_everybodys(fleet: SmallFleet, named: Cluster):
    names = reader_names(fleet.owner)
    assert (names.flavor("h100"), names.topology("racks")) == ("H100", "Racks")
    assert (names.clusters, names.queues) == ({}, {})
    assert names.queue("acme-vision") == "workspace Vision"
    assert names.queue("pool-spare") == "the platform pool"
    assert names.queue("globex-search") == "another account"
