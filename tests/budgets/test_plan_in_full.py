"""Plans as a whole: all quota of a place, what counts as a change, and how a split is laid."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from budgets.errors import Fault
from budgets.plan import (
    MAINTENANCE_TAINT,
    AccountPromise,
    ClusterPlace,
    CohortPlan,
    DatedGpus,
    FlavorPromise,
    FlavorTerms,
    FleetTimeline,
    Line,
    PoolPromise,
    Promises,
    QueuePlan,
    QueueQuota,
    QuotaPlan,
    RevisionSpan,
    Spill,
    Split,
    StopPolicy,
    TopologyPromise,
    WorkspacePromise,
    amounts_at,
    capacity_at,
    changed_subjects,
    edges,
    in_force_at,
    plan_quota,
    split_line,
    strongest_stop,
)
from budgets.plan.quota import share_of
from budgets.plan.split import _lay_nodes, _lend
from budgets.plan.timeline import window_holds
from tests.budgets.test_plan_split import ask
from tests.builders import hours

GPU = "nvidia.com/gpu"
OWN_TAINT = (("effect", "NoSchedule"), ("key", "gpu"))
L4 = FlavorPromise("l4", GPU, node_taints=(OWN_TAINT,), generation=3)
H100 = FlavorPromise("h100", GPU, (("gpu", "h100"),), topology="rack")
ACME = AccountPromise("acme", 2, {"h100": 8}, {("h100", "east"): 6}, Decimal(2))
GLOBEX = AccountPromise("globex", 4)
ALL = PoolPromise("all", 9, {"l4": 4}, {("l4", "east"): 3}, {"globex": {"l4": 2}})
ZOO = PoolPromise("zoo", 1, {"h100": 5}, {}, {})
RACK, ZONE = TopologyPromise("rack", ("block", "rack")), TopologyPromise("zone", ("zone",))
VISION = WorkspacePromise(
    account="acme",
    workspace="vision",
    namespace="acme-vision",
    lines=(Line("h100", 16, 32, 4), Line("l4", 0, 8, 0)),
    preference=("l4",),
    spill=Spill.BORROW_FIRST,
    split={("h100", "east"): (8, 2)},
    stop_policy=StopPolicy.HOLD,
    generation=5,
    checks_spend=True,
    fair_weight=Decimal(3),
)
SEARCH = WorkspacePromise("globex", "search", "globex-search", (Line("l4", 2, 2, 2),))
FLEET = Promises((L4, H100), (GLOBEX, ACME), (ZOO, ALL), (SEARCH, VISION), (ZONE, RACK))


def unlimited(**nominal: int) -> dict[str, QueueQuota]:
    return {flavor: QueueQuota(gpus, None, None) for flavor, gpus in nominal.items()}


def cohorts(*, pooled: int, zoo: int, own: int) -> tuple[CohortPlan, ...]:
    """GPUs of the two platform pools and of the account's own one; the rest is alike anywhere."""
    shared = {"l4": QueueQuota(0, 2, 0), "host": QueueQuota(0, 0, 0)}
    return (
        CohortPlan("pool-all", None, unlimited(l4=pooled), "pool:all", 9),
        CohortPlan("pool-zoo", None, unlimited(h100=zoo), "pool:zoo", 1),
        CohortPlan("acme", None, unlimited(h100=own, l4=0, host=0), "account:acme", 2, Decimal(2)),
        CohortPlan("globex", "pool-all", shared, "account:globex", 4),
    )


def queues(
    h100: QueueQuota,
    l4: QueueQuota,
    search: QueueQuota,
    *,
    stops: tuple[StopPolicy, StopPolicy],
    checks: bool,
) -> tuple[QueuePlan, ...]:
    return (
        QueuePlan(
            name="acme-vision",
            cohort="acme",
            flavors=("l4", "h100"),
            quotas={"h100": h100, "l4": l4},
            try_next_flavor_before_borrowing=False,
            stop_policy=stops[0],
            subject="budget:acme-vision",
            generation=5,
            checks_spend=checks,
            fair_weight=Decimal(3),
        ),
        QueuePlan(
            name="globex-search",
            cohort="globex",
            flavors=("l4",),
            quotas={"l4": search},
            try_next_flavor_before_borrowing=True,
            stop_policy=stops[1],
            subject="budget:globex-search",
            generation=1,
        ),
    )


