"""The form of stories: what is refused and why, what counts as a difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stories.differences import differences, unexplained
from tests.stories.documents import GPU, documents_of
from tests.stories.statuses import _events, _status, state_of
from tests.stories.story import Deviation, StoryError, load, read_yaml, stories

UID = "0b9c3b1e-7f6a-4c6e-9d0b-0f3f4f1f2a3b"


def written(tmp_path: Path, **story: Any) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({"story": "One.", "steps": [{"look": "end"}]} | story))
    return path


@pytest.mark.parametrize(
    ("story", "want"),
    [
        pytest.param({"steps": [{"wait": 1}]}, "no look", id="nothing compared"),
        pytest.param({"stpes": []}, "unknown key 'stpes'", id="misspelt"),
        pytest.param(
            {"steps": [{"jump": 1}, {"look": "end"}]}, "step 1: one of create", id="no such action"
        ),
        pytest.param(
            {"steps": [{"wait": 1, "on": "mars"}, {"look": "end"}]}, "on: mars is none", id="where"
        ),
        pytest.param(
            {"steps": [{"patch": {"kind": "Job"}}, {"look": "end"}]},
            "patch: body, name missing",
            id="half a patch",
        ),
        pytest.param(
            {"steps": [{"look": "end", "workloads": {"a": "Fine"}}]},
            "workload a: 'Fine' is none of",
            id="no such state",
        ),
        pytest.param(
            {"steps": [{"look": "end"}, {"look": "end"}]}, "'end' is there twice", id="one name"
        ),
        pytest.param(
            {"deviations": [{"at": "end/x", "portal": 1}]}, "at, kueue, portal and why", id="no why"
        ),
        pytest.param({"columns": ["memory"]}, "'memory' is none of", id="no such column"),
    ],
)
def test_story_that_cannot_be_played_is_refused_with_every_fault(tmp_path, story, want):
    with pytest.raises(StoryError, match=want):
        load(written(tmp_path, **story))


def test_every_fault_of_a_story_is_told_at_once(tmp_path):
    steps = [{"jump": 1}, {"patch": {}}, {"look": "end"}]
    with pytest.raises(StoryError, match=r"step 1: .*; step 2: ") as refused:
        load(written(tmp_path, steps=steps, extra=1))
    assert "unknown key 'extra'" in str(refused.value)


def test_stories_have_recordings_of_every_look():
    for story in stories("admission"):
        recorded = read_yaml(story.recording)
        assert sorted(recorded) == sorted(story.looks), story.name


def test_short_set_is_short():
    quick = [story.name for story in stories("admission") if story.is_quick]
    assert 5 <= len(quick) <= 9


def test_short_form_of_a_queue_is_two_documents():
    queue, local = documents_of({"queue": "team", "cohort": "all", "flavors": {"h100": 8}})
    assert queue["spec"]["cohortName"] == "all"
    quota = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert quota == [{"name": GPU, "nominalQuota": "8"}]
    assert local["spec"] == {"clusterQueue": "team"}


def test_entry_that_is_no_document_is_refused():
    with pytest.raises(ValueError, match="none of job, queue"):
        documents_of({"jbo": "train"})


def test_differences_name_the_field_on_both_sides():
    recorded = {"a": {"b": 1, "c": 2}, "events": ["x", "y"]}
    seen = {"a": {"b": 1, "c": 3}, "events": ["y", "z"], "more": True}
    found = {(d.path, d.recorded, d.seen) for d in differences(recorded, seen, path="end")}
    assert found == {
        ("end/a/c", 2, 3),
        ("end/events/x", "x", None),
        ("end/events/z", None, "z"),
        ("end/more", None, True),
    }


@pytest.mark.parametrize(
    ("deviation", "is_explained"),
    [
        pytest.param(Deviation("end/*/c", 2, 3, "so"), True, id="both outcomes named"),
        pytest.param(Deviation("end/*/c", 2, 4, "so"), False, id="the portal's is another"),
        pytest.param(Deviation("end/*/c", 1, 3, "so"), False, id="Kueue's is another"),
        pytest.param(Deviation("end/*/d", 2, 3, "so"), False, id="another field"),
    ],
)
def test_deviation_explains_only_what_it_names(deviation, is_explained):
    found = list(differences({"a": {"c": 2}}, {"a": {"c": 3}}, path="end"))
    rest, met = unexplained(found, [deviation])
    assert (not rest, met == [deviation]) == (is_explained, is_explained)


def test_statuses_are_compared_without_times_and_uids():
    condition = {
        "type": "Preempted",
        "status": "True",
        "reason": "InClusterQueue",
        "message": f"for job-train-0a1b2 (UID: {UID})",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    found = _status({"status": {"conditions": [condition], "requeueState": {"requeueAt": "now"}}})
    assert found == {
        "conditions": {
            "Preempted": {
                "status": "True",
                "reason": "InClusterQueue",
                "message": "for job-train-<hash> (UID: <uid>)",
            }
        },
        "requeueState": {"requeueAt": "<time>"},
    }


def test_events_of_others_and_of_what_is_gone_do_not_count():
    waits = {"type": "QuotaReserved", "reason": "WaitingForQuota", "message": "no room"}
    present = {
        "metadata": {"name": "job-a-12345", "uid": UID},
        "status": {"conditions": [waits | {"status": "False"}]},
    }

    def event(
        reason: str, message: str, *, uid: str = UID, by: str = "kueue", kind: str = "Normal"
    ):
        about = {"kind": "Workload", "name": "job-a-12345", "uid": uid}
        return {
            "involvedObject": about, "type": kind, "reason": reason, "message": message,
            "source": {"component": by},
        }  # fmt: skip

    events = [
        event("QuotaReserved", "waited, time was 3s; Flavors considered: x"),
        event("QuotaReserved", "waited, time was 12s"),
        event("Created", "pod", by="job-controller"),
        event("Admitted", "gone", uid="another"),
        event("WaitingForQuota", "no room", kind="Warning"),
        event("WaitingForQuota", "another reason", kind="Warning"),
    ]
    assert _events(events, [present]) == [
        "Workload job-a-<hash> Normal QuotaReserved: waited, time was <n>s",
        "Workload job-a-<hash> Warning WaitingForQuota: no room",
    ]


def test_state_of_a_workload_is_the_farthest_it_has_come():
    def conditions(**states: str) -> dict[str, Any]:
        listed = {name: {"status": value} for name, value in states.items()}
        return {"spec": {}, "status": {"conditions": listed}}

    assert state_of(None) == "Gone"
    assert state_of(conditions()) == "Pending"
    assert state_of(conditions(QuotaReserved="True")) == "Reserved"
    assert state_of(conditions(QuotaReserved="True", Admitted="True")) == "Admitted"
    assert state_of(conditions(QuotaReserved="True", Evicted="True")) == "Evicted"
    assert state_of(conditions(Finished="True", Admitted="True")) == "Finished"
    assert state_of(conditions() | {"spec": {"active": False}}) == "Inactive"
