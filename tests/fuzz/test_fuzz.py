"""Whatever a tenant writes, everybody else goes on: sound jobs are admitted within five seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.builders import SmallFleet
from tests.fuzz import schemas
from tests.fuzz.grounds import Ground, beside, portal
from tests.fuzz.life import Life
from tests.fuzz.stream import JOB_KINDS
from tests.reconcile.admission_harness import Embedded
from tests.reconcile.custom_kinds import serve

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
Make = Callable[[Embedded, SmallFleet], AbstractContextManager[Ground]]
SEED = int(os.environ.get("FUZZ_SEED", "1"))
COUNT = int(os.environ.get("FUZZ_COUNT", "300"))


@pytest.mark.parametrize(
    ("make", "webhooks"),
    [pytest.param(portal, True, id="portal"), pytest.param(beside, False, id="kueue")],
)
def test_everybody_else_goes_on(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch, make: Make, webhooks: bool
):
    serve(monkeypatch, *JOB_KINDS)
    with make(Embedded("manager", "w1", webhooks=webhooks), fleet) as ground:
        life = Life(ground, SEED, schemas.embedded(JOB_KINDS))
        life.live(COUNT)
        print(life.report())
        print(life.faults, life.refused.most_common(12), life.taken.most_common(20), ground.slowest)
