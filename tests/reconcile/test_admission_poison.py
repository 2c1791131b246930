"""Where one workload's fault ends in admission: in what is read, and in the engine's cycles."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from clusters.documents import labels
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.cycle.entries import Entry
from clusters.kueue.cycle.scheduler import Scheduler
from clusters.kueue.queueing.queue_set import QueueSet
from clusters.kueue.workload.parser import WorkloadParser
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.context import ShiftContext
from tests.reconcile.admission_harness import NS, Embedded, Place, is_true, job, quota_objects
from tests.waiting import eventually

pytestmark = pytest.mark.embedded
DIGITS = "9" * 5000
ANNOTATIONS = (
    labels.MIN_PARALLELISM,
    labels.POD_GROUP_TOTAL,
    labels.SLICE,
    labels.MAX_EXECUTION,
)


class Stage:
    """An admission shift whose body a test can look into."""

    def __init__(self, world: Embedded) -> None:
        self.place: Place = world["w1"]
        self.bodies: list[AdmissionBody] = []
        self.place.create(*quota_objects(8))
        self.shift = world.start("w1", "admission", body=self._body)

    def _body(self, context: ShiftContext) -> AdmissionBody:
        self.bodies.append(AdmissionBody(context))
        return self.bodies[-1]

    @property
    def says(self) -> str:
        """The newest sentence about what is set aside; empty when nothing is."""
        return self.bodies[0].faults.standing.says if self.bodies else ""

    def is_admitted(self, name: str) -> bool:
        assert not self.shift.is_over, self.shift.error
        return is_true(self.place.workload_of(name), "Admitted")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Embedded("w1") as world:
        yield Stage(world)


def bad_heads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names; a cycle that such a workload takes part in raises when it is half done."""
    process, bad = Scheduler._process, set[str]()

    def fail(self: Scheduler, entry: Entry, *about: object) -> None:
        process(self, entry, *about)
        if any(name in entry.workload.name for name in bad):
            raise RuntimeError(f"the poison of {entry.workload.name}")

    monkeypatch.setattr(Scheduler, "_process", fail)
    return bad


def test_digits_without_end_harm_nobody_else(stage: Stage):
    for number, name in enumerate(ANNOTATIONS):
        poisoned = job(f"poisoned-{number}", run_s=600)
        poisoned["metadata"]["annotations"][name] = DIGITS
        poisoned["metadata"]["annotations"][labels.ELASTIC] = "true"
        stage.place.create(poisoned)
    stage.place.create(job("good", gpus=4, run_s=600))
    eventually(lambda: stage.is_admitted("good"))


def test_workload_that_no_cycle_can_decide_about_is_set_aside_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    bad = bad_heads(monkeypatch)
    bad.add("poisoned")
    stage.place.create(job("first", gpus=2, run_s=600))
    eventually(lambda: stage.is_admitted("first"))
    stage.place.create(job("poisoned", gpus=2, run_s=600))
    eventually(lambda: "poisoned" in stage.says)
    assert "could not be decided on: RuntimeError: the poison" in stage.says
    stage.place.create(*(job(name, gpus=2, run_s=600) for name in ("second", "third")))
    eventually(lambda: stage.is_admitted("second") and stage.is_admitted("third"))
    assert not stage.is_admitted("poisoned")
    # What the engine was given anew is what it had: four of eight are left for no one else.
    stage.place.create(job("large", gpus=3, run_s=600))
    bad.clear()
    eventually(lambda: stage.is_admitted("poisoned"))
    eventually(lambda: not stage.says)
    assert not stage.is_admitted("large")


