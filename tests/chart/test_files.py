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


def of_the_product() -> Iterator[tuple[str, str]]:
    """Each file that the chart has a copy of, because Helm reads nothing outside of it."""
    yield "alerts.yaml", (ROOT / "docs" / "prometheus" / "alerts.yaml").read_text()
    for name, board in BOARDS.items():
        text = json.dumps(board_of(name, board), indent=2) + "\n"
        yield f"boards/gpu-budget-portal-{name}.json", text
    nginx = (ROOT / "portal" / "nginx.conf").read_text()
    # Beside the web in one pod, where only the pod's own address leads to it.
    for there, here in (("listen 8000;", "listen 8080;"), ("//web:8000", "//127.0.0.1:8000")):
        assert nginx.count(there) == 1
        nginx = nginx.replace(there, here)
    yield "nginx.conf", nginx


OF_THE_PRODUCT = dict(of_the_product())


@pytest.mark.parametrize("name", OF_THE_PRODUCT)
def test_copy_in_the_chart_is_current(name: str) -> None:
    path, want = CHART / "files" / name, OF_THE_PRODUCT[name]
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(want)
    assert path.read_text() == want, "UPDATE_GOLDEN=1 writes it anew"


def test_chart_carries_nothing_else_along() -> None:
    found = {str(path.relative_to(CHART / "files")) for path in (CHART / "files").rglob("*.*")}
    assert found == set(OF_THE_PRODUCT)


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
