"""The README stays true: its road, commands and settings exist."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
ROAD = re.findall(r"^\| (\w+) \| `([\w/.]+)` \| `(\w+)` \|$", README, re.MULTILINE)
STEPS = [
    "budget",
    "plan",
    "manifests",
    "apply",
    "admit",
    "dispatch",
    "observe",
    "interval",
    "meter",
    "charge",
    "report",
]


def test_road_names_every_step_once_in_order() -> None:
    assert [step for step, _, _ in ROAD] == STEPS


@pytest.mark.parametrize(("step", "where", "function"), ROAD, ids=[row[0] for row in ROAD])
def test_road_leads_to_code_that_exists(step: str, where: str, function: str) -> None:
    module = importlib.import_module(where.removesuffix(".py").replace("/", "."))
    assert callable(getattr(module, function)), f"{step}: {where} has no {function}"


def test_every_management_command_named_exists() -> None:
    named = set(re.findall(r"manage\.py (\w+)", README))
    assert named
    assert named <= set(get_commands())


def test_every_make_target_named_exists() -> None:
    named = set(re.findall(r"`make ([\w-]+)`", README)) | set(
        re.findall(r"^make ([\w-]+)", README, re.MULTILINE)
    )
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_settings_table_and_settings_agree() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE))
    sources = (ROOT / "portal" / "settings.py").read_text()
    read = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', sources))
    assert documented == read


def test_makefile_targets_are_understood_by_make() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "check", "demo", "test", "bench"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
