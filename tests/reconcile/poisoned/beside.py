"""Guard and external dispatcher beside a live Kueue, in a shift of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.external import ExternalBody
from clusters.reconcile.runtime.faults import Parked
from tests.builders import SmallFleet
from tests.reconcile.admission_harness import (
    CHECK,
    NS,
    Embedded,
    job,
    kueue,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.poisoned import Poison, Stage

AT = "2026-03-01T11:00:00Z"
STATUS = WriteOptions(field_manager="kueue", subresource="status")


@dataclass
class Beside:
    """Workloads of a manager under a live Kueue that wait to be nominated for a worker."""

    fleet: Embedded
    poison: Poison
    bodies: list[ExternalBody]
    role: str = "dispatch"

    def submit(self, name: str) -> None:
        template = job(name)["spec"]["template"]
        pod_set = {"name": "main", "count": 1, "template": template}
        manager = self.fleet["manager"]
        manager.create(kueue("Workload", name, {"queueName": "default", "podSets": [pod_set]}, NS))
        entry = {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": AT}
        status = {"conditions": [condition("QuotaReserved")], "admissionChecks": [entry]}
        manager.client.patch(r.WORKLOAD, name, {"status": status}, namespace=NS, options=STATUS)

    def is_done(self, name: str) -> bool:
        found = self.fleet["manager"].get(r.WORKLOAD, name, NS) or {}
        return bool((found.get("status") or {}).get("nominatedClusterNames"))

    def turn(self) -> None:
        time.sleep(0.02)
        for shift in self.fleet.shifts:
            if shift.error is not None:
                raise shift.error

    def standing(self) -> Parked:
        return self.bodies[0].faults.standing if self.bodies else Parked()


def condition(kind: str) -> dict[str, str]:
    return {
        "type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": AT,
    }  # fmt: skip


@contextmanager
def beside(fleet: SmallFleet) -> Iterator[Stage]:
    poison, bodies = Poison(), []

    def body(context: ShiftContext) -> ExternalBody:
        made = ExternalBody(context, hook=poison.hook)
        poison.into(made)
        bodies.append(made)
        return made

    with Embedded("manager", "w1") as world:
        world["manager"].create(*multikueue_objects("w1"), *quota_objects(16, check=True))
        world["w1"].create(*quota_objects(8))
        world["manager"].client.patch(
            r.MULTIKUEUE_CLUSTER, "w1", {"status": {"conditions": [condition("Active")]}},
            options=STATUS,
        )  # fmt: skip
        world.start(
            "manager", "dispatch", workers=("w1",), body=body, mode="kueue",
            kueue_configuration={"multiKueue": {"dispatcherName": CHEAPEST_FIT}},
        )  # fmt: skip
        yield Beside(world, poison, bodies)
