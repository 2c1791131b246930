"""Recorded scenarios go through the engine whole; where one is left is told exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from clusters.kueue.cycle.replay import (
    ReplayDifference,
    ScenarioResult,
    is_same_usage,
    replay_line,
    replay_scenario,
    with_consumed,
)
from tests.kueue.builders import (
    GPU,
    cluster_queue,
    cohort,
    flavor,
    group,
    local_queue,
    pod_set,
    preemption,
    quota,
    workload,
)
from tests.kueue.test_topology import BLOCK, HOST, RACK, node, pod, topology

Step = dict[str, Any]


def lacking(gpus: int) -> str:
    return (
        f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} in flavor "
        f"f0, {gpus} more needed"
    )


def crowded(nodes: int) -> str:
    return (
        "couldn't assign flavors to pod set main: topology \"topo\" doesn't allow to fit any of 1 "
        f'pod(s). Total nodes: {nodes}; excluded: resource "{GPU}": {nodes}'
    )


def cycle(*admitted: tuple[str, str, int], **more: Any) -> dict[str, Any]:
    """What a cycle decided; an admission is a name, a queue and GPUs, of one pod."""
    return {"admitted": [admission(*one) for one in admitted], "preempted": [], **more}


def admission(
    name: str, queue: str, gpus: int, *, count: int = 1, on_node: str = ""
) -> dict[str, Any]:
    assigned: dict[str, Any] = {
        "name": "main",
        "flavors": {GPU: "f0"},
        "resourceUsage": {GPU: str(gpus)},
        "count": count,
    }
    if on_node:
        domain = {"universal": on_node}
        one = {"domainCount": 1, "valuesPerLevel": [domain], "podCounts": {"universal": 1}}
        assigned["topologyAssignment"] = {"levels": [HOST], "slices": [one]}
    found = {"clusterQueue": queue, "podSetAssignments": [assigned]}
    return {"workload": f"ns/{name}", "admission": found}


def out(name: str, reason: str) -> dict[str, Any]:
    return {"preempted": [{"workload": f"ns/{name}", "reason": reason}]}


def step(event: dict[str, Any], *cycles: dict[str, Any], **state: Any) -> Step:
    """An event and what the reference did then; ``state`` is that after its last cycle."""
    empty = {"queued": {}, "inadmissible": {}, "pendingMessages": {}}
    return {"event": event, "expect": {"cycles": list(cycles), **empty, **state}}


def parked(name: str, message: str, queue: str = "q") -> dict[str, Any]:
    return {"inadmissible": {queue: [f"ns/{name}"]}, "pendingMessages": {f"ns/{name}": message}}


def record(
    name: str, *steps: Step, queues: tuple[dict[str, Any], ...], family: str = "flat", **more: Any
) -> dict[str, Any]:
    names = [queue["metadata"]["name"] for queue in queues]
    return {
        "name": name,
        "family": family,
        "fairSharing": False,
        "namespaces": [{"metadata": {"name": "ns"}}],
        "resourceFlavors": [flavor("f0")],
        "clusterQueues": list(queues),
        "localQueues": [local_queue(queue, queue) for queue in names],
        "steps": list(steps),
        **more,
    }


FOUR = cluster_queue("q", group(f0=quota(4)))
BY_PRIORITY = cluster_queue("q", group(f0=quota(4)), preemption=preemption("LowerPriority"))
HIGH = workload("high", "q", gpus=4, priority=5, age=2)
LIFE = (
    step(
        {"arrive": [workload("w", "q", gpus=3), workload("v", "q", gpus=3, age=1)]},
        cycle(("w", "q", 3)),
        cycle(),
        **parked("v", lacking(2)),
    ),
    step({"tick": True}, **parked("v", lacking(2))),
    step({"finish": ["w"], "advanceSeconds": 30}, cycle(("v", "q", 3))),
    step({"finish": ["w"]}),
    step(
        {"given": [HIGH]},
        cycle(**out("v", "InClusterQueue")),
        cycle(("high", "q", 4)),
        cycle(),
        **parked("v", lacking(3)),
    ),
    # One that ended twice wakes its tree; one that nobody knows does nothing.
    step({"finish": ["w"]}, cycle(), **parked("v", lacking(3))),
    step({"finish": ["nobody"]}, **parked("v", lacking(3))),
    step({"finish": ["nobody", "high"]}, cycle(("v", "q", 3))),
)


def family_of(name: str, *, is_fair: bool, steps: tuple[Step, ...]) -> dict[str, Any]:
    """Two queues without quota borrow what a third one has."""
    queues = tuple(
        cluster_queue(
            queue, group(f0=quota(own)), in_cohort="c", preemption=preemption(reclaim="Any")
        )
        for queue, own in (("a", 0), ("b", 0), ("z", 6))
    )
    more = {"fairSharing": is_fair, "cohorts": [cohort("c")], "admissionChecks": None}
    return record(name, *steps, queues=queues, family="fair", **more)


BORROWED = step(
    {"arrive": [workload(f"a{at}", "a", gpus=2, age=at) for at in range(3)]},
    *(cycle((f"a{at}", "a", 2)) for at in range(3)),
)
LATE = {"arrive": [workload("b0", "b", gpus=2, age=9)]}
FAIR = (
    BORROWED,
    step(
        LATE,
        cycle(**out("a2", "InCohortFairSharing")),
        cycle(("b0", "b", 2)),
        cycle(),
        **parked("a2", lacking(2), "a"),
    ),
)
UNFAIR = (BORROWED, step(LATE, cycle(), **parked("b0", lacking(2), "b")))


def line(consumed: str, minute: str) -> dict[str, Any]:
    used = {GPU: consumed} if consumed else {}
    return {"consumed": used, "pending": {}, "lastUpdate": f"2026-01-01T00:{minute}Z"}


def lines(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {"ns/a": first, "ns/b": second}


def by_usage() -> dict[str, Any]:
    """Who used less goes first, though it came later; the ledger goes on every five minutes."""
    one, two = workload("one", "a", gpus=4), workload("two", "b", gpus=4, age=1)
    at_ten = lines(line("7042614484n", "11:02"), line("678663462n", "11:02"))
    at_end = lines(line("7231590781n", "12:03"), line("678663462n", "11:02"))
    steps = (
        step(
            {"arrive": [one, two]},
            cycle(("two", "q", 4)),
            cycle(),
            **parked("one", lacking(4)),
            usageBefore=lines(line("8", "00:00"), line("", "00:00")),
            usageAfter=lines(line("8", "00:00"), line("271207911n", "01:01")),
        ),
        step(
            {"tick": True, "advanceSeconds": 600},
            **parked("one", lacking(4)),
            usageBefore=at_ten,
            usageAfter=at_ten,
        ),
        step({"finish": ["two"]}, cycle(("one", "q", 4)), usageBefore=at_ten, usageAfter=at_end),
    )
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    return record(
        "usage",
        *steps,
        queues=(cluster_queue("q", group(f0=quota(4)), admissionScope=scope),),
        family="afs",
        localQueues=[local_queue("a", "q"), local_queue("b", "q")],
        configuration={
            "admissionFairSharing": {
                "usageHalfLifeTime": "1h0m0s",
                "usageSamplingInterval": "5m0s",
            }
        },
        consumed={"ns/a": {GPU: "8"}},
        featureGates={"AdmissionFairSharing": True},
    )


def asking(name: str, gpus: int, age: int = 0) -> dict[str, Any]:
    wanted = {**pod_set({GPU: gpus}), "topologyRequest": {"required": RACK}}
    return workload(name, "q", wanted, age=age)


def on_nodes() -> dict[str, Any]:
    same = node("m", "b1-r2", gpus=4)
    strange = node("x", "b1-r3", labels={"pool": "b"})
    waits = parked("u", crowded(2))
    steps = (
        step({"arrive": [asking("w", 8)]}, cycle(), **parked("w", crowded(1))),
        step(
            {"podsDelete": ["other/daemon"]}, cycle(admitted=[admission("w", "q", 8, on_node="n")])
        ),
        step({"nodesSet": [same]}),
        step(
            {"arrive": [asking("v", 4, 1)]}, cycle(admitted=[admission("v", "q", 4, on_node="m")])
        ),
        step({"podsSet": [pod("extra", gpus=4)], "arrive": [asking("u", 1, 3)]}, cycle(), **waits),
        step({"nodesSet": [same]}, cycle(), **waits),
        step({"nodesSet": [strange]}, **waits),
        step({"nodesDelete": ["m"]}, cycle(), **parked("u", crowded(1))),
    )
    return record(
        "nodes",
        *steps,
        queues=(cluster_queue("q", group(f0=quota(99))),),
        family="tas",
        resourceFlavors=[flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo")],
        topologies=[topology(BLOCK, RACK, HOST)],
        nodes=[node("n", "b1-r1")],
        pods=[pod("daemon", gpus=1)],
    )


def pods(name: str, count: int, age: int = 0, **annotations: str) -> dict[str, Any]:
    made = workload(name, "q", pod_set({GPU: 1}, count=count), age=age)
    made["metadata"]["annotations"] = {f"kueue.x-k8s.io/{k}": v for k, v in annotations.items()}
    return made


def slices(family: str) -> dict[str, Any]:
    elastic = {"elastic-job": "true"}
    later = pods("v", 4, 1, **elastic, **{"workload-slice-replacement-for": "ns/w"})
    takes_over = cycle(admitted=[admission("v", "q", 4, count=4)], replaced=["ns/w"])
    return record(
        f"slices {family}",
        step(
            {"arrive": [pods("w", 2, **elastic)]},
            cycle(admitted=[admission("w", "q", 2, count=2)]),
        ),
        step({"arrive": [later]}, takes_over),
        # The one before is over with that, and ending it again does no harm.
        step({"finish": ["w"]}),
        queues=(FOUR,),
        family=family,
        featureGates={"ElasticJobsViaWorkloadSlices": True},
    )


def fewer(**counts: int) -> dict[str, Any]:
    return {"scaleDown": [{"name": "none", "counts": {}}, {"name": "w", "counts": counts}]}


SCALED = (
    step(
        {"arrive": [pods("w", 4), pods("v", 2, 1)]},
        cycle(admitted=[admission("w", "q", 4, count=4)]),
        cycle(),
        **parked("v", lacking(2)),
    ),
    step(fewer(), **parked("v", lacking(2))),
    step(fewer(main=3), cycle(), **parked("v", lacking(1))),
    step(fewer(main=2), cycle(admitted=[admission("v", "q", 2, count=2)])),
    step(fewer(main=3)),
)
UPSTREAM = (
    step({"arrive": [workload("w", "q", gpus=3)]}, cycle(("w", "q", 3))),
    step(
        {"arrive": [HIGH]},
        cycle(**out("w", "InClusterQueue")),
        cycle(),
        queued={"q": ["ns/high"]},
        pendingMessages={
            "ns/high": f"{lacking(3)}. Pending the preemption of 1 workload(s)",
        },
    ),
)
FED_APART = {
    "resourceFlavors": None,
    "objects": [{"type": "kueue.v1beta2.ResourceFlavor", "object": {"metadata": {"name": "f0"}}}],
}

SCENARIOS = [
    record("life", *LIFE, queues=(BY_PRIORITY,)),
    record("life of objects", *LIFE, queues=(BY_PRIORITY,), **FED_APART),
    record("upstream", *UPSTREAM, queues=(BY_PRIORITY,), family="upstream"),
    family_of("fair", is_fair=True, steps=FAIR),
    family_of("not fair", is_fair=False, steps=UNFAIR),
    by_usage(),
    on_nodes(),
    slices("elastic"),
    slices("flat"),
    record("scaled", *SCALED, queues=(FOUR,)),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_scenario_that_was_followed_has_no_difference(scenario):
    want = ScenarioResult(scenario["name"], scenario["family"], ())
    assert replay_scenario(scenario) == want
    assert replay_line(json.dumps(scenario)) == want
    assert want.is_match


def left(change: Callable[[list[dict[str, Any]]], Any], scenario: dict[str, Any] = SCENARIOS[0]):
    """Where the engine left a record in which something else is expected."""
    changed = deepcopy(scenario)
    change([step["expect"] for step in changed["steps"]])
    found = replay_scenario(changed)
    assert not found.is_match
    return found.differences


ADMITTED_V = {"ns/v": admission("v", "q", 3)["admission"]}
WAITS = {"q": ["ns/v"]}
NEED = {"ns/v": lacking(2)}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            lambda steps: steps[2]["cycles"][0].update(admitted=[]),
            [ReplayDifference(2, 0, "admitted", {}, ADMITTED_V)],
            id="an admission too many",
        ),
        pytest.param(
            lambda steps: steps[4]["cycles"][0].update(out("w", "InCohortReclamation")),
            [
                ReplayDifference(
                    4,
                    0,
                    "preempted",
                    {"ns/w": "InCohortReclamation"},
                    {"ns/v": "InClusterQueue"},
                )
            ],
            id="another victim",
        ),
        pytest.param(
            lambda steps: steps[0]["cycles"][1].update(replaced=["ns/b", "ns/a"]),
            [ReplayDifference(0, 1, "replaced", ["ns/a", "ns/b"], [])],
            id="a slice that did not go",
        ),
        pytest.param(
            lambda steps: steps[1]["cycles"].append(cycle()),
            [ReplayDifference(1, None, "cycles", 1, 0)],
            id="a cycle too few",
        ),
        pytest.param(
            lambda steps: steps[0]["cycles"].pop(),
            [ReplayDifference(0, None, "cycles", 1, 2)],
            id="a cycle too many",
        ),
        pytest.param(
            lambda steps: steps[1].update(queued=WAITS, inadmissible={}, pendingMessages={}),
            [
                ReplayDifference(1, None, "queued", WAITS, {}),
                ReplayDifference(1, None, "inadmissible", {}, WAITS),
                ReplayDifference(1, None, "pendingMessages", {}, NEED),
            ],
            id="everything about what waits",
        ),
    ],
)
def test_difference_names_its_step_cycle_and_part(change, want):
    assert list(left(change)) == want


def test_message_that_the_reference_was_not_sure_of_is_not_compared():
    changed = deepcopy(SCENARIOS[0])
    expected = changed["steps"][1]["expect"]
    expected.update(pendingMessages={}, unstableMessages=["ns/v"])
    assert replay_scenario(changed).is_match


def test_order_of_what_waits_carries_no_meaning():
    sizes = {"c": 9, "a": 8, "b": 7}
    three = [workload(name, "q", gpus=gpus, age=9 - gpus) for name, gpus in sizes.items()]
    waiting = {"q": ["ns/c", "ns/b", "ns/a"]}
    messages = {
        f"ns/{name}": "couldn't assign flavors to pod set main: insufficient quota for "
        f"{GPU} in flavor f0, previously considered podsets requests (0) + current podset "
        f"request ({gpus}) > maximum capacity (4)"
        for name, gpus in sizes.items()
    }
    made = step({"arrive": three}, *[cycle()] * 3, inadmissible=waiting, pendingMessages=messages)
    assert replay_scenario(record("three", made, queues=(FOUR,))).differences == ()


def test_usage_that_was_recorded_otherwise_is_told_beside_what_it_came_to():
    def change(steps: list[dict[str, Any]]) -> None:
        steps[1]["usageBefore"] = {"ns/a": line("1", "11:02")}
        steps[1]["usageAfter"] = {}

    got = SCENARIOS[5]["steps"][1]["expect"]["usageAfter"]
    assert left(change, SCENARIOS[5]) == (
        ReplayDifference(1, None, "usageBefore", {"ns/a": line("1", "11:02")}, got),
        ReplayDifference(1, None, "usageAfter", {}, got),
    )


def test_event_that_is_not_understood_ends_the_replay():
    first, second = deepcopy(LIFE[0]), deepcopy(LIFE[1])
    second["event"] = {"advanceSeconds": 5, "quake": 1, "arrive": [], "flood": 2}
    found = replay_scenario(record("odd", first, second, LIFE[4], queues=(BY_PRIORITY,)))
    assert found == ScenarioResult(
        "odd", "flat", (ReplayDifference(1, None, "event", ["flood", "quake"], []),)
    )


@pytest.mark.parametrize(
    ("got", "want"),
    [
        pytest.param(line("8", "01:00"), True, id="the same"),
        pytest.param(line("8.000000000007", "01:00"), True, id="but for a float's last digit"),
        pytest.param(line("7.999999999993", "01:00"), True, id="below it"),
        pytest.param(line("8.000000000009", "01:00"), False, id="by more than that"),
        pytest.param(line("8", "02:00"), False, id="at another time"),
        pytest.param(line("", "01:00"), False, id="without the resource"),
        pytest.param({**line("8", "01:00"), "pending": {GPU: "1"}}, False, id="more is pending"),
    ],
)
def test_usage_is_the_same_within_the_last_digit_of_a_float(got, want):
    wanted = {"ns/a": line("8", "01:00")}
    assert is_same_usage(wanted, {"ns/a": got}) is want
    assert not is_same_usage(wanted, {"ns/b": got})
    assert not is_same_usage({}, {"ns/a": got})


def test_nothing_used_and_not_named_are_the_same():
    named = {"ns/a": line("0", "01:00")}
    assert is_same_usage(named, {"ns/a": line("", "01:00")})
    assert is_same_usage({"ns/a": line("", "01:00")}, named)


def test_queues_are_fed_with_what_they_used_before():
    first, second = local_queue("a", "q"), local_queue("b", "q")
    key = "admissionFairSharingStatus"
    assert list(with_consumed([first, second], {"ns/a": {GPU: "8"}})) == [
        {**first, "status": {"fairSharing": {key: {"consumedResources": {GPU: "8"}}}}},
        {**second, "status": {"fairSharing": {key: {"consumedResources": None}}}},
    ]
