"""Embedded clusters for services and selectors; the proof of a live Kueue takes half a second."""

from __future__ import annotations

import pytest

from tests.reconcile.east import east, kube

__all__ = ["east", "kube"]  # fixtures


@pytest.fixture(autouse=True)
def _quick_proof(settings) -> None:
    settings.KUEUE_PROOF_SECONDS = 0.3
