"""The one place that asks what time it is."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present in UTC, whole seconds: promises and meters know nothing finer."""
    return datetime.now(UTC).replace(microsecond=0)
