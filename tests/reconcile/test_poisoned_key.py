"""Where one object's fault ends: role by role, reading, deciding or writing of one key raises.

The others go on, the fault stands on the cluster's page, and goes from there once it is mended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from unittest import mock

import pytest
from django.test import Client

from clusters.manifests.names import SPEND_CHECK, Key, spend_controller
from clusters.models import Cluster, ShiftRun
from clusters.reconcile import claims
from clusters.reconcile.quota import body as quota_body
from clusters.reconcile.quota.decide import Decision, decide_wanted
from clusters.reconcile.runtime.faults import Doing, Faults, Standing
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.runtime.writer import Moment, Write
from tests.api.rows import add_cluster
from tests.builders import SmallFleet, line
from tests.factories import FlavorFactory
from tests.reconcile.admission_harness import (
    INSTALLATION,
    Embedded,
    facts,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.reconcile.fleet_rows import dev_server, quota_hand, register
from tests.reconcile.spend_hand import spend_hand

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
BAD = "poisoned"
PAGE = "gpu-page"


class Poison:
    """Raises for objects that are called :data:`BAD`, wherever ``doing`` says."""

    def __init__(self) -> None:
        self.doing: Doing | None = None

    def tried(self, doing: Doing, name: object) -> None:
        if self.doing is doing and BAD in str(name):
            raise ValueError(f"the poison of {BAD}")

    def hook(self, moment: Moment, cluster: str, write: Write) -> None:
        """Of a writer."""
        if moment is Moment.BEFORE:
            self.tried(Doing.WRITING, write.name)

    def into(self, body: Any) -> None:
        """Into a controller's reading and deciding."""
        take, handle = body.take, body.handle

        def poisoned_take(seen: Seen) -> None:
            self.tried(Doing.READING, seen.document["metadata"]["name"])
            take(seen)

        def poisoned_handle(key: object) -> None:
            self.tried(Doing.DECIDING, key)
            handle(key)

        body.take, body.handle = poisoned_take, poisoned_handle


class Stage(Protocol):
    """One role at work on an embedded cluster."""

    role: str
    poison: Poison

    def submit(self, name: str) -> None:
        """Something of that name is to be done."""

    def is_done(self, name: str) -> bool:
        """Whether it was."""

    def turn(self) -> None:
        """Let the role work for a moment."""

    def standing(self) -> Standing:
        """What it has set aside."""


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

    def standing(self) -> Standing:
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

    def standing(self) -> Standing:
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


ROLES = [
    pytest.param(quota, id="quota"),
    pytest.param(budget_check, id="budget check"),
]
Ground = Callable[[SmallFleet], AbstractContextManager[Stage]]


def until(stage: Stage, check: Callable[[], object], *, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not check():
        stage.turn()
        assert time.monotonic() < ends, stage.standing()


def page_of(fleet: SmallFleet, role: str, standing: Standing) -> str:
    """The cluster's page after a heartbeat of the shift."""
    cluster = Cluster.objects.filter(slug=PAGE).first() or add_cluster(PAGE)
    ShiftRun.objects.filter(cluster=cluster).delete()
    claim = claims.take(cluster.pk, role, holder="test")
    assert claim is not None
    assert claim.beat(lease_version="", watch_age_s=None, standing=standing)
    client = Client()
    client.force_login(fleet.admin)
    return client.get(f"/clusters/{cluster.slug}/").content.decode()


@pytest.mark.parametrize("doing", list(Doing))
@pytest.mark.parametrize("ground", ROLES)
def test_what_one_object_raises_ends_with_it(fleet: SmallFleet, ground: Ground, doing: Doing):
    with ground(fleet) as stage:
        stage.poison.doing = doing
        stage.submit(BAD)
        until(stage, lambda: stage.standing().parked)
        stage.submit("healthy")
        until(stage, lambda: stage.is_done("healthy"))

        assert stage.standing().parked == 1
        assert not stage.is_done(BAD)
        says = stage.standing().says
        assert BAD in says and f"could not be {doing}" in says and "ValueError" in says
        page = page_of(fleet, stage.role, stage.standing())
        assert f"The {stage.role} shift has set 1 object aside." in page
        assert f"could not be {doing}: ValueError: the poison of {BAD}" in page

        stage.poison.doing = None
        until(stage, lambda: stage.is_done(BAD))
        until(stage, lambda: not stage.standing().parked)
        assert "aside" not in page_of(fleet, stage.role, stage.standing())


@pytest.mark.parametrize("doing", list(Doing))
@pytest.mark.parametrize("ground", ROLES)
def test_without_the_boundary_one_object_ends_everything(
    fleet: SmallFleet, ground: Ground, doing: Doing, monkeypatch: pytest.MonkeyPatch
):
    def park(self: Faults, subject: str, error: Exception, *, doing: Doing) -> None:
        raise error

    with ground(fleet) as stage:
        monkeypatch.setattr(Faults, "park", park)
        stage.poison.doing = doing
        stage.submit(BAD)
        with pytest.raises(ValueError, match="the poison"):
            until(stage, lambda: stage.is_done(BAD), seconds=20)
