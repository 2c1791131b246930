"""What is packed reads as it was, in every way in which a document is read."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import tracemalloc
from typing import Any

import pytest

from clusters.documents import labels
from clusters.documents.packed import HEAVY, Packed, _opened, packed
from clusters.jobs.pods import Pods, role_of
from clusters.kube import resources as r
from clusters.kueue.configuration import Configuration
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import PodSurroundings
from clusters.reconcile.runtime.cache import Cache

MOST_EACH = 2**20


def heavy(number: int = 0, count: int = 60_000) -> dict[str, Any]:
    """Nearly a megabyte of JSON that takes many times as much once it is read."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"j{number}", "namespace": "t", "uid": f"u{number}", "resourceVersion": "1",
        },
        "spec": {"tolerations": [{"key": f"{n}"} for n in range(count)], "suspend": True},
        "status": {},
    }  # fmt: skip


def test_what_is_light_stays_as_it_is():
    document = heavy(count=10)
    assert packed(document) is document


def with_labels() -> dict[str, Any]:
    document = heavy(count=1)
    document["metadata"]["labels"] = {f"l{number}": "" for number in range(HEAVY)}
    return document


@pytest.mark.parametrize("make", [heavy, with_labels])
def test_it_reads_as_it_was_in_every_way(make: Any):
    found, want = packed(make()), make()
    assert isinstance(found, Packed)
    assert found == want and want == found
    assert (found != want, want != found) == (False, False)
    assert list(found) == list(want) and len(found) == len(want) and "spec" in found
    assert found["spec"] == want["spec"] == found.get("spec")
    assert found["metadata"].get("labels") == want["metadata"].get("labels")
    assert found.get("none") is None and found.get("none", 1) == 1
    assert dict(found.items()) == want and list(found.values()) == list(want.values())
    assert {**found} == want and dict(found) == want and found | {} == want
    assert {**found["metadata"]} == want["metadata"]
    assert found.copy() == copy.copy(found) == copy.deepcopy(found) == want
    assert json.loads(json.dumps(found)) == want
    assert pickle.loads(pickle.dumps(found)) == want
    assert packed(found) is found
    found.setdefault("kind", "x")
    assert found.setdefault("more", 1) == 1
    assert found.pop("spec") == want["spec"] and "spec" not in found
    found["spec"] = {"a": 1}
    assert found["spec"] == {"a": 1} == dict(found)["spec"]
    assert found.pop("none", 2) == 2
    with pytest.raises(KeyError):
        found["none"]


def test_a_cache_keeps_little_of_what_is_heavy():
    cache, count = Cache(), 10
    tracemalloc.start()
    try:
        for number in range(count):
            cache.put(r.JOB, heavy(number))
        _opened.cache_clear()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < count * MOST_EACH
    assert len(cache.of(r.JOB)["t/j7"]["spec"]["tolerations"]) == 60_000


def heavy_pod(number: int, of: int) -> dict[str, Any]:
    """A pod of a group, whose environment is of 50 KB."""
    env = [{"name": f"E{n}", "value": f"{number}" * 10} for n in range(1_200)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p{number}", "namespace": "t", "uid": f"u{number}",
            "labels": {labels.QUEUE: "q", labels.POD_GROUP: "train"},
            "annotations": {labels.POD_GROUP_TOTAL: f"{of}"},
        },
        "spec": {
            "schedulingGates": [{"name": labels.ADMISSION_GATE}],
            "containers": [{"name": "main", "env": env}],
        },
    }  # fmt: skip


def test_heavy_members_of_a_group_are_opened_once_however_often_it_is_looked_at():
    kind, count = Pods(), 12
    members = [packed(heavy_pod(number, count)) for number in range(count)]
    assert all(isinstance(member, Packed) for member in members)
    _opened.cache_clear()
    for _ in range(3):
        view = kind.gathered(members)
        assert view is not None and kind.is_clear(view) and kind.is_suspended(view)
    assert _opened.cache_info().misses == count
    members[0]["spec"]["priority"] = 7
    members[0]["status"] = {}
    assert len({role_of(member) for member in members}) == 2


def test_what_decides_where_pods_run_is_read_to_a_limit():
    parser = WorkloadParser(Configuration())

    def parse(tolerations: int) -> Any:
        spec = {"tolerations": [{"operator": "Exists"}] * tolerations, "containers": []}
        pod_set = {"name": "main", "count": 1, "template": {"spec": spec}}
        metadata = {"name": "w", "namespace": "t", "uid": "u"}
        document = {"metadata": metadata, "spec": {"queueName": "q", "podSets": [pod_set]}}
        return parser.parse(document, surroundings=PodSurroundings(Configuration()))

    assert parse(1_000).name == "w"
    with pytest.raises(ValueError, match="characters, and 32,768 are read at most"):
        parse(40_000)
