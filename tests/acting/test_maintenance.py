"""Windows of maintenance: who may plan them, what they cover, what they do, what they cost whom."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
import time_machine

from budgets import selectors as budget_selectors
from budgets import services as budget_services
from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry, Budget
from budgets.plan import plan_quota
from clusters import selectors, services
from clusters.models import Cluster, MaintenanceWindow, WorkloadAction
from clusters.selectors.cordons import cordons_now
from clusters.selectors.places import active_workers, place_of
from tests.acting.conftest import seen
from tests.builders import START, SmallFleet, hours, line
from tests.factories import UsageRecordFactory
from tests.reconcile.fleet_rows import register

pytestmark = pytest.mark.django_db
NOW = hours(240)


@pytest.fixture
def workers(fleet: SmallFleet) -> dict[str, Cluster]:
    """The manager and both workers of the small fleet; nobody talks to them."""
    made = {name: register(name, "kubeconfig") for name in ("gpu-east", "gpu-west")}
    return made | {"hub": register("hub", "kubeconfig", role="manager")}


@pytest.fixture
def clock():
    """The present is NOW, until a test moves on."""
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


def plan(fleet: SmallFleet, **changes) -> MaintenanceWindow:
    terms = {
        "cluster": None,
        "flavor": None,
        "starts_at": None,
        "ends_at": NOW + timedelta(hours=4),
        "drains": False,
        "reason": "new cooling",
    }
    return services.plan_maintenance(fleet.admin, **{**terms, **changes})


def place(name: str, *, is_manager: bool = False):
    workers = active_workers() if is_manager else ()
    return place_of(name, is_manager=is_manager, workers=workers)


def test_a_cordoned_worker_holds_its_queues_and_no_other_does(fleet, workers, clock) -> None:
    plan(fleet, cluster=workers["gpu-east"])
    assert place("gpu-east").stop_policy == "Hold"
    assert place("gpu-west").stop_policy == "None"
    assert place("hub", is_manager=True).stop_policy == "None"
    assert place("gpu-east").cordoned_flavors == frozenset()
    plan(fleet, cluster=workers["gpu-east"], drains=True)
    assert place("gpu-east").stop_policy == "HoldAndDrain", "draining wins over a mere cordon"
    plan(fleet, cluster=workers["gpu-west"])
    assert place("hub", is_manager=True).stop_policy == "Hold", "there is nowhere left to go"


def test_a_cordoned_flavor_is_tainted_where_it_is_cordoned(fleet, workers, clock) -> None:
    h100, l4 = fleet.flavors["h100"], fleet.flavors["l4"]
    plan(fleet, cluster=workers["gpu-east"], flavor=h100)
    assert place("gpu-east").cordoned_flavors == {"h100"}
    assert place("gpu-west").cordoned_flavors == frozenset()
    assert place("hub", is_manager=True).cordoned_flavors == frozenset(), "the west has it still"
    plan(fleet, flavor=l4)
    assert place("gpu-west").cordoned_flavors == {"l4"}
    assert place("hub", is_manager=True).cordoned_flavors == {"l4"}
    plan(fleet, cluster=workers["gpu-west"])
    assert place("hub", is_manager=True).cordoned_flavors == {"h100", "l4"}
    assert place("gpu-east").stop_policy == "None"


def test_windows_begin_and_end_by_the_clock_and_overlap(fleet, workers, clock) -> None:
    east = workers["gpu-east"]
    soon = plan(fleet, cluster=east, starts_at=NOW + timedelta(hours=1))
    longer = plan(
        fleet,
        cluster=east,
        starts_at=NOW + timedelta(hours=2),
        ends_at=NOW + timedelta(hours=8),
        drains=True,
    )
    assert cordons_now().workers == {}

    def at(count: float) -> tuple[str, str, str]:
        clock.move_to(NOW + timedelta(hours=count))
        services.advance_maintenance()
        soon.refresh_from_db()
        longer.refresh_from_db()
        return soon.state, longer.state, str(cordons_now().on("gpu-east"))

    assert at(0.5) == ("scheduled", "scheduled", "None")
    assert at(1) == ("active", "scheduled", "Hold")
    assert at(3) == ("active", "active", "HoldAndDrain")
    assert at(5) == ("over", "active", "HoldAndDrain")
    assert at(8) == ("over", "over", "None")
    assert services.advance_maintenance() == {"begun": 0, "ended": 0, "restarted": 0}
    told = AuditEntry.objects.filter(action__startswith="maintenance.").order_by("pk")
    assert [row.action.partition(".")[2] for row in told] == [
        *("plan", "plan", "begin", "begin", "over", "over"),
    ]


def test_a_window_that_nobody_saw_is_over(fleet, workers, clock) -> None:
    window = plan(fleet, cluster=workers["gpu-east"], starts_at=NOW + timedelta(hours=1))
    clock.move_to(NOW + timedelta(days=3))
    services.advance_maintenance()
    window.refresh_from_db()
    assert window.state == "over"


def test_ending_early_frees_the_worker_at_once(fleet, workers, clock) -> None:
    window = plan(fleet, cluster=workers["gpu-east"])
    generation = MaintenanceWindow.objects.get().generation
    with pytest.raises(Rejected, match="Say why"):
        services.end_maintenance(fleet.admin, window=window, reason=" ")
    with pytest.raises(NotAllowed):
        services.end_maintenance(fleet.owner, window=window, reason="x")
    ended = services.end_maintenance(fleet.admin, window=window, reason="done sooner")
    assert (ended.state, ended.until, ended.ended_by) == ("over", NOW, fleet.admin)
    assert ended.generation > generation, "the clusters are written anew"
    assert cordons_now().workers == {}
    with pytest.raises(Rejected, match="already over"):
        services.end_maintenance(fleet.admin, window=window, reason="x")
    called_off = plan(fleet, cluster=workers["gpu-east"], starts_at=NOW + timedelta(hours=1))
    ended = services.end_maintenance(fleet.admin, window=called_off, reason="not needed")
    assert ended.state == "cancelled"


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"cluster": None}, {"cluster"}, id="nothing is covered"),
        pytest.param({"cluster": "hub"}, {"cluster"}, id="the manager runs no jobs"),
        pytest.param({"starts_at": NOW - timedelta(hours=1)}, {"starts_at"}, id="in the past"),
        pytest.param({"ends_at": NOW}, {"ends_at"}, id="empty"),
        pytest.param({"ends_at": NOW + timedelta(days=800)}, {"ends_at"}, id="too long"),
        pytest.param({"ends_at": datetime(2026, 4, 1)}, {"ends_at"}, id="no zone"),  # noqa: DTZ001
        pytest.param(
            {"cluster": "hub", "ends_at": NOW, "reason": " "},
            {"cluster", "ends_at", "reason"},
            id="everything at once",
        ),
    ],
)
def test_bad_windows_are_refused_with_every_fault(fleet, workers, clock, changes, want) -> None:
    changes = {"cluster": "gpu-east", **changes}
    changes["cluster"] = workers[changes["cluster"]] if changes["cluster"] else None
    with pytest.raises(Rejected) as caught:
        plan(fleet, **changes)
    assert {fault.field for fault in caught.value.faults} == want
    assert not MaintenanceWindow.objects.exists()


def test_only_admins_plan_and_preview(fleet, workers, clock) -> None:
    terms = {"cluster": workers["gpu-east"], "flavor": None, "starts_at": None}
    for actor in (fleet.owner, fleet.finance, fleet.auditor):
        with pytest.raises(NotAllowed):
            services.preview_maintenance(actor, ends_at=NOW + timedelta(hours=1), **terms)
        with pytest.raises(NotAllowed):
            services.plan_maintenance(
                actor, ends_at=NOW + timedelta(hours=1), drains=False, reason="x", **terms
            )


@pytest.fixture
def promised(fleet: SmallFleet, workers) -> SmallFleet:
    """acme-vision has a floor of 40 H100, more than one worker has; 4 L4 besides."""
    with time_machine.travel(START, tick=False):
        fleet.revise(fleet.vision, line("h100", 40), line("l4", 4))
        fleet.revise(fleet.search, line("a100", 8))
    return fleet


def floor_on(fleet: SmallFleet, cluster: str, flavor: str) -> int:
    fleet.vision.budget.refresh_from_db()
    revision = fleet.vision.budget.in_force
    lines = revision.lines.filter(flavor__slug=flavor, allocations__cluster=cluster)
    return sum(lines.values_list("allocations__committed", flat=True))


def test_the_preview_names_floors_jobs_room_and_overlaps(promised, workers, clock) -> None:
    east, h100 = workers["gpu-east"], promised.flavors["h100"]
    seen(east, "train", gpus={"h100": 8})
    seen(east, "wait", phase="pending", gpus={"": 8})
    other = plan(promised, flavor=h100, starts_at=NOW + timedelta(hours=2))
    plan(promised, cluster=workers["gpu-west"])
    found = services.preview_maintenance(
        promised.admin, cluster=east, flavor=h100, starts_at=None, ends_at=NOW + timedelta(hours=3)
    )
    (row,) = found.rows
    stands = floor_on(promised, "gpu-east", "h100")
    assert stands > 0
    assert (row.workspace, row.gpus, row.committed) == (promised.vision, stands, 40)
    assert found.gpu_seconds == stands * 3 * 3600
    assert (row.jobs, row.job_gpus) == (1, 8)
    assert list(found.overlapping) == [other]
    assert set(found.elsewhere) == {"h100"}


def test_owners_see_the_windows_over_their_floors_and_no_others(promised, workers, clock) -> None:
    ours = plan(promised, flavor=promised.flavors["l4"])
    theirs = plan(promised, flavor=promised.flavors["a100"])
    assert selectors.visible_windows(promised.owner) == [ours]
    assert selectors.visible_windows(promised.auditor) == [ours, theirs]
    with pytest.raises(MaintenanceWindow.DoesNotExist):
        selectors.window_for(promised.owner, theirs.pk)
    (floor,) = selectors.windows_of(promised.vision)
    assert (floor.window, floor.gpus, floor.committed) == (ours, 4, 4)
    assert selectors.windows_of(promised.speech) == []
    promised.revise(promised.speech, line("l4", 2))
    both = {promised.vision, promised.speech}
    whole = plan(promised, flavor=promised.flavors["l4"], starts_at=NOW + timedelta(hours=1))
    for reader, floors in ((promised.owner, {promised.vision}), (promised.auditor, both)):
        seen = selectors.window_for(reader, whole.pk)
        assert {row.workspace for row in seen.floors.all()} == floors


def test_what_was_asked_for_and_not_given_is_added_up(promised, workers, clock) -> None:
    l4 = promised.flavors["l4"]
    window = plan(promised, flavor=l4, starts_at=NOW + timedelta(minutes=30))
    hour = 3600

    def fact(count: int, *, used: int, pending: int, committed: int = 4 * hour) -> None:
        UsageRecordFactory(
            workspace=promised.vision,
            flavor=l4,
            hour=NOW + timedelta(hours=count),
            committed=committed,
            committed_used=used,
            pending=pending,
            lent=0,
            idle=committed - used,
        )

    fact(0, used=0, pending=9 * hour)  # half of this hour is under the window: 4 GPUs x 30 min
    fact(1, used=hour, pending=2 * hour)  # asked for less than what was not used
    fact(2, used=4 * hour, pending=9 * hour)  # given in full, elsewhere
    fact(3, used=0, pending=0)  # nobody asked
    clock.move_to(NOW + timedelta(hours=9))
    services.advance_maintenance()
    clock.move_to(NOW + timedelta(hours=10))
    window.refresh_from_db()
    assert services.measure_maintenance() == 1
    assert window.floors.get().unmet == 2 * hour + 2 * hour
    clock.move_to(NOW + timedelta(days=9))
    assert services.measure_maintenance() == 0, "settled"


def test_draining_a_flavor_restarts_each_job_that_holds_it_once(promised, workers, clock) -> None:
    east, hub, h100 = workers["gpu-east"], workers["hub"], promised.flavors["h100"]
    submitted = seen(hub, "sent", worker="gpu-east", gpus={"h100": 8})
    seen(east, "copy", name="job-sent", is_remote_copy=True, gpus={"h100": 8})
    local = seen(east, "local", gpus={"h100": 8})
    seen(east, "other", gpus={"l4": 1})
    seen(workers["gpu-west"], "west", gpus={"h100": 8})
    seen(hub, "gone", phase="finished", gpus={"h100": 8})
    window = plan(promised, cluster=east, flavor=h100, drains=True)
    asked = WorkloadAction.objects.order_by("uid")
    assert [(row.cluster, row.uid, row.verb, row.window) for row in asked] == [
        (east, local.uid, "restart", window),
        (hub, submitted.uid, "restart", window),
    ]
    WorkloadAction.objects.update(state="done")
    assert services.advance_maintenance()["restarted"] == 0, "once per window"
    late = seen(east, "late", gpus={"h100": 8})
    assert services.advance_maintenance()["restarted"] == 1
    assert WorkloadAction.objects.get(uid=late.uid).state == "waiting"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_hold_stands_on_the_manager_and_on_every_worker(
    promised, workers, clock, policy: str
) -> None:
    def policies(queue: str) -> set[str]:
        in_force = budget_selectors.promises_in_force()
        places = (place("hub", is_manager=True), place("gpu-east"), place("gpu-west"))
        plans = [plan_quota(in_force, where) for where in places]
        return {str(q.stop_policy) for plan in plans for q in plan.queues if q.name == queue}

    def hold(wanted: str) -> None:
        budget = Budget.objects.get(workspace=promised.vision)
        budget_services.set_stop_policy(
            promised.owner, budget=budget, policy=wanted, reason="over budget"
        )

    hold(policy)
    assert policies("acme-vision") == {policy}
    assert policies("globex-search") == {"None"}
    hold("None")
    assert policies("acme-vision") == {"None"}
    with pytest.raises(NotAllowed):
        budget_services.set_stop_policy(
            promised.auditor, budget=promised.vision.budget, policy=policy, reason="x"
        )
