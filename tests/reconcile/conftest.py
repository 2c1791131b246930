"""Embedded clusters with registered rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.devcluster.server import DevServer
from clusters.kube.client import HttpKubeClient
from clusters.models import Cluster
from tests.builders import SmallFleet
from tests.reconcile.fleet_rows import Hand, dev_server, quota_hand, register
from tests.reconcile.real_road import bare_road, installation, kueue_road

__all__ = ["bare_road", "installation", "kueue_road"]  # fixtures


@pytest.fixture
def east() -> Iterator[DevServer]:
    """The embedded worker gpu-east."""
    with dev_server("gpu-east") as server:
        yield server


@pytest.fixture
def kube(east: DevServer) -> Iterator[HttpKubeClient]:
    """An administrator's client on gpu-east."""
    with HttpKubeClient.from_kubeconfig(east.kubeconfig) as client:
        yield client


@pytest.fixture
def worker(fleet: SmallFleet, east: DevServer) -> Cluster:
    """The registered worker gpu-east of the small fleet."""
    return register("gpu-east", east.kubeconfig)


@pytest.fixture
def hand(worker: Cluster) -> Iterator[Hand]:
    """Quota sync on gpu-east, turned by hand."""
    with quota_hand(worker.slug) as hand:
        yield hand
