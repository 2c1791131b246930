"""What preflight says of a manager under a live Kueue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.models import Cluster
from clusters.services.preflight.rows import external_rows
from tests.reconcile.beside.policy import policy_documents
from tests.resources import resource_of

pytestmark = pytest.mark.embedded
OURS = {"multiKueue": {"dispatcherName": CHEAPEST_FIT}}


@pytest.fixture
def client() -> Iterator[KubeClient]:
    with (
        DevServer(DevCluster(ClusterOptions(name="hub"))) as server,
        KubeClient.from_kubeconfig(server.kubeconfig) as client,
    ):
        yield client


def rows(
    client: KubeClient, configuration: dict[str, Any], **changes: str
) -> dict[str, tuple[str, str]]:
    """State and text by name."""
    cluster = Cluster(**{"slug": "hub", "role": "manager", "mode": "kueue", **changes})
    found = external_rows(client, cluster, configuration)
    return {row.name: (row.state, row.found) for row in found}


def test_preflight_says_which_way_of_nominating_is_in_force(client: KubeClient):
    state, words = rows(client, OURS)["Nominations"]
    assert state == "ok" and words.startswith("M4")
    for document in policy_documents():
        client.create(resource_of(document), document)
    assert rows(client, OURS)["Nominations"][1].startswith("M2")
    gate = {**OURS, "featureGates": {"WorkloadRequestUseMergePatch": True}}
    assert rows(client, gate)["Nominations"][1].startswith("M1")


def test_preflight_warns_of_a_short_time_out_for_lost_workers(client: KubeClient):
    short = {"multiKueue": {"workerLostTimeout": "30s"}}
    state, words = rows(client, short)["Lost workers"]
    assert state == "warn" and "30 s" in words
    assert rows(client, {"multiKueue": {"workerLostTimeout": "5m"}}) == {}


@pytest.mark.parametrize("changes", [{"mode": "portal"}, {"role": "worker"}])
def test_preflight_says_nothing_of_it_elsewhere(client: KubeClient, changes: dict[str, str]):
    assert rows(client, {"multiKueue": {"workerLostTimeout": "1s"}}, **changes) == {}
