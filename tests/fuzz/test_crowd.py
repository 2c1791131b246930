"""Jobs that wait by the hundred slow nobody else: admission within seconds, pages as before.

The small version of ``python -m tests.perf.bench crowd``.
"""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets.models import Membership, Role
from tests.fuzz.grounds import GOOD_S
from tests.perf import bench_crowd, fleet_rows, life_rows
from tests.reconcile.admission_harness import Embedded

COUNT = 400


@pytest.mark.embedded
def test_jobs_that_wait_slow_no_other_tenant():
    with Embedded("crowd", webhooks=True) as world:
        place = world["crowd"]
        with bench_crowd.shift_on(place.kubeconfig):
            _, beside = bench_crowd.admitted(place.client, COUNT, tries=5)
    assert max(beside) < 1000 * GOOD_S, beside


@pytest.mark.django_db
def test_pages_of_another_tenant_ask_the_database_no_more():
    users = fleet_rows.people()
    crowded, quiet, *_ = fleet_rows.promises(accounts=2, workspaces=11)
    Membership.objects.create(user=users["owner"], role=Role.OWNER, workspace=quiet)
    life_rows.fleet_at_work(clusters=3, jobs=110, requests=0, entries=0)

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            bench_crowd.visited(users["owner"], quiet, rounds=0)
        return len(queries)

    asked()  # what is read once
    before = asked()
    life_rows.crowd(crowded, COUNT)
    assert asked() == before
