"""Embedded clusters with registered rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.devcluster.server import DevServer
from clusters.models import Cluster
from tests.builders import SmallFleet
from tests.reconcile.east import east, kube
from tests.reconcile.fleet_rows import Hand, quota_hand, register
from tests.reconcile.real_road import bare_road, installation, kueue_road

__all__ = ["bare_road", "east", "installation", "kube", "kueue_road"]  # fixtures


@pytest.fixture
def worker(fleet: SmallFleet, east: DevServer) -> Cluster:
    """The registered worker gpu-east of the small fleet."""
    return register("gpu-east", east.kubeconfig)


@pytest.fixture
def hand(worker: Cluster) -> Iterator[Hand]:
    """Quota sync on gpu-east, turned by hand."""
    with quota_hand(worker.slug) as hand:
        yield hand
