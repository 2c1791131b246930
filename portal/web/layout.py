"""How templates are read: their layout is for who reads the file, and stays on the server."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

# Elements beside which white space does not show; not those that show all that is in them.
_BLOCKS = (
    "article|aside|body|br|dd|details|div|dl|doctype|dt|fieldset|footer|h[1-6]|head|header|html|legend|li"
    "|link|main|meta|nav|ol|option|p|script|section|summary|table|tbody|td|tfoot|th|thead|title|tr"
    "|ul"
)
_BREAK = re.compile(r"\s*\n\s*")
_WITHIN_TAG = r"(?:\{\{.*?\}\}|\{%.*?%\}|[^<>])*"
_BLOCK = re.compile(rf" ?(<[/!]?(?:{_BLOCKS})\b{_WITHIN_TAG}>) ?", re.IGNORECASE)
# Of a space on either side of a condition's begin, the second shows in no browser.
_CONDITION = re.compile(r" (\{% if\b[^%]*%\}) ")


class Loader(filesystem.Loader):
    """Leaves out the white space of a template that nobody sees in a browser.

    Nested as they are, templates would otherwise grow a table of a thousand cells by half. Where
    the engine is told to debug, the ends of lines stay, so that faults are shown where they are.
    """

    def get_contents(self, origin: Origin) -> str:
        text = super().get_contents(origin)
        if self.engine.debug:
            return text
        text = _BLOCK.sub(r"\1", _BREAK.sub(" ", text)).strip()
        return _CONDITION.sub(r" \1", text)
