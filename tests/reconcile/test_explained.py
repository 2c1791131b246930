"""Rows of reasons: written when something changed, dropped when nothing waits, never lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DataError, OperationalError

from budgets.selectors.clock import utc_now
from clusters.kueue.explanation.why import Explainer, Explanation
from clusters.models import PendingReason, Question, QueueShare, ShadowDifference, ShadowTally
from clusters.reconcile.explained import reporter as reporters
from clusters.reconcile.explained import store as stores
from clusters.reconcile.explained.reporter import Reporter, waiting_keys
from clusters.reconcile.explained.store import Batch, Comparison, ReasonStore
from clusters.reconcile.runtime.faults import Doing, Faults
from tests.builders import SmallFleet
from tests.kueue.builders import World, cluster_queue, group, quota, reserved, workload
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class Hall:
    """An engine with things that wait, and somebody who tells about them."""

    def __init__(self) -> None:
        self.world = World().feed(cluster_queue("q", group(f0=quota(8))))
        self.documents: dict[str, dict] = {}
        self.store, self.faults = ReasonStore("gpu-east"), Faults("gpu-east")
        self.reporter = Reporter(self.store, self.faults)
        self.store.start()

    def feed(self, *documents: dict) -> None:
        for document in documents:
            self.documents[f"ns/{document['metadata']['name']}"] = document
        self.world.feed(*documents)
        self.world.run()

    def work(self) -> None:
        self.reporter._due_at = 0.0
        eventually(lambda: self.reporter.is_due)
        self.reporter.work(self.world.engine, self.documents, now=self.world.now)
        eventually(lambda: self.store.is_free)

    def tell(self) -> None:
        self.reporter._due_at = 0.0
        eventually(lambda: self.reporter.is_due)
        engine, now = self.world.engine, self.world.now
        explain = Explainer(engine, now=now).explain
        self.reporter.tell(waiting_keys(engine), explain, self.documents, now=now)
        eventually(lambda: self.store.is_free)

    def gone(self, name: str) -> None:
        self.world.engine.delete("Workload", key=f"ns/{name}", now=self.world.now)


@pytest.fixture
def hall(fleet: SmallFleet):
    hall = Hall()
    yield hall
    hall.store.close()


def differing(uid: str, kind: str, name: str, says: dict, did: dict) -> ShadowDifference:
    return ShadowDifference(
        uid=uid, kind=kind, namespace="ns", name=name, portal_says=says, kueue_did=did
    )


def row(name: str) -> PendingReason:
    return PendingReason.objects.get(name=name)


def test_what_was_told_rests_until_something_changes(hall: Hall, monkeypatch):
    """Thousands that wait would be explained anew every two seconds, all of them as before."""
    looked_at: list[str] = []

    def explain(self: Explainer, key: str) -> Explanation | None:
        looked_at.append(key)
        return told(self, key)

    def work() -> list[str]:
        looked_at.clear()
        hall.work()
        return list(looked_at)

    told = Explainer.explain
    monkeypatch.setattr(Explainer, "explain", explain)
    hall.feed(reserved(workload("first", "q", gpus=8), "q"), workload("second", "q", gpus=4))
    assert work() == work() == ["ns/second"], "once more, for it may have changed meanwhile"
    assert work() == []
    hall.reporter.stir()
    assert work() == ["ns/second"]
    assert work() == []
    hall.gone("first")
    assert work() == ["ns/second"], "the engine knows something new"
    hall.reporter.mark(["ns/second"])
    assert work() == ["ns/second"]
    hall.faults.park("Workload ns/other", ValueError("no"), doing=Doing.READING)
    assert work() == ["ns/second"], "and so does who sets aside"
    hall.reporter._still_until = 0.0
    assert work() == ["ns/second"], "time passes, too"


def test_first_to_wait_is_told_of_at_once(hall: Hall):
    """While nobody waits everybody was told, which is no reason to rest when somebody comes."""

    hall.feed(reserved(workload("first", "q", gpus=8), "q"))
    hall.work()
    hall.work()
    hall.feed(workload("second", "q", gpus=4))
    hall.work()
    assert row("second").evidence["reason"] == "WaitingForQuota"


def test_row_follows_what_waits(hall: Hall):
    hall.feed(reserved(workload("first", "q", gpus=8), "q"), workload("second", "q", gpus=4))
    hall.tell()
    found = row("second")
    assert (found.cluster, found.namespace, found.uid) == ("gpu-east", "ns", "uid-second")
    assert found.evidence["reason"] == "WaitingForQuota"
    assert found.evidence["lacking"] == {"f0/nvidia.com/gpu": 4}
    hall.gone("second")
    hall.tell()
    assert not PendingReason.objects.exists()


def test_row_is_written_only_when_its_evidence_changed(hall: Hall):
    hall.feed(reserved(workload("first", "q", gpus=8), "q"), workload("second", "q", gpus=4))
    hall.tell()
    before = row("second")
    hall.world.now += timedelta(minutes=1)
    hall.tell()
    assert row("second").updated_at == before.updated_at
    hall.feed(workload("more", "q", gpus=2, priority=5))
    hall.tell()
    after = row("second")
    assert after.evidence["position"] == 2
    assert after.updated_at > before.updated_at
    assert after.since == before.since


def test_reason_is_as_old_as_it_is_also_for_the_next_shift(hall: Hall):
    hall.feed(reserved(workload("first", "q", gpus=8), "q"), workload("second", "q", gpus=4))
    hall.tell()
    since = row("second").since
    hall.world.now += timedelta(minutes=1)
    hall.reporter = Reporter(hall.store, hall.faults)
    hall.tell()
    assert row("second").since == since
    hall.feed(cluster_queue("q", group(f0=quota(2))))
    hall.documents.pop("ns/q")
    hall.tell()
    assert row("second").evidence["reason"] == "ExceedsMaxQuota"
    assert row("second").since > since


def test_rows_of_an_earlier_shift_that_wait_no_more_are_dropped(hall: Hall):
    now = hall.world.now
    PendingReason.objects.create(
        cluster="gpu-east", uid="u", namespace="ns", name="x", evidence={"reason": "r"},
        since=now, updated_at=now,
    )  # fmt: skip
    PendingReason.objects.create(
        cluster="gpu-west", uid="u", namespace="ns", name="x", evidence={"reason": "r"},
        since=now, updated_at=now,
    )  # fmt: skip
    hall.reporter = Reporter(hall.store, hall.faults)
    hall.tell()
    assert [item.cluster for item in PendingReason.objects.all()] == ["gpu-west"]


def test_workload_that_cannot_be_explained_keeps_no_other_from_it(hall: Hall, monkeypatch):
    whole, bad = reporters.evidence_of, ["second"]

    def fail(explanation: Explanation, document: dict) -> dict:
        if document["metadata"]["name"] in bad:
            raise ValueError("no words")
        return whole(explanation, document)

    monkeypatch.setattr(reporters, "evidence_of", fail)
    hall.feed(reserved(workload("first", "q", gpus=8), "q"))
    hall.feed(workload("second", "q", gpus=4), workload("third", "q", gpus=2))
    hall.tell()
    assert list(PendingReason.objects.values_list("name", flat=True)) == ["third"]
    assert "ns/second could not be decided on" in hall.faults.standing.says
    bad.clear()
    hall.tell()
    assert row("second")
    assert not hall.faults.standing.parked


def test_large_crowd_is_told_in_slices_newest_decision_first(hall: Hall, monkeypatch):
    monkeypatch.setattr(reporters, "SLICE", 10)
    hall.feed(reserved(workload("first", "q", gpus=8), "q"))
    hall.feed(*(workload(f"w{number:02}", "q", gpus=4, age=number) for number in range(25)))
    hall.reporter.mark(["ns/w24"])
    hall.tell()
    names = set(PendingReason.objects.values_list("name", flat=True))
    assert len(names) == 10
    assert "w24" in names
    hall.tell()
    hall.tell()
    assert PendingReason.objects.count() == 25


def test_batch_waits_for_a_database_that_is_away(hall: Hall, monkeypatch):
    monkeypatch.setattr(stores, "RETRY_S", 0.05)
    whole, failures = ReasonStore._write_batch, []

    def fails_twice(self: ReasonStore, batch: Batch) -> None:
        if len(failures) < 2:
            failures.append(1)
            raise OperationalError("away")
        whole(self, batch)

    monkeypatch.setattr(ReasonStore, "_write_batch", fails_twice)
    hall.feed(reserved(workload("first", "q", gpus=8), "q"), workload("second", "q", gpus=4))
    hall.tell()
    assert row("second")
    assert len(failures) == 2


def test_row_that_is_refused_holds_no_other_up_and_is_told_again(hall: Hall, monkeypatch):
    whole, refused = ReasonStore._write_batch, ["uid-second"]

    def refuses(self: ReasonStore, batch: Batch) -> None:
        if any(item.uid in refused for item in batch.rows):
            raise DataError("no such text")
        whole(self, batch)

    monkeypatch.setattr(ReasonStore, "_write_batch", refuses)
    hall.feed(reserved(workload("first", "q", gpus=8), "q"))
    hall.feed(workload("second", "q", gpus=4), workload("third", "q", gpus=2))
    hall.tell()
    assert list(PendingReason.objects.values_list("name", flat=True)) == ["third"]
    refused.clear()
    hall.tell()
    assert row("second")


def test_answer_that_is_refused_is_told_as_such(hall: Hall):
    question, other = (
        Question.objects.create(cluster="gpu-east", asked={"changes": []}, created_at=utc_now())
        for _ in range(2)
    )
    taken = {found.id: found for found in (eventually(hall.store.take_question) for _ in range(2))}
    # No database has a word for it.
    hall.store.answer(taken[question.pk], {"wait": float("nan")}, "")
    hall.store.answer(taken[other.pk], {"fine": True}, "")
    eventually(lambda: Question.objects.filter(pk=other.pk, answer={"fine": True}).exists())
    question.refresh_from_db()
    assert (question.answer, question.problem) == (None, "The answer could not be stored.")


def test_comparisons_add_up_and_a_difference_is_one_row_with_a_count(hall: Hall):
    now = hall.world.now
    says, did = {"decision": "pending"}, {"decision": "admitted"}
    item = differing("u", "admission", "w", says, did)
    for _ in range(2):
        hall.store.put_comparison(Comparison(now, 5, 1, [item]))
    eventually(lambda: ShadowTally.objects.filter(compared=10).exists())
    tally = eventually(ShadowTally.objects.first)
    assert (tally.compared, tally.different, tally.passed_over) == (10, 2, 2)
    found = eventually(ShadowDifference.objects.first)
    assert (found.count, found.portal_says, found.kueue_did) == (2, says, did)


def test_oldest_differences_make_room(hall: Hall, monkeypatch):
    monkeypatch.setattr(stores, "MOST_DIFFERENCES", 3)
    now = hall.world.now
    for number in range(5):
        item = differing(f"u{number}", "pending", f"w{number}", {}, {})
        hall.store.put_comparison(Comparison(now + timedelta(seconds=number), 1, 0, [item]))
    eventually(lambda: ShadowTally.objects.filter(compared=5).exists())
    kept = ShadowDifference.objects.values_list("name", flat=True)
    eventually(lambda: sorted(kept.all()) == ["w2", "w3", "w4"])


FAIR = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}


def shown(hall: Hall, world: World) -> list[tuple[str, str, int, int]]:
    """Have the shares of a world told, and what is stored afterwards."""
    hall.reporter._shares_due_at = 0.0
    eventually(lambda: hall.store.takes_shares)
    hall.reporter.show_shares(world.engine)
    eventually(lambda: hall.store.takes_shares)
    rows = QueueShare.objects.filter(cluster="gpu-east").order_by("name")
    return list(rows.values_list("name", "weight", "borrowed", "share"))


def test_shares_follow_the_queues_and_are_written_when_they_change(hall: Hall):
    QueueShare.objects.create(
        cluster="gpu-west", is_cohort=False, name="a", parent="pool", weight="1",
        borrowed=1, lendable=2, share=500, updated_at=utc_now(),
    )  # fmt: skip
    world = World(FAIR).feed(
        cluster_queue("a", group(f0=quota(0)), in_cohort="pool", fairSharing={"weight": "500m"}),
        cluster_queue("b", group(f0=quota(8)), in_cohort="pool"),
        reserved(workload("w", "a", gpus=2), "a"),
    )
    assert shown(hall, world) == [("a", "0.5", 2, 500), ("b", "1", 0, 0)]
    before = QueueShare.objects.get(cluster="gpu-east", name="a").updated_at
    assert shown(hall, world)[0][0] == "a"
    assert QueueShare.objects.get(cluster="gpu-east", name="a").updated_at == before
    world.engine.delete("Workload", key="ns/w", now=world.now)
    world.engine.delete("ClusterQueue", key="b", now=world.now)
    assert shown(hall, world) == [("a", "0.5", 0, 0)]
    # Where fair sharing is off nobody goes first for a share; other clusters keep theirs.
    assert shown(hall, hall.world) == []
    assert QueueShare.objects.get().cluster == "gpu-west"


def test_shares_wait_for_a_database_that_is_away(hall: Hall, monkeypatch):
    monkeypatch.setattr(stores, "RETRY_S", 0.01)
    failures = iter([True, True])
    write = ReasonStore._write_shares

    def fails_twice(self: ReasonStore, rows: list[QueueShare]) -> None:
        if next(failures, False):
            raise OperationalError("away")
        write(self, rows)

    monkeypatch.setattr(ReasonStore, "_write_shares", fails_twice)
    world = World(FAIR).feed(cluster_queue("a", group(f0=quota(4)), in_cohort="pool"))
    assert shown(hall, world) == [("a", "1", 0, 0)]
