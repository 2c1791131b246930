"""A body of the spend check that a test turns by hand, in the thread that has the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from budgets.models import Interval, SpendRule
from budgets.selectors import utc_now
from budgets.services.spending import RuleDraft, create_spend_rule
from clusters.errors import ClusterError
from clusters.kube.client import KubeClient
from clusters.kube.pulse import Pulse
from clusters.reconcile.budget_check import BudgetCheckBody
from clusters.reconcile.context import Clients, ClusterFacts, Registered, ShiftContext
from clusters.reconcile.runtime.writer import Hook, no_fault
from tests.builders import SmallFleet
from tests.factories import IntervalFactory


def spent(fleet: SmallFleet, *, burst_hours: int) -> Interval:
    """Let acme-vision have used so much until now, an hour in which it had no floor yet."""
    now = utc_now()
    return IntervalFactory(
        workspace=fleet.vision,
        start=now - timedelta(hours=1),
        end=now,
        gpus=burst_hours,
        state=Interval.State.CLOSED,
    )


def granted(fleet: SmallFleet, hours: int, **more: Any) -> SpendRule:
    """A hard cap on the GPU-hours beyond the floor in a grant that began yesterday."""
    terms = {"action": "hold", "grant_start": utc_now() - timedelta(days=1), **more}
    draft = RuleDraft(unit="gpu_hours", amount=Decimal(hours), window="grant", **terms)
    return create_spend_rule(fleet.owner, workspace=fleet.vision, draft=draft, reason="test")


class SpendHand:
    """One body; `until` turns it."""

    def __init__(self, body: BudgetCheckBody, context: ShiftContext) -> None:
        self.body, self.context = body, context

    def until(
        self,
        check: Callable[[], Any],
        *,
        seconds: float = 60.0,
        why: Callable[[], object] = lambda: "it did not happen",
        beside: Callable[[], object] = lambda: None,
    ) -> Any:
        """Turns the body, and what else has to move, until the check holds."""
        ends = time.monotonic() + seconds
        while True:
            self.body.turn()
            beside()
            with suppress(ClusterError):
                found = check()
                if found:
                    return found
            assert time.monotonic() < ends, why()

    def settle_now(self) -> None:
        """Look at all rules with the next turn, and keep no verdict for its half second."""
        self.body._verdicts._settled_at = 0.0
        self.body._verdicts._known.clear()


@contextmanager
def spend_hand(
    client: KubeClient, facts: ClusterFacts, *, hook: Hook = no_fault
) -> Iterator[SpendHand]:
    """A body with real watches and without a Lease."""
    stop, clients = threading.Event(), Clients()
    context = ShiftContext(
        Registered(facts, b""),
        client=client,
        clients=clients,
        pulse=Pulse(client),
        stop=stop,
        fence=lambda: None,
        holder="test",
    )
    body = BudgetCheckBody(context, hook=hook)
    body.tick_s = 0.1  # who turns by hand waits little for what comes
    try:
        body.open()
        yield SpendHand(body, context)
    finally:
        stop.set()
        body.close()
        clients.close()
