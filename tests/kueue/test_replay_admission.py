"""The command that replays recorded scenarios."""

from __future__ import annotations

import gzip
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.kueue.builders import cluster_queue, flavor, group, local_queue, quota, workload

ADMISSION = {
    "clusterQueue": "q",
    "podSetAssignments": [
        {
            "name": "main",
            "flavors": {"nvidia.com/gpu": "f0"},
            "resourceUsage": {"nvidia.com/gpu": "2"},
            "count": 1,
        }
    ],
}


def scenario(name: str, *, family: str = "flat", **expect: Any) -> dict[str, Any]:
    """One workload that arrives and fits."""
    right = {
        "cycles": [{"admitted": [{"workload": "ns/w", "admission": ADMISSION}], "preempted": []}],
        "queued": {},
        "inadmissible": {},
        "pendingMessages": {},
    }
    return {
        "name": name,
        "family": family,
        "fairSharing": False,
        "namespaces": [{"metadata": {"name": "ns"}}],
        "resourceFlavors": [flavor("f0")],
        "cohorts": [],
        "clusterQueues": [cluster_queue("q", group(f0=quota(4)))],
        "localQueues": [local_queue("q", "q")],
        "steps": [
            {"event": {"arrive": [workload("w", "q", gpus=2)]}, "expect": {**right, **expect}}
        ],
    }


def replay(path: Path, *arguments: str) -> tuple[int, list[str]]:
    output = StringIO()
    try:
        call_command("replay_admission", str(path), *arguments, stdout=output)
    except SystemExit as end:
        return int(end.code or 0), output.getvalue().splitlines()
    return 0, output.getvalue().splitlines()


def write(path: Path, *scenarios: dict[str, Any], is_gzip: bool = False) -> Path:
    text = "\n".join(json.dumps(item) for item in scenarios)
    path.write_bytes(gzip.compress(text.encode()) if is_gzip else text.encode())
    return path


@pytest.mark.parametrize("is_gzip", [False, True], ids=["plain", "gzip"])
def test_replay_of_matching_scenarios_ends_with_zero(tmp_path, is_gzip):
    path = write(tmp_path / "file", scenario("one"), scenario("two"), is_gzip=is_gzip)
    assert replay(path, "--jobs", "2") == (0, ["2 of 2 scenarios match"])


@pytest.mark.parametrize(
    ("expect", "want_where", "want_what"),
    [
        pytest.param(
            {"cycles": [{"admitted": [], "preempted": []}]},
            "step 0, cycle 0",
            "admitted",
            id="admission",
        ),
        pytest.param(
            {"inadmissible": {"q": ["ns/w"]}},
            "step 0, after its last cycle",
            "inadmissible",
            id="parked set",
        ),
        pytest.param(
            {"pendingMessages": {"ns/w": "x"}},
            "step 0, after its last cycle",
            "pendingMessages",
            id="message",
        ),
    ],
)
def test_replay_shows_step_cycle_wanted_and_got(tmp_path, expect, want_where, want_what):
    path = write(tmp_path / "file", scenario("good"), scenario("bad", **expect))
    code, lines = replay(path)
    assert code == 1
    assert lines[0] == "bad (flat)"
    assert lines[1] == f"  {want_where}: {want_what}"
    assert lines[2].startswith("    wanted ")
    assert lines[3].startswith("    got ")
    assert lines[-1] == "1 of 2 scenarios match"


def test_replay_takes_an_absent_section_as_an_empty_one(tmp_path):
    document = scenario("one") | {"cohorts": None, "admissionChecks": None, "topologies": None}
    del document["namespaces"]
    path = write(tmp_path / "file", document)
    assert replay(path) == (0, ["1 of 1 scenarios match"])


def test_replay_does_not_compare_messages_that_the_reference_was_not_sure_of(tmp_path):
    big = workload("big", "q", gpus=9, age=1)
    document = scenario("one", inadmissible={"q": ["ns/big"]}, unstableMessages=["ns/big"])
    document["steps"][0]["event"]["arrive"].append(big)
    document["steps"][0]["expect"]["cycles"] += [{"admitted": [], "preempted": []}]
    assert replay(write(tmp_path / "file", document)) == (0, ["1 of 1 scenarios match"])
    document["steps"][0]["expect"]["unstableMessages"] = []
    code, lines = replay(write(tmp_path / "file", document))
    assert (code, lines[1]) == (1, "  step 0, after its last cycle: pendingMessages")


def test_replay_of_an_event_that_is_not_understood_differs(tmp_path):
    document = scenario("one")
    document["steps"][0]["event"] = {"advanceSeconds": 5, "earthquake": ["w"]}
    code, lines = replay(write(tmp_path / "file", document))
    assert (code, lines[1:3]) == (
        1,
        ["  step 0, after its last cycle: event", '    wanted  ["earthquake"]'],
    )


def test_replay_stops_at_the_first_difference(tmp_path):
    bad = {"pendingMessages": {"ns/w": "x"}}
    path = write(tmp_path / "file", scenario("a", **bad), scenario("b", **bad))
    code, lines = replay(path, "--first-difference")
    assert (code, lines[-1]) == (1, "0 of 1 scenarios match")


def test_replay_takes_one_family(tmp_path):
    bad = scenario("bad", family="fair", pendingMessages={"ns/w": "x"})
    path = write(tmp_path / "file", scenario("good"), bad)
    assert replay(path, "--family", "flat") == (0, ["1 of 1 scenarios match"])


@pytest.mark.parametrize("content", [None, "", "no json"], ids=["missing", "empty", "not JSON"])
def test_replay_refuses_what_is_no_recording(tmp_path, content):
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises((CommandError, ValueError)):
        call_command("replay_admission", str(path), stdout=StringIO())
