"""Pictures of the main pages of the demo, in three roles, at a desk and on a phone.

``python -m tests.screens --out artifacts/screens/after`` starts the demo of this checkout, keeps
the pictures, and ends it. ``--of FOLDER`` takes another checkout, such as a worktree of an older
commit; pages that it does not have yet are named and left out.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from tests.browser.windows import ARGUMENTS, MISSING, SIZES, chromium_path, settle
from tests.demos import ROOT, Demo, copied, running

PATIENCE_MS = 30_000
SPACE = "/workspaces/acme-research"
# Addresses; one with a number in it is found on another page, by how it begins. The owner comes
# last: jobs have begun by then.
PAGES: dict[str, tuple[str | tuple[str, str], ...]] = {
    "admin": (
        "/",
        "/workspaces/",
        "/requests/",
        ("/requests/", f"{SPACE}/history/"),
        "/fleet/",
        "/fleet/maintenance/",
        "/fleet/maintenance/plan/",
        "/clusters/",
        "/clusters/manager/",
        "/clusters/register/",
        "/search/?q=research",
        "/setup/",
        "/setup/accounts/",
        "/audit/",
        "/tour/",
    ),
    "finance": (
        "/",
        "/billing/",
        ("/billing/", "/billing/months/"),
        ("/billing/", "/billing/statements/"),
        "/billing/rates/",
        "/billing/approvals/",
        "/billing/reconciliation/",
        "/exports/",
        "/usage/lending/?days=30",
        "/alerts/",
        "/tour/",
    ),
    "owner": (
        "/",
        f"{SPACE}/",
        f"{SPACE}/budget/",
        f"{SPACE}/spend/",
        f"{SPACE}/history/",
        "/jobs/",
        ("/jobs/?phase=running", "/jobs/manager/"),
        ("/jobs/?phase=pending", "/jobs/manager/"),
        "/what-if/",
        "/usage/?days=30",
        "/usage/?days=30&split=label:team",
        "/tour/",
    ),
}


def name_of(address: str) -> str:
    """``/usage/?days=30`` → ``usage-days-30``."""
    return re.sub(r"\W+", "-", address).strip("-") or "home"


def visit(page: Page, base: str, place: str | tuple[str, str]) -> str:
    """Open a page; returns the name of its picture, empty where it is not there."""
    address = place if isinstance(place, str) else place[0]
    answer = page.goto(base + address)
    if answer is None or answer.status != 200:
        return ""
    if isinstance(place, str):
        return name_of(address)
    begin = place[1]
    links = page.locator(f'main a[href^="{begin}"]')
    if not links.count():
        return ""
    page.goto(base + str(links.first.get_attribute("href")))
    return f"{name_of(address)}-{name_of(begin)}-one"


def pictures(browser: Browser, demo: Demo, size: str, out: Path) -> Iterator[str]:
    """Keep the pages of each role in one size; tells what is not there."""
    for login, places in PAGES.items():
        context = browser.new_context(viewport=SIZES[size], reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(f"{demo.address}/login/")
        page.get_by_label("Username").fill(login)
        page.get_by_label("Password").fill(demo.password(login))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{demo.address}/")
        for place in places:
            name = visit(page, demo.address, place)
            if not name:
                yield f"{login}: no page {place}"
                continue
            try:
                settle(page)
            except AssertionError:
                yield f"{login}: {page.url} goes on asking"
            page.screenshot(path=out / size / f"{login}-{name}.png", full_page=True)
        context.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.screens", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--of", type=Path, default=ROOT, help="checkout whose demo is shown")
    chosen = parser.parse_args()
    path = chromium_path()
    if path is None:
        print(MISSING)
        return 1
    expect.set_options(timeout=PATIENCE_MS)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(copied(Path(folder), of=chosen.of)) as demo,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            for size in SIZES:
                for told in pictures(browser, demo, size, chosen.out):
                    print(told)
        except Error as error:
            print(error)
            return 1
        finally:
            browser.close()
    count = len([*chosen.out.rglob("*.png")])
    print(f"{count} pictures in {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
