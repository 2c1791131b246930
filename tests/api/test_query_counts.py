"""No endpoint asks the database more when there is more to show."""

from __future__ import annotations

from datetime import timedelta

from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import services
from budgets.models import Account, Membership, Workspace
from budgets.units import utc_hour
from tests.api.conftest import People
from tests.builders import line
from tests.factories import (
    AccountFactory,
    MembershipFactory,
    UsageRecordFactory,
    UserFactory,
    WorkloadUsageFactory,
    WorkspaceFactory,
)

# What was counted, token included; the limit is the count, so that each new query is a decision.
LIMITS = {
    "me": 2,
    "tokens": 2,
    "users": 3,
    "members": 3,
    "audit": 3,
    "accounts": 3,
    "accounts/acme": 3,
    "flavors": 3,
    "workspaces": 3,
    "workspaces/acme-vision": 3,
    "workspaces/acme-vision/budget": 7,
    "workspaces/acme-vision/budget/revisions": 7,
    "workspaces/acme-vision/budget/revisions/1": 5,
    "workspaces/acme-vision/budget/revisions/1/diff/2": 9,
    "capacities": 3,
    "envelopes": 3,
    "pools": 6,
    "requests": 11,
    "usage": 6,
    "usage/workloads": 4,
    "usage/lending": 8,
    "usage/idle": 9,
    "usage/capacity": 7,
    "fleet": 16,
    "setup": 9,
}


def grow(people: People, count: int) -> None:
    """So many more of everything."""
    fleet = people.fleet
    # A whole hour that is over: inside every range, however quick the request is.
    now = utc_hour(services.utc_now()) - timedelta(hours=1)
    done = Account.objects.count()
    for index in range(count):
        workspace = WorkspaceFactory(
            account=AccountFactory(slug=f"more{done}x{index}"), home_flavor=fleet.flavors["h100"]
        )
        MembershipFactory(user=UserFactory(), role="owner", workspace=workspace)
        UsageRecordFactory(workspace=workspace, flavor=fleet.flavors["h100"], hour=now)
        WorkloadUsageFactory(workspace=workspace, hour=now - timedelta(hours=2), burst=10)
        pool = services.create_pool(
            None, slug=f"pool{done}x{index}", name="P", account=workspace.account
        )
        services.set_pool_amount(None, pool=pool, flavor=fleet.flavors["l4"], gpus=0)
        services.set_envelope(
            None,
            account=workspace.account,
            flavor=fleet.flavors["l4"],
            committed=1,
            ceiling=1,
            pool=1,
        )
        services.set_capacity(None, cluster="gpu-west", flavor=fleet.flavors["l4"], gpus=8)
        fleet.revise(fleet.vision, line("l4", index % 3))
        fleet.revise(workspace, line("l4", 2), actor=_owner_of(workspace))


def _owner_of(workspace: Workspace):
    return Membership.objects.get(workspace=workspace).user


def queries(people: People) -> dict[str, int]:
    """How many each endpoint asks."""
    found = {}
    for path in LIMITS:
        with CaptureQueriesContext(connection) as seen:
            assert people.send("admin", "GET", path).status_code == 200
        found[path] = len(seen)
    return found


def test_queries_are_bounded_and_do_not_grow(people):
    grow(people, 2)
    queries(people)  # the time of last use is written once a minute
    few = queries(people)
    assert {path: count for path, count in few.items() if count > LIMITS[path]} == {}
    grow(people, 3)
    assert queries(people) == few
