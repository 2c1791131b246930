"""Where one object's fault ends: role by role, reading, deciding or writing of one key raises.

The others go on, the fault stands on the cluster's page, and goes from there once it is mended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from django.test import Client

from clusters.models import Cluster, ShiftRun
from clusters.reconcile import claims
from clusters.reconcile.runtime.faults import Doing, Faults, Parked
from tests.api.rows import add_cluster
from tests.builders import SmallFleet
from tests.reconcile.poisoned import BAD, Stage
from tests.reconcile.poisoned.admission import admission
from tests.reconcile.poisoned.beside import beside
from tests.reconcile.poisoned.budget_check import budget_check
from tests.reconcile.poisoned.dispatch import dispatch_on
from tests.reconcile.poisoned.quota import quota
from tests.reconcile.poisoned.shadow import shadow
from tests.reconcile.poisoned.usage import usage

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
PAGE = "gpu-page"

ROLES = [
    pytest.param(budget_check, id="budget check"),
    pytest.param(quota, id="quota"),
    pytest.param(usage, id="usage"),
    pytest.param(beside, id="external"),
    pytest.param(admission, id="admission"),
    pytest.param(dispatch_on("manager"), id="dispatch, on the manager"),
    pytest.param(dispatch_on("w1"), id="dispatch, on a worker"),
]
# The shadow writes to no cluster.
CASES = [
    pytest.param(*role.values, doing, id=f"{role.id}, {doing.name.lower()}")
    for role in (*ROLES, pytest.param(shadow, id="shadow"))
    for doing in Doing
    if (role.values, doing) != ((shadow,), Doing.WRITING)
]
Ground = Callable[[SmallFleet], AbstractContextManager[Stage]]


def until(stage: Stage, check: Callable[[], object], *, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not check():
        stage.turn()
        assert time.monotonic() < ends, stage.standing()


def page_of(fleet: SmallFleet, role: str, standing: Parked) -> str:
    """The cluster's page after a heartbeat of the shift."""
    cluster = Cluster.objects.filter(slug=PAGE).first() or add_cluster(PAGE)
    ShiftRun.objects.filter(cluster=cluster).delete()
    claim = claims.take(cluster.pk, role, holder="test")
    assert claim is not None
    assert claim.beat(lease_version="", watch_age_s=None, standing=standing)
    client = Client()
    client.force_login(fleet.admin)
    return client.get(f"/clusters/{cluster.slug}/").content.decode()


@pytest.mark.parametrize(("ground", "doing"), CASES)
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


@pytest.mark.parametrize(("ground", "doing"), CASES)
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
