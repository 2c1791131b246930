"""Links of docs into code and tests lead to what they name; the picture of rooms is the code's."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests import architecture

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
LINKING = (PAGE, ROOT / "docs" / "pages.md", ROOT / "docs" / "security.md")
# [what is said](../clusters/reconcile/shift.py "run_shift")
LINK = re.compile(r'\]\((\.\./[\w/.]+\.py)(?: "([\w.]+)")?\)')


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, classes, methods and constants of a module, as NAME or CLASS.NAME."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        found |= _names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for part in node.body for name in _names(part)}
    return frozenset(found)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def links() -> list[tuple[str, str]]:
    return [link for page in LINKING for link in LINK.findall(page.read_text())]


@pytest.mark.parametrize(("file", "name"), links())
def test_a_link_leads_to_what_it_names(file: str, name: str) -> None:
    path = (PAGE.parent / file).resolve()
    assert path.is_file(), file
    assert not name or name in names_in(path), f"{file} has no {name}"


def test_every_row_of_what_happens_when_has_a_link() -> None:
    part = PAGE.read_text().partition("## What happens when")[2].partition("\n## ")[0]
    rows = [row for row in part.splitlines() if row.startswith("| ")][2:]
    assert len(rows) >= 9
    assert [row[:60] for row in rows if not LINK.search(row)] == []


def test_every_promise_of_security_names_its_test() -> None:
    promised = (
        (ROOT / "docs" / "security.md").read_text().partition("## What is not promised yet")[0]
    )
    # The answers of real API servers are no promises: one of those above them names their test.
    before, _, table = promised.partition("<!-- matrix: begin -->")
    promised = before + table.partition("<!-- matrix: end -->")[2]
    rows = [row for row in promised.splitlines() if row.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise |", "| --- |"))]
    assert len(promises) > 20
    assert [row[:60] for row in promises if "](../tests/" not in row] == []


def test_the_picture_and_the_figures_are_those_of_the_code() -> None:
    want = architecture.with_generated_parts(PAGE.read_text())
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(want)
    assert PAGE.read_text() == want, "UPDATE_GOLDEN=1 writes the picture and the figures anew"


def test_ten_decisions_have_context_choice_and_cost() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert len(pages) >= 10
    for page in pages:
        text = page.read_text()
        assert all(f"**{word}.**" in text for word in ("Context", "Choice", "Cost")), page.name
        assert len(text.splitlines()) <= 60, f"{page.name} is longer than a page"