HELD, FREE = (StopPolicy.HOLD, StopPolicy.NONE), StopPolicy.HOLD_AND_DRAIN
WHOLE = {"h100": QueueQuota(16, 16, 4), "l4": QueueQuota(0, 8, 0), "search": QueueQuota(2, 0, 2)}
PART = {"h100": QueueQuota(8, 24, 2), "l4": QueueQuota(0, 8, 0), "search": QueueQuota(0, 0, 0)}
BARE = {"h100": QueueQuota(0, 32, 0), "l4": QueueQuota(0, 8, 0), "search": QueueQuota(0, 0, 0)}
NONE = {"h100": QueueQuota(0, 0, 0)}


@pytest.mark.parametrize(
    ("place", "l4", "want_cohorts", "want_queues"),
    [
        pytest.param(
            ClusterPlace("hub", True, cordoned_flavors=frozenset({"l4"})),
            replace(L4, node_taints=(OWN_TAINT, MAINTENANCE_TAINT)),
            {"pooled": 4, "zoo": 5, "own": 8},
            {**WHOLE, "stops": HELD, "checks": True},
            id="a manager with a cordoned flavor",
        ),
        pytest.param(
            ClusterPlace("hub", True, elsewhere=frozenset({"h100"})),
            L4,
            {"pooled": 4, "zoo": 0, "own": 0},
            {**WHOLE, **NONE, "stops": HELD, "checks": True},
            id="a manager of a fleet without one flavor",
        ),
        pytest.param(
            ClusterPlace("east", False, stop_policy=StopPolicy.HOLD_AND_DRAIN),
            L4,
            {"pooled": 3, "zoo": 0, "own": 6},
            {**PART, "stops": (FREE, FREE), "checks": False},
            id="a cordoned worker",
        ),
        pytest.param(
            ClusterPlace("solo", False, is_single=True),
            L4,
            {"pooled": 0, "zoo": 0, "own": 0},
            {**BARE, "stops": HELD, "checks": True},
            id="a single cluster",
        ),
    ],
)
def test_plan_of_a_place_is_this_and_no_more(place, l4, want_cohorts, want_queues):
    assert plan_quota(FLEET, place) == QuotaPlan(
        place=place,
        flavors=(H100, l4),
        cohorts=cohorts(**want_cohorts),
        queues=queues(**want_queues),
        topologies=(RACK, ZONE),
    )


@pytest.mark.parametrize(
    ("account", "flavor", "want"),
    [("globex", "l4", 2), ("globex", "h100", 0), ("acme", "l4", 0), ("free", "l4", 4)],
)
def test_share_of_a_pool_is_its_limit_within_what_there_is(account, flavor, want):
    shared = replace(ALL, shares={"globex": {"l4": 2}, "free": {}, "greedy": {"l4": 99}})
    assert share_of(shared, account, flavor) == want
    assert share_of(shared, "greedy", "l4") == 4


def fleet(**changes: Any) -> Promises:
    """The fleet with one of its parts changed: the name of the part, and what is other of it."""
    made = FLEET
    for field, old, name in (
        ("flavors", L4, "l4"),
        ("accounts", ACME, "acme"),
        ("pools", ALL, "all"),
        ("workspaces", VISION, "vision"),
        ("topologies", ZONE, "zone"),
    ):
        if name in changes:
            rows = tuple(
                replace(row, **changes[name]) if row is old else row for row in getattr(made, field)
            )
            made = replace(made, **{field: rows})
    return made


