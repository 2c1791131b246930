"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import datetime


def stamp(at: datetime) -> str:
    """A time as Kubernetes writes it: UTC, whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
