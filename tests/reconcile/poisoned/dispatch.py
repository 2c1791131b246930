"""Dispatch by the portal, whose trouble is with the manager, or with what one worker has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from clusters.kube import resources as r
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.runtime.faults import Doing, Parked
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.runtime.writer import Moment, Write
from tests.builders import SmallFleet
from tests.reconcile.admission_harness import (
    Embedded,
    RunningShift,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.poisoned import Poison, Stage
from tests.waiting import eventually

MANAGER, WORKER = "manager", "w1"


@dataclass
class Dispatch:
    """Jobs that run on a worker."""

    fleet: Embedded
    poison: Poison
    shift: RunningShift
    body: DispatchBody
    role: str = "dispatch"

    def submit(self, name: str) -> None:
        self.fleet[MANAGER].create(job(name, run_s=600, managed=True))

    def is_done(self, name: str) -> bool:
        found = self.fleet[MANAGER].workload_of(name)
        return found is not None and is_true(found, "Admitted")

    def turn(self) -> None:
        time.sleep(0.05)
        if self.shift.error is not None:
            raise self.shift.error

    def standing(self) -> Parked:
        return self.body.faults.standing


def dispatch_on(where: str) -> Callable[[SmallFleet], AbstractContextManager[Stage]]:
    """The trouble is with the manager, or with a worker, by name."""

    @contextmanager
    def ground(_: SmallFleet) -> Iterator[Stage]:
        poison, made = Poison(), []

        def hook(moment: Moment, cluster: str, write: Write) -> None:
            if cluster == where:
                poison.hook(moment, cluster, write)

        def body_of(context: ShiftContext) -> DispatchBody:
            body = DispatchBody(context, hook=hook)
            _into(body, poison, where)
            made.append(body)
            return body

        with Embedded(MANAGER, WORKER, webhooks=True) as fleet:
            fleet[MANAGER].create(*multikueue_objects(WORKER), *quota_objects(16, check=True))
            fleet[WORKER].create(*quota_objects(16))
            for name in (MANAGER, WORKER):
                fleet.start(name, "admission")
            shift = fleet.start(MANAGER, "dispatch", workers=(WORKER,), body=body_of)
            eventually(lambda: made)
            yield Dispatch(fleet, poison, shift, made[0])

    return ground


def _into(body: Any, poison: Poison, where: str) -> None:
    seen_as = "" if where == MANAGER else where
    decide_in = "handle" if where == MANAGER else "_start_on_worker"
    take, decide = body.take, getattr(body, decide_in)

    def poisoned_take(seen: Seen) -> None:
        if seen.cluster == seen_as and seen.resource == r.WORKLOAD:
            poison.tried(Doing.READING, seen.document["metadata"]["name"])
        take(seen)

    def poisoned_decide(subject: Any, *about: Any) -> None:
        poison.tried(Doing.DECIDING, subject)
        decide(subject, *about)

    body.take = poisoned_take
    setattr(body, decide_in, poisoned_decide)
