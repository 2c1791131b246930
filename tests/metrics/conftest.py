"""Prometheus' own programs: Debian's ``prometheus`` brings both."""

from __future__ import annotations

import os
import shutil

import pytest


def _program(name: str) -> str:
    found = shutil.which(name)
    if found:
        return found
    reason = f"no {name}: install Debian's prometheus"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def promtool() -> str:
    """Path of promtool."""
    return _program("promtool")


@pytest.fixture
def prometheus() -> str:
    """Path of prometheus."""
    return _program("prometheus")
