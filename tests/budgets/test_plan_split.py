"""The split over workers: table and laws."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.plan import SplitRequest, split_line


def ask(gpus, rooms, previous=None, *, lendable=None, node=8) -> SplitRequest:
    return SplitRequest(
        flavor="h100",
        gpus=gpus,
        lendable=gpus if lendable is None else lendable,
        node_gpus=node,
        rooms=rooms,
        previous={worker: (part, part) for worker, part in (previous or {}).items()},
    )


def parts(request: SplitRequest) -> dict[str, int]:
    return {worker: part for worker, (part, _) in split_line(request).parts.items()}


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(ask(16, {"a": 32, "b": 16}), {"b": 16}, id="whole on the tightest worker"),
        pytest.param(ask(24, {"a": 16, "b": 16}), {"a": 16, "b": 8}, id="spread only when it must"),
        pytest.param(ask(20, {"a": 16, "b": 20}), {"b": 20}, id="remainder beside its nodes"),
        pytest.param(ask(20, {"a": 16, "b": 7}), {"a": 16, "b": 4}, id="one worker has the rest"),
        pytest.param(ask(4, {"a": 64, "b": 4}), {"b": 4}, id="less than a node"),
        pytest.param(ask(0, {"a": 64}), {}, id="nothing"),
        pytest.param(ask(16, {"a": 64}, {"a": 8, "b": 8}), {"a": 8, "b": 8}, id="same: stays"),
        pytest.param(
            ask(16, {"a": -8, "b": 64}, {"a": 16}), {"a": 16}, id="a short worker keeps its part"
        ),
        pytest.param(ask(24, {"a": 16, "b": 8}, {"a": 16}), {"a": 16, "b": 8}, id="grows beside"),
        pytest.param(ask(24, {"a": 32, "b": 24}, {"a": 16}), {"a": 24}, id="grows in its place"),
        pytest.param(ask(20, {"a": 16, "b": 8}, {"a": 16}), {"a": 16, "b": 4}, id="moves no node"),
        pytest.param(ask(16, {"a": 32, "b": 8}, {"a": 24, "b": 8}), {"a": 16}, id="shrinks small"),
        pytest.param(ask(12, {"a": 16, "b": 16}, {"a": 16}), {"a": 12}, id="shrinks in its place"),
        pytest.param(ask(6, {"a": 2, "b": 4}, node=1), {"b": 4, "a": 2}, id="nodes of one"),
    ],
)
def test_split_line_places(request_, want):
    split = split_line(request_)
    assert {worker: part for worker, (part, _) in split.parts.items()} == want
    assert (split.unmet, split.fault) == (0, None)


def test_split_line_without_a_whole_node_anywhere_names_what_is_short():
    split = split_line(ask(8, {"a": 4, "b": 7}), field="lines.0.committed")
    assert (split.parts, split.unmet) == ({}, 8)
    assert (split.fault.field, split.fault.code) == ("lines.0.committed", "split_infeasible")
    assert "8 h100" in split.fault.message and "a has 4, b has 7" in split.fault.message


def test_split_line_places_what_it_can_and_counts_the_rest():
    split = split_line(ask(40, {"a": 16, "b": 8}))
    assert sum(part for part, _ in split.parts.values()) == 24
    assert split.unmet == 16


def test_lendable_follows_the_largest_part_and_stays():
    fresh = split_line(ask(24, {"a": 16, "b": 8}, lendable=18))
    assert fresh.parts == {"a": (16, 16), "b": (8, 2)}
    request = SplitRequest("h100", 24, 10, 8, {"a": 16, "b": 8}, {"a": (16, 4), "b": (8, 2)})
    assert split_line(request).parts == {"a": (16, 8), "b": (8, 2)}


def test_split_pool_lends_nothing_of_its_own():
    assert split_line(ask(16, {"a": 16}, lendable=0)).parts == {"a": (16, 0)}


WORKERS = st.sampled_from(["a", "b", "c", "d"])
ROOMS = st.dictionaries(WORKERS, st.integers(-8, 64), max_size=4)
NODES = st.sampled_from([1, 2, 4, 8])


@st.composite
def fresh_requests(draw) -> SplitRequest:
    gpus = draw(st.integers(0, 96))
    return ask(gpus, draw(ROOMS), lendable=draw(st.integers(0, gpus)), node=draw(NODES))


def sizes(split) -> dict[str, int]:
    return {worker: part for worker, (part, _) in split.parts.items()}


@settings(max_examples=300)
@given(fresh_requests())
def test_law_parts_sum_fit_and_are_whole_nodes_but_one(request_):
    split = split_line(request_)
    found = sizes(split)
    assert sum(found.values()) + split.unmet == request_.gpus
    assert all(0 < part <= request_.rooms[worker] for worker, part in found.items())
    assert sum(part % request_.node_gpus != 0 for part in found.values()) <= 1
    assert (split.unmet == 0) == (split.fault is None)


@settings(max_examples=300)
@given(fresh_requests())
def test_law_a_feasible_floor_is_always_placed(request_):
    nodes, rest = divmod(request_.gpus, request_.node_gpus)
    rooms = [max(0, room) for room in request_.rooms.values()]

    def fits(holder: int) -> bool:
        left = [room - (rest if at == holder else 0) for at, room in enumerate(rooms)]
        return min(left, default=0) >= 0 and sum(r // request_.node_gpus for r in left) >= nodes

    feasible = request_.gpus == 0 or any(fits(holder) for holder in range(len(rooms)))
    assert (split_line(request_).unmet == 0) is feasible


@settings(max_examples=300)
@given(fresh_requests())
def test_law_lendable_is_at_most_the_part_and_adds_up(request_):
    split = split_line(request_)
    assert all(0 <= lent <= part for part, lent in split.parts.values())
    placed = request_.gpus - split.unmet
    assert sum(lent for _, lent in split.parts.values()) == min(request_.lendable, placed)


@settings(max_examples=300)
@given(fresh_requests(), ROOMS)
def test_law_planning_again_moves_nothing_whatever_the_rooms(request_, other_rooms):
    first = split_line(request_)
    placed = sum(sizes(first).values())
    again = SplitRequest(
        request_.flavor,
        placed,
        min(request_.lendable, placed),
        request_.node_gpus,
        other_rooms,
        first.parts,
    )
    assert split_line(again).parts == first.parts


@settings(max_examples=300)
@given(fresh_requests(), st.integers(0, 64))
def test_law_growth_takes_no_whole_node_from_a_worker(request_, more):
    first = split_line(request_)
    grown = SplitRequest(
        request_.flavor,
        sum(sizes(first).values()) + more,
        0,
        request_.node_gpus,
        request_.rooms,
        first.parts,
    )
    after = split_line(grown)
    node = request_.node_gpus
    if after.unmet == 0 and more % node == 0:
        for worker, part in sizes(first).items():
            assert sizes(after).get(worker, 0) // node >= part // node


@settings(max_examples=300)
@given(fresh_requests(), st.integers(0, 96))
def test_law_shrinking_adds_nowhere_more_than_a_remainder(request_, target):
    first = split_line(request_)
    placed = sum(sizes(first).values())
    less = min(target, placed)
    after = split_line(
        SplitRequest(request_.flavor, less, 0, request_.node_gpus, request_.rooms, first.parts)
    )
    assert after.unmet == 0
    for worker, part in sizes(after).items():
        assert part <= sizes(first).get(worker, 0) + request_.node_gpus - 1
