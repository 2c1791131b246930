"""Templates read like code: lines that fit, one element of a page's structure a line."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_LINE = 120
STRUCTURE = re.compile(
    r"<(article|aside|dd|details|div|dl|dt|fieldset|figure|footer|form|h[1-6]|header|li|main|nav|ol"
    r"|p|pre|section|select|summary|table|tbody|td|tfoot|th|thead|tr|ul)\b"
)


def test_lines_of_templates_fit_and_begin_one_element():
    found = []
    for path in sorted(ROOT.glob("templates/**/*.html")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}"
            if len(line) > LONGEST_LINE:
                found.append(f"{where}: {len(line)} characters")
            if len(STRUCTURE.findall(line)) > 1:
                found.append(f"{where}: two elements")
    assert found == []
