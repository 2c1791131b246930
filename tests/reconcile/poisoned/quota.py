"""Quota sync, turned by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from clusters.manifests.names import Key
from clusters.reconcile.quota import body as quota_body
from clusters.reconcile.quota.decide import Decision, decide_wanted
from clusters.reconcile.runtime.faults import Doing, Parked
from tests.builders import SmallFleet
from tests.factories import FlavorFactory
from tests.reconcile.fleet_rows import dev_server, quota_hand, register
from tests.reconcile.poisoned import Poison, Stage


@dataclass
class Quota:
    """Flavors that come to stand on a cluster."""

    poison: Poison
    hand: Any
    role: str = "quota"

    def submit(self, name: str) -> None:
        FlavorFactory(slug=name)

    def is_done(self, name: str) -> bool:
        return self.hand.body.live(Key("ResourceFlavor", "", name)) is not None

    def turn(self) -> None:
        self.hand.body.turn()

    def standing(self) -> Parked:
        return self.hand.context.faults.standing


@contextmanager
def quota(fleet: SmallFleet) -> Iterator[Stage]:
    poison = Poison()

    def decide(key: Key, *about: Any) -> Decision:
        poison.tried(Doing.DECIDING, key)
        return decide_wanted(key, *about)

    with dev_server("gpu-east") as server:
        register("gpu-east", server.kubeconfig)
        with (
            quota_hand("gpu-east", hook=poison.hook) as hand,
            mock.patch.object(quota_body, "decide_wanted", decide),
        ):
            poison.into(hand.body)
            yield Quota(poison, hand)
