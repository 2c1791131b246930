"""The cache: which of two states is newer, and what indexes find."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.kube import resources as r
from clusters.reconcile.runtime.cache import Cache, Index
from clusters.reconcile.runtime.job_cache import JobCache

Document = dict[str, Any]


def workload(name: str = "w", *, uid: str = "", version: int = 1, **metadata: Any) -> Document:
    found = {"name": name, "namespace": "n", "uid": uid or f"u-{name}"}
    return {"metadata": {**found, "resourceVersion": str(version), **metadata}}


def owned(name: str, owner: str, *, version: int = 1) -> Document:
    return workload(name, version=version, ownerReferences=[{"uid": owner}])


def by_color() -> Cache:
    return Cache([Index("color", frozenset({r.WORKLOAD}), lambda d: d["metadata"]["colors"])])


@pytest.mark.parametrize(
    ("first", "second", "is_news"),
    [
        pytest.param(workload(version=1), workload(version=2), True, id="newer"),
        pytest.param(workload(version=2), workload(version=1), False, id="older"),
        pytest.param(workload(version=2), workload(version=2), False, id="the same"),
        pytest.param(workload(version=9), workload(version=10), True, id="by number, not text"),
        pytest.param(
            workload(uid="a", version=9), workload(uid="b", version=1), True, id="another object"
        ),
    ],
)
def test_the_newer_state_stands(first: Document, second: Document, is_news: bool):
    cache = Cache()
    assert cache.put(r.WORKLOAD, first)
    assert cache.put(r.WORKLOAD, second) is is_news
    is_same = first == second
    assert cache.get(r.WORKLOAD, "n/w") is (second if is_news or is_same else first)


def test_of_one_state_the_copy_of_the_watch_is_kept():
    cache, answer, watched = Cache(), workload(version=2), workload(version=2)
    assert cache.put(r.WORKLOAD, answer)
    assert cache.has(r.WORKLOAD, watched)
    assert not cache.put(r.WORKLOAD, watched)
    assert cache.get(r.WORKLOAD, "n/w") is watched


def test_of_one_state_that_is_told_in_two_ways_the_first_stands():
    cache, first = Cache(), workload(version=2)
    cache.put(r.WORKLOAD, first)
    cache.put(r.WORKLOAD, workload(version=2, labels={"told": "otherwise"}))
    assert cache.get(r.WORKLOAD, "n/w") is first


@pytest.mark.parametrize(
    "other",
    [workload(version=1), workload(version=3), workload(uid="b", version=2), workload("x")],
    ids=["older", "newer", "another object", "another name"],
)
def test_another_state_is_not_there(other: Document):
    cache = Cache()
    cache.put(r.WORKLOAD, workload(version=2))
    assert not cache.has(r.WORKLOAD, other)


def test_an_answer_that_comes_after_the_deletion_does_not_bring_it_back():
    cache = Cache()
    cache.put(r.WORKLOAD, workload(version=1))
    assert cache.drop(r.WORKLOAD, workload(version=3))
    assert not cache.put(r.WORKLOAD, workload(version=2))
    assert cache.put(r.WORKLOAD, workload(uid="next", version=4))


def test_a_deletion_of_one_object_leaves_the_next_of_its_name():
    cache = Cache()
    cache.put(r.WORKLOAD, workload(uid="new"))
    assert not cache.drop(r.WORKLOAD, workload(uid="old"))
    assert not cache.drop(r.WORKLOAD, workload("unknown"))
    assert cache.get(r.WORKLOAD, "n/w")


def test_a_document_that_cannot_be_indexed_leaves_everything_as_it_was():
    cache = by_color()
    cache.put(r.WORKLOAD, workload(colors=["red"]))
    with pytest.raises(KeyError):
        cache.put(r.WORKLOAD, workload(version=2))
    assert [d["metadata"]["resourceVersion"] for d in cache.found("color", "red")] == ["1"]


def test_indexes_follow_what_documents_say():
    cache = by_color()
    cache.put(r.WORKLOAD, workload("a", colors=["red", "blue", "red"]))
    cache.put(r.WORKLOAD, workload("b", colors=["red"]))
    assert list(cache.places("color", "red")) == [(r.WORKLOAD, "n/a"), (r.WORKLOAD, "n/b")]
    assert cache.newest("color", "red") == "n/b" and cache.newest("color", "green") == ""
    cache.put(r.WORKLOAD, workload("a", version=2, colors=["green"]))
    assert set(cache.values("color")) == {"red", "green"}
    cache.drop(r.WORKLOAD, workload("b"))
    assert set(cache.values("color")) == {"green"} and not cache.found("color", "red")


names = st.sampled_from("abc")
steps = st.lists(
    st.tuples(names, st.booleans(), st.lists(st.sampled_from(["red", "blue"]), max_size=2)),
    max_size=30,
)


@given(steps)
def test_an_index_is_always_what_a_walk_over_all_would_find(done: list[Any]):
    cache = by_color()
    for version, (name, is_gone, colors) in enumerate(done, start=1):
        document = workload(name, uid=f"{name}{version // 7}", version=version, colors=colors)
        if is_gone:
            cache.drop(r.WORKLOAD, cache.get(r.WORKLOAD, f"n/{name}") or document)
        else:
            cache.put(r.WORKLOAD, document)
    for color in ("red", "blue"):
        walked = {k for k, d in cache.of(r.WORKLOAD).items() if color in d["metadata"]["colors"]}
        assert {key for _, key in cache.places("color", color)} == walked


def test_workloads_are_found_by_owner_and_uid_and_by_what_they_replace():
    cache = JobCache()
    cache.put(r.WORKLOAD, owned("a", "job"))
    cache.put(r.WORKLOAD, owned("b", "job"))
    job = {"metadata": {"name": "j", "namespace": "n", "uid": "job"}, "kind": "Job"}
    assert set(cache.siblings_of(job)) == {"n/a", "n/b"}
    assert cache.workload_by_uid("u-a") is cache.get(r.WORKLOAD, "n/a")
    assert cache.workload_by_uid("nobody") is None
    slice_of = {"kueue.x-k8s.io/workload-slice-replacement-for": "n/a"}
    cache.put(r.WORKLOAD, workload("c", annotations=slice_of))
    assert cache.successor_of("n/a") is cache.get(r.WORKLOAD, "n/c") is not None
    assert cache.successor_of("n/b") is None
    cache.drop(r.WORKLOAD, workload("c"))
    assert cache.successor_of("n/a") is None


@pytest.mark.parametrize("has_writers", [False, True])
def test_who_wrote_what_is_kept_only_where_it_is_asked_for(has_writers: bool):
    cache = Cache(has_writers=has_writers)
    cache.put(r.WORKLOAD, workload(managedFields=[{"manager": "kueue", "fieldsV1": {}}]))
    cache.put(r.WORKLOAD, workload("other", managedFields=[{"manager": "x"}]))
    kept = ["managedFields" in found["metadata"] for found in cache.of(r.WORKLOAD).values()]
    assert kept == [has_writers] * 2
