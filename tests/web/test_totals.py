"""Every page of the demo, in three roles: each total comes from its rows and is what the API says.

The demo's own seed at a frozen time; all but the clusters, of which
there are the rows alone: what was used and what it costs is in the seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import time_machine
from django.core.management import call_command
from django.test import Client
from django.test.signals import template_rendered
from django.urls import resolve

from budgets import services
from budgets.services import HeldNow
from clusters.models import Cluster
from portal.api.usage import MOST
from portal.management.commands.seed_demo import Command
from tests.web.api_figures import FACES, unlike_api
from tests.web.figures import (
    EXACTLY,
    MONEY,
    Figure,
    exact_figures,
    figure_of,
    tables_of,
    text_of,
    within,
)
from tests.web.normal_form import Element, parsed
from tests.web.test_nonsense import pages_of

pytestmark = pytest.mark.django_db
TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
NOW = datetime(2026, 3, 4, 10, 34, tzinfo=UTC)
ROLES = ("admin", "finance", "owner")
FILES = ("statement_pdf", "export_file", "export_about")
# Of the API's documents: a total, and the lists that have to come to it.
LISTS = {
    "total": ("rows", "others"),
    "totals": ("rows", "others"),
    "covers_total": ("covers",),
    "pairs_total": ("pairs",),
}


class Seed(Command):
    """The demo's, where clusters are rows alone."""

    def clusters(self, folder: Any, rows: Any) -> None:
        for slug, role, name in rows:
            Cluster.objects.create(
                slug=slug, name=name, role=role, mode=Cluster.Mode.PORTAL, context="x",
                server=f"https://{slug}.invalid", user_kind="token", kubeconfig_sealed=b"x",
            )  # fmt: skip


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Mapping[str, Client]]:
    """A client for each role, at a quiet moment of the demo."""
    with time_machine.travel(NOW, tick=False):
        seed = Seed()
        (tmp_path / "manager.kubeconfig").touch()
        call_command(seed, kubeconfigs=tmp_path, days=5)
        measure()
        clients = {role: Client() for role in ROLES}
        for role, client in clients.items():
            client.force_login(getattr(seed, role))
        yield clients


def measure() -> None:
    """What the nodes of one worker would have shown for some hours."""
    rows = {"h100": (62, 2, 12, 8)}
    rows |= {"h100-spot": (32, 0, 0, 4), "a100": (32, 0, 0, 4), "l4": (16, 0, 0, 4)}
    held = HeldNow(held={"h100": 12}, outside={"h100": 3})
    at = NOW - timedelta(hours=3)
    while at <= NOW:
        services.record_measured_capacity(
            cluster="worker-1", rows=rows, measured_at=at, beside=held
        )
        at += timedelta(minutes=5)


@pytest.fixture
def rendered() -> Iterator[set[str]]:
    """Names of templates of the page that was asked for last, until somebody clears them."""
    names: set[str] = set()

    def note(template: Any, **_: Any) -> None:
        names.add(template.name or "")

    template_rendered.connect(note)
    yield names
    template_rendered.disconnect(note)


