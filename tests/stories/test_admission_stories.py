"""The same stories under a real Kueue and in portal mode: every status, field by field.

The real Kueue's statuses are kept beside the stories; ``UPDATE_GOLDEN=1`` with the Kueue column
writes them anew. Both portal columns have to reach exactly those, deviations on purpose aside.
"""

from __future__ import annotations

import os

import pytest

from tests.controlplane.control_plane import ControlPlane
from tests.stories.player import Player
from tests.stories.stages import KueueCluster, embedded_stage, is_played_embedded, portal_stage
from tests.stories.story import Story, stories

UPDATES = os.environ.get("UPDATE_GOLDEN") == "1"
STORIES = stories("admission")


def every(column: str) -> pytest.MarkDecorator:
    """The stories of a column as parameters; those that are not in the short set are slow."""
    chosen = [story for story in STORIES if column in story.columns]
    if column == "embedded":
        chosen = [story for story in chosen if is_played_embedded(story)]
    return pytest.mark.parametrize(
        "story",
        [
            pytest.param(story, id=story.name, marks=() if story.is_quick else (pytest.mark.slow,))
            for story in chosen
        ],
    )


@pytest.mark.embedded
@every("embedded")
def test_story_in_portal_mode_on_an_embedded_cluster(story: Story) -> None:
    with embedded_stage(story) as stage:
        Player(story, stage).play()


@pytest.mark.controlplane
@every("portal")
def test_story_in_portal_mode_on_a_real_api_server(
    story: Story, portal_plane: ControlPlane
) -> None:
    with portal_stage(portal_plane, story) as stage:
        Player(story, stage).play()


@pytest.mark.controlplane
@every("kueue")
def test_story_under_a_real_kueue(story: Story, kueue_cluster: KueueCluster) -> None:
    with kueue_cluster.stage(story) as stage:
        Player(story, stage, records=UPDATES).play()
