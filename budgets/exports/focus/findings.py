"""What the checker finds: where, what, which rule, and the way out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong in a FOCUS file.

    Attributes:
        row: Data row, from 1; 0 for the header and the file as a whole.
        column: Column ID; empty for the file as a whole.
        value: The value found; None is null.
        rule: Stable name of the rule, such as ``enum``.
        message: What is wrong and the way out.
    """

    row: int
    column: str
    value: str | None
    rule: str
    message: str

    def __str__(self) -> str:
        shown = "null" if self.value is None else repr(self.value[:SHOWN_CHARACTERS])
        place = f"row {self.row}" if self.row else "file"
        return f"{place}: {self.column or '-'}: {shown}: {self.rule}: {self.message}"
