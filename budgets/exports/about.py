"""What an export says of itself: its filter, time zone, completeness and rate cards.

Pure. Source: issue 6, section 3; spec money, section 2.1 (data that the generator documents).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from budgets.units import time_text


@dataclass(frozen=True, slots=True)
class About:
    """The label of a file; in the file where the format has room, else beside it.

    Attributes:
        title: What it holds, such as ``FOCUS 1.2 cost and usage``.
        made_at: UTC.
        filter: Name → what was asked for, in words a reader understands.
        time_zone: The zone whose days the filter's dates are; times in the file are UTC.
        complete_until: Up to when the facts are complete; None: nothing is metered yet.
        late_clusters: Clusters that are behind.
        rate_cards: Versions of the rate cards whose prices are in it.
        currency: ISO 4217; empty where the export holds no money, or several.
        rows: Data rows, known when the file is done.
        notes: Further remarks, such as how corrections are shown.
    """

    title: str
    made_at: datetime
    filter: Mapping[str, str]
    time_zone: str
    complete_until: datetime | None
    late_clusters: tuple[str, ...] = ()
    rate_cards: tuple[str, ...] = ()
    currency: str = ""
    rows: int = 0
    notes: tuple[str, ...] = ()

    def with_rows(self, rows: int, *, rate_cards: tuple[str, ...] = ()) -> About:
        """Return it with what is known only when all rows are written."""
        return replace(self, rows=rows, rate_cards=rate_cards or self.rate_cards)

    def document(self) -> dict[str, Any]:
        """JSON-able; the shape of the sidecar and of the API."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def lines(self) -> list[tuple[str, str]]:
        """(name, text) lines for a sheet."""
        lines = []
        for name, value in self.document().items():
            title = name.replace("_", " ").capitalize()
            if isinstance(value, dict):
                lines += [(f"{title}: {key}", str(text)) for key, text in value.items()]
            elif isinstance(value, list):
                lines.append((title, ", ".join(value) or "none"))
            else:
                lines.append((title, "none yet" if value is None else str(value)))
        return lines


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return time_text(value)
    return list(value) if isinstance(value, tuple) else value
