"""Fixtures: the session's fleet with Kueue told to leave nominations to the portal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.controlplane.fleet import Fleet
from tests.reconcile.beside.roads import EXTERNAL, Beside, beside


@contextmanager
def reconfigured(fleet: Fleet, gates: Mapping[str, bool] | None = None) -> Iterator[Fleet]:
    """The fleet with another Kueue on the manager; the usual one comes back afterwards."""
    manager = fleet.manager
    manager.stop_kueue(keep_webhooks=True)
    manager.start_kueue(EXTERNAL, feature_gates=gates)
    try:
        yield fleet
    finally:
        manager.stop_kueue(keep_webhooks=True)
        manager.start_kueue()


@pytest.fixture(scope="module")
def external_fleet(kueue_fleet: Fleet) -> Iterator[Fleet]:
    """The manager's Kueue names the portal's dispatcher."""
    with reconfigured(kueue_fleet) as fleet:
        yield fleet


@pytest.fixture
def external(
    external_fleet: Fleet, unique_name: Callable[[str], str], transactional_db: None
) -> Iterator[Beside]:
    """A workspace on it, with room for one 8-GPU job on each worker."""
    with beside(external_fleet, unique_name("x")) as found:
        yield found


@pytest.fixture
def all_at_once(
    kueue_fleet: Fleet, unique_name: Callable[[str], str], transactional_db: None
) -> Iterator[Beside]:
    """A workspace where Kueue nominates by itself."""
    with beside(kueue_fleet, unique_name("a")) as found:
        yield found
