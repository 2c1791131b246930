"""Fixtures of the contract suite: the same client, on the embedded and on a real API server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[DevServer]:
    """One embedded API server for the contract suite; without webhooks, as on a bare cluster."""
    options = ClusterOptions(name="contract", webhooks=False)
    with DevServer(DevCluster(options)) as server:
        yield server


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("embedded", marks=pytest.mark.embedded),
        pytest.param("real", marks=pytest.mark.controlplane),
    ],
)
def contract_kubeconfig(request: pytest.FixtureRequest) -> str:
    """A kubeconfig with all rights, of the embedded and of a real API server in turn."""
    if request.param == "embedded":
        server: DevServer = request.getfixturevalue("embedded_server")
        return server.kubeconfig
    text: str = request.getfixturevalue("bare_cluster").admin_kubeconfig.read_text()
    return text


@pytest.fixture(scope="session")
def contract_client(contract_kubeconfig: str) -> Iterator[KubeClient]:
    """A client for `contract_kubeconfig`."""
    with KubeClient.from_kubeconfig(contract_kubeconfig) as client:
        yield client


@pytest.fixture
def dev() -> Iterator[DevServer]:
    """An embedded API server of the test's own, to break."""
    with DevServer(DevCluster(ClusterOptions(name="dev", bookmark_every_s=0.2))) as server:
        yield server


@pytest.fixture
def client(dev: DevServer) -> Iterator[KubeClient]:
    """A client for `dev`."""
    with KubeClient.from_kubeconfig(dev.kubeconfig) as client:
        yield client


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def namespace(contract_client: KubeClient, unique: Callable[[str], str]) -> str:
    """A fresh namespace on the cluster of the contract suite."""
    name = unique("contract")
    contract_client.create(r.NAMESPACE, {"metadata": {"name": name}})
    return name


@pytest.fixture
def forget_history(contract_kubeconfig: str, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Makes the cluster of the contract suite forget the changes before now."""
    if contract_kubeconfig.startswith("{"):
        server: DevServer = request.getfixturevalue("embedded_server")
        return server.cluster.store.compact
    plane = request.getfixturevalue("bare_cluster")

    def restart() -> None:
        # A kube-apiserver's watch cache begins anew with it.
        plane.kill_api_server()
        plane.start_api_server()

    return restart


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on an embedded server of their own carry its marker as well."""
    for item in items:
        if "dev" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.embedded)
