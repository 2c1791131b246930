"""The same dispatch stories in four columns: in memory, embedded, by the portal, by a real Kueue.

What a real Kueue writes is kept beside the stories; ``UPDATE_GOLDEN=1`` with the Kueue column
writes it anew, with the portal's column on real API servers the looks that differ on purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.controlplane.fleet import Fleet
from tests.explained.arithmetic import Sums, SumsReader
from tests.stories.fleets.form import FleetStory, fleet_stories
from tests.stories.fleets.live import (
    KueueStage,
    PortalStage,
    embedded_fleet,
    kueue_fleet_stage,
    portal_fleet,
)
from tests.stories.fleets.memory import memory_stage
from tests.stories.fleets.player import FleetPlayer
from tests.stories.results import passed

UPDATES = os.environ.get("UPDATE_GOLDEN") == "1"
STORIES = fleet_stories()


def every(column: str) -> pytest.MarkDecorator:
    """The stories of a column; in memory all are quick, elsewhere those that say so."""
    return pytest.mark.parametrize(
        "story",
        [
            pytest.param(
                story,
                id=story.name,
                marks=() if column == "memory" or column in story.quick else pytest.mark.slow,
            )
            for story in STORIES
            if column not in story.without
        ],
    )


@pytest.fixture(scope="module")
def embedded() -> Iterator[PortalStage]:
    """A manager and two workers, embedded, over HTTP."""
    with embedded_fleet() as stage:
        yield stage


@pytest.fixture(scope="module")
def portal(bare_fleet: Fleet) -> Iterator[PortalStage]:
    """Three real API servers, the portal dispatching."""
    with portal_fleet(bare_fleet) as stage:
        yield stage


@pytest.fixture(scope="module")
def real_kueue(kueue_fleet: Fleet) -> Iterator[KueueStage]:
    """Three real control planes, Kueue dispatching."""
    with kueue_fleet_stage(kueue_fleet) as stage:
        yield stage


@every("memory")
def test_story_in_memory(story: FleetStory) -> None:
    with memory_stage(story, reader=SumsReader(Sums())) as stage:
        FleetPlayer(story, stage, records=UPDATES and "portal" in story.without).play()


@pytest.mark.embedded
@every("embedded")
def test_story_on_embedded_clusters(story: FleetStory, embedded: PortalStage) -> None:
    embedded.prepare(story)
    FleetPlayer(story, embedded).play()
    passed("embedded", story.name, *story.files)


@every("portal")
def test_story_dispatched_by_the_portal(story: FleetStory, portal: PortalStage) -> None:
    portal.prepare(story)
    FleetPlayer(story, portal, records=UPDATES and story.has_portal_looks).play()
    passed("portal", story.name, *story.files)


@every("kueue")
def test_story_dispatched_by_a_real_kueue(story: FleetStory, real_kueue: KueueStage) -> None:
    real_kueue.prepare(story)
    try:
        FleetPlayer(story, real_kueue, records=UPDATES).play()
    except AssertionError as error:
        error.add_note(f"Its Kueue logged:\n{real_kueue.told_of(story.namespace)}")
        raise
    passed("kueue", story.name, *story.files)
