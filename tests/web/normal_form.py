"""What of a page's HTML can be seen: elements, attributes, and white space where it shows.

Two documents of one normal form look the same. White space shows between words and inline
elements; it does not at the edges of a block, beside a line break, or between the children of a
flex box or a grid. Which elements are those is said here as the style sheet says it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID = _names("area base br col embed hr img input link meta source track wbr")
INLINE = _names(
    "a abbr b button cite code del em i input ins kbd label mark meter output progress q s samp "
    "select small span strong sub sup svg textarea time u var"
)
# In the line, with a layout of its own: white space at its inner edges does not show.
FRAMED = _names("button meter progress select svg")
FRAMED_CLASSES = _names("button count tag")
# Flex boxes, grids, and elements that keep no text: each child and each text stands for itself.
BOXES = _names("body button fieldset head main optgroup select svg")
BOX_CLASSES = _names(
    "actions bar-facts bar-name bars brand button card check choices crumbs empty facts field "
    "fields filters foot-in form grid head legend line lines menu-in messages meter-text nav note "
    "obj pager pairs parts path plain row stack steps sub tag three tight timeline top-in "
    "unit"
)
BOXES_WITHIN = {"card": "header", "parts": "li", "steps": "li", "timeline": "li"}
VERBATIM = _names("pre script style textarea")

SPACE = re.compile(r"[ \t\r\n\f]+")
# Tags of elements that take no place of their own: nothing is left of them without their text.
TAG = (
    r"<(?!/?(?:img|svg|button|select|meter|progress|textarea|input(?![^<>]*hidden))\b)"
    r"[^<>]*>"
)
# A space, such tags, one more: the second does not show. Nor does one at either end of a line.
TWO_SPACES = re.compile(rf" ((?:{TAG})+) ")
LEADING = re.compile(rf"^((?:(?!</){TAG})+) ")
TRAILING = re.compile(rf" ((?:(?=</){TAG})+)$")
# Of long tables and choices the first few stand for the rest, which is counted, rows with a print.
SHOWN = {"tr": 4, "option": 4}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class Element:
    """An element with what is in it; the document itself is one without a name."""

    tag: str = ""
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)
    parent: Element | None = None

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())

    @property
    def is_box(self) -> bool:
        if self.tag == "form" and self.parent and "form" not in self.classes:
            return self.parent.is_box  # display: contents
        around = self.parent.classes if self.parent else set()
        return (
            self.tag in BOXES
            or bool(self.classes & BOX_CLASSES)
            or any(BOXES_WITHIN.get(name) == self.tag for name in around)
            or (self.parent is not None and self.parent.tag == "svg")
        )

    @property
    def is_framed(self) -> bool:
        return self.tag in FRAMED or bool(self.classes & FRAMED_CLASSES)

    @property
    def is_block(self) -> bool:
        return self.tag not in INLINE or any(
            child.is_block for child in self.elements if not self.is_framed
        )

    @property
    def elements(self) -> list[Element]:
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def start(self) -> str:
        """The start tag, attributes in order, with what changes from run to run left out."""
        if self.attributes.get("name") == "csrfmiddlewaretoken":
            self.attributes["value"] = "…"
        words = [self.tag]
        for name, value in sorted(self.attributes.items()):
            if name == "class":
                value = " ".join(sorted(self.classes))
            words.append(name if value is None else f'{name}="{SPACE.sub(" ", value).strip()}"')
        return UUID.sub("…", f"<{' '.join(words)}>")


class _Reader(HTMLParser):
    """Builds the tree; the portal closes all that it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.document = self.at = Element()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), parent=self.at)
        self.at.children.append(element)
        if tag not in VOID:
            self.at = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Element(tag, dict(attrs), parent=self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> at {self.getpos()} closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def normal_form(html: str) -> str:
    """One line a block, a box's child or a text, indented by nesting; inline elements in the text.

    Raises:
        AssertionError: As :func:`parsed`.
    """
    return "\n".join(_lines(parsed(html), "")) + "\n"


def parsed(html: str) -> Element:
    """The document as a tree.

    Raises:
        AssertionError: An element is not closed, or in another order than it was opened.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.at is reader.document, f"<{reader.at.tag}> is not closed"
    return reader.document


def _lines(element: Element, indent: str) -> list[str]:
    lines: list[str] = []
    text = ""

    def end_text() -> None:
        nonlocal text
        if seen := _seen(text):
            lines.append(indent + seen)
        text = ""

    shown, more = _shown(element)
    for child in shown:
        if isinstance(child, str):
            text += _text(child, element)
        elif element.is_box or child.is_block:
            end_text()
            lines += _block(child, indent)
        else:
            text += _inline(child)
    end_text()
    if more:
        rest = "\n".join(line for child in more for line in _block(child, ""))
        mark = "" if more[0].tag == "option" else f", {_print(rest)}"  # zones of time come and go
        lines.append(f"{indent}… {len(more)} more{mark}")
    return lines


def _block(element: Element, indent: str) -> list[str]:
    """An element on lines of its own; a text that is all it has stands beside its start tag."""
    inside = _lines(element, indent + "  ")
    if len(inside) == 1 and not any(x.is_block or element.is_box for x in element.elements):
        return [indent + element.start + inside[0].strip(" ")]
    return [indent + element.start, *inside]


def _shown(element: Element) -> tuple[list[Element | str], list[Element]]:
    """The children that are written out, and the rest."""
    elements = element.elements
    most = SHOWN.get(elements[0].tag, len(elements)) if elements else 0
    if len(elements) <= most + 1:
        return element.children, []
    return list(elements[:most]), elements[most:]


def _print(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _inline(element: Element) -> str:
    inside = ""
    for child in element.children:
        part = _text(child, element) if isinstance(child, str) else _inline(child)
        inside += part.strip(" ") if element.is_box and element.is_framed else part
    if element.is_framed:
        inside = _seen(inside)
    return element.start + inside + ("" if element.tag in VOID else f"</{element.tag}>")


def _text(text: str, within: Element) -> str:
    if within.tag == "script":
        return _print(text)
    if within.tag in VERBATIM:
        return repr(text).replace(" ", "\N{NO-BREAK SPACE}")
    return UUID.sub("…", SPACE.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;"))


def _seen(text: str) -> str:
    """A text with its inline elements, without the spaces that do not show."""
    while (shorter := TWO_SPACES.sub(r" \1", SPACE.sub(" ", text))) != text:
        text = shorter
    return TRAILING.sub(r"\1", LEADING.sub(r"\1", text.strip(" ")))
