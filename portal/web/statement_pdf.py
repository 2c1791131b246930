"""A statement or credit note as a PDF: the figures of its page, on paper with page numbers.

The only importer of fpdf. Fonts are files of the machine (``PORTAL_PDF_FONTS``), the first one
for everything and the others for characters that it lacks. Without any, the fonts of the PDF
standard are used, which know Latin letters; what they lack is written as its code point, such as
``[U+4E2D]``, and a note at the end says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from fpdf import FPDF
from fpdf.enums import Align, TableBordersLayout, XPos, YPos
from fpdf.fonts import FontFace, TTFFont

from budgets import selectors
from budgets.models import Statement
from budgets.models.billing import INVOICE_DETAILS
from budgets.selectors.billing import Part, StatementSheet
from portal.web.billing_lines import ONE_PERSON, LineView, billed_to, part_views
from portal.web.numbers import hours_text, money_text

MARGIN_MM = 16
WIDTHS = (58, 22, 20, 28, 16, 34)
HEADS = ("What", "Flavor", "GPU-hours", "per GPU-hour", "Card", "Amount")
NUMBERS = frozenset({2, 3, 5})
ALIGNS = tuple(Align.R if at in NUMBERS else Align.L for at in range(len(HEADS)))
STANDARD = "helvetica"
NOTE = "Characters that the font of this document lacks are written as their Unicode code points."
ROUNDED = (
    "Each line is exact to the GPU-second and rounded once, half to even; a rounding line makes a "
    "workspace's lines add up to its exact sum."
)


def statement_pdf(sheet: StatementSheet) -> bytes:
    """The document of a sheet, as far as its reader sees it.

    Args:
        sheet: From :func:`budgets.selectors.billing.statement_sheet`.

    Returns:
        The file. It is the same, byte by byte, for the same statement and reader.
    """
    paper = sheet.statement
    made = _Paper(_title(paper), fonts=settings.PORTAL_PDF_FONTS)
    made.set_creation_date(paper.issued_at or paper.drawn_at)
    made.set_title(made.known(_title(paper)))
    made.add_page()
    _head(made, sheet)
    for part, lines in part_views(sheet):
        _part(made, part, lines, paper)
    _foot(made, sheet)
    return bytes(made.output())


class _Paper(FPDF):
    """A4, with the title and the number of each page below it."""

    def __init__(self, title: str, *, fonts: Sequence[str]) -> None:
        super().__init__(format="A4")
        self.running_title = title
        self.lacks_letters = False
        self._codes: frozenset[int] | None = None
        self.family = STANDARD
        self._take_fonts([Path(name) for name in fonts])
        self.set_margin(MARGIN_MM)
        self.set_auto_page_break(True, margin=MARGIN_MM + 4)
        self.alias_nb_pages()

    def footer(self) -> None:
        """Called by fpdf at the end of each page."""
        self.set_y(-MARGIN_MM)
        self.set_font(self.family, size=8)
        left = self.epw * 3 / 4
        self.cell(left, 5, self.known(self.running_title))
        self.cell(0, 5, f"{self.page_no()} / {{nb}}", align=Align.R)

    def known(self, text: str) -> str:
        """The text with every character that no font has as its code point."""
        return "".join(letter if self._has(letter) else self._named(letter) for letter in text)

    def paragraph(self, text: str, *, size: int = 10, is_strong: bool = False) -> None:
        """A paragraph over the whole width."""
        self.set_font(self.family, "B" if is_strong else "", size)
        self.multi_cell(0, size * 0.55, self.known(text), new_x=XPos.LMARGIN, new_y=YPos.NEXT)

    def _take_fonts(self, files: Iterable[Path]) -> None:
        found = [file for file in files if file.is_file()]
        for number, file in enumerate(found):
            self.add_font(f"own{number}", fname=file)
            # A heading in the same letters is better than one in letters that are not there.
            self.add_font(f"own{number}", "B", fname=_bold(file))
        if found:
            self.family = "own0"
            self.set_fallback_fonts([f"own{number}" for number in range(1, len(found))])
            taken = [self.fonts[f"own{number}"] for number in range(len(found))]
            self._codes = frozenset(
                code for font in taken if isinstance(font, TTFFont) for code in font.cmap
            )

    def _has(self, letter: str) -> bool:
        if self._codes is not None:
            return ord(letter) in self._codes
        return letter.isprintable() and letter.encode("latin-1", "ignore") != b""

    def _named(self, letter: str) -> str:
        if letter == "−" and self._codes is None:  # the standard fonts have a hyphen for it
            return "-"
        self.lacks_letters = True
        return f"[U+{ord(letter):04X}]"


def _bold(file: Path) -> Path:
    """The bold file beside a regular one, such as DejaVuSans-Bold.ttf; else the same."""
    beside = file.with_name(f"{file.stem.removesuffix('-Regular')}-Bold{file.suffix}")
    return beside if beside.is_file() else file


def _title(paper: Statement) -> str:
    kind = "Credit note" if paper.kind == Statement.Kind.CREDIT_NOTE else "Statement"
    return f"{kind} {paper.number}".strip() if paper.number else f"{kind}, {paper.state}"


def _head(made: _Paper, sheet: StatementSheet) -> None:
    paper = sheet.statement
    month = paper.period
    made.paragraph(settings.PORTAL_PROVIDER_NAME, size=9)
    made.paragraph(_title(paper), size=18, is_strong=True)
    made.paragraph(paper.account.name if paper.account else "The platform's own account", size=13)
    for words, text in billed_to(sheet):
        if words == INVOICE_DETAILS["invoice_address"]:
            for line in text.splitlines():
                made.paragraph(line)
        else:
            made.paragraph(f"{words}: {text}")
    made.ln(2)
    facts = [
        f"Month: {month}, {_time(month.start)} to {_time(month.end)}",
        f"State: {paper.get_state_display()}",
    ]
    if paper.issued_at:
        facts.append(f"Issued: {_time(paper.issued_at)}")
    if paper.credits:
        facts.append(f"It voids {paper.credits.number} of {paper.credits.period}: {paper.reason}")
    if paper.state == Statement.State.VOID and hasattr(paper, "credit_note"):
        facts.append(f"Void by credit note {paper.credit_note.number}: {paper.reason}")
    if paper.exchange_rate:
        facts.append(
            f"Exchange rate of {paper.exchange_day}: 1 {paper.priced_in} = "
            f"{paper.exchange_rate.normalize():f} {paper.currency}"
        )
    if sheet.is_one_person:
        facts.append(ONE_PERSON)
    if not sheet.is_whole:
        facts.append(
            "This shows only your workspaces. The whole statement is for the owners of the account."
        )
    for fact in facts:
        made.paragraph(fact)


def _part(made: _Paper, part: Part, lines: Iterable[LineView], paper: Statement) -> None:
    currency, priced_in = paper.currency, paper.priced_in
    flavors = selectors.flavor_names()
    made.ln(5)
    name = part.name or "The account as a whole"
    made.paragraph(
        f"{name} ({part.namespace})" if part.namespace else name, size=12, is_strong=True
    )
    made.ln(1)
    made.set_font(made.family, size=8)
    heads = [f"{priced_in} {text}" if text == "per GPU-hour" else text for text in HEADS]
    strong = FontFace(emphasis="B")
    with made.table(
        col_widths=WIDTHS,
        text_align=ALIGNS,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
        headings_style=strong,
        line_height=5,
        padding=(0.6, 1),
    ) as table:
        table.row(heads)
        for row in lines:
            table.row([made.known(text) for text in _cells(row, currency, flavors)])
        total = table.row(style=strong)
        total.cell(made.known("Total"), colspan=len(HEADS) - 1)
        total.cell(made.known(money_text(part.total, currency)))


def _cells(row: LineView, currency: str, flavors: Mapping[str, str]) -> list[str]:
    line = row.line
    hours = hours_text(line.gpu_seconds) if line.gpu_seconds else ""
    flavor = flavors.get(line.flavor, line.flavor)
    return [row.words, flavor, hours, row.price, row.cards, money_text(line.amount, currency)]


def _foot(made: _Paper, sheet: StatementSheet) -> None:
    words = "Payable" if sheet.is_whole else "Your part"
    made.ln(6)
    made.paragraph(
        f"{words}: {money_text(sheet.total, sheet.statement.currency)}", size=14, is_strong=True
    )
    made.ln(2)
    made.paragraph(ROUNDED, size=8)
    month = sheet.statement.period
    if month.close_number:
        # Whoever keeps this page can show that a ledger without this month was cut or rewritten.
        made.paragraph(f"Ledger: closed month {month.close_number}, head {month.head}", size=8)
    if made.lacks_letters:
        made.paragraph(NOTE, size=8)


def _time(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
