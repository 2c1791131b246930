"""How a choice of domains is filled: pods and slices, one rule each, on hand-made domains."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.balanced import _pruned
from clusters.kueue.topology.counts import Counted
from clusters.kueue.topology.search import Search


def searching(count: int, *, size: int = 1, **changes: Any) -> Search:
    values: dict[str, Any] = {"level": 0, "slice_level": 0, "sizes": {}, "gates": Gates()}
    return Search(count=count, size=size, **{**values, **changes})


def domains(*pods: int, size: int = 1, **led: int) -> list[Counted]:
    """Domains a, b, …; by name, what one that takes the leader holds beside it."""
    found = []
    for name, fits in zip("abcdef", pods, strict=False):
        beside = led.get(name, 0)
        found.append(
            Counted(
                name,
                (name,),
                pods=fits,
                slices=fits // size,
                pods_led=beside,
                slices_led=beside // size,
                leaders=int(name in led),
            )
        )
    return found


def filled(search: Search, given: list[Counted], **changes: Any) -> list[tuple[str, int, int]]:
    """Name, pods and leaders of what was looked at."""
    values = {"count": search.count, "leaders": search.leaders, "size": search.size}
    found = search.fill(given, **{**values, "unit": "slices", **changes})
    return [(item.name, item.pods, item.leaders) for item in found]


@pytest.mark.parametrize(
    ("search", "given", "want"),
    [
        pytest.param(
            searching(7), domains(5, 4, 2), [("a", 5, 0), ("c", 2, 0)], id="the last fits best"
        ),
        pytest.param(searching(2), domains(5, 4, 2), [("c", 2, 0)], id="the only one fits best"),
        pytest.param(
            searching(8),
            domains(5, 4, 2),
            [("a", 5, 0), ("b", 3, 0)],
            id="the last is larger than what is left",
        ),
        pytest.param(
            searching(7, is_unconstrained=True),
            domains(5, 4, 2),
            [("a", 5, 0), ("b", 2, 0)],
            id="the fullest first, in the order given",
        ),
        pytest.param(
            searching(7, is_unconstrained=True, gates=Gates(tas_profile_mixed=False)),
            domains(5, 4, 2),
            [("a", 5, 0), ("c", 2, 0)],
            id="without the mixed profile the last fits best",
        ),
        pytest.param(searching(12), domains(5, 4, 2), [], id="too little"),
        pytest.param(
            searching(7, size=2),
            domains(5, 4, 3, size=2),
            [("a", 4, 0), ("c", 2, 0)],
            id="whole slices only",
        ),
        pytest.param(
            searching(5, leaders=1),
            domains(5, 4, a=4, b=3),
            [("a", 4, 1), ("b", 1, 0)],
            id="a leader takes its room",
        ),
        pytest.param(
            searching(5, leaders=1),
            domains(3, 3, a=1, b=2),
            [("b", 2, 1), ("a", 3, 0)],
            id="the leader goes where it leaves enough to the others",
        ),
        pytest.param(searching(5, leaders=1), domains(5, 4), [], id="nobody takes the leader"),
    ],
)
def test_domains_are_filled(search, given, want):
    assert filled(search, given) == want


def test_pods_go_one_by_one_where_they_are_counted_alone():
    found = filled(searching(3, size=4), domains(2, 2, size=4), unit="pods", count=3, size=4)
    assert found == [("a", 2, 0), ("b", 1, 0)]


@pytest.mark.parametrize(
    ("gates", "affinities", "want"),
    [
        pytest.param(Gates(), (0, 5, 5), "c", id="the smallest that holds it"),
        pytest.param(
            Gates(tas_respect_node_affinity_preferred=True),
            (5, 5, 0),
            "b",
            id="the smallest of those that are liked best",
        ),
    ],
)
def test_best_fit(gates, affinities, want):
    given = domains(6, 4, 3)
    for item, affinity in zip(given, affinities, strict=True):
        item.affinity = affinity
    search = searching(3, gates=gates)
    assert search.best_fit(given, 3, leaders=0, unit="slices").name == want
    assert search.best_fit(given, 9, leaders=0, unit="slices").name == "a"


def names(given: list[Counted]) -> str:
    return "".join(item.name for item in given)


def test_order_in_which_domains_are_filled():
    given = domains(4, 6, 4, 2, a=3, c=2)
    given[3].affinity = 9
    assert names(searching(4).sorted(given)) == "bacd"
    assert names(searching(4, leaders=1).sorted_led(given)) == "acbd"
    least = searching(4, is_unconstrained=True)
    assert names(least.sorted(given)) == "dacb"
    assert names(least.sorted_led(given)) == "cabd"
    liked = searching(4, gates=Gates(tas_respect_node_affinity_preferred=True))
    assert names(liked.sorted(given)) == "dbac"
    assert names(liked.sorted_led(given)) == "acdb"


def test_a_domain_holds_what_its_children_hold():
    """The leader goes to the child that loses least by it."""
    children = domains(5, 3, 4, a=3, b=2)
    children[0].affinity, children[2].affinity = 2, 3
    root = Counted("r", ("r",), children=children)
    search = searching(6, size=2, leaders=1, slice_level=0)
    search.cut.roll_up(root, 0)
    assert (root.pods, root.pods_led, root.leaders, root.affinity) == (12, 11, 1, 5)
    assert (root.slices, root.slices_led) == (6, 5)
    alone = searching(6, size=2, sizes={1: 2})
    alone.cut.roll_up(root, 0)
    assert (root.pods, root.slices, root.slices_led) == (10, 5, 5)


def test_what_was_placed_is_taken_back():
    given = domains(5, 3, 4, size=2, a=3, b=2)
    before = [repr(item) for item in given]
    search = searching(6, size=2, leaders=1)
    assert filled(search, given) == [("a", 2, 1), ("b", 2, 0), ("c", 2, 0)]
    search.keep(given[2])
    given[2].slices_led = 9
    assert [repr(item) for item in given] != before
    search.restore()
    assert [repr(item) for item in given] == before


def test_nothing_is_balanced_where_no_share_leaves_room_for_the_leader():
    """Also not with the lower share at which the leader would have room beside the last domain."""
    search = searching(11, leaders=1)
    racks = []
    for name, hosts in (("r", [(6, 2), (2, 0), (1, 0)]), ("s", [(2, 0)]), ("t", [(2, 1), (3, 0)])):
        children = [
            Counted(f"{name}{index}", (name, str(index)), pods=fits, pods_led=beside, leaders=1)
            for index, (fits, beside) in enumerate(hosts)
        ]
        racks.append(Counted(name, (name,), children=children))
        search.cut.roll_up(racks[-1], 0)
    before = [(item.slices, item.slices_led) for item in racks]
    assert _pruned(search, racks, 0) is None
    assert [(item.slices, item.slices_led) for item in racks] == before
