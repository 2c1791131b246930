"""Every page in every role: what can be seen of its HTML, compared with golden files.

``UPDATE_GOLDEN=1 pytest tests/web/test_golden_pages.py`` writes the files anew; read the diff.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
import time_machine
from django.urls import resolve

from tests.builders import START
from tests.golden import FOLDER, assert_golden
from tests.web.conftest import Visitors
from tests.web.normal_form import normal_form
from tests.web.test_nonsense import Reader, pages_of
from tests.web.test_query_counts import LARGEST_PAGE, busy  # noqa: F401  a fixture

# Keys stand in addresses: they begin anew here, and count on in other databases.
pytestmark = [
    pytest.mark.django_db(transaction=True, reset_sequences=True),
    pytest.mark.sqlite,
]
ROLES = ("admin", "finance", "owner", "viewer", "nobody", "anonymous")
NOW = START + timedelta(days=20, hours=10, minutes=34)


@pytest.fixture(autouse=True)
def _at_noon() -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


def test_pages_look_as_in_the_golden_files(busy: Visitors):  # noqa: F811
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    frames: dict[str, list[str]] = defaultdict(list)
    too_large = {}
    for role in ROLES:
        for page in pages_of(busy, role):
            if not page.text:
                continue
            frame, main = parts(page)
            seen[name_of(page)][f"{page.status} {page.address}\n{main}"].append(role)
            if page.address == "/":
                frames[frame].append(role)
            if len(page.text.encode()) > LARGEST_PAGE:
                too_large[role, page.address] = len(page.text)
    written = {f"pages/{name}.txt": sections(texts) for name, texts in seen.items()}
    written["pages/frame.txt"] = sections(frames)

    assert too_large == {}
    for path in FOLDER.glob("pages/*.txt"):
        if os.environ.get("UPDATE_GOLDEN") and f"pages/{path.name}" not in written:
            path.unlink()
    for name, text in written.items():
        assert_golden(name, text)
    assert {f"pages/{path.name}" for path in FOLDER.glob("pages/*.txt")} == set(written)


def parts(page: Reader) -> tuple[str, str]:
    """The normal form of a page: what stands around its main element, and that element."""
    before, start, after = normal_form(page.text).partition("    <main ")
    main, end, behind = after.partition("    <footer ")
    return before + end + behind, start + main


def name_of(page: Reader) -> str:
    address = urlsplit(page.address)
    keys = sorted(dict(parse_qsl(address.query)))
    return "-".join([resolve(address.path).url_name or "", *keys])


def sections(texts: dict[str, list[str]]) -> str:
    """What is the same for several roles stands once."""
    return "\n".join(f"=== {', '.join(roles)}\n{text}" for text, roles in texts.items())
