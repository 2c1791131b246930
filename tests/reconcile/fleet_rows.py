"""Registered clusters on embedded API servers, and one turn of a quota body without its threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.kube.client import KubeClient
from clusters.kube.pulse import Pulse
from clusters.models import Cluster, ClusterHealth
from clusters.reconcile.context import Clients, ShiftContext, registered
from clusters.reconcile.quota import QuotaBody
from clusters.reconcile.runtime.writer import no_fault
from clusters.vault import seal, unseal
from tests.waiting import PATIENCE_S


def register(slug: str, kubeconfig: str, *, role: str = "worker", mode: str = "kueue") -> Cluster:
    """A Cluster row without a preflight."""
    cluster = Cluster.objects.create(
        slug=slug,
        name=slug.title(),
        role=role,
        mode=mode,
        server="https://example.invalid",
        context=slug,
        user_kind="bearer token",
        kubeconfig_sealed=seal(kubeconfig),
    )
    ClusterHealth.objects.create(cluster=cluster)
    return cluster


@dataclass
class Hand:
    """A quota body that a test turns by hand."""

    body: QuotaBody
    context: ShiftContext
    fenced: list[str] = field(default_factory=list)

    def settle(self, turns: int = 40) -> None:
        """Turns until nothing is left to do, at most so often; nothing waits for its time."""
        quiet = 0
        for _ in range(turns):
            queue = self.body.queue
            queue.add_all(queue.wake(datetime.max.replace(tzinfo=UTC), math.inf))
            self.body.turn()
            self.context.stop.wait(0.03)
            is_quiet = not self.body.inbox and not self.body.queue.ready
            quiet = quiet + 1 if is_quiet else 0
            if quiet >= 3:
                return

    def sweep(self) -> None:
        """Have everything looked at with the next turn."""
        self.body.queue.add_all(self.body.all_keys())


@contextmanager
def quota_hand(slug: str, *, fence=lambda: None, hook=no_fault) -> Iterator[Hand]:
    """A quota body on a registered cluster, with real watches and without a Lease."""
    registration = registered(slug)
    assert registration is not None
    stop = threading.Event()
    with KubeClient.from_kubeconfig(unseal(registration.sealed)) as client:
        pulse = Pulse(client)
        beating = threading.Thread(target=pulse.run, args=(stop,), daemon=True)
        beating.start()
        clients = Clients()
        context = ShiftContext(
            registration,
            client=client,
            clients=clients,
            pulse=pulse,
            stop=stop,
            fence=fence,
            holder="test",
        )
        body = QuotaBody(context, hook=hook)
        body.tick_s = 0.01
        try:
            assert body.open()
            yield Hand(body, context)
        finally:
            stop.set()
            body.close()
            clients.close()
            beating.join(PATIENCE_S)


@contextmanager
def dev_server(name: str, **options) -> Iterator[DevServer]:
    """One embedded cluster."""
    made = ClusterOptions(name=name, bookmark_every_s=0.5, **options)
    with DevServer(DevCluster(made)) as server:
        yield server
