"""The shadow, turned by hand; what it would tell is kept. It writes to no cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from clusters.kube.pulse import Pulse
from clusters.kueue.explanation.why import Explanation
from clusters.reconcile.context import Clients, Registered, ShiftContext
from clusters.reconcile.runtime.faults import Doing, Parked
from clusters.reconcile.shadow.body import Preview, ShadowBody
from tests.builders import SmallFleet
from tests.reconcile.admission_harness import NS, Embedded, facts, job, kueue, quota_objects
from tests.reconcile.poisoned import Poison, Stage


@dataclass
class Listener:
    """A reporter for whom everything is always due."""

    heard: set[str] = field(default_factory=set)
    is_due: bool = True

    def start(self) -> None:
        """Nothing is to be begun."""

    def close(self) -> None:
        """Nothing is left."""

    def answer_one(self, *args: Any, **more: Any) -> bool:
        return False

    def show_shares(self, *args: Any, **more: Any) -> None:
        """Nobody looks."""

    def report(self, comparison: object) -> None:
        """Kept by nobody."""

    def tell(
        self,
        waiting: Iterable[str],
        explain: Callable[[str], Explanation | None],
        *args: Any,
        **more: Any,
    ) -> None:
        self.heard.update(key for key in waiting if explain(key) is not None)


@dataclass
class Shadow:
    """Workloads that wait, and are explained."""

    world: Embedded
    poison: Poison
    body: ShadowBody
    listener: Listener
    role: str = "shadow"

    def submit(self, name: str) -> None:
        template = job(name)["spec"]["template"]
        pod_set = {"name": "main", "count": 1, "template": template}
        spec = {"active": True, "queueName": "default", "podSets": [pod_set]}
        self.world["gpu-east"].create(kueue("Workload", name, spec, NS))

    def is_done(self, name: str) -> bool:
        return f"{NS}/{name}" in self.listener.heard

    def turn(self) -> None:
        self.body.turn()

    def standing(self) -> Parked:
        return self.body.faults.standing


@contextmanager
def shadow(fleet: SmallFleet) -> Iterator[Stage]:
    poison, listener = Poison(), Listener()
    explained = Preview.explain

    def explain(view: Preview, key: str) -> Explanation | None:
        poison.tried(Doing.DECIDING, key)
        return explained(view, key)

    with (
        Embedded("gpu-east", webhooks=True) as world,
        mock.patch.object(Preview, "explain", explain),
    ):
        world["gpu-east"].create(*quota_objects(0))
        client, stop, clients = world["gpu-east"].client, threading.Event(), Clients()
        context = ShiftContext(
            Registered(facts("gpu-east", mode="kueue"), b""),
            client=client,
            clients=clients,
            pulse=Pulse(client),
            stop=stop,
            fence=lambda: None,
            holder="test",
            role="shadow",
        )
        body = ShadowBody(context)
        body._reporter = listener
        poison.into(body)
        try:
            body.open()
            yield Shadow(world, poison, body, listener)
        finally:
            stop.set()
            body.close()
            clients.close()
