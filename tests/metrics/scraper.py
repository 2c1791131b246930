"""A real Prometheus beside the tests; Debian's ``prometheus`` brings it and promtool."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.processes import free_port
from tests.waiting import PATIENCE_S

RULES = Path(__file__).parents[2] / "docs" / "prometheus" / "alerts.yaml"
TOKEN = "a-token-for-prometheus"


def program(name: str) -> str:
    """Path of one of Prometheus' programs; without it the test is skipped, and fails in CI."""
    found = shutil.which(name)
    if found:
        return found
    reason = f"no {name}: install Debian's prometheus"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class Scraper:
    """A real Prometheus that asks every second; rules wait two seconds in the place of minutes."""

    def __init__(self, program: str, target: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._port = free_port()
        self._url = f"http://127.0.0.1:{self._port}/api/v1"
        quick = re.sub(r"for: \w+", "for: 2s", RULES.read_text())
        (folder / "rules.yaml").write_text(quick)
        job = {
            "job_name": "portal",
            "authorization": {"credentials": TOKEN},
            "static_configs": [{"targets": [target.removeprefix("http://")]}],
        }
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [job],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))

    def __enter__(self) -> Scraper:
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, query: str) -> list[str]:
        """Values of an expression now."""
        found = self._get(f"query?query={urllib.parse.quote(query)}")
        return [row["value"][1] for row in found.get("result", [])]

    def series(self, query: str, *, seconds: int) -> list[dict[str, Any]]:
        """Labels and values, one a second, of each series of an expression until now.

        Raises:
            HTTPError: Prometheus cannot read the expression.
        """
        asked = urllib.parse.quote(f"({query})[{seconds}s:1s]")
        found: list[dict[str, Any]] = self._read(f"query?query={asked}")["data"]["result"]
        return found

    def understands(self, query: str) -> None:
        """Have it evaluate a query.

        Raises:
            HTTPError: Prometheus cannot read it.
        """
        answer = self._read(f"query?query={urllib.parse.quote(query)}")
        assert answer["status"] == "success", query

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {
            row["labels"]["alertname"]
            for row in self._get("alerts").get("alerts", [])
            if row["state"] == "firing"
        }

    def _get(self, path: str) -> dict[str, Any]:
        """What it answers, or nothing while it starts."""
        try:
            found: dict[str, Any] = self._read(path)["data"]
            return found
        except OSError:
            return {}

    def _read(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=PATIENCE_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