def test_workload_that_no_cycle_can_decide_about_is_tried_less_and_less(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    bad_heads(monkeypatch).add("poisoned")
    rebuilt: list[float] = []
    rebuild = AdmissionBody._rebuild

    def count(self: AdmissionBody) -> None:
        rebuilt.append(0.0)
        rebuild(self)

    monkeypatch.setattr(AdmissionBody, "_rebuild", count)
    stage.place.create(job("poisoned", gpus=2, run_s=600))
    eventually(lambda: len(rebuilt) >= 3)
    stage.place.create(job("good", gpus=2, run_s=600))
    eventually(lambda: stage.is_admitted("good"))
    stage.shift.stop()
    assert len(rebuilt) < 10


def test_only_together_bad_heads_let_others_in(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    run = Scheduler.run

    def fail(self: Scheduler, entries: Sequence[Entry], *, cycle: int) -> list[Entry]:
        if len({entry.queue.spec.name for entry in entries}) > 1:
            raise RuntimeError("only one at a time")
        return run(self, entries, cycle=cycle)

    monkeypatch.setattr(Scheduler, "run", fail)
    for namespace in ("acme-speech", "acme-robots"):
        stage.place.create(*(
            item for item in quota_objects(4, namespace=namespace)
            if item["kind"] != "ResourceFlavor"
        ))  # fmt: skip
    names = {"acme-speech": "one", "acme-robots": "two", NS: "three"}
    stage.place.create(*(job(name, namespace=at, run_s=600) for at, name in names.items()))
    for at, name in names.items():
        eventually(lambda at=at, name=name: is_true(stage.place.workload_of(name, at), "Admitted"))


@pytest.mark.parametrize(("owner", "name"), [(ClusterState, "settle"), (QueueSet, "heads")])
def test_what_fails_before_any_workload_is_looked_at_is_told_and_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
):
    stage.place.create(job("first", gpus=2, run_s=600))
    eventually(lambda: stage.is_admitted("first"))
    whole, is_bad, tries = getattr(owner, name), [True], list[float]()

    def fail(self: object, *about: object, **more: object) -> object:
        if is_bad:
            tries.append(time.monotonic())
            raise RuntimeError("the poison")
        return whole(self, *about, **more)

    monkeypatch.setattr(owner, name, fail)
    stage.place.create(job("second", gpus=2, run_s=600))
    eventually(lambda: len(tries) >= 4)
    assert "in the queues could not be decided on: RuntimeError: the poison" in stage.says
    # Each time after a longer pause than before.
    assert tries[3] - tries[2] > tries[1] - tries[0]
    assert not stage.is_admitted("second")
    assert stage.is_admitted("first")
    is_bad.clear()
    eventually(lambda: stage.is_admitted("second"))
    eventually(lambda: not stage.says)
    assert stage.is_admitted("first")


@pytest.mark.parametrize("where", ["read", "place"])
def test_workload_that_the_engine_cannot_take_in_is_set_aside_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str
):
    stage.place.create(job("first", gpus=4, run_s=600))
    eventually(lambda: stage.is_admitted("first"))
    owner, name = (WorkloadParser, "parse") if where == "read" else (ClusterState, "place")
    whole, is_bad, tries = getattr(owner, name), [True], list[float]()

    def fail(self: object, about: object, **more: object) -> object:
        found = whole(self, about, **more)
        if is_bad and "poisoned" in str(about):
            tries.append(time.monotonic())
            raise RuntimeError("the poison")
        return found

    monkeypatch.setattr(owner, name, fail)
    stage.place.create(job("poisoned", gpus=2, run_s=600))
    # The first time as it comes, then once more at each look at its key: told the same.
    eventually(lambda: len(tries) >= 4 and "poisoned" in stage.says)
    assert "could not be read" in stage.says and "the poison" in stage.says
    stage.place.create(job("good", gpus=4, run_s=600), job("large", gpus=1, run_s=600))
    eventually(lambda: stage.is_admitted("good") or stage.is_admitted("large"))
    assert not stage.is_admitted("poisoned")
    assert stage.is_admitted("first")
    is_bad.clear()
    eventually(lambda: not stage.says)


def test_quota_of_a_workload_that_became_unreadable_stays_taken(stage: Stage):
    stage.place.create(job("first", gpus=8, run_s=600))
    eventually(lambda: stage.is_admitted("first"))
    name = stage.place.workload_of("first")["metadata"]["name"]
    status = {"requeueState": {"count": 1, "requeueAt": "9" * 40}}
    server = stage.place.server
    assert server is not None
    stage.place.client.patch(
        r.WORKLOAD, name, {"status": status}, namespace=NS,
        options=WriteOptions(subresource="status"),
    )  # fmt: skip
    eventually(lambda: name in stage.says)
    stage.place.create(job("second", gpus=1, run_s=600))
    eventually(lambda: stage.place.workload_of("second"))
    assert not stage.is_admitted("second")
