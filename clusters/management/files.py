"""Files that a command is given by their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from django.core.management.base import CommandError


def read_text(path: Path) -> str:
    """A file whole.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error


def read_configuration(path: Path) -> dict[str, Any]:
    """A Kueue Configuration.

    Raises:
        CommandError: It cannot be read, or is none.
    """
    try:
        found = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise CommandError(f"{path} is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{path} holds no Kueue Configuration.")
    return found
