"""The alert rules, by Prometheus' own judgement: promtool, and a server that scrapes the portal."""

from __future__ import annotations

import json
import re
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.test import Client

from clusters import services
from portal import metrics
from portal.boards import BOARDS, board_of
from tests.metrics.scraper import RULES, TOKEN, Scraper
from tests.reconcile.fleet_rows import dev_server, register
from tests.waiting import eventually

RUNBOOKS = RULES.parents[1] / "metrics.md"
PROCESS = frozenset({"portal_http_request_duration_seconds", "portal_task_duration_seconds"})


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_rules_hold_by_promtool(promtool: str) -> None:
    for command in (("check", "rules", str(RULES)), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run(
            [promtool, *command], cwd=Path(__file__).parent, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/metrics.md#{rule['alert'].lower()}"


@pytest.mark.django_db
def test_alerts_ask_for_numbers_that_there_are() -> None:
    known = {family.name for family in metrics.families()} | PROCESS
    for rule in rules():
        for name in re.findall(r"\bportal_\w+", rule["expr"]):
            assert re.sub(r"_(bucket|count|sum)$", "", name) in known, rule["alert"]


@pytest.mark.django_db
def test_boards_ask_for_numbers_that_there_are(tmp_path: Path) -> None:
    call_command("grafana_boards", tmp_path, stdout=StringIO())
    known = {family.name for family in metrics.families()} | PROCESS
    files = sorted(tmp_path.iterdir())
    assert [path.stem.rpartition("-")[2] for path in files] == ["admin", "finance", "owner"]
    for path in files:
        board = json.loads(path.read_text())
        assert {variable["name"] for variable in board["templating"]["list"]} >= {"source"}
        places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in board["panels"]]
        assert len(set(places)) == len(places)
        for query in queries(board):
            for name in re.findall(r"\bportal_\w+", query):
                assert re.sub(r"_(bucket|count|sum)$", "", name) in known, query


def queries(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="Name a folder you may write"):
        call_command("grafana_boards", tmp_path / "file" / "boards")


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_a_cluster_that_is_cut_off_fires_the_alert_and_the_page_says_so(
    prometheus: str, live_server, fleet, settings, tmp_path: Path, client: Client
) -> None:
    settings.PORTAL_METRICS_TOKEN = TOKEN
    with dev_server("gpu-east") as server:
        cluster = register("gpu-east", server.kubeconfig)
        services.check_health()
        with Scraper(prometheus, live_server.url, tmp_path) as scraper:
            query = 'portal_cluster_reachable{cluster="gpu-east"}'

            def is_seen() -> bool:
                services.check_health()  # as the beat has it done every five seconds
                return scraper.ask(query) == ["1"]

            eventually(is_seen, seconds=60)
            assert "PortalClusterUnreachable" not in scraper.firing()
            for name, board in BOARDS.items():
                for query in queries(board_of(name, board)):
                    scraper.understands(query.replace("$workspace", ".+"))
            server.stop()
            services.check_health()
            eventually(
                lambda: "PortalClusterUnreachable" in scraper.firing(), seconds=60,
                why=scraper.firing,
            )  # fmt: skip
    client.force_login(fleet.admin)
    page = client.get(f"/clusters/{cluster.slug}/").content.decode()
    assert "lost" in page and ">answers<" not in page
