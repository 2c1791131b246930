"""One shape for every page of the set-up: tables and forms in sections, each posting to itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from budgets.errors import Rejected
from portal.web.forms import PortalForm, ReasonForm
from portal.web.htmx import render
from portal.web.pages import require_admin


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a section's table.

    Attributes:
        cells: What it shows; the first is its heading.
        url: Where the first cell leads; empty for nowhere.
        remove: Key that is posted when the row's button is pressed; empty for no button.
        is_closed: Archived; shown faintly.
    """

    cells: Sequence[Any]
    url: str = ""
    remove: str = ""
    is_closed: bool = False


@dataclass(slots=True)
class Section:
    """A table, a form, or both.

    Attributes:
        key: What a POST names.
        form: Form class; None for a table alone.
        do: What the form does with what was typed; raises Rejected.
        said: Sentence after it is done; ``{name}`` of typed values.
        to: Where to go then; empty stays.
        is_folded: The form opens on demand, as one under a table or a dangerous one does.
        numbers: Those of the columns that stand at the right, digit under digit.
        remove: What a row's button does with the row's key.
    """

    key: str
    title: str
    text: str = ""
    form: type[PortalForm] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    do: Callable[[dict[str, Any]], Any] | None = None
    button: str = "Save"
    said: str = "Saved."
    to: str = ""
    is_danger: bool = False
    is_folded: bool = False
    columns: Sequence[str] = ()
    numbers: Sequence[str] = ()
    rows: Sequence[Row] = ()
    empty: str = ""
    remove: Callable[[str], Any] | None = None
    remove_label: str = "Remove"
    removed: str = "Removed."
    bound: PortalForm | None = None

    @property
    def has_buttons(self) -> bool:
        """Whether rows can be removed; a template would call ``remove`` itself to find out."""
        return self.remove is not None

    @property
    def folds(self) -> bool:
        """Whether the form is behind its button's words."""
        return bool(self.columns) or self.is_danger or self.is_folded

    @property
    def lines(self) -> list[tuple[Row, list[tuple[str, Any, bool]]]]:
        """Rows; each cell with its heading, which a phone shows, and whether it is a number."""
        return [
            (
                row,
                [
                    (column, cell, column in self.numbers)
                    for column, cell in zip(self.columns, row.cells, strict=True)
                ],
            )
            for row in self.rows
        ]


def setup_admin(request: HttpRequest) -> Any:
    """The admin who sets the portal up."""
    return require_admin(request, "Only a platform admin sets the portal up.")


def sections_page(
    request: HttpRequest, *, title: str, headline: str, sections: list[Section], crumbs: Any = ()
) -> HttpResponseBase:
    """Answer a GET with all sections, a POST by doing what its section does.

    Args:
        request: Its POST names a section, and a row where one is removed.
        title: Heading.
        headline: What this page is for, in a sentence.
        sections: In order.
        crumbs: (title, address) pairs of the pages above.
    """
    status = 200
    if request.method == "POST":
        section = _named(sections, request.POST.get("section", ""))
        answer = _posted(request, section)
        if answer is not None:
            return answer
        status = 422
    for section in sections:
        if section.form is not None and section.bound is None:
            section.bound = section.form(auto_id=f"id_{section.key}_%s", **section.arguments)
    first = next((row for row in sections if row.bound is not None and not row.folds), None)
    context = {
        "title": title,
        "headline": headline,
        "sections": sections,
        "main_section": first,
        "crumbs": crumbs,
    }
    return render(request, "setup/sections.html", context, status=status)


def list_page(
    request: HttpRequest,
    *,
    title: str,
    headline: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    empty: str,
    new: Section,
    heading: str = "",
) -> HttpResponseBase:
    """A page that lists all of a kind and adds one.

    Args:
        request: Its POST fills the form of ``new``.
        title: Heading of the page.
        headline: What this page is for, in a sentence.
        columns: Headings of the table.
        rows: Of the table.
        empty: What is said instead of an empty table.
        new: Titled, with the form that adds one.
        heading: Of the table, where it is not the page's.
    """
    table = Section(key="list", title=heading or title, columns=columns, rows=rows, empty=empty)
    return sections_page(
        request, title=title, headline=headline, sections=[table, new], crumbs=crumbs()
    )


def _named(sections: list[Section], key: str) -> Section:
    for section in sections:
        if section.key == key:
            return section
    raise Http404


def _posted(request: HttpRequest, section: Section) -> HttpResponseBase | None:
    """The redirect after it is done; None when it was rejected."""
    removed = request.POST.get("remove")
    if removed is not None and section.remove is not None:
        if not (removed.isascii() and removed.isdecimal()):
            raise Http404
        try:
            section.remove(removed)
        except Rejected as rejected:
            for fault in rejected.faults:
                messages.error(request, fault.message, extra_tags="trouble")
        else:
            messages.success(request, section.removed)
        return redirect(request.path)
    if section.form is None or section.do is None:
        raise Http404
    form = section.form(request.POST, auto_id=f"id_{section.key}_%s", **section.arguments)
    section.bound = form
    if not form.is_valid():
        return None
    do, typed = section.do, form.cleaned_data
    form.carry_out(lambda: do(typed))
    if form.errors:
        return None
    messages.success(request, section.said.format(**typed))
    return redirect(section.to or request.path)


def crumbs(*more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The way down from the set-up's first page."""
    return (("Set-up", reverse("setup")), *((title, reverse(name)) for title, name in more))


@dataclass(frozen=True, slots=True)
class WayOut:
    """How an item is closed for good.

    Attributes:
        what: Its kind, in one word.
        text: What becomes of it.
        do: Takes the reason; raises Rejected.
        to: Where to go then.
        is_closed: It was archived already.
    """

    what: str
    text: str
    do: Callable[[str], Any]
    to: str
    is_closed: bool


def item_page(
    request: HttpRequest,
    *,
    title: str,
    headline: str,
    sections: Sequence[Section],
    crumbs: Any,
    way_out: WayOut,
) -> HttpResponseBase:
    """A page of one item: its sections, and last the one that archives it, while that is open.

    Args:
        request: As for :func:`sections_page`.
        title: Heading.
        headline: What it is; that it is archived is added.
        sections: In order.
        crumbs: (title, address) pairs of the pages above.
        way_out: How it is closed.
    """
    shown = list(sections)
    if not way_out.is_closed:
        shown.append(_archive_section(way_out))
    state = ", archived" if way_out.is_closed else ""
    return sections_page(
        request, title=title, headline=headline + state, sections=shown, crumbs=crumbs
    )


def _archive_section(way_out: WayOut) -> Section:
    what = way_out.what
    return Section(
        key="archive",
        title=f"Archive this {what}",
        text=way_out.text,
        form=ReasonForm,
        do=lambda typed: way_out.do(typed["reason"]),
        button=f"Archive {what}",
        said=f"The {what} is archived.",
        to=way_out.to,
        is_danger=True,
    )
