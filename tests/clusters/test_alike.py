"""Parts that documents have alike are kept once."""

from __future__ import annotations

import copy
from typing import Any

from clusters.documents.alike import LARGE, MOST, Alike
from clusters.documents.packed import HEAVY, Packed, packed

Document = dict[str, Any]


def workload(name: str, image: str = "registry.example.com/train:1") -> Document:
    container = {"name": "main", "image": image, "env": [{"name": "EPOCHS", "value": "90"}]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "metadata": {"name": name},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "template": template}]},
    }


def test_the_second_of_two_alike_has_the_part_of_the_first():
    alike, first, second = Alike(), workload("a"), workload("b")
    alike.of(first)
    want = copy.deepcopy(second)
    assert alike.of(second) is second
    assert second == want
    assert second["spec"]["podSets"] is first["spec"]["podSets"]


def test_what_differs_stays_its_own():
    alike, first, second = Alike(), workload("a"), workload("b", image="another")
    alike.of(first)
    alike.of(second)
    assert second["spec"]["podSets"] is not first["spec"]["podSets"]


def test_a_number_and_its_float_are_not_alike():
    alike = Alike()
    one, other = workload("a"), workload("b")
    one["spec"]["podSets"][0]["count"], other["spec"]["podSets"][0]["count"] = 1, 1.0
    alike.of(one)
    alike.of(other)
    assert isinstance(other["spec"]["podSets"][0]["count"], float)


def test_so_many_different_ones_are_remembered_and_those_that_were_seen_last():
    alike, kept, lost = Alike(), workload("a", image="kept"), workload("b", image="lost")
    alike.of(lost)
    alike.of(kept)
    for number in range(MOST - 1):
        alike.of(workload("c", image=f"image-{number}"))
        alike.of(workload("a", image="kept"))
    again, anew = workload("d", image="kept"), workload("d", image="lost")
    alike.of(again)
    alike.of(anew)
    assert again["spec"]["podSets"] is kept["spec"]["podSets"]
    assert anew["spec"]["podSets"] is not lost["spec"]["podSets"]


def test_large_parts_are_not_remembered():
    alike = Alike()
    first, second = workload("a", image="x" * LARGE), workload("b", image="x" * LARGE)
    alike.of(first)
    alike.of(second)
    assert second["spec"]["podSets"] is not first["spec"]["podSets"]


def test_what_cannot_be_written_as_it_was_read_stays_as_it_is():
    first, second = workload("a"), workload("b")
    for document in (first, second):
        document["spec"]["podSets"][0]["count"] = 2**70
        Alike().of(document)
    assert second == workload("b") | {"spec": second["spec"]}
    assert second["spec"]["podSets"][0]["count"] == 2**70


def test_packed_parts_stay_packed():
    heavy = packed(workload("a", image="x" * (HEAVY + 1)))
    before = dict.__getitem__(heavy["spec"], "podSets")
    assert isinstance(heavy["spec"], Packed)
    Alike().of(heavy)
    assert dict.__getitem__(heavy["spec"], "podSets") is before
