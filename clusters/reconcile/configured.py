"""What a cluster's stored Kueue Configuration says to a shift, which cannot work without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.errors import Refusal, Terminal
from clusters.kueue.multikueue.settings import DispatchSettings


def settings_of(configuration: Mapping[str, Any]) -> DispatchSettings:
    """What it says of dispatch.

    Raises:
        Terminal: something in it is not usable.
    """
    try:
        return DispatchSettings.from_document(configuration)
    except ValueError as error:
        raise Terminal(Refusal(f"Kueue Configuration: {error}", "BadConfiguration")) from error
