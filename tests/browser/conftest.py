"""Headless Chromium on a live server; every page is watched for errors and foreign requests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.accessibility import findings
from tests.browser.windows import ARGUMENTS, MISSING, SIZES, chromium_path
from tests.builders import PASSWORD, SmallFleet
from tests.controlplane.processes import free_port
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parent.parent.parent
SCREENSHOTS = ROOT / "artifacts" / "screenshots"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file instead of memory, so that the server, a process of its own, opens the same one."""
    if connection.vendor == "sqlite":
        folder = tmp_path_factory.mktemp("browser")
        connection.settings_dict["TEST"]["NAME"] = str(folder / "portal.sqlite3")


@pytest.fixture(scope="session")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server looks for the files of exports."""
    return tmp_path_factory.mktemp("spool")


@pytest.fixture(scope="session")
def server(django_db_setup, tmp_path_factory: pytest.TempPathFactory, spool: Path) -> Iterator[str]:
    """The portal as it is served for real, on the database of the tests; yields its address."""
    settings = {"PORTAL_SPOOL_FOLDER": str(spool), "KUEUE_PROOF_SECONDS": "0.2"}
    with serving(tmp_path_factory.mktemp("static"), free_port(), **settings) as address:
        yield address


@contextlib.contextmanager
def serving(folder: Path, port: int, **settings: str) -> Iterator[str]:
    """A portal with these settings besides; yields its address."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": _database_url(),
        "PORTAL_STATIC_ROOT": str(folder),
        **settings,
    }
    collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity=0"]
    subprocess.run(collect, cwd=ROOT, env=environment, check=True)
    gunicorn = [sys.executable, "-m", "gunicorn", "portal.wsgi:application", "--threads", "8"]
    command = [*gunicorn, "--bind", f"127.0.0.1:{port}", "--no-control-socket"]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            _wait_for(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _database_url() -> str:
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    login = values["USER"] + (f":{values['PASSWORD']}" if values["PASSWORD"] else "")
    return f"postgres://{login}@{values['HOST']}:{values['PORT']}/{values['NAME']}"


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert process.poll() is None, "the portal ended before the first browser test"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    eventually(answers, why="the portal did not start for the browser tests")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    # Playwright's loop runs in this thread, and Django would take it for an async caller.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    expect.set_options(timeout=1000 * PATIENCE_S)  # milliseconds
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


# Of the portal's own templates and tags, where a text was escaped that was HTML already.
MARKUP = ("</time>", "</span>", "</a>", "</code>", "&lt;", "&amp;", "&#x27;")


class Watched:
    """A page with what went wrong on it.

    Attributes:
        problems: Console errors and warnings, exceptions, requests beyond the server.
        expected: Parts of problems that this test provokes.
    """

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.base = base
        self.problems: list[str] = []
        # A poll that is cut off because the reader leaves the page.
        self.expected = ["htmx:afterRequest", "htmx:sendAbort", "htmx:sendError"]
        self.page: Page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        self.page.on("request", self._request)

    def _console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _request(self, request) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.problems.append(f"left the server: {request.url}")

    def open(self, address: str) -> Page:
        self.page.goto(self.base + address)
        return self.page

    def sign_in(self, username: str, password: str = PASSWORD) -> Page:
        self.open("/login/")
        self.page.get_by_label("Username").fill(username)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.base}/")
        return self.page

    def choose(self, menu: str, entry: str) -> None:
        """Follow an entry of one of the navigation's menus."""
        sections = self.page.get_by_role("navigation", name="Sections")
        sections.locator("summary", has_text=menu).click()
        sections.get_by_role("link", name=entry, exact=True).click()

    def keep(self, name: str, folder: Path = SCREENSHOTS) -> None:
        """Screenshot of the whole page, an artifact of the run."""
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png", full_page=True)

    def check(self) -> None:
        """What a reader with a keyboard, a screen reader or a phone would trip over."""
        assert findings(self.page) == []
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(overflow) <= 0, f"{self.page.url} is wider than the window"
        shown = self.page.locator("body").inner_text()
        assert [mark for mark in MARKUP if mark in shown] == [], f"{self.page.url} shows markup"

    def unexpected(self) -> list[str]:
        return [
            problem
            for problem in self.problems
            if not any(part in problem for part in self.expected)
        ]


@pytest.fixture
def visit(
    chromium: Browser, server: str, transactional_db, fleet: SmallFleet
) -> Iterator[Callable[..., Watched]]:
    """``visit(phone=True, dark=True, scripts=False)`` opens a watched page."""
    with visiting(chromium, server) as open_one:
        yield open_one


@contextlib.contextmanager
def visiting(chromium: Browser, base: str) -> Iterator[Callable[..., Watched]]:
    """Pages of a server, closed at the end; what went wrong on any of them fails then."""
    opened: list[tuple[BrowserContext, Watched]] = []

    def open_one(*, phone: bool = False, dark: bool = False, scripts: bool = True) -> Watched:
        context = chromium.new_context(
            viewport=SIZES["phone" if phone else "desk"],
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(1000 * PATIENCE_S)
        watched = Watched(context, base)
        opened.append((context, watched))
        return watched

    try:
        yield open_one
        problems = [problem for _, watched in opened for problem in watched.unexpected()]
    finally:
        for context, _ in opened:
            context.close()
    assert problems == []


@pytest.fixture
def thawed(transactional_db) -> Iterator[None]:
    """Rows that the database lets nobody remove are gone with the test all the same."""
    yield
    if connection.vendor != "sqlite":
        return  # other databases empty a table without asking a trigger
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f'DROP TRIGGER "{name}"')
        try:
            call_command("flush", interactive=False, verbosity=0, inhibit_post_migrate=True)
        finally:
            for _, sql in triggers:
                cursor.execute(sql)
