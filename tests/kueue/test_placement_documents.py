"""The compact form of a placement: what it writes, what it reads, and where its bounds are."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from clusters.kueue.workload import placement as placements
from clusters.kueue.workload.placement import (
    PlacedPods,
    Placement,
    domain_name,
    parse_placement,
    placement_document,
)

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"


def placed(*names: str, levels: tuple[str, ...] = (HOST,)) -> Placement:
    """One pod on each domain; the values of several levels are parted by commas."""
    return Placement(levels, tuple(PlacedPods(tuple(name.split(",")), 1) for name in names))


def slices(placement: Placement) -> list[list[str]]:
    """Domains by slice of the document that hostnames may split."""
    document = placement_document(placement, splits_by_prefix=True)
    found = []
    for item in document["slices"]:
        part = parse_placement({"levels": document["levels"], "slices": [item]})
        assert part is not None
        found.append([each.domain for each in part.domains])
    return found


def test_document_of_a_placement_is_told_whole():
    found = Placement(
        (BLOCK, RACK),
        (
            PlacedPods(("b1", "b1-r1"), 2),
            PlacedPods(("b1", "b1-r2"), 1),
            PlacedPods(("b2", "b2-r1"), 1),
        ),
    )
    want = {
        "levels": [BLOCK, RACK],
        "slices": [
            {
                "domainCount": 3,
                "valuesPerLevel": [
                    {"individual": {"prefix": "b", "roots": ["1", "1", "2"]}},
                    {"individual": {"prefix": "b", "roots": ["1-r1", "1-r2", "2-r1"]}},
                ],
                "podCounts": {"individual": [2, 1, 1]},
            }
        ],
    }
    assert placement_document(found, splits_by_prefix=False) == want
    assert placement_document(found, splits_by_prefix=True) == want
    assert parse_placement(want) == found
    assert found.count == 4
    assert [item.domain for item in found.domains] == ["b1,b1-r1", "b1,b1-r2", "b2,b2-r1"]
    assert domain_name(("b1", "r1", "n1")) == "b1,r1,n1"


def test_document_has_one_count_and_one_value_where_all_are_alike():
    found = Placement((RACK, HOST), tuple(PlacedPods(("r", f"n-{i}.x"), 3) for i in "17"))
    want = {
        "levels": [RACK, HOST],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [
                    {"universal": "r"},
                    {"individual": {"prefix": "n-", "suffix": ".x", "roots": ["1", "7"]}},
                ],
                "podCounts": {"universal": 3},
            }
        ],
    }
    assert placement_document(found, splits_by_prefix=True) == want
    assert parse_placement(want) == found


@pytest.mark.parametrize("splits", [False, True])
def test_placement_of_nothing_has_no_slices(splits):
    nothing = Placement((HOST,), ())
    want: dict[str, Any] = {"levels": [HOST], "slices": []}
    assert placement_document(nothing, splits_by_prefix=splits) == want
    assert parse_placement(want) == nothing
    assert parse_placement({}) == Placement((), ())
    assert parse_placement(None) is None


def test_parts_that_a_document_leaves_out_are_empty():
    def read(level: dict[str, Any]) -> list[str]:
        section = {"domainCount": 2, "valuesPerLevel": [level], "podCounts": {"universal": 5}}
        found = parse_placement({"levels": [HOST], "slices": [section]})
        assert found is not None
        assert [item.count for item in found.domains] == [5, 5]
        return [item.domain for item in found.domains]

    roots = {"roots": ["1", "2"]}
    assert read({"individual": roots}) == ["1", "2"]
    assert read({"individual": {**roots, "prefix": "a"}}) == ["a1", "a2"]
    assert read({"individual": {**roots, "suffix": "z"}}) == ["1z", "2z"]
    assert read({"individual": {**roots, "prefix": "a", "suffix": "z"}}) == ["a1z", "a2z"]
    assert read({"individual": {**roots, "prefix": None, "suffix": None}}) == ["1", "2"]
    assert read({"universal": ""}) == ["", ""]
    assert read({"universal": "u"}) == ["u", "u"]


def test_negative_number_of_domains_takes_nothing_from_the_others(monkeypatch):
    monkeypatch.setattr(placements, "_MOST_DOMAINS", 3)

    def section(count: int) -> dict[str, Any]:
        values = [{"universal": "n"}]
        return {"domainCount": count, "valuesPerLevel": values, "podCounts": {"universal": 1}}

    for counts, want in (([3], 3), ([1, 2], 3), ([0, 3], 3), ([-5, 3], 3)):
        found = parse_placement({"levels": [HOST], "slices": [section(n) for n in counts]})
        assert found is not None
        assert len(found.domains) == want
    for counts in ([4], [2, 2], [-1, 4], [0, 4]):
        with pytest.raises(ValueError, match=r"^a placement on more than 3 domains$"):
            parse_placement({"levels": [HOST], "slices": [section(n) for n in counts]})


def test_no_cluster_has_more_domains_than_a_hundred_thousand():
    values = [{"universal": "n"}]
    section = {"domainCount": 100_001, "valuesPerLevel": values, "podCounts": {"universal": 1}}
    with pytest.raises(ValueError, match=r"^a placement on more than 100000 domains$"):
        parse_placement({"levels": [HOST], "slices": [section]})


WORDS = ["".join(letters) for size in (1, 2, 3) for letters in product("ab", repeat=size)]


def shortened(texts: tuple[str, ...]) -> dict[str, Any]:
    """Every text is beginning, root and end; the end is as long as can be, then the beginning."""
    if len(set(texts)) == 1:
        return {"universal": texts[0]}
    shortest = min(map(len, texts))
    ends = [n for n in range(shortest + 1) if len({t[len(t) - n :] for t in texts}) == 1]
    end = max(ends)
    begins = [n for n in range(shortest - end + 1) if len({t[:n] for t in texts}) == 1]
    begin = max(begins)
    found: dict[str, Any] = {"roots": [t[begin : len(t) - end] for t in texts]}
    if begin:
        found["prefix"] = texts[0][:begin]
    if end:
        found["suffix"] = texts[0][len(texts[0]) - end :]
    return {"individual": found}


@pytest.mark.parametrize("first", WORDS)
def test_values_are_shortened_as_far_as_they_can_be(first):
    for second, third in product(WORDS, ("", "aba", "b")):
        texts = (first, second, third) if third else (first, second)
        found = placement_document(placed(*texts, levels=(RACK,)), splits_by_prefix=False)
        [section] = found["slices"]
        assert section["valuesPerLevel"] == [shortened(texts)], texts
        assert parse_placement(found) == placed(*texts, levels=(RACK,))


A, B = "a" * 400, "b" * 400
DEEP = (f"{A}-x-1", f"{A}-x-2", f"{A}-y-1", f"{A}-y-2", f"{B}-x-1", f"{B}-x-2")


@pytest.mark.parametrize(
    ("most", "want"),
    [
        pytest.param(4, [2, 2, 2], id="room for more"),
        pytest.param(3, [2, 2, 2], id="just as many as there may be"),
        pytest.param(2, [4, 2], id="a shorter beginning makes fewer"),
        pytest.param(1, [6], id="too many with any beginning"),
    ],
)
def test_beginnings_are_as_long_as_the_number_of_slices_allows(monkeypatch, most, want):
    monkeypatch.setattr(placements, "_MOST_SLICES", most)
    found = slices(placed(*DEEP))
    assert [len(item) for item in found] == want
    assert [name for item in found for name in item] == list(DEEP)


@pytest.mark.parametrize(
    ("names", "want"),
    [
        pytest.param((f"{A}-1", f"{A}-2", f"{B}-1", f"{B}-2"), [2, 2], id="two of each"),
        pytest.param((f"{A}-1", f"{A}-2", f"{B}1", f"{B}2"), [2, 2], id="no beginning is one, too"),
        pytest.param((f"{A}-1", f"{B}-1"), [2], id="each alone"),
        pytest.param((f"{A}-1", f"{A}-2"), [2], id="one beginning"),
        pytest.param(
            (f"{A}-1", f"{A}-2", f"{B}-1", f"{B}-2", f"{A}-3", f"{A}-4"),
            [2, 2, 2],
            id="neighbours only",
        ),
        pytest.param(
            (f"{A}-", f"{A}-", f"{B}-1", f"{B}-2"), [2, 2], id="a hyphen that ends a name is none"
        ),
        pytest.param((f"{A}-1",), [1], id="one domain"),
    ],
)
def test_neighbours_with_a_beginning_in_common_make_a_slice(names, want):
    found = slices(placed(*names))
    assert [len(item) for item in found] == want
    assert [name for item in found for name in item] == list(names)


def test_only_hostnames_part_a_placement():
    names = (f"{A}-1", f"{A}-2", f"{B}-1", f"{B}-2")
    assert len(slices(placed(*names, levels=(RACK,)))) == 1
    both = tuple(f"r,{name}" for name in names)
    assert len(slices(placed(*both, levels=(RACK, HOST)))) == 2
    assert len(slices(placed(*both, levels=(HOST, RACK)))) == 1
    assert len(placement_document(placed(*names), splits_by_prefix=False)["slices"]) == 1


def test_slices_have_at_most_as_many_domains_as_they_may(monkeypatch):
    monkeypatch.setattr(placements, "_MOST_DOMAINS", 2)

    def sizes(*names: str) -> list[int]:
        document = placement_document(placed(*names), splits_by_prefix=True)
        return [item["domainCount"] for item in document["slices"]]

    assert sizes("n1", "n2") == [2]
    assert sizes("n1", "n2", "n3") == [2, 1]
    assert sizes("n1", "n2", "n3", "n4", "n5") == [2, 2, 1]
    assert sizes("a-1", "a-2", "a-3", "b-1", "b-2") == [2, 1, 2]


def test_form_that_takes_fewer_bytes_is_written():
    def sizes(length: int, letter: str = "a") -> list[int]:
        start = letter * length
        names = (f"{start}-1", f"{start}-2", f"{start}-3", "bb-1", "bb-2", "bb-3")
        document = placement_document(placed(*names), splits_by_prefix=True)
        return [item["domainCount"] for item in document["slices"]]

    # The whole repeats the long beginning three times, the parts once: 338 bytes each at 54.
    assert sizes(53) == [6]
    assert sizes(54) == sizes(55) == [3, 3]
    # A letter of two bytes counts as two, not as one and not as its six characters of JSON.
    assert sizes(26, "\u00e4") == [6]
    assert sizes(27, "\u00e4") == [3, 3]
