"""Figures that a page calls otherwise than the API does, each held against what the API says.

What is missing on one side is a fault as well: rows are compared by what they are about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.urls import resolve

from budgets.models import Flavor
from clusters.models import Cluster
from portal.web.reconciliation import PARTS
from tests.web.figures import Figure, Row, Table, figure_of, tables_of, text_of, within
from tests.web.normal_form import Element

Get = Callable[[str], Any]
Given = Mapping[str, Any]
NUMBER = r"([\d,]+)"
# Of a total of the fleet: the column, and what of the API comes to it.
FLEET = {
    "Capacity": ("capacity",),
    "Committed": ("committed",),
    "Pools": ("account_pools", "platform_pools"),
    "In use": ("in_use",),
    "Free": ("free",),
    "Broken": ("broken",),
}
# Of a total of the fleet: what its workers come to.
WORKERS = ("capacity", "in_use", "free", "broken")


def unlike_api(address: str, document: Element, get: Get) -> Iterator[str]:
    """What a page tells and the API does not, or otherwise; nothing of other pages.

    Args:
        get: From an address of the API to its document, for the reader of the page.
    """
    route = resolve(urlsplit(address).path)
    found = FACES.get(route.url_name or "")
    if found is not None:
        query = urlsplit(address).query
        yield from found(document, get, {**route.kwargs, "query": f"?{query}" if query else ""})


def _fleet(document: Element, get: Get, given: Given) -> Iterator[str]:
    told = get("/api/v1/fleet")
    slugs = {row.name: row.slug for row in Flavor.objects.all()}
    totals = {row["flavor"]: row for row in told["totals"]}
    cells = {(row["flavor"], row["cluster"]): row for row in told["cells"]}
    of_flavors, of_workers = _table(document, "Broken"), _table(document, "Flavor", last=True)
    shown = {_named(row, slugs): row for row in of_flavors.rows}
    if shown.keys() != totals.keys():
        yield f"flavors are {sorted(shown)}, and those of the API {sorted(totals)}"
    for slug in shown.keys() & totals.keys():
        for column, keys in FLEET.items():
            want = sum(totals[slug][key] for key in keys)
            yield from _unlike(f"{column} of {slug}", _first(of_flavors, shown[slug], column), want)
        for key in WORKERS:
            of_all = sum(row[key] for (flavor, _), row in cells.items() if flavor == slug)
            yield from _unlike(f"{key} of {slug} over all workers", of_all, totals[slug][key])
    workers = {row.name: row.slug for row in Cluster.objects.all()}
    for row in of_workers.rows:
        for at, heading in enumerate(of_workers.headings[1:], start=1):
            cell = cells.get((_named(row, slugs), workers.get(heading, heading)))
            numbers = _numbers(row.cells[at].text)[:3]
            want = [cell[key] for key in ("in_use", "capacity", "committed")] if cell else []
            yield from _unlike(f"{row.name} on {heading}", numbers, want)
    promised, capacity, in_use = (
        sum(row[key] for row in totals.values()) for key in ("promised", "capacity", "in_use")
    )
    head = " ".join(text_of(each) for each in within(document, "p") if "headline" in each.classes)
    if found := re.search(rf"{NUMBER} GPUs promised of {NUMBER} GPUs, {NUMBER} in use", head):
        yield from _unlike("the headline", _whole(found), [promised, capacity, in_use])


def _workspace(document: Element, get: Get, given: Given) -> Iterator[str]:
    bars = get(f"/api/v1/workspaces/{given['namespace']}/now")["bars"]
    shown = [each.attributes.get("aria-label") or "" for each in within(document, "svg")]
    for bar in bars:
        begin = f"{bar['flavor_name']}: "
        texts = [text.removeprefix(begin) for text in shown if text.startswith(begin)]
        if len(texts) != 1:
            yield f"{len(texts)} bars of {bar['flavor']}"
            continue
        over = max(0, bar["used"] - max(bar["ceiling"], bar["committed"]))
        wanted = {
            rf"{NUMBER} GPUs in use": [bar["committed_used"] + bar["burst"]],
            rf"{NUMBER} of {NUMBER} committed": [bar["committed_used"], bar["committed"]],
            rf"{NUMBER} of {NUMBER} burst": [
                bar["burst"] - over,
                bar["ceiling"] - bar["committed"],
            ],
            rf"{NUMBER} lent": [bar["lent"]],
            rf"{NUMBER} waiting": [bar["pending"]],
            rf"capped at {NUMBER}": [bar["cap"]],
            rf"{NUMBER} above the": [over],
        }
        for pattern, want in wanted.items():
            if found := re.search(pattern, texts[0]):
                yield from _unlike(f"{pattern} of {bar['flavor']}", _whole(found), want)
            elif any(want[:1]):
                yield f"{texts[0]!r} does not say {want}"
        yield from _unlike(f"{bar['flavor']} in use", bar["used"], sum(bar["on_workers"].values()))


def _month(document: Element, get: Get, given: Given) -> Iterator[str]:
    told = get(f"/api/v1/months/{given['name']}")
    listed = [
        each for part in within(document, "section") if part.attributes.get("id") == "checks"
        for each in within(part, "li") if any("tag" in below.classes for below in each.elements)
    ]  # fmt: skip
    if listed and len(listed) != len(told["checks"]):
        yield f"{len(listed)} checks, and {len(told['checks'])} of the API"
    for check, element in zip(told["checks"], listed, strict=False):
        text = text_of(element)
        if not text.startswith(f"{'yes' if check['is_met'] else 'not yet'} {check['title']}"):
            yield f"{text!r}, where the API says {check}"
    papers = {row["id"] for row in get(f"/api/v1/statements?month={given['name']}")["results"]}
    for row in within(document, "tr"):
        links = [each.attributes.get("href") or "" for each in within(row, "a")]
        keys = [link.strip("/").split("/")[-1] for link in links if "/billing/statements/" in link]
        figures = [figure for each in within(row, "td") if (figure := figure_of(text_of(each)))]
        for key in keys:
            papers.discard(int(key))
            total = _total_of(get(f"/api/v1/statements/{key}"))
            yield from _unlike(f"statement {key}", str(figures[-1]) if figures else "", str(total))
    if papers:
        yield f"statements {sorted(papers)} of the API are not on the page"


def _reconciliation(document: Element, get: Get, given: Given) -> Iterator[str]:
    told = get(f"/api/v1/reconciliation{given['query']}")
    slugs = {row.name: row.slug for row in Flavor.objects.all()}
    keys = {words: key for key, words in PARTS} | {
        "Unexplained": "unexplained",
        "Capacity": "capacity",
    }
    facts = {(fact["hour"][11:16], fact["flavor"]): fact for fact in told["facts"]}
    if not facts:
        return
    table = _table(document, "Unexplained")
    shown = {(row.name, slugs.get(row.cells[1].text, "")): row for row in table.rows}
    if shown.keys() != facts.keys():
        yield f"hours are {sorted(shown)}, and those of the API {sorted(facts)}"
    for place in shown.keys() & facts.keys():
        for at, heading in enumerate(table.headings):
            cell = shown[place].cells[at]
            if heading in keys and cell.text != "–":
                sign = -1 if keys[heading] == "over_admitted" else 1
                seconds = int(cell.figure.value) if cell.figure else None
                want = sign * facts[place][keys[heading]]
                yield from _unlike(f"{heading} of {place}", seconds, want)


FACES: Mapping[str, Callable[[Element, Get, Given], Iterator[str]]] = {
    "fleet": _fleet,
    "workspace": _workspace,
    "billing_period": _month,
    "reconciliation": _reconciliation,
}


def _total_of(told: Mapping[str, Any]) -> Figure | None:
    """The total of a statement as a page writes it."""
    whole, _, places = told["total"].partition(".")
    return figure_of(f"{whole}.{places[:2]} {told['currency']}")


def _unlike(where: str, shown: object, want: object) -> Iterator[str]:
    if shown != want:
        yield f"{where} is {shown}, where the API has {want}"


def _table(document: Element, heading: str, *, last: bool = False) -> Table:
    found = [table for table in tables_of(document) if heading in table.headings]
    return found[-1 if last else 0]


def _named(row: Row, slugs: Mapping[str, str]) -> str:
    """The slug of the flavor that a row is about; tags may stand behind its name."""
    found = [name for name in slugs if row.name.startswith(name)]
    return slugs[max(found, key=len)]


def _first(table: Table, row: Row, column: str) -> int:
    return _numbers(row.cells[table.headings.index(column)].text)[0]


def _numbers(text: str) -> list[int]:
    return [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", text)]


def _whole(found: re.Match[str]) -> list[int]:
    return [int(each.replace(",", "")) for each in found.groups()]
