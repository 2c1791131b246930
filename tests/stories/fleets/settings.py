"""The Configuration of a story, for Kueue as well as for the portal's shifts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Shorter than Kueue's own (1 min, 15 min), as long as no story is about them.
DEFAULTS: Mapping[str, Any] = {"gcInterval": "5s", "workerLostTimeout": "10s"}


def configuration_of(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Kueue's Configuration with a story's ``multiKueue`` section."""
    return {"multiKueue": {**DEFAULTS, **setting}}
