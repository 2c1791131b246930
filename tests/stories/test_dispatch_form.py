"""The form of dispatch stories, their table, their observer, and the connection that can be cut."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clusters.kube import resources as r
from tests.reconcile.admission_harness import INSTALLATION
from tests.stories import results
from tests.stories.fleets.form import COLUMNS, fleet_stories, load
from tests.stories.fleets.memory import MemoryStage, memory_stage
from tests.stories.fleets.observer import Judge
from tests.stories.fleets.player import FleetPlayer
from tests.stories.fleets.relay import Relay
from tests.stories.fleets.table import README, table_text
from tests.stories.story import StoryError, read_yaml

STORIES = fleet_stories()
ORIGIN = "kueue.x-k8s.io/multikueue-origin"
MINIMAL = """
story: One job.
covers: [J1]
quota: {manager: 4, worker-1: 4}
steps:
  - create: {job: train}
  - look: it runs
    workloads: {train: Admitted}
"""


def test_there_are_enough_stories_and_nearly_all_of_them_run_everywhere() -> None:
    assert len(STORIES) >= 60
    played = Counter(
        column for story in STORIES for column in COLUMNS if column not in story.without
    )
    assert played["memory"] == len(STORIES)
    assert min(played.values()) >= 60


def test_the_short_set_touches_each_column() -> None:
    quick = Counter(column for story in STORIES for column in story.quick)
    assert 8 <= quick["embedded"] <= 12
    assert 3 <= quick["portal"] <= 4
    assert 3 <= quick["kueue"] <= 4


def test_every_look_is_recorded_and_nothing_else_is() -> None:
    for story in STORIES:
        looks = [step for step in story.steps if step.action == "look"]
        has_kueue = "kueue" not in story.without
        want = {str(step.given) for step in looks if has_kueue}
        want |= {f"{step.given} (portal)" for step in looks if step.portal}
        assert set(read_yaml(story.recording)) == want, story.name
    recorded = {path.stem for path in STORIES[0].recording.parent.glob("*.yaml")}
    assert recorded == {story.name for story in STORIES}


def test_the_table_of_stories_is_true() -> None:
    text = table_text(STORIES)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        README.write_text(text)
    assert README.read_text() == text, "UPDATE_GOLDEN=1 writes tests/stories/README.md anew"


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(("covers: [J1]", "sauce: 1"), "unknown key 'sauce'", id="unknown key"),
        pytest.param(("covers: [J1]", "quick: [paper]\ncovers: [J1]"), "paper", id="no column"),
        pytest.param(("worker-1: 4", "worker-3: 4"), "quota: 'worker-3'", id="no such cluster"),
        pytest.param(("Admitted", "Happy"), "workload train: 'Happy'", id="no such state"),
        pytest.param(("look: it runs", "wait: 1"), "no look", id="nothing is compared"),
        pytest.param(("create: {job: train}", "sing: {job: train}"), "one of create", id="action"),
        pytest.param(
            ("    workloads: {train", "    portal: {}\n    workloads: {train"),
            "portal needs a why", id="a difference without a reason",
        ),
    ],
)  # fmt: skip
def test_a_story_that_cannot_be_played_says_why(
    tmp_path: Path, change: tuple[str, str], want: str
) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(MINIMAL.replace(*change))
    with pytest.raises(StoryError, match=want):
        load(path)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[tuple[FleetPlayer, MemoryStage]]:
    path = tmp_path / "one.yaml"
    path.write_text(MINIMAL)
    story = load(path)
    with memory_stage(story) as stage:
        yield FleetPlayer(story, stage), stage


def test_a_field_that_is_not_as_recorded_fails_the_story(
    played: tuple[FleetPlayer, MemoryStage],
) -> None:
    player, _ = played
    player.story.recording.parent.mkdir()
    player.story.recording.write_text("it runs: {manager: {jobs: {train: {suspend: true}}}}")
    with pytest.raises(
        AssertionError, match=r"it runs/manager/jobs/train/suspend\n +recorded: True"
    ):
        player.play()


def test_a_second_holder_of_the_job_fails_the_story(
    played: tuple[FleetPlayer, MemoryStage],
) -> None:
    """The observer's negative control: it does not take dispatch at its word."""
    _, stage = played
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "double"}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}]}
    for worker in ("worker-1", "worker-2"):
        stage.clients[worker].create(r.NAMESPACE, namespace)
        metadata = {"name": "train", "namespace": "double", "labels": {ORIGIN: INSTALLATION}}
        spec = {"suspend": True, "template": {"spec": pod}}
        stage.clients[worker].create(r.JOB, {"metadata": metadata, "spec": spec})
    judge = Judge(stage.history_of("double"), origin=stage.origin)
    assert list(judge.broken()) == ["two-jobs"]


def test_a_relay_passes_on_until_it_is_cut_and_again_when_it_is_restored() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        with Relay(server.getsockname()[1]) as relay:
            with socket.create_connection(("127.0.0.1", relay.port), timeout=20) as one:
                one.sendall(b"hello")
                assert one.recv(5) == b"hello"
                relay.cut()
                assert _is_over(one)
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.1", relay.port), timeout=20)
            relay.restore()
            with socket.create_connection(("127.0.0.1", relay.port), timeout=20) as two:
                two.sendall(b"again")
                assert two.recv(5) == b"again"


def _is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def _echo(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with suppress(OSError), connection:
        while chunk := connection.recv(100):
            connection.sendall(chunk)


def test_a_day_stands_only_for_the_story_that_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    story = tmp_path / "one.yaml"
    story.write_text(MINIMAL)
    results.passed("kueue", "one", story)
    assert results.last_passed("kueue", "one", story) == "", "nobody asked to write it down"
    monkeypatch.setattr(results, "RECORDS", True)
    results.passed("kueue", "one", story)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", results.last_passed("kueue", "one", story))
    assert results.last_passed("portal", "one", story) == ""
    story.write_text(MINIMAL + "# another")
    assert results.last_passed("kueue", "one", story) == ""
