"""Pages on paper, as the browser prints them, and on wide screens."""

from __future__ import annotations

import re
from io import BytesIO

import pytest
from playwright.sync_api import Page, expect
from pypdf import PdfReader

from budgets.models import Statement
from budgets.services.billing import draw_up_statements
from tests.browser.conftest import Watched
from tests.browser.test_journeys import busy
from tests.browser.test_money import march
from tests.browser.windows import settle
from tests.builders import SmallFleet
from tests.waiting import eventually

__all__ = ["busy", "march"]  # fixtures

SHEET = {"width": 718, "height": 1047}  # A4 without margins of 10 mm, in CSS pixels
MARGINS = dict.fromkeys(("top", "right", "bottom", "left"), "10mm")
# What stands beyond the right edge of the sheet, or is cut off by what it stands in.
CLIPPED = """() => {
  const width = document.documentElement.clientWidth;
  return [...document.querySelectorAll('main *')].filter(element => {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest('.visually-hidden, svg *')) return false;
    if (box.right > width + 1) return true;
    const hides = getComputedStyle(element).overflowX !== 'visible';
    return hides && !element.closest('svg') && element.scrollWidth > element.clientWidth + 1;
  }).map(element => element.outerHTML.slice(0, 120));
}"""
# Rows of tables as they are read, without those that are folded away.
ROWS = """() => [...document.querySelectorAll('main tr')]
  .filter(row => row.offsetHeight > 0 && !row.closest('details:not([open])'))
  .map(row => [...row.cells].map(cell => cell.innerText.trim().replace(/\\s+/g, ' ')))"""

# Labels of axes that are shown: Plotly hides one that would stand out beyond its chart.
TICKS = """() => [...document.querySelectorAll('main .xtick text')]
  .filter(text => text.checkVisibility({opacityProperty: true}))
  .map(text => text.textContent)"""


def on_paper(watched: Watched, name: str) -> str:
    """The text of the printed page; nothing is cut off, and its rows are those of the screen."""
    page = watched.page
    settle(page)
    rows = page.evaluate(ROWS)
    page.set_viewport_size(SHEET)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    eventually(lambda: page.evaluate(CLIPPED) == [], why=lambda: page.evaluate(CLIPPED))
    ticks = page.evaluate(TICKS)
    watched.keep(f"{name}-print")
    assert page.evaluate(ROWS) == rows
    for hidden in (
        page.get_by_role("navigation"),
        page.get_by_role("search"),
        page.locator("main button, main input, main select"),
    ):
        assert not [each for each in hidden.all() if each.is_visible()]
    printed = page.pdf(format="A4", margin=MARGINS, print_background=True)
    text = flat(" ".join(sheet.extract_text() for sheet in PdfReader(BytesIO(printed)).pages))
    assert [tick for tick in ticks if flat(tick) not in text] == []
    return text


def flat(text: str) -> str:
    """Without white space, which breaks differently on paper."""
    return re.sub(r"\s", "", text)


def cells(page: Page) -> list[str]:
    return [cell for row in page.evaluate(ROWS) for cell in row if cell]


def test_a_statement_is_printed_whole_and_alone(visit, march: SmallFleet):
    draw_up_statements(march.finance, month="2026-03")
    paper = Statement.objects.get(account=march.acme)
    watched = visit()
    watched.sign_in("fin")
    page = watched.open(f"/billing/statements/{paper.pk}/")
    total = page.locator(".head .big").inner_text()
    text = on_paper(watched, "finance-statement")
    assert flat(total) in text
    assert [cell for cell in cells(page) if flat(cell) not in text] == []


def test_usage_is_printed_with_its_chart_and_every_row(visit, busy: SmallFleet):
    watched = visit()
    watched.sign_in("fin")
    page = watched.open("/usage/?days=7&split=workspace")
    last = page.get_by_label("Through").input_value()
    text = on_paper(watched, "finance-usage")
    assert flat(f"through {last}") in text
    assert [cell for cell in cells(page) if flat(cell) not in text] == []


@pytest.mark.parametrize("width", [1920, 2560])
def test_a_wide_screen_is_used(visit, busy: SmallFleet, width: int):
    watched = visit()
    watched.sign_in("ada")
    watched.page.set_viewport_size({"width": width, "height": 1080})
    for address in ("/", "/workspaces/", "/jobs/", "/usage/?days=7", "/fleet/", "/clusters/"):
        page = watched.open(address)
        settle(page)
        watched.check()
        main = page.locator("main").bounding_box()
        assert main is not None and main["width"] >= 0.9 * width, address
        assert narrow(watched) == [], address
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        lines = page.locator(".nav").evaluate(
            "nav => nav.offsetHeight / nav.firstElementChild.offsetHeight"
        )
        assert lines < 1.5, "the sections stand in one line"
    watched.keep(f"admin-wide-{width}")


def narrow(watched: Watched) -> list[str]:
    """Tables that need a scroll bar all the same, and cards that leave room beside them."""
    return watched.page.evaluate(
        """() => [...document.querySelectorAll('main .scroll')]
          .filter(each => each.scrollWidth > each.clientWidth + 1)
          .map(each => each.outerHTML.slice(0, 120))"""
    )
