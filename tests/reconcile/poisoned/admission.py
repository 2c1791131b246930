"""Admission, in a shift of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.faults import Parked
from tests.builders import SmallFleet
from tests.reconcile.admission_harness import Embedded, is_true, job, quota_objects
from tests.reconcile.poisoned import Poison


@dataclass
class Admission:
    """Jobs that wait for quota."""

    world: Embedded
    poison: Poison
    bodies: list[AdmissionBody]
    role: str = "admission"

    def submit(self, name: str) -> None:
        self.world["w1"].create(job(name, run_s=600))

    def is_done(self, name: str) -> bool:
        return is_true(self.world["w1"].workload_of(name), "Admitted")

    def turn(self) -> None:
        time.sleep(0.02)
        for shift in self.world.shifts:
            if shift.error is not None:
                raise shift.error

    def standing(self) -> Parked:
        return self.bodies[0].faults.standing if self.bodies else Parked()


@contextmanager
def admission(fleet: SmallFleet) -> Iterator[Admission]:
    poison, bodies = Poison(), []

    def body(context: ShiftContext) -> AdmissionBody:
        made = AdmissionBody(context, hook=poison.hook)
        poison.into(made)
        bodies.append(made)
        return made

    with Embedded("w1", webhooks=True) as world:
        world["w1"].create(*quota_objects(8))
        world.start("w1", "admission", body=body)
        yield Admission(world, poison, bodies)
