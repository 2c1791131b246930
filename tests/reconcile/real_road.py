"""Fixtures: three registered real clusters whose quota bodies a test turns by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from django.conf import settings

from clusters.documents import labels
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.models import Cluster, ObjectState
from tests.builders import SmallFleet
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.queues import job
from tests.reconcile.fleet_rows import Hand, quota_hand
from tests.reconcile.real_clusters import admin_client, register_real
from tests.waiting import PATIENCE_S, eventually

WORKERS = ("gpu-east", "gpu-west")
NAMESPACE = "acme-vision"
NAMESPACES = (NAMESPACE, "acme-speech", "globex-search")


@dataclass
class Road:
    """Three registered clusters: a body and an administrator's client for each."""

    hands: list[Hand]
    manager: KubeClient
    workers: list[KubeClient]

    def until(self, check: Callable[[], bool]) -> None:
        """Turns all bodies until the check holds."""
        ends = time.monotonic() + 2 * PATIENCE_S  # three bodies are turned in between
        while not check():
            assert time.monotonic() < ends, self.troubles()
            for hand in self.hands:
                hand.settle(turns=3)

    def submit(self, name: str, *, gpus: int = 2, run_for: str = "900s") -> None:
        """A Job of acme-vision, on the manager."""
        document = job(name, gpus=gpus, run_for=run_for)
        document["metadata"]["namespace"] = NAMESPACE
        self.manager.create(r.JOB, document)

    def workload(self, name: str) -> dict[str, Any]:
        """The Workload of such a Job on the manager; empty while there is none."""
        for found in self.manager.list(r.WORKLOAD).items:
            owners = found["metadata"].get("ownerReferences") or []
            if found["metadata"]["namespace"] == NAMESPACE and any(
                owner["name"] == name for owner in owners
            ):
                return found
        return {}

    def clear(self) -> None:
        """Deletes all Jobs of acme-vision and waits until their Workloads are gone everywhere.

        The clusters are shared: the next test's queue would admit a Job that is left.
        """
        for found in self.manager.list(r.JOB).items:
            if found["metadata"]["namespace"] == NAMESPACE:
                with suppress(NotFound):
                    self.manager.delete(r.JOB, found["metadata"]["name"], namespace=NAMESPACE)
        eventually(lambda: not self.workloads(), why=self.workloads)

    def workloads(self) -> list[str]:
        """Workloads of acme-vision, on whichever cluster."""
        return [
            f"{number} {found['metadata']['name']}"
            for number, client in enumerate((self.manager, *self.workers))
            for found in client.list(r.WORKLOAD).items
            if found["metadata"]["namespace"] == NAMESPACE
        ]

    @staticmethod
    def troubles() -> list[tuple[str, ...]]:
        rows = ObjectState.objects.exclude(state="synced").select_related("cluster")
        return [(x.cluster.slug, x.kind, x.name, x.state, x.message) for x in rows]

    @staticmethod
    def is_settled() -> bool:
        return (
            ObjectState.objects.exists()
            and not ObjectState.objects.exclude(state="synced", message="")
            .exclude(name="host")
            .exists()
        )


@pytest.fixture
def installation(settings) -> str:
    """An installation of this test alone: the clusters are shared by the session."""
    settings.PORTAL_INSTALLATION = f"t{time.monotonic_ns() % 10**9}"
    settings.KUEUE_PROOF_SECONDS = PATIENCE_S  # ends as soon as a Kueue answers
    return str(settings.PORTAL_INSTALLATION)


def hand_over_namespaces(plane: ControlPlane) -> None:
    """As an admin does for a namespace that is there already: the policies keep the portal off."""
    labels_now = {"metadata": {"labels": {labels.INSTALLATION: settings.PORTAL_INSTALLATION}}}
    with admin_client(plane) as client:
        for name in NAMESPACES:
            with suppress(NotFound):
                client.patch(r.NAMESPACE, name, labels_now)


def road(fleet: Fleet, *, mode: str) -> Iterator[Road]:
    """Grant, register, sync; afterwards everything is drained and pruned again."""
    for plane in fleet.clusters:
        hand_over_namespaces(plane)
    register_real(fleet.manager, "manager", role="manager", mode=mode, workers=WORKERS)
    for slug, plane in zip(WORKERS, fleet.workers, strict=True):
        register_real(plane, slug, role="worker", mode=mode)
    with ExitStack() as stack:
        hands = [stack.enter_context(quota_hand(slug)) for slug in ("manager", *WORKERS)]
        clients = [stack.enter_context(admin_client(plane)) for plane in fleet.clusters]
        found = Road(hands, clients[0], clients[1:])
        yield found
        found.clear()
        Cluster.objects.update(state=Cluster.State.DRAINING, writes_enabled=True)
        found.until(lambda: not Cluster.objects.exclude(state="removed").exists())


@pytest.fixture
def kueue_road(fleet: SmallFleet, installation: str, kueue_fleet: Fleet) -> Iterator[Road]:
    """Manager and two workers under Kueue."""
    yield from road(kueue_fleet, mode="kueue")


@pytest.fixture
def bare_road(fleet: SmallFleet, installation: str, bare_fleet: Fleet, settings) -> Iterator[Road]:
    """Manager and two workers with the CRDs alone."""
    settings.KUEUE_PROOF_SECONDS = 0.5  # nobody is there to answer, however long it is waited
    yield from road(bare_fleet, mode="portal")