@pytest.mark.parametrize(
    ("part", "change", "want"),
    [
        ("l4", {"generation": 9}, ()),
        ("l4", {"resource": "amd.com/gpu"}, ("flavor:l4",)),
        ("l4", {"node_labels": (("a", "b"),)}, ("flavor:l4",)),
        ("l4", {"node_taints": ()}, ("flavor:l4",)),
        ("l4", {"tolerations": (OWN_TAINT,)}, ("flavor:l4",)),
        ("l4", {"gpus_per_node": 4}, ("flavor:l4",)),
        ("l4", {"topology": "rack"}, ("budget:globex-search", "flavor:l4")),
        ("zone", {"generation": 9}, ()),
        ("zone", {"levels": ("zone", "host")}, ("topology:zone",)),
        ("acme", {"generation": 9}, ()),
        ("acme", {"pool": {"h100": 9}}, ("account:acme",)),
        ("acme", {"pool_split": {("h100", "west"): 6}}, ("account:acme",)),
        ("acme", {"pool_split": {("h100", "east"): 6, ("l4", "east"): 0}}, ()),
        ("acme", {"fair_weight": Decimal(1)}, ("account:acme",)),
        ("all", {"generation": 1}, ()),
        ("all", {"amounts": {"l4": 5}}, ("pool:all",)),
        ("all", {"split": {("l4", "east"): 4}}, ("pool:all",)),
        ("all", {"split": {("l4", "east"): 3, ("l4", "west"): 0}}, ()),
        ("all", {"shares": {"globex": {"l4": 3}}}, ("account:globex",)),
        ("all", {"shares": {}}, ("account:globex",)),
        ("vision", {"generation": 9}, ()),
        ("vision", {"preference": ("h100",)}, ("budget:acme-vision",)),
        ("vision", {"spill": Spill.NEXT_FLAVOR_FIRST}, ("budget:acme-vision",)),
        ("vision", {"split": {}}, ("budget:acme-vision",)),
        ("vision", {"split": {("h100", "east"): (8, 2), ("l4", "east"): (0, 0)}}, ()),
        ("vision", {"stop_policy": StopPolicy.NONE}, ("budget:acme-vision",)),
        ("vision", {"checks_spend": False}, ("budget:acme-vision",)),
        ("vision", {"fair_weight": Decimal(1)}, ("budget:acme-vision",)),
        ("vision", {"lines": VISION.lines[:1]}, ("account:acme", "budget:acme-vision")),
        (
            "vision",
            {"account": "globex"},
            ("account:acme", "account:globex", "budget:acme-vision"),
        ),
    ],
)
def test_change_is_of_these_subjects(part, change, want):
    other = fleet(**{part: change})
    assert sorted(changed_subjects(FLEET, other)) == sorted(want)
    assert sorted(changed_subjects(other, FLEET)) == sorted(want)


def test_what_came_and_what_went_is_a_change():
    less = Promises((H100,), (ACME,), (ZOO,), (VISION,), (RACK,))
    gone = {"flavor:l4", "account:globex", "pool:all", "budget:globex-search", "topology:zone"}
    assert changed_subjects(FLEET, less) == changed_subjects(less, FLEET) == gone


# How a split is laid


@pytest.mark.parametrize(
    ("request_", "field", "want"),
    [
        pytest.param(
            ask(8, {"a": 4, "b": 7, "c": 0, "d": -3}),
            "lines.0.committed",
            Split(
                {},
                8,
                Fault(
                    "lines.0.committed",
                    "split_infeasible",
                    "The workers have no room for 8 of the 8 h100. Committed GPUs are given in "
                    "whole nodes of 8 GPUs (a has 4, b has 7 free). Ask for fewer, or add "
                    "capacity.",
                ),
            ),
            id="no whole node",
        ),
        pytest.param(
            ask(40, {"a": 16, "b": 9}, lendable=30),
            "",
            Split(
                {"a": (16, 16), "b": (8, 8)},
                16,
                Fault(
                    "",
                    "split_infeasible",
                    "The workers have no room for 16 of the 40 h100. Committed GPUs are given in "
                    "whole nodes of 8 GPUs (a has 16, b has 9 free). Ask for fewer, or add "
                    "capacity.",
                ),
            ),
            id="a part of it",
        ),
        pytest.param(
            ask(3, {"a": 0}, node=2),
            "",
            Split(
                {},
                3,
                Fault(
                    "",
                    "split_infeasible",
                    "The workers have no room for 3 of the 3 h100. Committed GPUs are given in "
                    "whole nodes of 2 GPUs (no worker has any free). Ask for fewer, or add "
                    "capacity.",
                ),
            ),
            id="nothing is free",
        ),
    ],
)
def test_shortage_is_told_in_full(request_, field, want):
    assert split_line(request_, field=field) == want


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(ask(4, {"a": 8, "b": 8}), {"a": 4}, id="of equals the first"),
        pytest.param(ask(4, {"b": 9, "a": 8}), {"a": 4}, id="the least room is left"),
        pytest.param(ask(12, {"a": 16, "b": 16}, {"b": 8}), {"b": 12}, id="moves least"),
        pytest.param(ask(12, {"b": 8, "a": 12}), {"a": 12}, id="the fewest workers"),
        pytest.param(ask(12, {"a": 8, "b": 3}), {"a": 8}, id="places most, the rest nowhere"),
        pytest.param(ask(20, {"a": 8, "b": 20}, {"a": 16}), {"a": 16, "b": 4}, id="keeps more"),
        pytest.param(ask(8, {"a": 8}, {"a": 0, "b": 8}), {"b": 8}, id="stays where it alone is"),
        pytest.param(ask(16, {"a": 8, "b": 8}, {"c": 8}), {"c": 8, "a": 8}, id="grows away"),
    ],
)
def test_best_layout_is_taken(request_, want):
    assert {worker: part for worker, (part, _) in split_line(request_).parts.items()} == want


