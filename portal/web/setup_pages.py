"""One shape for every page of the set-up: tables and forms in sections, each posting to itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Final

from django.contrib import messages
from django.forms import BoundField
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from portal.web.forms import ChoosingForm, PortalForm, ReasonForm
from portal.web.htmx import render
from portal.web.pages import carried_out, page, rejected_aside
from portal.web.tags import gpus, when

setup_page = page("GET", "POST", only_admins="Only a platform admin can set up the portal.")
"""A page of the set-up."""


GUIDE = ("Account", "Envelope", "Workspace", "Owner", "First budget")
"""The way from a new customer to the first budget, a page each."""
_KEY: Final = re.compile(r"[0-9]{1,18}")


class Row:
    """One row of a section's table.

    Args:
        cells: What it shows; the first is its heading.
        url: Where the first cell leads; empty for nowhere.
        remove: Key that is posted when the row's button is pressed; empty for no button.
        is_closed: Archived; shown faintly.
    """

    def __init__(
        self, *cells: Any, url: str = "", remove: str = "", is_closed: bool = False
    ) -> None:
        self.cells = cells
        self.url = url
        self.remove = remove
        self.is_closed = is_closed


@dataclass(slots=True)
class Section:
    """A table, a form, or both.

    Attributes:
        key: What a POST names.
        form: Form class; None for a table alone.
        do: What the form does with what was typed; raises Rejected.
        said: Sentence after it is done; ``{name}`` of typed values.
        to: Where to go then, with ``{name}`` of typed values; empty stays.
        sentence: The form's first fields in a sentence, each as ``{name}``.
        is_open: The form is open at once.
        is_folded: The form opens on demand, as one under a table or a dangerous one does.
        numbers: Those of the columns that stand at the right, digit under digit.
        removable: Queryset of those that a row's button removes.
        remove: What the button does with one of them; raises Rejected.
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
    sentence: str = ""
    is_danger: bool = False
    is_folded: bool = False
    is_open: bool = False
    columns: Sequence[str] = ()
    numbers: Sequence[str] = ()
    rows: Sequence[Row] = ()
    empty: str = ""
    removable: Any = None
    remove: Callable[[Any], Any] | None = None
    remove_label: str = "Remove"
    removed: str = "Removed."
    bound: PortalForm | None = None

    def bind(self, request: HttpRequest, typed: Any = None) -> PortalForm:
        """Make its form, filled with what was typed, for whoever asks."""
        assert self.form is not None
        reader: Any = {"user": request.user} if issubclass(self.form, ChoosingForm) else {}
        self.bound = self.form(typed, auto_id=f"id_{self.key}_%s", **reader, **self.arguments)
        return self.bound

    @property
    def has_buttons(self) -> bool:
        """Whether rows can be removed; a template would call ``remove`` itself to find out."""
        return self.remove is not None

    @property
    def folds(self) -> bool:
        """Whether the form is behind its button's words."""
        return bool(self.columns) or self.is_danger or self.is_folded

    @property
    def words(self) -> list[tuple[str, BoundField | None]]:
        """The sentence in pieces: words, and the field that stands behind them."""
        bound = self.bound
        assert bound is not None
        pieces = Formatter().parse(self.sentence)
        return [(text, bound[name] if name else None) for text, name, _, _ in pieces]

    @property
    def fields(self) -> list[BoundField]:
        """The visible fields that no sentence has."""
        spoken = {name for _, name, _, _ in Formatter().parse(self.sentence)}
        bound = self.bound.visible_fields() if self.bound is not None else ()
        return [each for each in bound if each.name not in spoken]

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


def sections_page(
    request: HttpRequest,
    *,
    title: str,
    headline: str,
    sections: list[Section],
    crumbs: Any = (),
    guide: str = "",
) -> HttpResponseBase:
    """Answer a GET with all sections, a POST by doing what its section does.

    Args:
        request: Its POST names a section, and a row where one is removed.
        title: Heading.
        headline: What this page is for, in a sentence.
        sections: In order.
        crumbs: (title, address) pairs of the pages above.
        guide: Which of :data:`GUIDE` this page is, on the way to a first budget; empty for none.
    """
    status = 200
    if request.method == "POST":
        named = [row for row in sections if row.key == request.POST.get("section")]
        if not named:
            raise Http404
        answer = _posted(request, named[0])
        if answer is not None:
            return answer
        status = 422
    for section in sections:
        if section.form is not None and section.bound is None:
            section.bind(request)
    shown = [row for row in sections if row.bound is not None and (row.is_open or not row.folds)]
    first = shown[0] if shown else None
    context = {
        "title": title,
        "headline": headline,
        "sections": sections,
        "main_section": first,
        "crumbs": crumbs,
        "guide": GUIDE if guide else (),
        "step": guide,
    }
    return render(request, "setup/sections.html", context, status=status)


