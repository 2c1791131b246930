"""What a fault on a road does to a program, and what it does not do to the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from clusters.errors import ClusterError, Gone, NotFound, ServerFault, Unreachable
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WatchOptions
from tests.faults.roads import Road
from tests.faults.traffic import Passage
from tests.faults.upstream import Upstream
from tests.reconcile.admission_harness import NS, Embedded, job

pytestmark = pytest.mark.embedded


class Way:
    """A road to an embedded cluster, a client on it, and one beside it."""

    def __init__(self, fleet: Embedded) -> None:
        self.passages: list[Passage] = []
        self.changes: list[tuple[str, str]] = []
        self.is_killed = False
        kubeconfig = fleet["solo"].kubeconfig
        self.road = Road(
            "program",
            "solo",
            Upstream.of(kubeconfig),
            passed=self.passages.append,
            at_change=self.at_change,
        )
        self.beside = fleet["solo"].client
        self.client = KubeClient.from_kubeconfig(self.road.kubeconfig)

    def at_change(self, road: Road, moment: str, what: str) -> bool:
        self.changes.append((moment, what.partition(" ")[0]))
        return self.is_killed

    def jobs(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.beside.list(r.JOB).items]


@pytest.fixture
def way() -> Iterator[Way]:
    with Embedded("solo") as fleet:
        way = Way(fleet)
        way.beside.create(
            r.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
        )
        with way.road, way.client:
            yield way


def refusal(way: Way, call: Any) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        call()
    return caught.value


def test_road_passes_requests_on_and_keeps_them(way):
    way.client.create(r.JOB, job("one"))
    assert way.jobs() == ["one"]
    assert [(p.method, p.code, p.is_injected) for p in way.passages] == [("POST", 201, False)]
    assert way.changes == [("before", "POST"), ("after", "POST")]


def test_road_that_is_cut_reaches_nobody_until_it_heals(way):
    way.road.cut()
    assert isinstance(refusal(way, lambda: way.client.create(r.JOB, job("one"))), Unreachable)
    assert way.jobs() == []
    way.road.heal()
    way.client.create(r.JOB, job("one"))
    assert way.jobs() == ["one"]


def test_road_answers_planned_errors_by_itself_and_only_of_their_kind(way):
    way.road.troubles.errors["writes"] += [503]
    assert way.client.list(r.JOB).items == []
    refused = refusal(way, lambda: way.client.create(r.JOB, job("one")))
    assert isinstance(refused, ServerFault)
    assert way.jobs() == []
    assert [p.is_injected for p in way.passages] == [False, True]
    way.client.create(r.JOB, job("one"))


def test_lost_answer_is_of_a_change_that_was_made(way):
    way.road.troubles.lost_answers = 1
    refusal(way, lambda: way.client.create(r.JOB, job("one")))
    assert way.jobs() == ["one"]
    assert way.client.get(r.JOB, "one", namespace=NS)["metadata"]["name"] == "one"


def test_change_of_a_killed_program_does_not_go_on(way):
    way.is_killed = True
    refusal(way, lambda: way.client.create(r.JOB, job("one")))
    assert way.changes == [("before", "POST")]
    with pytest.raises(NotFound):
        way.beside.get(r.JOB, "one", namespace=NS)


def watched(way: Way) -> Any:
    version = way.client.list(r.JOB).resource_version
    options = WatchOptions(resource_version=version, timeout_s=20, idle_timeout_s=25)
    return way.client.watch(r.JOB, options=options)


def test_slow_watch_tells_later_and_in_order(way):
    way.road.troubles.watch_lag_s = 0.5
    with watched(way) as stream:
        begun = time.monotonic()
        for name in ("one", "two"):
            way.beside.create(r.JOB, job(name, suspend=True))
        events = (e for e in stream if e.document.get("metadata", {}).get("name"))
        assert next(events).document["metadata"]["name"] == "one"
        assert time.monotonic() - begun >= 0.5


def test_dropped_watch_ends_and_the_next_one_may_be_told_that_it_is_too_old(way):
    with watched(way) as stream:
        way.road.drop()
        try:
            list(stream)
        except ClusterError as error:
            assert isinstance(error, Unreachable)
    way.road.troubles.expired_watches = 1
    assert isinstance(refusal(way, lambda: list(watched(way))), Gone)
