"""The external dispatcher beside a real Kueue that sends merge patches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.reconcile.external.ways import Way
from tests.controlplane.fleet import Fleet
from tests.reconcile.beside.conftest import reconfigured
from tests.reconcile.beside.roads import beside, configuration, run_one

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db(transaction=True)]


@pytest.mark.slow
def test_dispatcher_merge_patches_where_the_gate_is_on(
    kueue_fleet: Fleet, unique_name: Callable[[str], str], transactional_db: None
):
    gates = {"WorkloadRequestUseMergePatch": True}
    with reconfigured(kueue_fleet, gates) as fleet, beside(fleet, unique_name("m")) as found:
        found.register()
        found.start(configuration(gates=gates))
        run_one(found)
        assert found.row.nomination_way.way == Way.MERGE_PATCH
