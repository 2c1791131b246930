"""Topology in an assignment: who takes part, which flavors do, and what is placed where."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.kueue.assignment.outcome import (
    Assignment,
    AssignmentMode,
    FlavorChoice,
    FlavorMode,
    Obstacle,
    PodSetAssignment,
)
from clusters.kueue.assignment.topology import (
    Placed,
    TopologyAssigner,
    accept,
    held_assignment,
    unfollowed,
)
from clusters.kueue.configuration import Configuration, Gates
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.specifications import ClusterQueueSpec, FlavorSpec, ResourceGroup
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.topology.need import PodSetNeed
from clusters.kueue.topology.nodes import NodeSpec
from clusters.kueue.topology.places import FlavorNodes, Places
from clusters.kueue.topology.tree import PlacedUse
from clusters.kueue.workload.matching import NodeRules, Toleration
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import NO_REQUEST, SliceLayer, TopologyRequest
from clusters.kueue.workload.workloads import (
    PodAdditions,
    PodSet,
    PodSetHold,
    PodShape,
    Reservation,
    Workload,
)

GPU = "gpu"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
LEVELS = (RACK, HOST)
START = datetime(2026, 1, 1, tzinfo=UTC)
ASKS = TopologyRequest(required=RACK, is_explicit=True)


def queue_of(*flavors: str, **more: Any) -> ClusterQueueState:
    groups = (ResourceGroup((GPU,), flavors or ("f0",)),)
    return ClusterQueueState(ClusterQueueSpec("q", groups=groups), ResourceNode("q"), **more)


def pod_set(
    name: str = "main", count: int = 1, *, gpus: int = 1, request: TopologyRequest = ASKS
) -> PodSet:
    requests = PodRequests({GPU: gpus}, of_pod={GPU: gpus})
    return PodSet(name, count, None, PodShape("", "", requests, NodeRules(), request))


def workload(*pod_sets: PodSet, **more: Any) -> Workload:
    return Workload(
        key="ns/w",
        namespace="ns",
        name="w",
        uid="u",
        job_uid="",
        queue_name="q",
        priority=0,
        created_at=START,
        queued_at=START,
        pod_sets=pod_sets or (pod_set(),),
        shape_hash="",
        **more,
    )


def places_of(*, gates: Gates | None = None, **nodes: int) -> Places:
    """Nodes ``rack_host`` with their GPUs, all in f0 and in f1."""
    places = Places(gates or Gates())
    places.topologies["topo"] = LEVELS
    for name, gpus in nodes.items():
        labels = {RACK: name.partition("_")[0], HOST: name}
        spec = NodeSpec(name, labels, (), {GPU: gpus, "pods": 9}, is_usable=True)
        places.set_node(name, spec)
    shape = FlavorNodes("topo", {}, ())
    places.reshape({"f0": shape, "f1": shape}, ())
    return places


def assigner(places: Places, *, leaves: bool = False) -> TopologyAssigner:
    return TopologyAssigner(places, leaves_to_workers=leaves)


def item(
    name: str = "main",
    count: int = 1,
    *,
    flavors: Mapping[str, str] | None = None,
    mode: FlavorMode = FlavorMode.FIT,
    **more: Any,
) -> PodSetAssignment:
    choices = {x: FlavorChoice(f, mode, 0) for x, f in (flavors or {GPU: "f0"}).items()}
    return PodSetAssignment(name, count, {GPU: count}, choices=choices, **more)


def hosts(**counts: int) -> Placement:
    return Placement((HOST,), tuple(PlacedPods((name,), count) for name, count in counts.items()))


def reserved(*holds: PodSetHold) -> Reservation:
    return Reservation("q", holds, START, is_admitted=True)


# Who is looked at

REFUSED = (
    "pods{} are not placed by topology here, and pod set main {}: use a queue whose flavors have "
    "no topology, without a topology request{}"
)
JOBS = frozenset({"batch/v1, Kind=Job", "v1, Kind=Pod"})
GATE = (
    "the feature gate {} is on, which is not followed here for what is placed by topology, as pod "
    "set main is"
)


@pytest.mark.parametrize(
    ("of_workload", "of_queue", "configuration", "want"),
    [
        pytest.param({}, {}, {}, "", id="a scheduler alone"),
        pytest.param(
            {},
            {},
            {"placed_kinds": frozenset()},
            REFUSED.format("", "asks for it", ""),
            id="nobody",
        ),
        pytest.param({}, {"is_remote": True}, {"placed_kinds": frozenset()}, "", id="dispatched"),
        pytest.param(
            {},
            {},
            {"placed_kinds": frozenset(), "gates": Gates(topology_aware_scheduling=False)},
            "",
            id="without topologies",
        ),
        pytest.param({}, {}, {"placed_kinds": JOBS}, "", id="a kind that is not told"),
        pytest.param(
            {"owner": "batch/v1, Kind=Job"}, {}, {"placed_kinds": JOBS}, "", id="a kind of them"
        ),
        pytest.param(
            {"owner": "ray.io/v1, Kind=RayJob"},
            {},
            {"placed_kinds": JOBS},
            REFUSED.format(" of a RayJob", "asks for it", ", or a Job or a Pod"),
            id="another kind",
        ),
        pytest.param(
            {"pod_sets": (pod_set(request=NO_REQUEST),), "owner": "ray.io/v1, Kind=RayJob"},
            {"is_placed_only": True},
            {"placed_kinds": JOBS},
            REFUSED.format(" of a RayJob", "is in a queue where it has to", ", or a Job or a Pod"),
            id="another kind, implied",
        ),
        pytest.param(
            {"pod_sets": (pod_set(request=NO_REQUEST),)},
            {},
            {"placed_kinds": frozenset()},
            "",
            id="asks for nothing",
        ),
        pytest.param(
            {"pod_sets": (pod_set("other", request=NO_REQUEST), pod_set())},
            {},
            {"placed_kinds": frozenset()},
            REFUSED.format("", "asks for it", ""),
            id="the second pod set asks",
        ),
        pytest.param(
            {},
            {},
            {"gates": Gates(scheduler_library_integration=True)},
            GATE.format("SchedulerLibraryIntegration"),
            id="another scheduler's library",
        ),
        pytest.param(
            {"is_elastic": True},
            {},
            {"gates": Gates(elastic_jobs_via_workload_slices_with_tas=True)},
            GATE.format("ElasticJobsViaWorkloadSlicesWithTAS"),
            id="elastic",
        ),
        pytest.param(
            {},
            {},
            {"gates": Gates(elastic_jobs_via_workload_slices_with_tas=True)},
            "",
            id="not elastic",
        ),
        pytest.param({"is_elastic": True}, {}, {}, "", id="elastic, without the gate"),
    ],
)
def test_what_is_not_followed_is_refused(of_workload, of_queue, configuration, want):
    sets = of_workload.get("pod_sets", ())
    more = {key: value for key, value in of_workload.items() if key != "pod_sets"}
    found = unfollowed(
        workload(*sets, **more),
        queue=queue_of(**of_queue),
        configuration=Configuration(**configuration),
    )
    assert found == want


# Which flavors do

TAS = FlavorSpec("f0", topology="topo")
PLAIN = FlavorSpec("plain")
ONLY = 'Flavor "f0" supports only TopologyAwareScheduling'
NO_SUPPORT = 'Flavor "plain" does not support TopologyAwareScheduling'
NO_LEVEL = 'Flavor "f0" does not contain the requested level'


@pytest.mark.parametrize(
    ("request_", "flavor", "queue", "want"),
    [
        pytest.param(ASKS, TAS, {}, "", id="asks for it and gets it"),
        pytest.param(NO_REQUEST, TAS, {}, ONLY, id="does not ask"),
        pytest.param(NO_REQUEST, TAS, {"is_placed_only": True}, "", id="implied"),
        pytest.param(NO_REQUEST, PLAIN, {}, "", id="neither"),
        pytest.param(ASKS, PLAIN, {}, NO_SUPPORT, id="asks for it in vain"),
        pytest.param(
            ASKS,
            FlavorSpec("new", topology="topo"),
            {},
            'Flavor "new" information missing in TAS cache',
            id="a topology that is not known",
        ),
        pytest.param(
            TopologyRequest(preferred="zone", is_explicit=True), TAS, {}, NO_LEVEL, id="no level"
        ),
        pytest.param(
            TopologyRequest(required=RACK, layers=(SliceLayer("zone", 1),), is_explicit=True),
            TAS,
            {},
            NO_LEVEL,
            id="no level for slices",
        ),
        pytest.param(ASKS, PLAIN, {"is_remote": True}, NO_SUPPORT, id="dispatched"),
    ],
)
def test_which_flavors_do(request_, flavor, queue, want):
    found = assigner(places_of(a_1=1)).refusal(
        pod_set(request=request_), queue=queue_of(**queue), flavor=flavor, resources=(GPU,)
    )
    assert found == want


def test_quota_that_pods_do_not_take_from_nodes_needs_no_topology():
    places = assigner(places_of(a_1=1))
    asked = {"queue": queue_of(), "flavor": PLAIN}
    assert places.refusal(pod_set(), **asked, resources=("credits",)) == ""
    assert places.refusal(pod_set(), **asked, resources=("credits", GPU)) == NO_SUPPORT


def test_what_is_left_to_workers_or_switched_off_is_not_looked_at():
    asked = {"flavor": PLAIN, "resources": (GPU,)}
    left = assigner(places_of(a_1=1), leaves=True)
    assert left.refusal(pod_set(), queue=queue_of(is_remote=True), **asked) == ""
    assert left.refusal(pod_set(), queue=queue_of(), **asked) == NO_SUPPORT
    off = assigner(places_of(gates=Gates(topology_aware_scheduling=False), a_1=1))
    assert off.refusal(pod_set(), queue=queue_of(), **asked) == ""
    for finder, queue in ((left, queue_of(is_remote=True)), (off, queue_of())):
        assignment = Assignment([item()])
        finder.place(assignment, workload=workload(), queue=queue)
        assert assignment == Assignment([item()])


# What is placed


def placed(assignment: Assignment, owner: Workload, places: Places, **of_queue: Any) -> Assignment:
    flavors = of_queue.pop("flavors", ("f0", "f1"))
    assigner(places).place(assignment, workload=owner, queue=queue_of(*flavors, **of_queue))
    return assignment


def need(of: PodSet, count: int, **more: Any) -> PodSetNeed:
    values: dict[str, Any] = {
        "name": of.name,
        "shape": of.shape,
        "count": count,
        "requests": of.shape.requests.of_pod,
        "request": of.shape.topology,
        "flavor": "f0",
    }
    return PodSetNeed(**{**values, **more})


def test_what_fits_is_placed():
    owner = workload(pod_set(count=3))
    got = placed(Assignment([item(count=3)]), owner, places_of(a_1=2, a_2=2, b_1=2))
    assert got == Assignment(
        [item(count=3, placement=hosts(a_1=2, a_2=1))], needs=[need(owner.pod_sets[0], 3)]
    )
    assert got.outcome is AssignmentMode.FIT


def test_what_does_not_fit_beside_others_waits_for_them():
    owner = workload(pod_set(count=3))
    places = places_of(a_1=2, a_2=2, b_1=2)
    places.commit([PlacedUse("f0", "a_1", 1, {GPU: 2}, {GPU: 2, "pods": 1})])
    got = placed(Assignment([item(count=3)]), owner, places)
    said = (
        'topology "topo" allows to fit only 2 out of 3 pod(s). Total nodes: 3; excluded: '
        'resource "gpu": 1'
    )
    assert got == Assignment(
        [item(count=3, mode=FlavorMode.PREEMPT, reasons=[said])],
        needs=[need(owner.pod_sets[0], 3)],
        forced=AssignmentMode.PREEMPT,
    )


def test_what_fits_nowhere_is_hopeless():
    owner = workload(pod_set(count=5))
    got = placed(Assignment([item(count=5)]), owner, places_of(a_1=2, a_2=2, b_1=2))
    assert got == Assignment(
        [
            item(
                count=5,
                mode=FlavorMode.NO_FIT,
                reasons=['topology "topo" allows to fit only 4 out of 5 pod(s)'],
            )
        ],
        needs=[need(owner.pod_sets[0], 5)],
        forced=AssignmentMode.NO_FIT,
        obstacle=Obstacle.TOPOLOGY_PLACEMENT_FAILED,
    )


@pytest.mark.parametrize(
    ("count", "mode", "want"),
    [
        pytest.param(4, FlavorMode.PREEMPT, FlavorMode.PREEMPT, id="would fit an empty cluster"),
        pytest.param(4, FlavorMode.RECLAIM, FlavorMode.PREEMPT, id="as does what reclaims"),
        pytest.param(5, FlavorMode.PREEMPT, FlavorMode.NO_FIT, id="would not"),
    ],
)
def test_what_preempts_is_placed_as_if_nothing_ran(count, mode, want):
    owner = workload(pod_set(count=count), pod_set("plain", request=NO_REQUEST))
    places = places_of(a_1=2, a_2=2)
    places.commit([PlacedUse("f0", "a_1", 1, {GPU: 2}, {GPU: 2, "pods": 1})])
    plain = item("plain", flavors={GPU: "other"}, mode=FlavorMode.PREEMPT)
    got = placed(Assignment([item(count=count, mode=mode), plain]), owner, places)
    is_hopeless = want is FlavorMode.NO_FIT
    assert got == Assignment(
        [item(count=count, mode=want), plain],
        needs=[need(owner.pod_sets[0], count)],
        forced=AssignmentMode.NO_FIT if is_hopeless else AssignmentMode.PREEMPT,
        obstacle=Obstacle.TOPOLOGY_PLACEMENT_FAILED if is_hopeless else Obstacle.NONE,
    )


def test_what_has_no_quota_is_not_placed():
    before = Assignment([item(mode=FlavorMode.NO_FIT)])
    assert placed(before, workload(), places_of(a_1=1)).needs == []


def test_who_needs_domains():
    sets = (
        pod_set("asks", 2),
        pod_set("plain", request=NO_REQUEST),
        pod_set("none", 0),
        pod_set("held"),
        pod_set("broken", 2),
    )
    hold = PodSetHold("broken", {GPU: "f0"}, {GPU: 2}, 2, hosts(a_1=1, a_9=1))
    added = PodAdditions({"zone": "z"}, (Toleration("k"),))
    owner = workload(
        *sets, reservation=reserved(hold), unhealthy_nodes=("a_9",), additions={"asks": added}
    )
    items = [
        item("asks", 2),
        item("plain"),
        item("none", 0),
        item("held", placement=hosts(a_2=1)),
        item("broken", 2, placement=hosts(a_1=1, a_9=1)),
    ]
    got = placed(Assignment(items), owner, places_of(a_1=4, a_2=4))
    assert got.needs == [
        need(sets[0], 2, selector={"zone": "z"}, tolerations=(Toleration("k"),)),
        need(sets[4], 2),
    ]


def test_what_is_implied_needs_domains_too():
    owner = workload(pod_set(request=NO_REQUEST))
    got = placed(Assignment([item()]), owner, places_of(a_1=1), is_placed_only=True)
    assert got.needs == [need(owner.pod_sets[0], 1, is_implied=True)]
    assert got.pod_sets == [item(placement=hosts(a_1=1))]


@pytest.mark.parametrize(
    ("flavors", "of_queue", "want"),
    [
        pytest.param(
            {GPU: "f0", "cpu": "f1"}, {}, "more than one TAS flavor assigned: f0, f1", id="two"
        ),
        pytest.param({GPU: "other"}, {}, "no TAS flavor assigned", id="none"),
        pytest.param(
            {GPU: "other"},
            {"flavors": ("other",)},
            "workload requires Topology, but there is no TAS cache information",
            id="none in the queue",
        ),
        pytest.param({GPU: "f0", "cpu": "other"}, {}, "", id="one of two"),
    ],
)
def test_pods_have_one_flavor_with_a_topology(flavors, of_queue, want):
    got = placed(Assignment([item(flavors=flavors)]), workload(), places_of(a_1=1), **of_queue)
    assert got.pod_sets[0].error == want
    assert bool(got.needs) is not bool(want)
    assert (got.pod_sets[0].placement is None) is bool(want)


@pytest.mark.parametrize(
    ("of_workload", "of_queue", "want"),
    [
        pytest.param({}, {"is_remote": True}, "Pending", id="dispatched"),
        pytest.param({}, {"provisioned": frozenset({"f0"})}, "Pending", id="nodes come later"),
        pytest.param({}, {"provisioned": frozenset({"f1"})}, "", id="of another flavor"),
        pytest.param(
            {"reservation": reserved()}, {"provisioned": frozenset({"f0"})}, "", id="they came"
        ),
        pytest.param(
            {"reservation": reserved()}, {"is_remote": True}, "Pending", id="still dispatched"
        ),
    ],
)
def test_what_is_placed_later(of_workload, of_queue, want):
    got = placed(Assignment([item()]), workload(**of_workload), places_of(a_1=1), **of_queue)
    placement = None if want else hosts(a_1=1)
    assert got.pod_sets == [item(placement=placement, delayed=want)]


def test_domains_that_are_found_make_what_was_delayed_ready():
    assignment = Assignment(
        [item("a", delayed="Pending"), item("b", delayed="Pending"), item("c"), item("d")]
    )
    accept(assignment, Placed({"a": hosts(n=1), "b": None, "c": hosts(n=2)}))
    assert assignment.pod_sets == [
        item("a", delayed="Ready", placement=hosts(n=1)),
        item("b", delayed="Pending"),
        item("c", placement=hosts(n=2)),
        item("d"),
    ]


# The search for all pod sets


def test_pod_sets_share_what_there_is_one_after_the_other():
    one, two = pod_set("one", 2), pod_set("two", 2)
    places = assigner(places_of(a_1=3, b_1=2))
    got = places.search([need(one, 2), need(two, 2)], workload(one, two))
    assert got == Placed({"one": hosts(b_1=2), "two": hosts(a_1=2)})
    got = places.search([need(one, 2), need(two, 4)], workload(one, two))
    said = 'topology "topo" allows to fit only 3 out of 4 pod(s). Total nodes: 2; excluded: '
    assert got == Placed({"one": hosts(b_1=2), "two": None}, "two", f'{said}resource "gpu": 1')


@pytest.mark.parametrize(
    ("gates", "want"),
    [
        pytest.param({}, {"one": hosts(b_1=2), "two": hosts(a_1=2)}, id="over the same nodes"),
        pytest.param(
            {"tas_handle_overlapping_flavors": False},
            {"one": hosts(b_1=2), "two": hosts(b_1=2)},
            id="as if they had nodes of their own",
        ),
    ],
)
def test_flavors_go_in_order_of_their_names(gates, want):
    one, two = pod_set("one", 2), pod_set("two", 2)
    places = assigner(places_of(gates=Gates(**gates), a_1=3, b_1=2))
    got = places.search([need(two, 2, flavor="f1"), need(one, 2)], workload(one, two))
    assert got == Placed(want)
    assert list(got.found) == ["one", "two"]


def test_groups_are_placed_together_the_single_pod_leads():
    together = TopologyRequest(required=RACK, group="g", is_explicit=True)
    lead, work = pod_set("lead", 1, request=together), pod_set("work", 3, request=together)
    last = pod_set("last", 2)
    owner = workload(lead, work, last)
    places = assigner(places_of(a_1=3, b_1=4, c_1=2))
    want = {"lead": hosts(b_1=1), "work": hosts(b_1=3), "last": hosts(c_1=2)}
    for members in ([need(lead, 1), need(work, 3)], [need(work, 3), need(lead, 1)]):
        assert places.search([*members, need(last, 2)], owner) == Placed(want)
    # The name of the workers is told, and both have no domains.
    got = places.search([need(lead, 1), need(work, 9)], owner)
    assert (got.found, got.failed) == ({"work": None, "lead": None}, "work")
    assert got.reason == 'topology "topo" allows to fit only 4 out of 9 pod(s)'


def test_members_of_a_group_need_not_stand_beside_each_other():
    request = TopologyRequest(required=RACK, group="g", is_explicit=True)
    first, alone = pod_set("a", 1, request=request), pod_set("b", 3)
    last = pod_set("c", 2, request=request)
    owner, places = workload(first, alone, last), places_of(a_1=3, b_1=3, c_1=1)
    # As the search for flavors leaves them: a group's members first.
    assignment = Assignment([item("a", 1), item("c", 2), item("b", 3)])
    assigner(places).place(assignment, workload=owner, queue=queue_of())
    assert assignment.outcome is AssignmentMode.FIT
    assert {need.name: need.count for need in assignment.needs} == {"a": 1, "b": 3, "c": 2}
    assert {one.name: one.placement for one in assignment.pod_sets} == {
        "a": hosts(a_1=1),
        "c": hosts(a_1=2),
        "b": hosts(b_1=3),
    }


def test_the_first_of_two_equal_pod_sets_has_the_workers():
    together = TopologyRequest(required=RACK, group="g", is_explicit=True)
    one, two = pod_set("one", 1, request=together), pod_set("two", 1, gpus=2, request=together)
    places = assigner(places_of(a_1=1, a_2=2))
    got = places.search([need(one, 1), need(two, 1)], workload(one, two))
    assert got == Placed({"two": hosts(a_2=1), "one": hosts(a_1=1)})
    assert list(got.found) == ["two", "one"]


def test_a_search_as_if_nothing_ran():
    places = places_of(a_1=2)
    places.commit([PlacedUse("f0", "a_1", 1, {GPU: 2}, {GPU: 2, "pods": 1})])
    asked = ([need(pod_set(count=2), 2)], workload())
    assert assigner(places).search(*asked).failed == "main"
    assert assigner(places).search(*asked, is_empty=True) == Placed({"main": hosts(a_1=2)})


def test_a_failed_node_is_replaced_pod_set_by_pod_set():
    one, two, new = pod_set("one", 2), pod_set("two", 1), pod_set("new", 1)
    held = reserved(
        PodSetHold("one", {GPU: "f0"}, {GPU: 2}, 2, hosts(a_9=1, a_1=1)),
        PodSetHold("two", {GPU: "f0"}, {GPU: 1}, 1, hosts(a_9=1)),
    )
    owner = workload(one, two, new, reservation=held, unhealthy_nodes=("a_9", "a_8"))
    places = assigner(places_of(a_1=0, a_2=1, a_3=1))
    got = places.search([need(one, 2), need(new, 1), need(two, 1)], owner)
    assert got == Placed({"one": hosts(a_1=1, a_2=1), "two": hosts(a_3=1)})
    full = assigner(places_of(a_1=0, a_2=1))
    got = full.search([need(one, 2), need(two, 1), need(new, 1)], owner)
    assert (got.found, got.failed) == ({"one": hosts(a_1=1, a_2=1), "two": None}, "two")
    assert got.reason == (
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 2; excluded: '
        'resource "gpu": 2'
    )
    nothing = workload(one, unhealthy_nodes=("a_9",))
    assert places.search([need(one, 2)], nothing) == Placed()


@pytest.mark.parametrize(
    ("gate", "is_single", "want"),
    [
        pytest.param(True, True, hosts(a_9=1), id="a pod that stands alone stays"),
        pytest.param(True, False, hosts(a_1=1), id="another moves"),
        pytest.param(False, True, hosts(a_1=1), id="without the gate it moves"),
    ],
)
def test_a_single_pod_moves_nowhere(gate, is_single, want):
    one = pod_set()
    held = reserved(PodSetHold("main", {GPU: "f0"}, {GPU: 1}, 1, hosts(a_9=1)))
    owner = workload(one, reservation=held, unhealthy_nodes=("a_9",), is_single_pod=is_single)
    gates = Gates(skip_reassignment_for_pod_owned_workloads=gate)
    got = assigner(places_of(gates=gates, a_1=1)).search([need(one, 1)], owner)
    assert got == Placed({"main": want})


def test_the_first_that_found_nothing_is_named():
    found = Placed()
    found.fail([need(pod_set("a"), 1), need(pod_set("b"), 1)], "no room")
    found.fail([need(pod_set("c"), 1)], "no room either")
    assert found == Placed({"a": None, "b": None, "c": None}, "a", "no room")


# What an assignment takes


def test_what_is_taken_beyond_what_is_held():
    sets = (pod_set("more", 3, gpus=2), pod_set("same"), pod_set("plain"), pod_set("two"))
    held = reserved(
        PodSetHold("more", {GPU: "f0"}, {GPU: 2}, 1, hosts(a_1=1)),
        PodSetHold("same", {GPU: "f0"}, {GPU: 1}, 1, hosts(a_2=1)),
        PodSetHold("plain", {GPU: "other"}, {GPU: 1}, 1),
    )
    owner = workload(*sets, reservation=held)
    assignment = Assignment(
        [
            item("more", 3, placement=hosts(a_1=2, a_2=1)),
            item("same", placement=hosts(a_2=1)),
            item("plain"),
            item("two", flavors={GPU: "f0", "cpu": "f1"}, placement=hosts(a_1=1)),
        ]
    )
    finder = assigner(places_of(a_1=9, a_2=9))
    each = {GPU: 2}
    assert finder.uses(assignment, workload=owner) == (
        PlacedUse("f0", "a_1", 1, each, {GPU: 2, "pods": 1}),
        PlacedUse("f0", "a_2", 1, each, {GPU: 2, "pods": 1}),
    )
    assert finder.uses(assignment, workload=workload(*sets)) == (
        PlacedUse("f0", "a_1", 2, each, {GPU: 4, "pods": 2}),
        PlacedUse("f0", "a_2", 1, each, {GPU: 2, "pods": 1}),
        PlacedUse("f0", "a_2", 1, {GPU: 1}, {GPU: 1, "pods": 1}),
    )


def test_a_second_pass_begins_with_flavors_and_what_is_left():
    hold = PodSetHold("main", {GPU: "f0", "cpu": "f1"}, {GPU: 8, "cpu": 6}, 4, hosts(n=4), "Ready")
    owner = workload(pod_set(count=4), reclaimable={"main": 1, "other": 3})
    fits = FlavorMode.FIT
    assert held_assignment(hold, owner) == PodSetAssignment(
        name="main",
        count=3,
        requests={GPU: 6, "cpu": 3},
        choices={GPU: FlavorChoice("f0", fits, 0), "cpu": FlavorChoice("f1", fits, 0)},
        placement=hosts(n=4),
        delayed="Ready",
    )
    gone = held_assignment(hold, workload(pod_set(count=4), reclaimable={"main": 9}))
    assert (gone.count, gone.requests) == (0, {GPU: 0, "cpu": 0})
    one = PodSetHold("main", {GPU: "f0"}, {GPU: 3}, 1)
    assert held_assignment(one, workload(pod_set())).requests == {GPU: 3}
    none = PodSetHold("main", {GPU: "f0"}, {GPU: 3}, 0)
    assert held_assignment(none, owner).requests == {GPU: 0}
