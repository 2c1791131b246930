"""What the fuzzer found, each alone: what is nonsense is set aside cheaply, and says why."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from budgets.intervals.documents import BadDocument, needed_fields, read_payload
from clusters.devcluster.controllers import is_finished
from clusters.documents import labels
from clusters.explaining.evidence import read_evidence
from clusters.explaining.names import Names
from clusters.explaining.sentence import sentence
from clusters.jobs import leader_worker_sets
from clusters.jobs.table import kind_of, seen_from
from clusters.kube import resources as r
from clusters.kube.client import Selection, WriteOptions
from clusters.kueue.workload.parser import parse_time
from clusters.kueue.workload.placement import parse_placement
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.explained.reporter import Reporter
from clusters.reconcile.runtime.faults import TRIES_PER_S, Doing, Faults
from clusters.reconcile.runtime.queue import WorkQueue
from clusters.reconcile.runtime.writer import Moment, Write
from portal.web.tags import when_exactly
from tests.builders import SmallFleet
from tests.fuzz.grounds import portal
from tests.fuzz.stream import sound
from tests.reconcile.admission_harness import (
    NS,
    Document,
    Embedded,
    is_true,
    job,
    quota_objects,
)
from tests.reconcile.custom_kinds import INTEGRATIONS, serve
from tests.waiting import eventually

SETS_INTEGRATION = "leaderworkerset.x-k8s.io/leaderworkerset"
SETS = INTEGRATIONS[SETS_INTEGRATION]
MANY = leader_worker_sets.REPLICAS_MOST
STATUS = WriteOptions(subresource="status")


def large_set(**worker: Any) -> Document:
    found = sound(random.Random(0), SETS)
    found |= {"apiVersion": SETS.api_version, "kind": SETS.kind}
    found["metadata"] |= {"name": "large", "namespace": NS, "uid": "u"}
    found["spec"] |= {"replicas": MANY}
    found["spec"]["leaderWorkerTemplate"] |= worker
    return found


@pytest.fixture
def world() -> Iterator[Embedded]:
    with Embedded("w1", webhooks=True) as world:
        world["w1"].create(*quota_objects(8))
        yield world


def test_thousand_replicas_are_named_once_and_not_once_for_each():
    document, named = large_set(), leader_worker_sets.replica_workload_name
    leader_worker_sets._replica_by_name.cache_clear()
    with mock.patch.object(leader_worker_sets, "replica_workload_name", side_effect=named) as asked:
        for key in leader_worker_sets.replica_by_name(document):
            kind_of(document).is_surplus(
                seen_from(document, f"{NS}/{key}"), {"metadata": {"name": key}}
            )
    assert asked.call_count == MANY


@pytest.mark.embedded
def test_thousand_replicas_that_are_refused_are_one_write(
    world: Embedded, monkeypatch: pytest.MonkeyPatch
):
    serve(monkeypatch, SETS)
    sent: list[Write] = []

    def hook(moment: Moment, cluster: str, write: Write) -> None:
        if moment is Moment.BEFORE and write.step == "refuse":
            sent.append(write)

    document = large_set(size=2**31)
    del document["metadata"]["uid"]
    place = world["w1"]
    place.client.create(SETS, document)
    world.start(
        "w1", "admission", body=lambda context: AdmissionBody(context, hook=hook),
        kueue_configuration={"integrations": {"frameworks": ["batch/job", SETS_INTEGRATION]}},
    )  # fmt: skip
    place.create(job("good", run_s=600))
    eventually(lambda: is_true(place.workload_of("good"), "Admitted"), seconds=5)
    eventually(lambda: sent)
    assert len(sent) == 1
    told = place.client.get(SETS, "large", namespace=NS)["metadata"]["annotations"]
    assert "spec.leaderWorkerTemplate.size" in told[labels.REFUSED]


@pytest.mark.embedded
def test_thousand_writes_of_one_tenant_are_not_before_everybody_elses_first(
    world: Embedded, monkeypatch: pytest.MonkeyPatch
):
    serve(monkeypatch, SETS)
    made: list[str] = []

    def hook(moment: Moment, cluster: str, write: Write) -> None:
        if moment is Moment.BEFORE and write.step == "create-workload":
            made.append(write.namespace)

    crowd, place = large_set(), world["w1"]
    del crowd["metadata"]["uid"]
    crowd["metadata"]["namespace"] = "crowd"
    place.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowd"}})
    place.client.create(SETS, crowd)
    world.start(
        "w1", "admission", body=lambda context: AdmissionBody(context, hook=hook),
        kueue_configuration={"integrations": {"frameworks": ["batch/job", SETS_INTEGRATION]}},
    )  # fmt: skip
    eventually(lambda: len(made) > 20)
    place.create(job("good", run_s=600))
    eventually(lambda: NS in made)
    assert made.index(NS) < MANY // 2
    eventually(lambda: is_true(place.workload_of("good"), "Admitted"), seconds=5)


@pytest.mark.embedded
@pytest.mark.django_db
def test_dispatch_looks_at_a_set_a_few_times_for_each_of_its_workloads(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
):
    serve(monkeypatch, SETS)
    looked: list[str] = []
    handle = DispatchBody.handle

    def counted(body: DispatchBody, key: tuple[str, str]) -> None:
        looked.append(key[0])
        handle(body, key)

    monkeypatch.setattr(DispatchBody, "handle", counted)
    replicas = 100
    with portal(Embedded("manager", "w1", webhooks=True), fleet) as ground:
        crowd, manager = large_set(), ground.places[0]
        del crowd["metadata"]["uid"]
        crowd["spec"]["replicas"] = replicas
        crowd["metadata"]["namespace"] = "acme-speech"
        manager.client.create(SETS, crowd)
        there = Selection(namespace="acme-speech")
        eventually(lambda: len(manager.client.list(r.WORKLOAD, there).items) == replicas)
        ground.good(0)
        ground.check()
    assert len(looked) < 20 * replicas, len(looked)


def test_set_without_templates_is_refused_and_not_stumbled_over():
    document = large_set()
    del document["spec"]["leaderWorkerTemplate"]
    kind = kind_of(document)
    assert kind.fault(document) == ""
    assert "no scheduling gate" in kind.refusal(document)
    assert not kind.is_clear(document)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00Z"]
)
def test_times_at_the_ends_of_the_calendar_are_times(text: str):
    found = parse_time(text)
    assert found is not None
    assert found.tzinfo is UTC
    assert found.year in (1, 9999)


@pytest.mark.parametrize(
    ("instant", "zone"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "America/New_York"),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), "Asia/Tokyo"),
    ],
)
def test_times_at_the_ends_of_the_calendar_are_shown(instant: datetime, zone: str):
    with timezone.override(zone):
        assert f"{instant.day:02} " in when_exactly(instant)


@pytest.mark.parametrize("year", ["0001", "1999", "2200"])
def test_nothing_is_metered_since_the_year_1(year: str):
    document = {
        "metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [
            {"type": "QuotaReserved", "lastTransitionTime": f"{year}-01-01T00:00:00Z"},
        ]},
    }  # fmt: skip
    with pytest.raises(BadDocument, match="no year"):
        read_payload(json.dumps(needed_fields(document)))


@pytest.mark.embedded
def test_execution_time_beyond_all_calendars_never_ends(world: Embedded):
    place, bodies = world["w1"], list[AdmissionBody]()

    def body(context: ShiftContext) -> AdmissionBody:
        bodies.append(AdmissionBody(context))
        return bodies[-1]

    first = job("first", run_s=600)
    first["metadata"]["labels"][labels.MAX_EXECUTION] = str(2**31 - 1)
    place.create(first)
    world.start("w1", "admission", body=body)
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    found = place.workload_of("first")
    assert found is not None
    conditions = copy.deepcopy(found["status"]["conditions"])
    for row in conditions:
        row["lastTransitionTime"] = "9999-12-31T23:59:59Z"
    name, status = found["metadata"]["name"], {"conditions": conditions}
    place.client.patch(r.WORKLOAD, name, {"status": status}, namespace=NS, options=STATUS)
    place.create(job("second", run_s=600))
    eventually(lambda: is_true(place.workload_of("second"), "Admitted"), seconds=5)
    assert not bodies[0].faults.standing.parked


def test_places_that_a_few_bytes_name_are_not_built():
    section = {
        "domainCount": 60_000,
        "valuesPerLevel": [{"universal": "a"}],
        "podCounts": {"universal": 1},
    }
    placed = {"levels": ["kubernetes.io/hostname"], "slices": [section]}
    assert parse_placement(placed) is not None
    with pytest.raises(ValueError, match="more than 100000 domains"):
        parse_placement({**placed, "slices": [section, section]})
    with pytest.raises(ValueError, match="more than 100000 domains"):
        negative = {**section, "domainCount": -60_000}
        parse_placement({**placed, "slices": [negative, section, section]})


def test_parked_keys_together_are_tried_a_few_times_a_second():
    faults, queue, now = Faults("c"), WorkQueue[str](), 0.0
    for number in range(10_000):
        faults.park(f"Workload a/{number}", ValueError("x"), doing=Doing.WRITING)
    waits = [
        queue.retry(str(number), now, cap_s=60.0, least_s=faults.pause_s) for number in range(10)
    ]
    assert min(waits) == 10_000 / TRIES_PER_S


@pytest.mark.embedded
def test_jobs_that_no_server_takes_a_workload_of_are_tried_less_and_less(world: Embedded):
    """A queue's name that is none: the Workload is refused, time after time."""
    tries: list[Write] = []

    def hook(moment: Moment, cluster: str, write: Write) -> None:
        if moment is Moment.BEFORE and write.step == "create-workload" and "bad" in write.name:
            tries.append(write)

    place = world["w1"]
    for number in range(40):
        bad = job(f"bad-{number}")
        bad["metadata"]["labels"][labels.QUEUE] = "no_name"
        place.create(bad)
    world.start("w1", "admission", body=lambda context: AdmissionBody(context, hook=hook))
    eventually(lambda: len(tries) >= 80)
    begun, before = datetime.now(UTC), len(tries)
    place.create(job("good", run_s=600))
    eventually(lambda: is_true(place.workload_of("good"), "Admitted"), seconds=5)
    eventually(lambda: (datetime.now(UTC) - begun).total_seconds() > 4)
    # Forty keys, which rest four seconds at least from the time on when all of them are parked.
    assert len(tries) - before <= 2 * 40


