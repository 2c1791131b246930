"""The PDF of a statement, read back: the figures of the page, page numbers, any script."""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from pathlib import Path

import pytest
from django.test import Client
from pypdf import PdfReader

from budgets.models import Installation, Statement
from budgets.selectors import billing as read
from budgets.services import billing
from portal.web.billing_lines import ONE_PERSON
from portal.web.numbers import money_text
from portal.web.statement_pdf import NOTE, statement_pdf
from tests.billing.conftest import MARCH, Books
from tests.billing.test_pages import client_of
from tests.builders import agreed

pytestmark = pytest.mark.django_db
DEJAVU = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
needs_dejavu = pytest.mark.skipif(
    not Path(DEJAVU).is_file(), reason="no DejaVu: install Debian's fonts-dejavu-core"
)


@pytest.fixture
def paper(books: Books) -> Statement:
    books.issued()
    return Statement.objects.get(account=books.fleet.acme)


def pages(content: bytes) -> list[str]:
    return [page.extract_text() for page in PdfReader(BytesIO(content)).pages]


def fetched(client: Client, paper: Statement) -> bytes:
    answer = client.get(f"/billing/statements/{paper.pk}/pdf/")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/pdf"
    return bytes(answer.content)


@pytest.mark.parametrize("fonts", [pytest.param([], id="the standard's fonts"), [DEJAVU]])
def test_it_has_the_figures_of_the_page(books: Books, paper: Statement, settings, fonts):
    if fonts and not Path(DEJAVU).is_file():
        pytest.skip("no DejaVu: install Debian's fonts-dejavu-core")
    settings.PORTAL_PDF_FONTS = fonts
    content = fetched(client_of(books.fleet.finance), paper)
    text = "\n".join(pages(content)).replace("-", "−")

    sheet = read.statement_sheet(books.fleet.finance, paper)
    assert f"Payable: {money_text(sheet.total, 'EUR')}" in text
    for part in sheet.parts:
        assert money_text(part.total, "EUR") in text
        for line in part.lines:
            assert money_text(line.amount, "EUR") in text
    for words in ("Committed GPUs", "Credit for lending", "1 / 1", paper.account.name):
        assert words in text
    assert PdfReader(BytesIO(content)).metadata.title == f"Statement {paper.number}"


def test_it_has_number_and_head_of_its_month(books: Books, paper: Statement):
    text = "".join(pages(fetched(client_of(books.fleet.finance), paper)))
    month = paper.period
    assert month.head in text.replace("\n", "")
    assert f"closed month {month.close_number}" in text


@pytest.mark.parametrize("since", [pytest.param(MARCH, id="alone"), pytest.param(None, id="not")])
def test_it_says_where_one_person_ran_everything_alone(
    books: Books, paper: Statement, since: datetime | None
):
    Installation.objects.create(pk=1, one_person_since=since)
    text = " ".join(" ".join(pages(fetched(client_of(books.fleet.finance), paper))).split())
    assert (ONE_PERSON in text) is (since is not None)


def test_it_is_the_same_file_for_the_same_statement(books: Books, paper: Statement):
    sheet = read.statement_sheet(books.fleet.finance, paper)
    assert statement_pdf(sheet) == statement_pdf(sheet)


def test_who_sees_a_part_gets_a_part(books: Books, paper: Statement):
    owner = client_of(books.fleet.owner)
    text = "\n".join(pages(fetched(owner, paper)))
    assert "Your part" in text
    assert "acme-vision" in text
    assert "acme-speech" not in text
    draft = (
        Statement.objects.create(
            account=books.fleet.globex,
            period=paper.period,
            currency="EUR",
            priced_in="EUR",
            payable=1,
        )
        if not Statement.objects.filter(account=books.fleet.globex).exists()
        else (Statement.objects.get(account=books.fleet.globex))
    )
    assert owner.get(f"/billing/statements/{draft.pk}/pdf/").status_code == 404


def test_a_credit_note_names_what_it_voids(books: Books, paper: Statement):
    agreed(billing.propose_void(books.fleet.finance, statement=paper, reason="Wrong price"))
    note = Statement.objects.get(credits=paper)
    client = client_of(books.fleet.finance)
    text = "\n".join(pages(fetched(client, note)))
    assert f"Credit note {note.number}" in text
    assert f"It voids {paper.number} of 2026-03: Wrong price" in text
    paper.refresh_from_db()
    assert f"Void by credit note {note.number}" in "\n".join(pages(fetched(client, paper)))


def test_a_long_statement_has_numbered_pages(books: Books, paper: Statement):
    sheet = read.statement_sheet(books.fleet.finance, paper)
    many = type(sheet)(sheet.statement, sheet.parts * 12, sheet.total, sheet.is_whole)
    found = pages(statement_pdf(many))
    assert len(found) > 2
    for number, text in enumerate(found, 1):
        assert f"{number} / {len(found)}" in text
        assert f"Statement {paper.number}" in text


@needs_dejavu
@pytest.mark.parametrize("name", ["Ωμέγα", "Łódź Übergröße", "Наука"])
def test_names_in_many_scripts_are_there(books: Books, paper: Statement, settings, name: str):
    settings.PORTAL_PDF_FONTS = [DEJAVU]
    paper.account.name = name
    text = "\n".join(pages(statement_pdf(read.statement_sheet(books.fleet.finance, paper))))
    assert name in text
    assert NOTE not in text


@pytest.mark.parametrize("fonts", [pytest.param([], id="the standard's fonts"), [DEJAVU]])
def test_what_no_font_has_is_named_and_never_lost(books: Books, paper: Statement, settings, fonts):
    settings.PORTAL_PDF_FONTS = [*fonts, "/nowhere/font.ttf"]
    paper.account.name = "Lab 中"
    text = "\n".join(pages(statement_pdf(read.statement_sheet(books.fleet.finance, paper))))
    assert "Lab [U+4E2D]" in text
    assert NOTE.split(" are")[0] in text


@needs_dejavu
def test_a_second_font_fills_the_gaps_of_the_first(books: Books, paper: Statement, settings):
    folder = Path(DEJAVU).parent
    settings.PORTAL_PDF_FONTS = [str(folder / "DejaVuSansMono.ttf"), DEJAVU]
    paper.account.name = "Lab ༀ ⵣ"  # the second letter is in DejaVu Sans alone
    text = "\n".join(pages(statement_pdf(read.statement_sheet(books.fleet.finance, paper))))
    assert "[U+2D63]" not in text
