"""What the chart carries along is what the product has, and every value of it is described."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from portal.boards import BOARDS, board_of

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "chart"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("name", BOARDS)
def test_board_in_the_chart_is_current(name: str) -> None:
    path = CHART / "files" / "boards" / f"gpu-budget-portal-{name}.json"
    want = json.dumps(board_of(name, BOARDS[name]), indent=2) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(want)
    assert path.read_text() == want, "UPDATE_GOLDEN=1 writes it anew"


def test_chart_carries_the_products_own_files_and_no_others() -> None:
    found = {path.name: path for path in (CHART / "files").rglob("*.*")}
    boards = {f"gpu-budget-portal-{name}.json" for name in BOARDS}
    assert set(found) == {"alerts.yaml", "nginx.conf", "own-rights.yaml", *boards}
    assert found["alerts.yaml"].resolve() == ROOT / "docs" / "prometheus" / "alerts.yaml"
    assert found["nginx.conf"].resolve() == ROOT / "portal" / "nginx.conf"


def test_chart_is_of_the_products_version() -> None:
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["name"], chart["appVersion"]) == (product["name"], product["version"])


def test_every_value_is_described_and_every_description_has_a_value() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    described = dict(_described(SCHEMA))
    assert all(described.values()), [name for name, text in described.items() if not text]
    assert set(described) - {"global"} == set(_named(VALUES, SCHEMA))


def _described(schema: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, each in schema.get("properties", {}).items():
        yield before + name, each.get("description", "")
        yield from _described(each, f"{before}{name}.")


def _named(values: dict[str, Any], schema: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield before + name
        inside = schema["properties"][name]
        if "properties" in inside:
            yield from _named(value, inside, f"{before}{name}.")