@pytest.mark.embedded
def test_what_is_set_aside_says_so_in_an_event_of_the_job(world: Embedded):
    place = world["w1"]
    bad = job("bad")
    bad["metadata"]["labels"][labels.QUEUE] = "no_name"
    place.create(bad)
    world.start("w1", "admission")

    def told() -> list[str]:
        return [
            event["message"]
            for event in place.all(r.EVENT)
            if event["involvedObject"]["name"] == "bad" and event["reason"] == "SetAside"
        ]

    eventually(told)
    [message] = told()
    assert "It could not be written: Invalid" in message
    assert "no_name" in message
    assert "Correct it" in message


class Store:
    """Keeps the newest batch of reasons."""

    is_free = True
    takes_shares = False

    def __init__(self) -> None:
        self.rows: dict[str, Document] = {}

    def known(self) -> dict[str, Any]:
        return {}

    def start(self) -> None: ...

    def close(self) -> None: ...

    def take_question(self) -> None: ...

    def take_refused(self) -> tuple[str, ...]:
        return ()

    def put(self, batch: Any) -> None:
        self.rows.update({row.name: row.evidence for row in batch.rows})


@pytest.mark.embedded
def test_what_is_set_aside_says_so_on_its_page(world: Embedded, monkeypatch: pytest.MonkeyPatch):
    place, store = world["w1"], Store()

    def body(context: ShiftContext) -> AdmissionBody:
        reader = Reporter(store, context.faults)  # type: ignore[arg-type]
        return AdmissionBody(context, reader=reader)

    world.start("w1", "admission", body=body)
    place.create(job("bad", gpus=100))
    eventually(lambda: place.workload_of("bad"))
    found = place.workload_of("bad")
    assert found is not None
    name = found["metadata"]["name"]
    status = {"requeueState": {"count": 1, "requeueAt": "9" * 40}}
    place.client.patch(r.WORKLOAD, name, {"status": status}, namespace=NS, options=STATUS)
    eventually(lambda: (store.rows.get(name) or {}).get("reason") == "SetAside")
    says = sentence(read_evidence(store.rows[name]), Names(None))
    assert says.startswith("The portal has set it aside, and tries again from time to time: ")
    assert "month must be in 1..12" in says


@pytest.mark.embedded
def test_job_that_the_embedded_controller_cannot_read_stops_no_other(world: Embedded):
    place = world["w1"]
    place.create(job("bad", suspend=False, run_s=0.1))
    status = {"startTime": "never", "conditions": [{"status": "True"}]}
    place.client.patch(r.JOB, "bad", {"status": status}, namespace=NS, options=STATUS)
    place.create(job("good", suspend=False, run_s=0.1))
    eventually(lambda: is_finished(place.job("good") or {}))
