"""Every form of every page, filled with nonsense: an answer that says so, never a server error."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.db import transaction
from django.test import Client
from django.urls import resolve

from tests.secrets import WATCH
from tests.web.conftest import Visitors
from tests.web.test_query_counts import PAGES, busy  # noqa: F401  a fixture

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unlimited")]

NONSENSE = (
    "\0", "", " ", "-1", "0", "1.5", "1e400", "NaN", "Infinity", "9" * 30, "2147483648",
    "9" * 4_299, "9" * 5_000,
    "9223372036854775808", "é" * 5000, "٣", "²", "0001-01-01", "9999-12-31", "2026-13-45",
    "9999-12-31T23:59", "0001-01-01T00:00", "12:61", "<b>", "../../etc", "null", "[]", "{}",
    "acme-vision", "%00", "\r\n", "\N{RIGHT-TO-LEFT OVERRIDE}",
)  # fmt: skip
LEFT_OUT = ("/api/", "/static/", "/logout/", "//")


@pytest.fixture(autouse=True)
def _nonsense_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same word is typed here as a password and into an address, which is logged."""
    monkeypatch.setattr(WATCH, "note", lambda *texts: None)


@dataclass
class Form:
    """A form as a browser would send it when nothing is typed."""

    action: str
    is_post: bool
    fields: dict[str, str] = field(default_factory=dict)


class Reader(HTMLParser):
    """A page with its links and forms."""

    def __init__(self, address: str, status: int) -> None:
        super().__init__()
        self.address = address
        self.status = status
        self.text = ""
        self.links: list[str] = []
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        for name in ("href", "hx-get"):
            if found.get(name, "#").startswith(("/", "?")):
                self.links.append(urljoin(self.address, found[name]))
        if found.get("hx-post"):
            self.forms.append(Form(urljoin(self.address, found["hx-post"]), True))
        if tag == "form":
            is_post = found.get("method", "").lower() == "post"
            self.forms.append(Form(urljoin(self.address, found.get("action", "")), is_post))
        if tag in ("input", "select", "textarea", "button") and self.forms and "name" in found:
            self.forms[-1].fields.setdefault(found["name"], found.get("value", ""))


def pages_of(
    visitors: Visitors | Mapping[str, Client],
    role: str,
    *,
    begin: Iterable[str] = PAGES,
    most: int = 1,
    without: Collection[str] = (),
) -> Iterator[Reader]:
    """Pages that links lead to, so many of each kind at most; without those of some names."""
    waiting, seen, opened = list(begin), Counter[tuple[Any, ...]](), set[str]()
    while waiting:
        address = waiting.pop(0)
        path = urlsplit(address).path
        if path.startswith(LEFT_OUT) or address in opened:
            continue
        # The same rows in another order are the same kind.
        keys = dict(parse_qsl(urlsplit(address).query)).keys() - {"sort"}
        kind = resolve(path).url_name, tuple(sorted(keys))
        if seen[kind] == most or kind[0] in without:
            continue
        seen[kind] += 1
        opened.add(address)
        answer = visitors[role].get(address)
        assert answer.status_code < 500, address
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            continue
        reader = Reader(address, answer.status_code)
        if not answer.streaming:
            reader.text = answer.content.decode()
            reader.feed(reader.text)
        yield reader
        waiting += reader.links


def forms_of(pages: Iterable[Reader], done: set[tuple[Any, ...]]) -> Iterator[Form]:
    """Each kind of form once; a link with a query is one that is filled in already."""
    for page in pages:
        links = [urlsplit(link) for link in page.links]
        queries = [Form(link.path, False, dict(parse_qsl(link.query))) for link in links]
        for form in (*page.forms, *queries):
            path = urlsplit(form.action).path
            if path.startswith(LEFT_OUT) or not form.fields:
                continue
            kind = resolve(path).url_name, form.is_post, *sorted(form.fields)
            if kind not in done:
                done.add(kind)
                yield form


def filled(form: Form, dice: random.Random, *, tries: int) -> Iterator[dict[str, str]]:
    """One field after another with nonsense, or one by chance without tries; then all of them."""
    names = list(form.fields)
    for name in names if tries else dice.sample(names, 1):
        for value in dice.sample(NONSENSE, tries or 1):
            yield form.fields | {name: value}
    for _ in range(tries or 1):
        yield {name: dice.choice(NONSENSE) for name in names}


@pytest.mark.parametrize(
    ("seed", "tries", "roles"),
    [
        (0, 0, ["admin"]),
        *(
            pytest.param(seed, 8, ["admin", "finance", "owner"], marks=pytest.mark.slow)
            for seed in (1, 2)
        ),
    ],
)
def test_no_nonsense_in_a_form_makes_a_server_error(
    busy: Visitors,  # noqa: F811
    seed: int,
    tries: int,
    roles: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clusters.broker.current_app.send_task", lambda *_, **__: None)
    dice = random.Random(seed)
    failed = []
    done: set[tuple[Any, ...]] = set()
    for role in roles:
        client = busy[role]
        client.raise_request_exception = False
        for form in forms_of(list(pages_of(busy, role)), done):
            send = client.post if form.is_post else client.get
            for data in filled(form, dice, tries=tries):
                with transaction.atomic():
                    answer = send(form.action, data)
                    transaction.set_rollback(True)
                if answer.status_code >= 500:
                    what = str(answer.exc_info[1])[:300]
                    failed.append((role, form.action, form.is_post, data, what))
    assert len(done) > 80
    assert not failed, "\n".join(map(str, failed))
