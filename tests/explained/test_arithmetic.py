"""The numbers of a sentence are of one moment: each is worked out again from what is there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from clusters.kueue.cycle import replay
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.cycle.replay import replay_scenario
from tests.explained.arithmetic import PATTERNS, Sums, SumsReader
from tests.explained.test_demo_jobs import MET as DEMO
from tests.kueue.test_conformance import NEWER, QUOTA, scenarios
from tests.stories.fleets.form import fleet_stories
from tests.stories.fleets.memory import memory_stage, single_stage
from tests.stories.fleets.player import FleetPlayer
from tests.stories.player import Player
from tests.stories.stages import is_played_embedded
from tests.stories.story import stories

RIGHT = (
    "Waits for 8 H100: 6 more are needed; 14 of its 16 committed are in use and none may be "
    "borrowed."
)
HELD = (
    "Waits for 8 H100: 6 more are needed; 14 of its 16 committed are in use and 0 of the 8 that it "
    "may borrow; others hold 8 of the 10 left."
)


@pytest.mark.parametrize(
    ("sentence", "is_right"),
    [
        (RIGHT, True),
        (RIGHT.replace("6 more", "2 more"), False),
        (HELD, True),
        (HELD.replace("; others hold 8 of the 10 left", ""), False),
        (HELD.replace("8 of the 10", "8 of the 12"), False),
        ("Starts when 4 of the 8 H100 lent to workspace Speech come back.", True),
        ("Starts when 9 of the 8 H100 lent to workspace Speech come back.", False),
        ("It asks for 32 H100, and its budget never has more than 16 H100.", True),
        ("It asks for 32 H100, and its budget never has more than 32 H100.", False),
        ("Its pods with 64 H100 cannot be placed together: 5 of 8 pods would fit.", True),
        ("Its pods with 64 H100 cannot be placed together: 8 of 8 pods would fit.", False),
        ("Waits for 1.5 CPUs more; 0.5 CPUs of its 2 CPUs committed are in use and none may be "
         "borrowed.", True),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_found(sentence: str, is_right: bool):
    assert (Sums().wrong(sentence, {"H100"}) == "") is is_right


def test_number_that_nobody_works_out_is_found():
    with pytest.raises(AssertionError, match="nobody works out"):
        Sums().wrong("Waits for 8 H100, of which 3 come back.", {"H100"})


class Told(Engine):
    """Between the cycles as well as at rest: what was decided before is told as of now."""

    sums: Sums

    def cycle(self, now: datetime) -> Any:
        result = super().cycle(now)
        self.sums.check(self, {}, now=now)
        return result

    def delete(self, kind: str, *, key: str, now: datetime) -> None:
        super().delete(kind, key=key, now=now)
        self.sums.check(self, {}, now=now)  # nobody has looked at those that wait since


# What of PATTERNS each feed has to meet; together all of them.
RECORDED: Mapping[tuple[str, str, int], set[str]] = {
    (QUOTA, "", 40): {
        *("needs", "asks", "more", "used", "burst", "held", "some", "behind"),
        *("lent", "lent in part", "too large", "quoted"),
    },
    (NEWER, "tas", 20): {"no place", "fits", "free", "needs", "more"},
    (NEWER, "tasmix", 20): {"no place", "fits", "free", "too large"},
    (NEWER, "partial", 20): {"needs", "too large"},
    (NEWER, "elastic", 4): {"needs", "too large", "behind"},
    (NEWER, "afs", 20): {"needs", "more", "lent in part"},
}
ADMISSION = {"needs", "used", "burst", "held", "too large", "quoted", "moment"}
DISPATCH = {"checks"}
# Of nodes as they were counted, which no feed has: test_selectors.py works it out.
NODES = {"room"}


def test_each_pattern_is_met_by_a_feed():
    assert set().union(*RECORDED.values(), ADMISSION, DISPATCH, NODES, DEMO) == PATTERNS.keys()


def missed(sums: Sums, want: set[str]) -> set[str]:
    return want - sums.met.keys()


def replayed(feed: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch) -> Sums:
    recorded, family, every = feed
    monkeypatch.setattr(Told, "sums", sums := Sums(), raising=False)
    monkeypatch.setattr(replay, "Engine", Told)
    for scenario in scenarios(recorded, every=every, family=family):
        assert replay_scenario(scenario).is_match
    return sums


@pytest.mark.parametrize("feed", RECORDED, ids=lambda feed: feed[1] or "quota")
def test_sentences_of_recorded_scenarios_are_true(
    feed: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch
):
    assert missed(replayed(feed, monkeypatch), RECORDED[feed]) == set()


@pytest.mark.slow
@pytest.mark.parametrize("feed", RECORDED, ids=lambda feed: feed[1] or "quota")
def test_sentences_of_all_recorded_scenarios_are_true(
    feed: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch
):
    assert missed(replayed((*feed[:2], 1), monkeypatch), RECORDED[feed]) == set()


def test_sentences_of_the_stories_of_admission_are_true():
    sums, played = Sums(), [story for story in stories("admission") if is_played_embedded(story)]
    for story in played:
        with single_stage(story, reader=SumsReader(sums)) as stage:
            Player(story, stage).play()
    assert len(played) > 30
    assert missed(sums, ADMISSION) == set()


def test_sentences_of_a_story_of_dispatch_are_true():
    """Those of all others are worked out where the stories are played in memory."""
    story = next(each for each in fleet_stories() if each.name == "other-check-first")
    with memory_stage(story, reader=SumsReader(sums := Sums())) as stage:
        FleetPlayer(story, stage).play()
    assert missed(sums, DISPATCH) == set()
