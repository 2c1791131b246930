"""The budget check, turned by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clusters.manifests.names import SPEND_CHECK, spend_controller
from clusters.reconcile.runtime.faults import Parked
from tests.builders import SmallFleet, line
from tests.reconcile.admission_harness import (
    INSTALLATION,
    Embedded,
    facts,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.reconcile.poisoned import Poison, Stage
from tests.reconcile.spend_hand import spend_hand


@dataclass
class BudgetCheck:
    """Jobs that wait for the answer of the portal's own check."""

    manager: Any
    poison: Poison
    hand: Any
    role: str = "spend"

    def submit(self, name: str) -> None:
        self.manager.create(job(name, run_s=600))

    def is_done(self, name: str) -> bool:
        found = self.manager.workload_of(name)
        return found is not None and is_true(found, "Admitted")

    def turn(self) -> None:
        self.hand.body.turn()

    def standing(self) -> Parked:
        return self.hand.context.faults.standing


@contextmanager
def budget_check(fleet: SmallFleet) -> Iterator[Stage]:
    fleet.revise(fleet.vision, line("h100", 8, 24))
    strategy = {"admissionChecks": [{"name": SPEND_CHECK}]}
    controller = {"controllerName": spend_controller(INSTALLATION)}
    poison = Poison()
    with Embedded("manager", webhooks=True) as cluster:
        manager = cluster["manager"]
        manager.create(
            kueue("AdmissionCheck", SPEND_CHECK, controller),
            *quota_objects(24, admissionChecksStrategy=strategy),
        )
        cluster.start("manager", "admission")
        at = facts("manager", is_manager=True)
        with spend_hand(manager.client, at, hook=poison.hook) as hand:
            poison.into(hand.body)
            yield BudgetCheck(manager, poison, hand)
