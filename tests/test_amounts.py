"""The amounts of usage are declared once: a row more there is a column more everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from budgets.amounts import AMOUNTS, BY_NAME, COLUMNS, NAMES, STORED, completed

ROOT = Path(__file__).resolve().parent.parent
DECLARED = """
    Amount(
        "taken",
        "taken, floor or not",
        "Taken",
        "GPU-seconds that jobs took.",
        AmountGroup.ABOVE,
        BURST,
        is_held=True,
        of=("committed_used", "burst"),
    ),
)
BY_NAME:"""
SHOWN = """
import csv
from datetime import UTC, datetime
from django.urls import reverse
from tests.factories import UsageRecordFactory

RANGE = "start=2026-03-02&until=2026-03-02"


def test_page_csv_and_api(visitors):
    fleet = visitors.fleet
    UsageRecordFactory(
        workspace=fleet.vision,
        flavor=fleet.flavors["h100"],
        hour=datetime(2026, 3, 2, tzinfo=UTC),
        committed_used=36_000,
        burst=1_800,
    )
    page = visitors.text("finance", f"/usage/?{RANGE}&split=workspace")
    assert page.count(">Taken</th>") == 2
    assert 'title="37,800 GPU-seconds">10.5<' in page
    by_cluster = visitors.text("finance", f"/usage/?{RANGE}&split=cluster")
    assert ">Taken</th>" in by_cluster
    lines = b"".join(visitors["finance"].get(f"/usage/?{RANGE}&format=csv").streaming_content)
    row = next(csv.DictReader(lines.decode().splitlines()))
    assert (row["taken_gpu_seconds"], row["taken_gpu_hours"]) == ("37800", "10.5000")
    given = "start=2026-03-02T00:00:00Z&end=2026-03-03T00:00:00Z"
    answer = visitors["finance"].get(f"{reverse('api:usage')}?{given}").json()
    assert answer["totals"]["taken"] == 37_800
    document = visitors["finance"].get(reverse("api:schema") + "?format=json").json()
    assert "taken" in document["components"]["schemas"]["UsageRow"]["required"]
"""
EXPORTED = """
import csv
import pytest


@pytest.mark.django_db
def test_export(billed):
    export = billed.export(billed.fleet.finance, dataset="usage")
    with billed.path(export).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert int(row["taken"]) == int(row["committed_used"]) + int(row["burst"])
"""


def test_every_amount_is_in_one_column_and_sums_are_of_stored_ones():
    assert sorted(NAMES) == sorted(amount.name for amount in COLUMNS)
    assert len(BY_NAME) == len(AMOUNTS)
    assert all(name in STORED for amount in AMOUNTS for name in amount.of)


def test_amounts_that_are_not_known_are_none():
    assert completed({"committed_used": 2, "burst": 3}) == {
        **dict.fromkeys(NAMES),
        "committed_used": 2,
        "burst": 3,
    }


def test_one_declaration_is_a_column_of_page_csv_api_and_export(tmp_path: Path):
    for name in ("budgets", "clusters", "portal", "templates", "static", "tests"):
        unread = shutil.ignore_patterns("__pycache__", "golden", "perf")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=unread)
    for name in ("manage.py", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    declared = tmp_path / "budgets" / "amounts.py"
    text = declared.read_text()
    assert text.count("\n)\nBY_NAME:") == 1
    declared.write_text(text.replace("\n)\nBY_NAME:", DECLARED))
    seen = {"tests/web/test_taken.py": SHOWN, "tests/exports/test_taken.py": EXPORTED}
    for name, text in seen.items():
        (tmp_path / name).write_text(text)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *seen],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
