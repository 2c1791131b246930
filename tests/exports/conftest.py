"""A billed month: a small fleet with a rate card, hour facts and workloads."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import time_machine
from django.db import transaction

from budgets import services
from budgets.models import Export, RateCard, RatePrice, Role, User
from budgets.services.exports import runs as exports
from budgets.services.exports.plans import request_export
from tests.builders import PASSWORD, SmallFleet, an_approval, hours, line, small_fleet
from tests.factories import (
    IntervalFactory,
    MeterStateFactory,
    UsageRecordFactory,
    WorkloadUsageFactory,
)

NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)
HOURS = 5
COMMITTED, USED, LENT, IDLE, BURST = 57_600, 36_001, 7_200, 14_399, 5_003


@dataclass
class Billed:
    """March 2026 of the small fleet; ``spool`` is where the files go."""

    fleet: SmallFleet
    spool: Path

    def export(self, user: User, **wanted: object) -> Export:
        """Ask and let a worker write it, on 3 March at noon."""
        asked = {"dataset": "charges", "format": "csv", "period": "2026-03", **wanted}
        with time_machine.travel(NOW, tick=True):
            export = request_export(user, **asked)
            exports.run_exports()
        export.refresh_from_db()
        export.operation.refresh_from_db()
        return export

    def path(self, export: Export) -> Path:
        return exports.spool_path(export)

    def person(self, name: str, role: Role, **scope: object) -> User:
        user = services.create_user(
            None, username=name, email=f"{name}@example.org", password=PASSWORD
        )
        services.grant_role(None, user=user, role=role, **scope)
        return user


@pytest.fixture(scope="module")
def _billed_fleet(django_db_setup, django_db_blocker) -> Iterator[SmallFleet]:
    """Fleet and month once per module: each test works in a savepoint inside it."""
    with django_db_blocker.unblock(), transaction.atomic():
        fleet = small_fleet()
        _bill(fleet)
        yield fleet
        transaction.set_rollback(True)


@pytest.fixture
def fleet(_billed_fleet: SmallFleet, db) -> SmallFleet:
    """The fleet of the module, in objects of the test's own."""
    return deepcopy(_billed_fleet)


@pytest.fixture
def billed(fleet: SmallFleet, settings, tmp_path: Path) -> Billed:
    settings.PORTAL_SPOOL_FOLDER = str(tmp_path / "spool")
    return Billed(fleet, tmp_path / "spool")


def _bill(fleet: SmallFleet) -> None:
    with time_machine.travel(hours(0), tick=False):
        for workspace in (fleet.vision, fleet.search):
            fleet.revise(workspace, line("h100", 16, 24))
    card = RateCard.objects.create(name="2026", currency="EUR")
    for slug, dynamic in (("h100", False), ("h100-spot", True)):
        RatePrice.objects.create(
            card=card,
            flavor=fleet.flavors[slug],
            committed=Decimal("2.12345678"),
            burst=Decimal("3.3"),
            lending_credit=Decimal("0.5"),
            is_dynamic=dynamic,
        )
    card.state, card.valid_from = RateCard.State.ACTIVE, hours(-24 * 31)
    card.approval = an_approval()
    card.save()
    for workspace in (fleet.vision, fleet.search):
        uid = f"uid-{workspace.slug}"
        IntervalFactory(workspace=workspace, uid=uid, workload="=train", start=hours(0))
        for hour in range(HOURS):
            UsageRecordFactory(
                workspace=workspace,
                flavor=fleet.flavors["h100"],
                hour=hours(hour),
                committed=COMMITTED,
                committed_used=USED,
                lent=LENT,
                idle=IDLE,
                burst=BURST,
            )
            WorkloadUsageFactory(
                workspace=workspace, uid=uid, hour=hours(hour), committed_used=USED, burst=BURST
            )
    MeterStateFactory(cluster="gpu-east", complete_until=hours(0) + timedelta(hours=3))