@pytest.mark.parametrize(
    ("nodes", "rooms", "held", "rest", "want"),
    [
        pytest.param(2, {"a": 32, "b": 16}, {}, None, {"b": 16}, id="the tightest that takes all"),
        pytest.param(2, {"b": 16, "a": 16}, {}, None, {"b": 16}, id="of equals the first"),
        pytest.param(3, {"a": 16, "b": 16}, {}, None, {"a": 16, "b": 8}, id="the first in full"),
        pytest.param(5, {"a": 16, "b": 24}, {}, None, {"b": 24, "a": 16}, id="largest first"),
        pytest.param(4, {"a": 16, "b": 24}, {}, None, {"b": 24, "a": 8}, id="and what is left"),
        pytest.param(9, {"a": 16, "b": 7}, {}, None, {"a": 16}, id="no more than there is"),
        pytest.param(3, {"b": 16, "a": 24}, {"a": 8}, None, {"a": 24}, id="beside what stands"),
        pytest.param(
            3, {"a": 16, "b": 24, "c": 24}, {"a": 8}, None, {"a": 8, "b": 16}, id="elsewhere whole"
        ),
        pytest.param(1, {"a": 32, "b": 8}, {"a": 16, "b": 8}, None, {"a": 8}, id="shrinks both"),
        pytest.param(2, {"a": 32, "b": 8}, {"a": 16, "b": 8}, None, {"a": 16}, id="the smallest"),
        pytest.param(
            1, {"a": 8, "b": 8}, {"a": 8, "b": 8}, None, {"a": 8}, id="of equals the last"
        ),
        pytest.param(
            1, {"a": 16, "b": 16}, {"a": 8, "b": 8}, ("b", 4), {"b": 12}, id="shrinks to the rest"
        ),
        pytest.param(1, {"a": 8, "b": 16}, {}, ("b", 4), {"b": 12}, id="grows beside the rest"),
        pytest.param(1, {"a": 8, "b": 11}, {}, ("b", 4), {"a": 8, "b": 4}, id="no room beside it"),
        pytest.param(0, {"a": 8}, {"a": 8}, ("a", 4), {"a": 4}, id="the rest alone"),
        pytest.param(2, {"a": 20}, {"a": 15}, ("a", 4), {"a": 20}, id="part of a node stands"),
        pytest.param(0, {"a": 8}, {"a": 8}, None, {}, id="nothing"),
    ],
)
def test_nodes_are_laid_concentrated(nodes, rooms, held, rest, want):
    given = {} if rest is None else {"holder": rest[0], "remainder": rest[1]}
    assert _lay_nodes(nodes, rooms, held, 8, **given) == want


@pytest.mark.parametrize(
    ("lendable", "committed", "previous", "want"),
    [
        pytest.param(18, {"b": 8, "a": 16}, {}, {"a": 16, "b": 2}, id="largest first"),
        pytest.param(8, {"b": 8, "a": 8}, {}, {"a": 8, "b": 0}, id="of equals by name"),
        pytest.param(
            10, {"a": 16, "b": 8}, {"a": (16, 4), "b": (8, 2)}, {"a": 8, "b": 2}, id="it stays"
        ),
        pytest.param(
            3, {"a": 16, "b": 8}, {"a": (16, 4), "b": (8, 2)}, {"a": 3, "b": 0}, id="smallest goes"
        ),
        pytest.param(
            6, {"a": 8, "b": 8}, {"a": (8, 4), "b": (8, 4)}, {"a": 4, "b": 2}, id="the last goes"
        ),
        pytest.param(
            3,
            {"a": 16, "b": 8, "c": 8},
            {"a": (16, 0), "b": (8, 4), "c": (8, 2)},
            {"a": 0, "b": 3, "c": 0},
            id="no more goes than has to",
        ),
        pytest.param(8, {"a": 8}, {"a": (16, 16), "c": (8, 8)}, {"a": 8}, id="within its part"),
        pytest.param(0, {"a": 8}, {"a": (8, 8)}, {"a": 0}, id="nothing is lent"),
        pytest.param(20, {"a": 16, "b": 8}, {"b": (8, 8)}, {"a": 12, "b": 8}, id="and more"),
    ],
)
def test_lendable_stays_and_follows_the_largest_part(lendable, committed, previous, want):
    assert _lend(lendable, committed, previous) == want