def list_page(
    request: HttpRequest,
    *,
    what: str,
    title: str,
    headline: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    form: type[PortalForm] | None,
    empty: str = "",
    heading: str = "",
    guide: str = "",
    **new: Any,
) -> HttpResponseBase:
    """A page that lists all of a kind and adds one.

    Args:
        request: Its POST fills the form of the new one.
        what: The kind, in one word.
        title: Heading of the page.
        headline: What this page is for, in a sentence.
        columns: Headings of the table.
        rows: Of the table.
        form: Adds one; None where nothing can be added.
        empty: What is said instead of an empty table.
        heading: Of the table, where it is not the page's.
        guide: As for :func:`sections_page`.
        new: Of the :class:`Section` whose form adds one.
    """
    sections = [
        Section(key="list", title=heading or title, columns=columns, rows=rows, empty=empty)
    ]
    if form is not None:
        new |= {"form": form, "button": f"Add {what}"}
        sections.append(Section(key="new", title=f"New {what}", **new))
    return sections_page(
        request, title=title, headline=headline, sections=sections, crumbs=crumbs(), guide=guide
    )


def _posted(request: HttpRequest, section: Section) -> HttpResponseBase | None:
    """The redirect after it is done; None when it was rejected."""
    removed = request.POST.get("remove")
    if removed is not None and section.remove is not None:
        if not _KEY.fullmatch(removed):
            raise Http404
        with rejected_aside(request):
            section.remove(get_object_or_404(section.removable, pk=removed))
            messages.success(request, section.removed)
        return redirect(request.path)
    if section.form is None or section.do is None:
        raise Http404
    form = section.bind(request, request.POST)
    do, said, to = section.do, section.said, section.to or request.path

    def filled(text: str) -> Callable[[Any], str]:
        return lambda _: text.format(**form.cleaned_data)

    return carried_out(request, form, do, said=filled(said), to=filled(to))


def crumbs(*more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The way down from the set-up's first page."""
    return (("Set-up", reverse("setup")), *((title, reverse(name)) for title, name in more))


def item_row(route: str, item: Any, key: str, *cells: Any) -> Row:
    """A row that leads to the page of an item by its name; its key, as in the address, is next."""
    url = reverse(route, args=[key])
    return Row(item.name, key, *cells, url=url, is_closed=item.archived_at is not None)


def dated_gpus(row: Any) -> tuple[Any, ...]:
    """Flavor, GPUs, and from when to when they are there."""
    until = when(row.valid_until) if row.valid_until else "for good"
    return row.flavor.name, gpus(row.gpus), when(row.valid_from), until


def item_page(
    request: HttpRequest,
    found: Any,
    *,
    what: str,
    headline: str,
    sections: Sequence[Section],
    above: tuple[str, str],
    farewell: str,
    archive: Callable[[str], Any],
    guide: str = "",
) -> HttpResponseBase:
    """A page of one item: its sections, and last the one that archives it, while that is open.

    Args:
        request: As for :func:`sections_page`.
        found: The item; its name is the heading.
        what: Its kind, in one word.
        headline: What it is; that it is archived is added.
        sections: In order.
        above: Title and route of the list that it is in.
        farewell: What becomes of it when it is archived.
        archive: Closes it for good; takes the reason, raises Rejected.
        guide: As for :func:`sections_page`.
    """
    shown = list(sections)
    if found.archived_at is None:
        closing = Section(
            key="archive",
            title=f"Archive this {what}",
            text=f"Cannot be undone. {farewell}",
            form=ReasonForm,
            do=lambda typed: archive(typed["reason"]),
            button=f"Archive {what}",
            said=f"The {what} is archived.",
            to=reverse(above[1]),
            is_danger=True,
        )
        shown.append(closing)
    else:
        headline += ", archived"
    return sections_page(
        request,
        title=found.name,
        headline=headline,
        sections=shown,
        crumbs=crumbs(above),
        guide=guide,
    )
