"""Values as text: plain decimals, UTC times, and texts that no spreadsheet takes for a formula.

Pure. Source: spec money, section 2.1 (plain decimals, times with ``Z``); issue 6, section 3.
"""

from __future__ import annotations

import re
from decimal import Decimal

# Besides the usual four: their full-width twins, and white space that a spreadsheet drops.
FORMULA_STARTS = frozenset("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"-?\d+(\.\d+|/\d+)?", re.ASCII)
_SPACED_FORMULA = re.compile(r"\s+[=+\-@＝＋－＠]")


def decimal_text(value: Decimal) -> str:
    """Return a plain decimal: no exponent, no plus, no thousands mark, as many digits as it has."""
    return f"{value:f}"


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may take the text for a formula; a plain number or fraction is none."""
    if not text or not (text[0] in FORMULA_STARTS or text[0].isspace()):
        return False
    if text[0] in FORMULA_STARTS:
        return _NUMBER.fullmatch(text) is None
    return _SPACED_FORMULA.match(text) is not None


def defused(text: str) -> str:
    """Return the text so that no spreadsheet takes it for a formula; plain numbers stay."""
    return f"'{text}" if is_formula(text) else text
