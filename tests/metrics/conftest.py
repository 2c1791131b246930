"""Prometheus' own programs."""

from __future__ import annotations

import pytest

from tests.metrics.scraper import program


@pytest.fixture
def promtool() -> str:
    """Path of promtool."""
    return program("promtool")


@pytest.fixture
def prometheus() -> str:
    """Path of prometheus."""
    return program("prometheus")
