"""Every gate of a served Kueue has its place here: followed, no effect, or refused.

``served_gates/`` has the gates of each version by name, stage and default, as its source declares
them; where that source lies in the Go module cache it is read again. ``UPDATE_GOLDEN=1`` writes the
table of the docs anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from clusters.kueue import feature_gates
from clusters.kueue.configuration import Configuration, Gates, not_followed
from clusters.kueue.feature_gates import GATES, Gate, Stance, in_force

SERVED = sorted((Path(__file__).parent / "served_gates").glob("v*.txt"))
PAGE = Path(__file__).parents[2] / "docs" / "kueue-gates.md"
BEGIN, END = "<!-- gates: begin -->\n", "<!-- gates: end -->\n"
DECLARED = re.compile(r"^\t(\w+): \{\n(.*?)^\t\},", re.MULTILINE | re.DOTALL)
SPEC = re.compile(r"Default: (\w+), PreRelease: featuregate\.(\w+)")
versions = pytest.mark.parametrize("path", SERVED, ids=lambda path: path.stem)


@versions
def test_every_gate_of_a_served_version_is_in_the_table(path: Path) -> None:
    want = path.read_text().splitlines()
    found = {f"{gate.name} {gate.stage} {'on' if gate.is_on else 'off'}" for gate in GATES.values()}
    assert set(want) - found == set(), "say what these gates mean for the portal"


def test_no_gate_is_in_the_table_that_no_served_version_has() -> None:
    served = {line.split()[0] for path in SERVED for line in path.read_text().splitlines()}
    assert GATES.keys() - served == set()


@versions
def test_the_list_of_gates_is_that_of_the_source(path: Path) -> None:
    go = shutil.which("go")
    cache = _told(go, "env", "GOMODCACHE") if go else str(Path.home() / "go/pkg/mod")
    source = Path(cache, f"sigs.k8s.io/kueue@{path.stem}", "pkg/features/kube_features.go")
    if not source.exists():
        pytest.skip(f"{source} is not there")
    declared = source.read_text().partition("var defaultVersionedFeatureGates")[2]
    found = []
    for name, body in DECLARED.findall(declared):
        default, stage = SPEC.findall(body)[-1]
        found.append(f"{name} {stage} {'on' if default == 'true' else 'off'}")
    assert sorted(found) == path.read_text().splitlines()


def _told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_what_the_engine_reads_is_followed_or_refused_where_it_is_asked_for() -> None:
    """And what is followed is read by it; one gate is part of the rules for ready pods."""
    known = {gate.name.lower(): gate for gate in GATES.values()}
    read = {known[item.name.replace("_", "")].name for item in fields(Gates)}
    followed = {gate.name for gate in GATES.values() if gate.stance is Stance.FOLLOWED}
    refused = {gate.name for gate in GATES.values() if gate.stance is Stance.REFUSED}
    assert followed - read == {"DisableWaitForPodsReady"}
    assert read <= followed | refused


def test_defaults_of_the_engine_are_those_of_the_table() -> None:
    assert Configuration.from_document({}).gates == Gates()


@pytest.mark.parametrize("name", [name for name, gate in GATES.items()])
def test_a_gate_with_another_value_is_refused_unless_it_is_followed_or_means_nothing(
    name: str,
) -> None:
    gate = GATES[name]
    assert not_followed({"featureGates": {name: gate.is_on}}) == []
    found = not_followed({"featureGates": {name: not gate.is_on}})
    if gate.stance is Stance.REFUSED:
        assert found == [f"{name} is {'off' if gate.is_on else 'on'}: {gate.changes}"]
    else:
        assert found == []


def test_all_of_a_stage_are_switched_at_once_but_for_those_that_are_named() -> None:
    found = in_force({"AllAlpha": True, "PriorityBoost": False})
    alpha = {name for name, gate in GATES.items() if gate.stage == "Alpha"}
    assert {name for name in alpha if not found[name]} == {"PriorityBoost"}
    assert all(found[name] == gate.is_on for name, gate in GATES.items() if name not in alpha)
    read = Configuration.from_document({"featureGates": {"AllAlpha": True}})
    assert read.gates.tas_balanced_placement
    assert read.pods_ready is None
    refused = [text.split()[0] for text in not_followed({"featureGates": {"AllAlpha": True}})]
    assert "ConcurrentAdmission" in refused
    assert "TASBalancedPlacement" not in refused


def test_a_gate_that_kueue_does_not_know_is_refused() -> None:
    assert not_followed({"featureGates": {"QuotaForAll": True}}) == [
        "QuotaForAll is no gate of Kueue 0.19"
    ]


def test_a_row_of_the_table_is_a_gate() -> None:
    found = feature_gates._read()
    assert found == GATES
    assert found["TASBalancedPlacement"] == Gate(
        name="TASBalancedPlacement",
        stage="Alpha",
        is_on=False,
        stance=Stance.FOLLOWED,
        changes=GATES["TASBalancedPlacement"].changes,
    )
    assert found["TASBalancedPlacement"].changes
    assert found["TASProfileMixed"].is_on


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    rows = ["| gate | stage | default | here | changes |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| {gate.name} | {gate.stage} | {'on' if gate.is_on else 'off'} | {gate.stance} "
        f"| {gate.changes} |"
        for gate in sorted(GATES.values(), key=lambda gate: gate.name)
    ]
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    want = before + BEGIN + "\n".join(rows) + "\n" + END + rest.partition(END)[2]
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(want)
    assert PAGE.read_text() == want, "UPDATE_GOLDEN=1 writes the table anew"
