"""Usage on an embedded cluster: Workloads whose states are written down and built."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from clusters.kube.client import KubeClient
from clusters.models import WorkloadEvent, WorkloadState
from clusters.reconcile.runtime.faults import Doing, Parked
from clusters.reconcile.usage import body as usage_body
from clusters.reconcile.usage.build import Built, Source
from clusters.reconcile.usage.build import build as build_states
from clusters.reconcile.usage.record import Observation, event_of, store_events
from tests.builders import SmallFleet
from tests.reconcile.fleet_rows import dev_server, register
from tests.reconcile.poisoned import Poison, Stage
from tests.reconcile.usage_hand import Kueue, UsageHand, ago, kueue_on, usage_hand


@dataclass
class Usage:
    """Workloads of one namespace, and the body that writes down what happens to them."""

    kueue: Kueue
    poison: Poison
    hand: UsageHand
    role: str = "usage"

    def submit(self, name: str) -> None:
        self.kueue.submit(name)
        self.kueue.admit(name, ago(60))

    def is_done(self, name: str) -> bool:
        return WorkloadState.objects.filter(name=name, phase="running").exists()

    def turn(self) -> None:
        self.hand.body.turn()

    def standing(self) -> Parked:
        return self.hand.context.faults.standing


@contextmanager
def usage(fleet: SmallFleet) -> Iterator[Stage]:
    poison = Poison()

    def read(seen: Observation, **about: Any) -> WorkloadEvent:
        poison.tried(Doing.READING, seen.document["metadata"]["name"])
        return event_of(seen, **about)

    def write(events: Iterable[WorkloadEvent]) -> None:
        rows = list(events)
        poison.tried(Doing.WRITING, [row.name for row in rows])
        store_events(rows)

    def build(source: Source, uids: Collection[str]) -> Built:
        names = WorkloadEvent.objects.filter(uid__in=uids).values_list("name", flat=True)
        poison.tried(Doing.DECIDING, list(names))
        return build_states(source, uids)

    with dev_server("gpu-east") as server:
        register("gpu-east", server.kubeconfig)
        with (
            KubeClient.from_kubeconfig(server.kubeconfig) as client,
            usage_hand("gpu-east") as hand,
            mock.patch.object(usage_body, "event_of", read),
            mock.patch.object(usage_body, "store_events", write),
            mock.patch.object(usage_body.building, "build", build),
        ):
            yield Usage(kueue_on(client), poison, hand)
