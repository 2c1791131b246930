"""Numbers as words; shared by templates, charts and CSV."""

from __future__ import annotations

SECONDS_PER_HOUR = 3600


def hours_text(seconds: int) -> str:
    """GPU-seconds as GPU-hours with one decimal: 5400 → ``1.5``.

    Rounded half up in whole numbers, so that no float stands between ledger and reader.
    """
    tenths = (abs(seconds) * 10 + SECONDS_PER_HOUR // 2) // SECONDS_PER_HOUR
    sign = "−" if seconds < 0 and tenths else ""
    return f"{sign}{tenths // 10:,}.{tenths % 10}"
