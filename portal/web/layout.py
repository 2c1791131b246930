"""How templates are read: their layout is for who reads the file, and stays on the server."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)


class Loader(filesystem.Loader):
    """Leaves out what indents a line; the ends of lines stay, and so do the numbers of lines.

    Nested as they are, templates would otherwise grow a table of a thousand cells by half. Within
    ``pre`` and ``textarea`` white space counts: their text comes from variables, never from a file.
    """

    def get_contents(self, origin: Origin) -> str:
        return _INDENT.sub("", super().get_contents(origin))