@pytest.mark.parametrize(
    "most", [2, pytest.param(12, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_every_total_comes_from_its_rows_and_is_what_the_api_says(
    demo: Mapping[str, Client], rendered: set[str], most: int
):
    wrong, totals, asked, with_totals, mapped = [], 0, 0, set[str](), set[str]()
    for role, client in demo.items():
        rendered.clear()
        for page in pages_of(demo, role, begin=("/",), most=most, without=FILES):
            document = parsed(page.text)
            found = sum(len(table.totals) for table in tables_of(document))
            if found:
                with_totals |= rendered
            faults = list(faults_of(document))
            if page.status == 200:
                for address in faces_of(page.address, document):
                    asked += 1
                    faults += against_api(document, client.get(address).json())
                mapped.add(str(resolve(urlsplit(page.address).path).url_name))
                get = lambda address, client=client: client.get(address).json()  # noqa: E731
                faults += unlike_api(page.address, document, get)
            wrong += [f"{role}, {page.address}: {fault}" for fault in faults]
            totals += found
            rendered.clear()
    assert not wrong, "\n".join(wrong)
    feet = {
        str(path.relative_to(TEMPLATES))
        for path in TEMPLATES.rglob("*.html")
        if "<tfoot" in path.read_text()
    }
    assert feet - with_totals == set(), "the demo shows no total of these"
    assert totals > 50
    assert asked > 10
    assert FACES.keys() - mapped == set(), "nobody saw these pages"


def faults_of(document: Element) -> Iterator[str]:
    """What contradicts itself on one page."""
    tables = tables_of(document)
    for table in tables:
        yield from table.faults()
    known: dict[str, list[Figure]] = {}
    for table in tables:
        for total in table.totals:
            for column, cell in total.cells.items():
                if cell.figure is not None:
                    known.setdefault(table.headings[column], []).append(cell.figure)
    for element in within(document):
        figure = figure_of(text_of(element)) if "big" in element.classes else None
        if figure and MONEY.fullmatch(figure.unit) and known:
            sums = [_sum(f for f in found if f.unit == figure.unit) for found in known.values()]
            if figure.value not in [*sums, *(f.value for fs in known.values() for f in fs)]:
                yield f"{figure} stands large, and no total of the page is it"


def faces_of(address: str, document: Element) -> Iterator[str]:
    """Where the API tells what a page shows."""
    place, asked = urlsplit(address), parse_qs(urlsplit(address).query)
    route = resolve(place.path)
    name, given = route.url_name or "", route.kwargs
    if name in ("usage", "usage_lending", "usage_idle", "usage_capacity"):
        chosen = {
            each.attributes.get("name"): each.attributes.get("value") or ""
            for each in within(document, "input")
        }
        start, until = (date.fromisoformat(chosen[key] or "") for key in ("start", "until"))
        query = {key: asked[key] for key in ("workspace", "flavor") if key in asked}
        yield _usage(place.path.removeprefix("/").removesuffix("/"), start, until, **query)
    if name == "workspace":
        today = NOW.date()
        week = today - timedelta(days=6)
        yield _usage("usage", week, today, workspace=[given["namespace"]])
    if name in ("statement", "statement_line"):
        yield f"/api/v1/statements/{given['key']}"
    if name == "job":
        yield f"/api/v1/workloads/{given['cluster']}/{given['uid']}"


def _usage(name: str, start: date, until: date, **query: list[str]) -> str:
    """The days of a reader in UTC, both of them included."""
    end = until + timedelta(days=1)
    ends = {"start": f"{start}T00:00:00Z", "end": f"{end}T00:00:00Z"}
    is_long = name == "usage" and end - start > MOST["hour"]
    steps = {"step": "day"} if is_long else {}  # its totals are the same
    return f"/api/v1/{name}?{urlencode({**ends, **steps, **query}, doseq=True)}"


def against_api(document: Element, told: Mapping[str, Any]) -> Iterator[str]:
    """Totals of the API that its rows do not come to; figures of a page that it does not have."""
    for name, lists in LISTS.items():
        rows = [row for key in lists for row in _rows(told.get(key))]
        for key, total in _numbers(told.get(name), or_in=rows):
            come_to = sum(row.get(key) or 0 for row in rows)
            if come_to != total:
                yield f"{name}.{key} of the API says {total}, and its rows come to {come_to}"
    allowed = set(_values(told))
    for figure in _standing(document, told.get("currency", EXACTLY)):
        if (figure.value, figure.unit) not in allowed:
            yield f"{figure} stands on the page; the API has rows that come to none like it"


def _standing(document: Element, currency: str) -> Iterator[Figure]:
    """Figures of total rows, and exact ones outside of tables."""
    for table in tables_of(document):
        for total in table.totals:
            for cell in total.cells.values():
                if cell.figure and cell.figure.unit in (EXACTLY, currency):
                    yield cell.figure
    in_tables = [id(each) for table in within(document, "table") for each in within(table)]
    for element in within(document):
        if id(element) not in in_tables and not element.elements:
            yield from exact_figures(element)


def _rows(found: Any) -> list[Mapping[str, Any]]:
    return found if isinstance(found, list) else [found] if isinstance(found, dict) else []


def _numbers(total: Any, *, or_in: list[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """Keys of a total with their numbers; one that is a number alone is of what is lent."""
    if isinstance(total, int) and or_in:
        yield "lent", total
    for key, value in total.items() if isinstance(total, dict) else ():
        if isinstance(value, int):
            yield key, value


def _values(told: Mapping[str, Any]) -> Iterator[tuple[Decimal, str]]:
    """What lists of the API come to, whole and by workspace, each sum with each other one."""
    for rows in filter(None, map(_rows, told.values())):
        for place in (None, *{row.get("workspace") for row in rows}):
            part = [row for row in rows if place in (None, row.get("workspace"))]
            sums = [_sum_of(part, key) for key in rows[0] if _is_amount(rows[0][key])]
            for value in (*sums, *(a + b for a, b in combinations(sums, 2))):
                yield value, EXACTLY
                yield value, told.get("currency", EXACTLY)
        for row in rows if "lines" in told else ():
            yield Decimal(row["gpu_seconds"]), EXACTLY
            yield Decimal(row["amount"]), told["currency"]


def _is_amount(value: Any) -> bool:
    return isinstance(value, int) or bool(re.fullmatch(r"-?\d+\.\d+", str(value)))


def _sum_of(rows: Iterable[Mapping[str, Any]], key: str) -> Decimal:
    return sum((Decimal(row.get(key) or 0) for row in rows), Decimal(0))


def _sum(figures: Iterable[Figure]) -> Decimal:
    return sum((figure.value for figure in figures), Decimal(0))
