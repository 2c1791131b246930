"""The README and docs/ speak of what is there: paths, commands, addresses, names."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import get_commands, load_command_class
from django.urls import Resolver404, resolve

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
FOLDERS = ("budgets", "chart", "clusters", "portal", "docs", "tests", "templates", "static")
OWN_APPS = ("budgets", "clusters", "portal")
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"manage\.py (\w+)([^|`#\n]*)")
MODULE = re.compile(r"python -m (tests[\w.]+)")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*")
# A part of an address that stands for something: workloads/CLUSTER/UID/why.
PLACEHOLDER = re.compile(r"(?<=/)[A-Z]+(?=/|$)")
ROUTE = re.compile(r"[a-z-]+(?:/[\w-]+)+")
LINK = re.compile(r"\]\(((?!https?:)[^)# ]+)")
NAME = re.compile(r"[a-z]+(?:_[a-z]+)+")
pages = pytest.mark.parametrize("page", PAGES)


@cache
def source() -> str:
    """All code of the product in one text."""
    files = [path for app in OWN_APPS for path in (ROOT / app).rglob("*.py")]
    schemas = (ROOT / "docs").glob("*.json")
    return "\n".join(path.read_text() for path in (*files, *schemas))


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", source()))


def code_of(page: str) -> list[str]:
    """What a page has in backticks, and the lines of its blocks."""
    text = PAGES[page]
    blocks = [line for block in FENCED.findall(text) for line in block.splitlines()]
    return [*CODE.findall(FENCED.sub("", text)), *blocks]


@pages
def test_paths_that_are_named_exist(page: str) -> None:
    for text in code_of(page):
        if PATH.fullmatch(text) and not PLACEHOLDER.search(text):
            found = ROOT / text
            assert found.exists() or found.with_suffix(".py").exists(), f"{page}: no {text}"


@pages
def test_links_lead_to_files(page: str) -> None:
    for target in LINK.findall(PAGES[page]):
        assert ((ROOT / page).parent / target).exists(), f"{page}: no {target}"


@pages
def test_commands_are_known_with_their_options(page: str) -> None:
    known = get_commands()
    for name, rest in COMMAND.findall("\n".join(code_of(page))):
        assert name in known, f"{page}: no command {name}"
        parser = load_command_class(known[name], name).create_parser("manage.py", name)
        options = re.findall(r"--[\w-]+", rest)
        declared = parser.format_help()
        assert not [each for each in options if each not in declared], f"{page}: {name}{rest}"


def test_every_own_command_is_told_somewhere() -> None:
    told = {name for text in PAGES.values() for name, _ in COMMAND.findall(text)}
    own = {name for name, app in get_commands().items() if app in OWN_APPS}
    assert own <= told | {"seed_demo", "demo_jobs"}, "make demo runs those"


@pages
def test_modules_that_are_run_exist(page: str) -> None:
    for name in MODULE.findall(PAGES[page]):
        assert importlib.util.find_spec(name) is not None, f"{page}: no module {name}"


@pages
def test_addresses_of_the_api_exist(page: str) -> None:
    called = re.findall(r'"\$PORTAL(/[^"?$]*)', PAGES[page])
    named = [
        path
        for text in code_of(page)
        for path in re.findall(r"(?:GET |POST |PUT |PATCH |DELETE )?/api/v1(/[\w/-]+)", text)
    ]
    routes = [
        f"/{text}" for text in code_of(page) if ROUTE.fullmatch(text) and PLACEHOLDER.search(text)
    ]
    for path in (*called, *named, *routes):
        assert leads_somewhere(f"/api/v1{path.rstrip('/')}"), f"{page}: no {path}"


def leads_somewhere(path: str) -> bool:
    """Whether there is a route, whatever its placeholders stand for."""
    for each in ("x", "1", str(UUID(int=0))):
        try:
            resolve(PLACEHOLDER.sub(each, path))
        except Resolver404:
            continue
        return True
    return False


@pages
def test_names_with_an_underscore_are_names_of_the_code(page: str) -> None:
    named = {word for text in code_of(page) for word in NAME.findall(text) if text == word}
    assert not named - words()


@pages
def test_settings_that_are_named_are_read(page: str) -> None:
    named = {word for text in code_of(page) for word in re.findall(r"\bPORTAL_[A-Z_]+", text)}
    assert not {word for word in named if word not in source()}
