"""An embedded worker gpu-east, as fixtures; a conftest imports those that its tests ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.devcluster.server import DevServer
from clusters.kube.client import KubeClient
from tests.reconcile.fleet_rows import dev_server


@pytest.fixture
def east() -> Iterator[DevServer]:
    """The embedded worker gpu-east."""
    with dev_server("gpu-east") as server:
        yield server


@pytest.fixture
def kube(east: DevServer) -> Iterator[KubeClient]:
    """An administrator's client on gpu-east."""
    with KubeClient.from_kubeconfig(east.kubeconfig) as client:
        yield client