# Windows, and what is in force


def dated(holder: str, gpus: int, start: float, end: float | None = None, order: int = 0):
    until = None if end is None else hours(end)
    return DatedGpus(holder, "h100", gpus, hours(start), until, order)


@pytest.mark.parametrize(
    ("until", "at", "want"),
    [(3, 0.9, False), (3, 1, True), (3, 2.9, True), (3, 3, False), (None, 99, True)],
)
def test_window_holds_from_its_start_to_before_its_end(until, at, want):
    end: datetime | None = None if until is None else hours(until)
    assert window_holds(valid_from=hours(1), valid_until=end, instant=hours(at)) is want


def test_edges_are_of_capacities_pools_and_revisions_of_all_timelines():
    one = FleetTimeline(
        {}, capacities=(dated("east", 1, 0, 4),), pool_amounts=(dated("own", 1, 3, 9),)
    )
    span = RevisionSpan("a-x", "a", 1, hours(2), None, ())
    two = FleetTimeline({}, revisions=(span, replace(span, valid_from=hours(3))))
    given = {"start": hours(0), "end": hours(9)}
    assert edges(one, two, **given) == tuple(hours(at) for at in (0, 2, 3, 4))
    assert edges(one, start=hours(3), end=None) == tuple(hours(at) for at in (3, 4, 9))


@pytest.mark.parametrize("is_turned", [False, True])
def test_newest_amount_is_in_force_then_the_higher_order(is_turned):
    rows = [dated("east", 1, 0), dated("east", 2, 2, 5, 1), dated("east", 3, 2, 4, 2)]
    rows += [dated("west", 9, 3, 4)]
    given = rows[::-1] if is_turned else rows
    east, west = ("east", "h100"), ("west", "h100")
    assert [amounts_at(given, hours(at)) for at in (-1, 1, 2, 3, 4, 5)] == [
        {},
        {east: 1},
        {east: 3},
        {east: 3, west: 9},
        {east: 2},
        {east: 1},
    ]


def test_stated_capacity_wins_while_it_lasts():
    measured = {("east", "h100"): 7, ("west", "h100"): 8}
    flavors = {"h100": FlavorTerms("h100")}
    timeline = FleetTimeline(flavors, (dated("east", 0, 1, 2),), measured)
    assert [capacity_at(timeline, hours(at))["east", "h100"] for at in (0, 1, 2)] == [7, 0, 7]
    assert capacity_at(timeline, hours(1))["west", "h100"] == 8


@pytest.mark.parametrize("is_turned", [False, True])
def test_newest_revision_is_in_force_then_the_higher_number(is_turned):
    spans = [
        RevisionSpan("a-x", "a", number, hours(start), None, ())
        for number, start in ((5, 0), (1, 2), (2, 2))
    ]
    other = RevisionSpan("a-y", "a", 1, hours(0), hours(1), ())
    given = [*spans, other][::-1] if is_turned else [*spans, other]
    found = [in_force_at(given, hours(at)) for at in (-1, 0, 1, 2)]
    assert found == [
        {},
        {"a-x": spans[0], "a-y": other},
        {"a-x": spans[0]},
        {"a-x": spans[2]},
    ]


NO, HOLD, DRAIN = StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN


@pytest.mark.parametrize(
    ("asked", "want"),
    [((), NO), ((NO,), NO), ((NO, HOLD), HOLD), ((HOLD, DRAIN, NO), DRAIN), ((DRAIN, HOLD), DRAIN)],
)
def test_strongest_stop_that_is_asked_for_holds(asked, want):
    assert strongest_stop(*asked) is want


def test_parts_on_a_cluster_are_nothing_where_nothing_stands():
    assert [ACME.pool_on("h100", name) for name in ("", "east", "west")] == [8, 6, 0]
    assert [ACME.pool_on("l4", name) for name in ("", "east")] == [0, 0]
    assert [VISION.part_on("h100", name) for name in ("east", "west")] == [(8, 2), (0, 0)]
    places = [ClusterPlace("a", True), ClusterPlace("b", False, is_single=True)]
    assert [place.takes_jobs for place in (*places, ClusterPlace("c", False))] == [
        True,
        True,
        False,
    ]
