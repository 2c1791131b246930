"""The search for flavors, held whole: choices, usage, what was looked at and why it did not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.assignment.flavor_assigner import AssignmentRequest, FlavorAssigner
from clusters.kueue.assignment.outcome import (
    Assignment,
    FlavorAttempt,
    FlavorChoice,
    FlavorMode,
    Obstacle,
    PodSetAssignment,
)
from clusters.kueue.configuration import Configuration, FairStrategy, Gates
from clusters.kueue.quota.resource_node import Quota
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    ClusterQueueSpec,
    CohortSpec,
    FlavorSpec,
    Fungibility,
    PreemptionPolicy,
    PreemptionRules,
    ResourceGroup,
)
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.workload.matching import Expression, NodeRules, NodeTerm, Taint, Toleration
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import NO_REQUEST, TopologyRequest
from clusters.kueue.workload.workloads import PodSet, PodSetHold, PodShape, Reservation, Workload

GPU, CPU = "gpu", "cpu"
START = datetime(2026, 1, 1, tzinfo=UTC)
NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = FlavorMode
NONE, _, WAITING, EXCEEDS, NO_MATCH = Obstacle


@dataclass
class Oracle:
    """Answers as it is told, and remembers what it was asked for."""

    answers: Mapping[FlavorResource, tuple[FlavorMode, int]] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    def try_preemption(
        self, workload: Workload, *, queue: ClusterQueueState, key: FlavorResource, amount: int
    ) -> tuple[FlavorMode, int]:
        assert (workload.name, queue.spec.name) == ("w", "q")
        self.asked.append((*key, amount))
        return self.answers.get(key, (NO_CANDIDATES, 0))


def pod_set(
    name: str = "main",
    count: int = 1,
    *,
    rules: NodeRules | None = None,
    request: TopologyRequest = NO_REQUEST,
    **requests: int,
) -> PodSet:
    of_pod = PodRequests(requests, of_pod=requests)
    return PodSet(name, count, None, PodShape("", "", of_pod, rules or NodeRules(), request))


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
        pod_sets=pod_sets,
        shape_hash="",
        **more,
    )


def key(flavor: str, resource: str = GPU) -> FlavorResource:
    return FlavorResource(flavor, resource)


@dataclass
class Case:
    """A ClusterQueue q, in a Cohort that lends where ``lent`` says so, and who answers."""

    nominal: Mapping[FlavorResource, int]
    used: Mapping[FlavorResource, int] = field(default_factory=dict)
    lent: Mapping[FlavorResource, int] = field(default_factory=dict)
    groups: Sequence[ResourceGroup] = (ResourceGroup((GPU,), ("f0", "f1")),)
    fungibility: Fungibility = field(default_factory=Fungibility)
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
    flavors: Sequence[FlavorSpec] = (FlavorSpec("f0"), FlavorSpec("f1"))
    answers: Mapping[FlavorResource, tuple[FlavorMode, int]] = field(default_factory=dict)
    configuration: Configuration = field(default_factory=Configuration)

    def assign(self, owner: Workload, **more: Any) -> tuple[Assignment, list[tuple[str, str, int]]]:
        snapshot = Snapshot()
        spec = ClusterQueueSpec(
            "q",
            "pool" if self.lent else "",
            tuple(self.groups),
            {x: Quota(n) for x, n in self.nominal.items()},
            fungibility=self.fungibility,
            preemption=self.preemption,
        )
        snapshot.set_queue(spec)
        snapshot.set_active("q", is_active=True)
        if self.lent:
            snapshot.set_cohort(CohortSpec("pool", "", {x: Quota(n) for x, n in self.lent.items()}))
        snapshot.refresh()
        snapshot.flavors.update({item.name: item for item in self.flavors})
        queue = snapshot.queues["q"]
        queue.node.add_all(self.used)
        oracle = Oracle(self.answers)
        finder = FlavorAssigner(snapshot, configuration=self.configuration, oracle=oracle)
        return finder.assign(AssignmentRequest(owner, queue, **more)), oracle.asked


def item(
    name: str = "main",
    count: int = 1,
    *,
    requests: Mapping[str, int] | None = None,
    choices: Mapping[str, FlavorChoice] | None = None,
    **more: Any,
) -> PodSetAssignment:
    return PodSetAssignment(name, count, requests or {}, choices=dict(choices or {}), **more)


def short_of(more: int, flavor: str, resource: str = GPU) -> str:
    return f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"


def over(amount: int, most: int, flavor: str, *, before: int = 0, resource: str = GPU) -> str:
    return (
        f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets "
        f"requests ({before}) + current podset request ({amount}) > maximum capacity ({most})"
    )


TWO = {key("f0"): 4, key("f1"): 8}


def test_the_first_flavor_that_fits():
    got, asked = Case(TWO).assign(workload(pod_set(count=2, gpu=2)))
    assert got == Assignment(
        [item(count=2, requests={GPU: 4}, choices={GPU: FlavorChoice("f0", FIT, 0)})],
        usage={key("f0"): 4},
        last_tried={("main", GPU): 0},
        attempts=[FlavorAttempt("main", "f0", FIT, {}, ())],
    )
    assert asked == []


def test_a_flavor_that_has_to_preempt_is_left_for_one_that_fits():
    case = Case(TWO, used={key("f0"): 3}, answers={key("f0"): (PREEMPT, 0)})
    got, asked = case.assign(workload(pod_set(gpu=2)))
    assert got == Assignment(
        [item(requests={GPU: 2}, choices={GPU: FlavorChoice("f1", FIT, 0)})],
        usage={key("f1"): 2},
        last_tried={("main", GPU): -1},
        attempts=[
            FlavorAttempt("main", "f0", PREEMPT, {GPU: 1}, (short_of(1, "f0"),)),
            FlavorAttempt("main", "f1", FIT, {}, ()),
        ],
    )
    assert asked == [("f0", GPU, 2)]


def test_the_better_of_two_that_preempt():
    used = {key("f0"): 3, key("f1"): 8}
    answers = {key("f0"): (PREEMPT, 0), key("f1"): (RECLAIM, 0)}
    got, asked = Case(TWO, used=used, answers=answers).assign(workload(pod_set(gpu=2)))
    reasons = [short_of(1, "f0"), short_of(2, "f1")]
    assert got == Assignment(
        [item(requests={GPU: 2}, choices={GPU: FlavorChoice("f1", RECLAIM, 0)}, reasons=reasons)],
        usage={key("f1"): 2},
        last_tried={("main", GPU): -1},
        attempts=[
            FlavorAttempt("main", "f0", PREEMPT, {GPU: 1}, (reasons[0],)),
            FlavorAttempt("main", "f1", RECLAIM, {GPU: 2}, (reasons[1],)),
        ],
    )
    assert asked == [("f0", GPU, 2), ("f1", GPU, 2)]


def test_nothing_fits():
    case = Case(TWO, flavors=(FlavorSpec("f1"),))
    got, asked = case.assign(workload(pod_set(gpu=9), pod_set("next", gpu=1)))
    reasons = ["flavor f0 not found", over(9, 8, "f1")]
    assert got == Assignment(
        [item(requests={GPU: 9}, reasons=reasons, has_failed=True)],
        obstacle=EXCEEDS,
        attempts=[
            FlavorAttempt("main", "f0", NO_FIT, {}, (reasons[0],)),
            FlavorAttempt("main", "f1", NO_FIT, {GPU: 1}, (reasons[1],)),
        ],
    )
    assert asked == []


SPOT = Taint("spot", "true", "NoSchedule")
IN_X = NodeTerm((Expression("zone", "In", ("x",)),))


@pytest.mark.parametrize(
    ("flavor", "rules", "want"),
    [
        pytest.param(
            FlavorSpec("f0", taints=(SPOT,)),
            NodeRules(),
            "untolerated taint {spot true NoSchedule <nil>} in flavor f0",
            id="a taint",
        ),
        pytest.param(
            FlavorSpec("f0", taints=(SPOT,), tolerations=(Toleration("spot", "Exists"),)),
            NodeRules(),
            "",
            id="a taint that the flavor tolerates",
        ),
        pytest.param(
            FlavorSpec("f0", taints=(SPOT,)),
            NodeRules(tolerations=(Toleration("spot", "Exists"),)),
            "",
            id="a taint that the pods tolerate",
        ),
        pytest.param(
            FlavorSpec("f0", {"zone": "y"}),
            NodeRules(affinity_terms=(IN_X,)),
            "flavor f0 doesn't match node affinity",
            id="an affinity",
        ),
        pytest.param(
            FlavorSpec("f0", {"zone": "x"}), NodeRules(affinity_terms=(IN_X,)), "", id="its labels"
        ),
        pytest.param(
            FlavorSpec("f0", topology="topo"),
            NodeRules(),
            'Flavor "f0" supports only TopologyAwareScheduling',
            id="a topology",
        ),
    ],
)
def test_why_a_flavor_is_refused(flavor, rules, want):
    groups = (ResourceGroup((GPU,), ("f0",)),)
    case = Case({key("f0"): 4}, groups=groups, flavors=(flavor,))
    owner = workload(pod_set(gpu=1, rules=rules))
    for _ in range(2):
        got, _ = case.assign(owner)
        assert got.pod_sets[0].reasons == ([want] if want else [])
        assert got.obstacle is (NO_MATCH if want else NONE)
        assert got.last_tried == ({} if want else {("main", GPU): -1})


def test_a_flavor_that_changed_is_looked_at_again():
    snapshot = Snapshot()
    groups = (ResourceGroup((GPU,), ("f0",)),)
    snapshot.set_queue(ClusterQueueSpec("q", groups=groups, quotas={key("f0"): Quota(4)}))
    snapshot.refresh()
    finder = FlavorAssigner(snapshot, configuration=Configuration(), oracle=Oracle())
    request = AssignmentRequest(workload(pod_set(gpu=1)), snapshot.queues["q"])
    found = []
    for flavor in (FlavorSpec("f0", taints=(SPOT,)), FlavorSpec("f0")):
        snapshot.flavors["f0"] = flavor
        found += [len(finder.assign(request).pod_sets[0].reasons) for _ in range(2)]
    del snapshot.flavors["f0"]
    found.append(len(finder.assign(request).pod_sets[0].reasons))
    assert found == [1, 1, 0, 0, 1]


def test_pod_sets_add_up():
    got, asked = Case(TWO, answers={key("f0"): (PREEMPT, 0)}).assign(
        workload(pod_set("one", 3, gpu=1), pod_set("two", gpu=2), pod_set("three", gpu=8))
    )
    fits_f0, fits_f1 = FlavorChoice("f0", FIT, 0), FlavorChoice("f1", FIT, 0)
    reasons = [over(8, 4, "f0", before=3), over(8, 8, "f1", before=2)]
    assert got == Assignment(
        [
            item("one", 3, requests={GPU: 3}, choices={GPU: fits_f0}),
            item("two", requests={GPU: 2}, choices={GPU: fits_f1}),
            item("three", requests={GPU: 8}, reasons=reasons, has_failed=True),
        ],
        usage={key("f0"): 3, key("f1"): 2},
        last_tried={("one", GPU): 0, ("two", GPU): -1},
        obstacle=EXCEEDS,
        attempts=[
            FlavorAttempt("one", "f0", FIT, {}, ()),
            FlavorAttempt("two", "f0", NO_FIT, {GPU: 1}, (over(2, 4, "f0", before=3),)),
            FlavorAttempt("two", "f1", FIT, {}, ()),
            FlavorAttempt("three", "f0", NO_FIT, {GPU: 7}, (reasons[0],)),
            FlavorAttempt("three", "f1", NO_FIT, {GPU: 2}, (reasons[1],)),
        ],
    )
    assert asked == []


BOTH = (ResourceGroup((GPU, CPU), ("f0", "f1")),)
OF_BOTH = {key("f0"): 4, key("f0", CPU): 2000, key("f1"): 4, key("f1", CPU): 4000}


def test_a_flavor_is_as_good_as_its_worst_resource():
    """Resources in the order of their hashes: GPUs go before CPUs."""
    case = Case(
        OF_BOTH,
        groups=BOTH,
        used={key("f0", CPU): 1000, key("f1"): 3, key("f1", CPU): 1000},
        answers={key("f0", CPU): (PREEMPT, 0), key("f1"): (RECLAIM, 0)},
    )
    got, asked = case.assign(workload(pod_set(gpu=2, cpu=1500)))
    reasons = [short_of(500, "f0", CPU).replace("500", "500m"), short_of(1, "f1")]
    choices = {GPU: FlavorChoice("f1", RECLAIM, 0), CPU: FlavorChoice("f1", FIT, 0)}
    assert got == Assignment(
        [item(requests={GPU: 2, CPU: 1500}, choices=choices, reasons=reasons)],
        usage={key("f1"): 2, key("f1", CPU): 1500},
        last_tried={("main", GPU): -1, ("main", CPU): -1},
        attempts=[
            FlavorAttempt("main", "f0", PREEMPT, {CPU: 500}, (reasons[0],)),
            FlavorAttempt("main", "f1", RECLAIM, {GPU: 1}, (reasons[1],)),
        ],
    )
    assert asked == [("f0", CPU, 1500), ("f1", GPU, 2)]


def test_every_resource_of_a_flavor_is_named():
    groups = (ResourceGroup((GPU, CPU), ("f0",)),)
    case = Case({key("f0"): 4, key("f0", CPU): 2000}, groups=groups, used={key("f0", CPU): 1000})
    got, asked = case.assign(workload(pod_set(gpu=5, cpu=2000)))
    reasons = [over(5, 4, "f0"), short_of(1, "f0", CPU)]
    assert set(got.pod_sets[0].reasons) == set(reasons)
    assert got.pod_sets[0].choices == {}
    assert (got.obstacle, got.usage) == (EXCEEDS, {})
    [attempt] = got.attempts
    assert (attempt.mode, attempt.missing) == (NO_FIT, {GPU: 1, CPU: 1000})
    assert asked == [("f0", CPU, 2000)]


@pytest.mark.parametrize(
    ("amount", "ignores", "want", "obstacle"),
    [
        pytest.param(
            1000, False, ["resource cpu unavailable in ClusterQueue"], NO_MATCH, id="some"
        ),
        pytest.param(0, False, [], NONE, id="none of it"),
        pytest.param(1000, True, [], NONE, id="ignored"),
    ],
)
def test_a_resource_that_no_group_covers(amount, ignores, want, obstacle):
    case = Case(TWO, configuration=Configuration(ignores_undeclared=ignores))
    got, _ = case.assign(workload(pod_set(gpu=1, cpu=amount)))
    [found] = got.pod_sets
    assert (found.reasons, found.has_failed, got.obstacle) == (want, bool(want), obstacle)
    assert found.choices == ({} if want else {GPU: FlavorChoice("f0", FIT, 0)})
    assert got.usage == ({} if want else {key("f0"): 1})


def test_resource_groups_are_searched_one_after_the_other():
    groups = (ResourceGroup((GPU,), ("f0",)), ResourceGroup((CPU,), ("f1",)))
    nominal = {key("f0"): 4, key("f1", CPU): 2000}
    got, _ = Case(nominal, groups=groups).assign(workload(pod_set(gpu=4, cpu=2000)))
    choices = {GPU: FlavorChoice("f0", FIT, 0), CPU: FlavorChoice("f1", FIT, 0)}
    assert got.pod_sets == [item(requests={GPU: 4, CPU: 2000}, choices=choices)]
    assert got.last_tried == {("main", GPU): -1, ("main", CPU): -1}
    got, _ = Case(nominal, groups=groups).assign(workload(pod_set(gpu=4, cpu=3000)))
    reasons = [over(3, 2, "f1", resource=CPU)]
    assert got.pod_sets[0].choices == {}
    assert got.pod_sets[0].reasons == reasons


@pytest.mark.parametrize(
    ("used", "answers", "fungibility", "gate", "want"),
    [
        pytest.param((3, 0), ((PREEMPT, 0),), {}, True, "f1 FIT", id="go on before preempting"),
        pytest.param(
            (3, 0),
            ((PREEMPT, 0),),
            {"tries_next_before_preempting": False},
            True,
            "f0 PREEMPT",
            id="or stay",
        ),
        pytest.param(
            (3, 0),
            ((NO_CANDIDATES, 0),),
            {"tries_next_before_preempting": False},
            True,
            "f1 FIT",
            id="no candidates: go on in any case",
        ),
        pytest.param(
            (3, 0),
            ((PREEMPT, 0),),
            {"tries_next_before_preempting": False},
            False,
            "f1 FIT",
            id="without the gate: until one fits",
        ),
        pytest.param((4, 8), (), {}, True, "f0 NO_CANDIDATES", id="the first of equals"),
        pytest.param(
            (4, 8),
            ((NO_CANDIDATES, 1), (NO_CANDIDATES, 0)),
            {},
            True,
            "f1 NO_CANDIDATES",
            id="the lower level",
        ),
        pytest.param(
            (4, 8),
            ((NO_CANDIDATES, 0), (PREEMPT, 1)),
            {},
            True,
            "f1 PREEMPT",
            id="candidates before the level",
        ),
        pytest.param(
            (4, 8),
            ((PREEMPT, 0), (RECLAIM, 1)),
            {},
            True,
            "f1 RECLAIM",
            id="reclaiming before the level",
        ),
        pytest.param(
            (4, 8),
            ((PREEMPT, 0), (RECLAIM, 1)),
            {"prefers_preemption": True},
            True,
            "f0 PREEMPT",
            id="preemption preferred: the level before reclaiming",
        ),
        pytest.param(
            (4, 8),
            ((NO_CANDIDATES, 0), (RECLAIM, 1)),
            {"prefers_preemption": True},
            True,
            "f1 RECLAIM",
            id="preemption preferred: candidates before the level",
        ),
        pytest.param(
            (4, 8),
            ((RECLAIM, 1),),
            {"tries_next_before_borrowing": True, "tries_next_before_preempting": False},
            True,
            "f0 RECLAIM",
            id="go on before borrowing, and come back",
        ),
        pytest.param(
            (4, 8),
            ((RECLAIM, 1), (RECLAIM, 0)),
            {"tries_next_before_borrowing": True, "tries_next_before_preempting": False},
            True,
            "f1 RECLAIM",
            id="go on before borrowing",
        ),
    ],
)
def test_when_the_next_flavor_is_tried(used, answers, fungibility, gate, want):
    case = Case(
        TWO,
        used={key("f0"): used[0], key("f1"): used[1]},
        answers=dict(zip((key("f0"), key("f1")), answers, strict=False)),
        fungibility=Fungibility(**fungibility),
        configuration=Configuration(gates=Gates(flavor_fungibility=gate)),
    )
    got, _ = case.assign(workload(pod_set(gpu=2)))
    [choice] = got.pod_sets[0].choices.values()
    assert f"{choice.flavor} {choice.mode.name}" == want


@pytest.mark.parametrize(
    ("fungibility", "want"),
    [
        pytest.param({}, ("f0", 1, 0), id="borrow at once"),
        pytest.param({"tries_next_before_borrowing": True}, ("f1", 0, -1), id="or go on"),
    ],
)
def test_borrowing_is_told_by_its_level(fungibility, want):
    case = Case(TWO, lent={key("f0"): 4}, fungibility=Fungibility(**fungibility))
    got, _ = case.assign(workload(pod_set(gpu=6)))
    [choice] = got.pod_sets[0].choices.values()
    assert (choice.flavor, choice.level, got.last_tried["main", GPU]) == want
    assert choice.mode is FIT
    assert got.level == want[1]


@pytest.mark.parametrize(
    ("preemption", "fair", "want"),
    [
        pytest.param(PreemptionRules(), False, [], id="nobody gives"),
        pytest.param(
            PreemptionRules(borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY),
            False,
            [("f0", GPU, 6)],
            id="who borrows may preempt",
        ),
        pytest.param(
            PreemptionRules(reclaim_within_cohort=PreemptionPolicy.ANY), False, [], id="no shares"
        ),
        pytest.param(
            PreemptionRules(reclaim_within_cohort=PreemptionPolicy.ANY),
            True,
            [("f0", GPU, 6)],
            id="under fair sharing who reclaims may",
        ),
        pytest.param(PreemptionRules(), True, [], id="under fair sharing too, nobody gives"),
    ],
)
def test_who_borrows_preempts_only_where_the_rules_say_so(preemption, fair, want):
    strategies = (FairStrategy.LESS_THAN_INITIAL_SHARE,) if fair else ()
    case = Case(
        {key("f0"): 4},
        used={key("f0"): 3},
        lent={key("f0"): 4},
        groups=(ResourceGroup((GPU,), ("f0",)),),
        preemption=preemption,
        configuration=Configuration(fair_strategies=strategies),
    )
    got, asked = case.assign(workload(pod_set(gpu=6)))
    assert asked == want
    assert got.pod_sets[0].has_failed is not bool(want)
    assert got.pod_sets[0].reasons == [short_of(1, "f0")]
    assert got.obstacle is (NONE if want else WAITING)


def test_a_search_goes_on_where_it_stopped():
    case = Case(TWO)
    got, _ = case.assign(workload(pod_set(gpu=1)), last_tried={("main", GPU): 0})
    assert got.nominated == {("main", GPU): "f1"}
    assert got.last_tried == {("main", GPU): -1}
    assert [each.flavor for each in got.attempts] == ["f1"]
    got, _ = case.assign(workload(pod_set(gpu=1)), last_tried={("other", GPU): 0})
    assert got.nominated == {("main", GPU): "f0"}
    # There is no flavor after the last one.
    got, _ = case.assign(workload(pod_set(gpu=1)), last_tried={("main", GPU): 1})
    assert (got.nominated, got.obstacle, got.attempts) == ({}, NO_MATCH, [])


def test_only_flavors_that_are_allowed():
    allowed = {("main", GPU): "f1", ("other", GPU): "f0"}
    got, _ = Case(TWO).assign(workload(pod_set(gpu=1)), allowed=allowed)
    said = "skipping flavor f0 as it is not found in the nomination mapping for resource gpu"
    assert got.attempts == [
        FlavorAttempt("main", "f0", NO_FIT, {}, (said,)),
        FlavorAttempt("main", "f1", FIT, {}, ()),
    ]
    assert got.nominated == {("main", GPU): "f1"}
    got, _ = Case(TWO).assign(workload(pod_set(gpu=1)), allowed={})
    assert (got.obstacle, len(got.pod_sets[0].reasons)) == (NO_MATCH, 2)


def test_fewer_pods():
    got, _ = Case(TWO).assign(workload(pod_set("a", 9, gpu=1), pod_set("b", 9)), counts=[3, 2])
    assert [(each.count, each.requests) for each in got.pod_sets] == [(3, {GPU: 3}), (2, {})]


def test_pods_that_are_done_need_nothing():
    owner = workload(pod_set(count=3, gpu=2), reclaimable={"main": 1})
    got, _ = Case(TWO).assign(owner)
    assert got.pod_sets[0].requests == {GPU: 4}


def test_pods_count_where_a_group_covers_them():
    groups = (ResourceGroup((GPU, "pods"), ("f0",)),)
    case = Case({key("f0"): 9, key("f0", "pods"): 3}, groups=groups)
    got, _ = case.assign(workload(pod_set(count=3, gpu=1)))
    assert got.usage == {key("f0"): 3, key("f0", "pods"): 3}
    got, _ = case.assign(workload(pod_set(count=4, gpu=1)))
    assert got.pod_sets[0].reasons == [over(4, 3, "f0", resource="pods")]


def test_a_group_of_pod_sets_has_one_flavor():
    together = TopologyRequest(group="g")
    owner = workload(
        pod_set("a", gpu=3, request=together),
        pod_set("b", gpu=1),
        pod_set("c", gpu=2, cpu=0, request=together),
    )
    got, _ = Case(TWO).assign(owner)
    assert [each.name for each in got.pod_sets] == ["a", "c", "b"]
    assert got.nominated == {("a", GPU): "f1", ("c", GPU): "f1", ("b", GPU): "f0"}
    assert got.last_tried == {("a", GPU): -1, ("c", GPU): -1, ("b", GPU): 0}
    assert got.attempts[0] == FlavorAttempt("a", "f0", NO_FIT, {GPU: 1}, (over(5, 4, "f0"),))
    too_much = workload(
        pod_set("a", gpu=7, request=together), pod_set("c", gpu=2, request=together)
    )
    got, _ = Case(TWO).assign(too_much)
    reasons = [over(9, 4, "f0"), over(9, 8, "f1")]
    assert got.pod_sets == [
        item("a", requests={GPU: 7}, reasons=reasons, has_failed=True),
        item("c", requests={GPU: 2}, reasons=reasons, has_failed=True),
    ]
    assert got.usage == {}


def test_a_second_pass_keeps_its_flavors():
    hold = PodSetHold("main", {GPU: "f1"}, {GPU: 6}, 3)
    reservation = Reservation("q", (hold,), START, is_admitted=True)
    owner = workload(pod_set(count=3, gpu=2), reservation=reservation)
    got, asked = Case({}).assign(owner)
    assert got == Assignment(
        [item(count=3, requests={GPU: 6}, choices={GPU: FlavorChoice("f1", FIT, 0)})],
        usage={key("f1"): 6},
    )
    assert asked == []


def test_a_slice_asks_for_what_is_new_in_the_flavor_that_it_has():
    hold = PodSetHold("main", {GPU: "f0"}, {GPU: 3}, 3)
    case = Case(TWO, used={key("f0"): 3})
    got, asked = case.assign(workload(pod_set(count=4, gpu=1)), replaced=(hold,))
    assert got == Assignment(
        [
            item(
                count=4,
                requests={GPU: 4},
                choices={GPU: FlavorChoice("f0", FIT, 0)},
                held=hold,
            )
        ],
        usage={key("f0"): 1},
        last_tried={("main", GPU): 0},
        attempts=[FlavorAttempt("main", "f0", FIT, {}, ())],
    )
    got, asked = case.assign(workload(pod_set(count=5, gpu=1)), replaced=(hold,))
    other = "could not assign f1 flavor since the original workload is assigned: f0"
    assert got.attempts == [
        FlavorAttempt("main", "f0", NO_CANDIDATES, {GPU: 1}, (short_of(1, "f0"),)),
        FlavorAttempt("main", "f1", NO_FIT, {}, (other,)),
    ]
    assert got.nominated == {("main", GPU): "f0"}
    assert got.usage == {key("f0"): 2}
    assert asked == [("f0", GPU, 2)]


def test_a_pod_set_that_the_older_slice_did_not_have_finds_no_flavor():
    hold = PodSetHold("main", {GPU: "f1"}, {GPU: 1}, 1)
    owner = workload(pod_set(gpu=1), pod_set("new", gpu=1))
    got, _ = Case(TWO).assign(owner, replaced=(hold,))
    reasons = [
        f"could not assign {flavor} flavor since the original workload is assigned: "
        for flavor in ("f0", "f1")
    ]
    assert got.pod_sets == [
        item(requests={GPU: 1}, choices={GPU: FlavorChoice("f1", FIT, 0)}, held=hold),
        item("new", requests={GPU: 1}, reasons=reasons, has_failed=True),
    ]
    assert got.obstacle is NO_MATCH
