"""Whatever a tenant writes, everybody else goes on: sound jobs are admitted within five seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django.test import Client

from clusters.models import WorkloadState
from tests.builders import SmallFleet
from tests.controlplane import kueue_setup
from tests.controlplane.fixtures import require_parts
from tests.controlplane.fleet import parts_for, start_fleet
from tests.fuzz import schemas
from tests.fuzz.grounds import Ground, Real, beside, portal
from tests.fuzz.life import Life
from tests.fuzz.stream import JOB_KINDS
from tests.reconcile.admission_harness import Embedded
from tests.reconcile.custom_kinds import serve

pytestmark = pytest.mark.django_db
Make = Callable[[Embedded, SmallFleet], AbstractContextManager[Ground]]
SEED = int(os.environ.get("FUZZ_SEED", "1"))
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
"""Number of the first deed, so that a long life can be lived in parts."""
IN_LANES, IN_STORIES = 300, int(os.environ.get("FUZZ_COUNT", "20000"))
COUNTS = [
    pytest.param(IN_LANES, id="300"),
    pytest.param(IN_STORIES, id="stories", marks=pytest.mark.slow),
]
MODES = [pytest.param(portal, id="portal mode"), pytest.param(beside, id="kueue mode")]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def live(ground: Ground, nodes: dict[str, schemas.Node], count: int, reader: Client) -> None:
    life = Life(ground, SEED, nodes)
    life.live(count, first=FIRST)
    print(life.report())
    # Whatever it was, people can read of it.
    for state in WorkloadState.objects.select_related("cluster")[:40]:
        page = reader.get(f"/jobs/{state.cluster.slug}/{state.uid}/")
        assert page.status_code in (200, 302), (state.name, page.status_code)
    assert reader.get("/jobs/").status_code == 200


@pytest.fixture
def reader(fleet: SmallFleet) -> Client:
    client = Client()
    client.force_login(fleet.admin)
    return client


@pytest.mark.embedded
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("make", MODES)
def test_everybody_else_goes_on(
    fleet: SmallFleet, reader: Client, monkeypatch: pytest.MonkeyPatch, make: Make, count: int
):
    serve(monkeypatch, *JOB_KINDS)
    world = Embedded("manager", "w1", webhooks=make is portal)
    with make(world, fleet) as ground:
        live(ground, schemas.embedded(JOB_KINDS), count, reader)


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(portal, IN_LANES, id="portal mode-300"),
        pytest.param(beside, IN_LANES, id="kueue mode-300"),
        pytest.param(portal, IN_STORIES, id="portal mode-stories", marks=pytest.mark.slow),
        pytest.param(beside, IN_STORIES, id="kueue mode-stories", marks=pytest.mark.slow),
    ],
)
def test_everybody_else_goes_on_beside_real_servers(
    fleet: SmallFleet, reader: Client, tmp_path: Path, make: Make, count: int
):
    require_parts(tuple(parts_for(kueue=False, kwok=False)))
    crds = [*kueue_setup.crds(conversion={}), *schemas.crds_here()]
    with start_fleet(workers=1, kueue=False, folder=tmp_path) as planes:
        for plane in planes.clusters:
            for crd in schemas.crds_here():
                plane.rest.ensure(CRDS, crd)
        world = Real({"manager": planes.manager, "w1": planes.workers[0]})
        with make(world, fleet) as ground:
            live(ground, schemas.of_real(crds), count, reader)
