"""GPUs as nodes and pods show them."""

from __future__ import annotations

from typing import Any

import pytest

from budgets.units import MOST_COUNTED_GPUS
from clusters.reconcile.usage.measure import (
    MOST_LABELS,
    FlavorNodes,
    Sight,
    measure,
    node_facts,
    pod_facts,
    pod_gpus,
    sights,
)

GPU = "nvidia.com/gpu"
H100 = FlavorNodes("h100", GPU, {"gpu": "h100"})
SPOT = FlavorNodes("h100-spot", GPU, {"gpu": "h100", "spot": "yes"})


def node(name: str, *, gpus: int = 8, offered: int | None = None, ready: bool = True, **rest: Any):
    labels = {"gpu": "h100", **rest.pop("labels", {})}
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": rest,
        "status": {
            "capacity": {GPU: str(gpus)},
            "allocatable": {GPU: str(gpus if offered is None else offered)},
            "conditions": [condition],
        },
    }


def container(gpus: int, **rest: Any) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: str(gpus)}}, **rest}


def pod(name: str, gpus: int, *, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"nodeName": name, "containers": [container(gpus)]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("nodes", "pods", "want"),
    [
        pytest.param([node("a"), node("b")], [], (16, 0, 0, 2), id="all ready"),
        pytest.param([node("a", ready=False)], [], (0, 8, 0, 1), id="not ready"),
        pytest.param([node("a", unschedulable=True)], [], (0, 8, 0, 1), id="cordoned"),
        pytest.param([node("a", offered=6)], [], (6, 2, 0, 1), id="two devices unhealthy"),
        pytest.param(
            [node("a")],
            [pod("a", 2), pod("a", 1, phase="Succeeded"), pod("z", 4), pod("", 8)],
            (8, 0, 2, 1),
            id="only live pods on these nodes",
        ),
    ],
)
def test_measure_counts(nodes: list, pods: list, want: tuple[int, int, int, int]) -> None:
    assert measure(nodes, pods, flavors=[H100]) == {"h100": want}
    kept = [node_facts(each) for each in nodes], [pod_facts(each) for each in pods]
    assert measure(*kept, flavors=[H100]) == {"h100": want}


def test_a_node_that_tells_any_number_is_counted_as_far_as_anybody_counts() -> None:
    most = 2**63 - 1
    nodes = [node("a"), node("liar", gpus=most), node("broken", gpus=most, ready=False)]
    found = measure(nodes, [pod("liar", most)], flavors=[H100])
    assert found == {"h100": (MOST_COUNTED_GPUS, MOST_COUNTED_GPUS, MOST_COUNTED_GPUS, 3)}


@pytest.mark.parametrize("flavors", [[H100, SPOT], [SPOT, H100]])
def test_measure_node_counts_for_the_flavor_that_names_most(flavors: list[FlavorNodes]) -> None:
    nodes = [node("a"), node("b", labels={"spot": "yes"})]
    assert measure(nodes, [], flavors=flavors) == {"h100": (8, 0, 0, 1), "h100-spot": (8, 0, 0, 1)}


def test_measure_nodes_without_the_resource_are_nobodys() -> None:
    plain = node("a")
    plain["status"]["capacity"] = {"cpu": "4"}
    assert measure([plain], [], flavors=[FlavorNodes("any", GPU)]) == {}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [container(1), container(2)]}, 3, id="containers together"),
        pytest.param(
            {"containers": [container(1)], "initContainers": [container(4)]}, 4, id="largest init"
        ),
        pytest.param(
            {
                "containers": [container(2)],
                "initContainers": [container(1, restartPolicy="Always"), container(2)],
            },
            3,
            id="a sidecar stays",
        ),
        pytest.param({}, 0, id="nothing"),
    ],
)
def test_pod_gpus(spec: dict[str, Any], want: int) -> None:
    assert pod_gpus(spec, GPU) == want


def test_sights_are_of_nodes_of_a_flavor_and_count_as_measuring_does() -> None:
    nodes = [
        node("a"),
        node("b", ready=False),
        node("c", offered=6),
        node("d", labels={"gpu": "x"}),
    ]
    pods = [pod("a", 2), pod("a", 1, phase="Failed"), pod("c", 4), pod("d", 4)]
    found = sights(nodes, pods, flavors=[H100])
    assert found == {
        "a": Sight("h100", {"gpu": "h100"}, 8, 2),
        "b": Sight("h100", {"gpu": "h100"}, 0, 0),
        "c": Sight("h100", {"gpu": "h100"}, 6, 4),
    }
    kept = [node_facts(each) for each in nodes], [pod_facts(each) for each in pods]
    assert sights(*kept, flavors=[H100]) == found


def test_labels_of_a_node_are_bounded() -> None:
    many = {f"a{number:04}": "v" for number in range(1000)}
    switches = {f"{number}": "true" for number in range(300)}
    host = {"kubernetes.io/hostname": "a"}
    found = sights([node("a", labels={**many, **switches, **host})], [], flavors=[H100])["a"].labels
    assert len(found) == MOST_LABELS
    assert found["kubernetes.io/hostname"] == "a" and "true" not in found.values()
