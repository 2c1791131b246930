"""The pool: whatever work raises comes back as an answer. Faults: counted, told once, cleared."""

from __future__ import annotations

import logging
import queue
import threading

import pytest

from clusters.errors import Conflict, Forbidden, LeaseLost, NotFound, Refusal
from clusters.kube import resources as r
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.faults import ALL_WELL, Doing, Faults
from clusters.reconcile.runtime.pool import Answer, Pool, reading, sending
from clusters.reconcile.runtime.writer import Verb, Write, Writer, WritingStopped
from tests.waiting import PATIENCE_S

SEEN = Effect("", r.WORKLOAD, "n/w", {"metadata": {"name": "w"}})


@pytest.mark.parametrize(
    ("raised", "field"),
    [
        pytest.param(Conflict(Refusal("x")), "error", id="an answer of the cluster"),
        pytest.param(ValueError("x"), "error", id="anything else"),
        pytest.param(WritingStopped("x"), "is_stopped", id="writing is off"),
        pytest.param(LeaseLost(Refusal("x")), "fatal", id="the lease is lost"),
        pytest.param(SystemExit(), "fatal", id="the process ends"),
    ],
)
def test_what_work_raises_is_answered_with_what_it_did_before(raised: BaseException, field: str):
    answers: queue.SimpleQueue[Answer[str]] = queue.SimpleQueue()
    pool: Pool[str] = Pool(answers.put, threads=1, name="test")

    def work(effects: list[Effect]) -> None:
        effects.append(SEEN)
        raise raised

    pool.start("key", work, about="about")
    found = answers.get(timeout=PATIENCE_S)
    pool.close()
    assert (found.key, found.about, found.effects) == ("key", "about", (SEEN,))
    assert getattr(found, field) in (raised, True)
    others = {"error", "is_stopped", "fatal"} - {field}
    assert not any(getattr(found, name) for name in others)


def test_a_lane_that_hangs_keeps_only_itself_waiting():
    answers: queue.SimpleQueue[Answer[str]] = queue.SimpleQueue()
    pool: Pool[str] = Pool(answers.put, threads=1, name="test")
    gate = threading.Event()
    pool.start("slow", lambda effects: gate.wait(PATIENCE_S) and None, lane="east")
    pool.start("behind", lambda effects: None, lane="east")
    pool.start("quick", lambda effects: None, lane="west")
    assert answers.get(timeout=PATIENCE_S).key == "quick"
    gate.set()
    assert [answers.get(timeout=PATIENCE_S).key for _ in range(2)] == ["slow", "behind"]
    pool.close()


def test_work_of_one_namespace_waits_for_one_of_each_other_and_not_for_all_of_them():
    answers: queue.SimpleQueue[Answer[str]] = queue.SimpleQueue()
    pool: Pool[str] = Pool(answers.put, threads=1, name="test")
    gate = threading.Event()
    for number in range(20):
        pool.start(f"crowd/{number}", lambda effects: gate.wait(PATIENCE_S) and None)
    pool.start("quiet/one", lambda effects: None)
    gate.set()
    order = [answers.get(timeout=PATIENCE_S).key for _ in range(21)]
    pool.close()
    assert order.index("quiet/one") <= 2
    assert [key for key in order if key != "quiet/one"] == [f"crowd/{n}" for n in range(20)]


class Server:
    """One object that can be patched and deleted."""

    def patch(self, *args: object, **more: object) -> dict[str, object]:
        return {"metadata": {"name": "w", "namespace": "n"}}

    def delete(self, *args: object, **more: object) -> None:
        return None

    def get(self, resource: object, name: str, *, namespace: str | None) -> dict[str, object]:
        if name == "gone":
            raise NotFound(Refusal("no"))
        return {"metadata": {"name": name, "namespace": namespace}}


def test_a_write_shows_what_it_made_and_a_deletion_leaves_that_to_the_watch():
    writer = Writer(Server(), cluster="east", fence=lambda: None, may_write=lambda: True)  # type: ignore[arg-type]
    effects: list[Effect] = []
    sending(writer, Write("x", Verb.PATCH, r.WORKLOAD, "n", "w", {}), cluster="east")(effects)
    sending(writer, Write("x", Verb.DELETE, r.WORKLOAD, "n", "w"), cluster="east")(effects)
    assert [(item.cluster, item.key) for item in effects] == [("east", "n/w")]


def test_what_is_read_and_not_there_is_an_effect_too():
    effects: list[Effect] = []
    targets = [(r.WORKLOAD, "n/w"), (r.WORKLOAD, "n/gone"), (r.COHORT, "c")]
    reading(Server(), targets, cluster="east")(effects)  # type: ignore[arg-type]
    assert [item.key for item in effects] == ["n/w", "n/gone", "c"]
    assert effects[0].document is not None and effects[0].document["kind"] == "Workload"
    assert effects[1].document is None


def test_a_fault_is_told_once_until_it_changes(caplog: pytest.LogCaptureFixture):
    faults = Faults("east", "admission")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            faults.park("Job n/a", ValueError("5000 digits"), doing=Doing.READING)
        faults.park("Job n/a", ValueError("other"), doing=Doing.READING)
        faults.clear("Job n/a")
        faults.clear("Job n/a")
    told = [record.msg for record in caplog.records]
    assert [line["event"] for line in told] == ["key_parked", "key_parked", "key_unparked"]
    where = {"cluster": "east", "role": "admission", "key": "Job n/a", "doing": "reading"}
    assert where.items() <= told[0].items()
    assert faults.standing == ALL_WELL


def test_the_number_and_the_newest_sentence_stand():
    faults = Faults("east")
    faults.park("Job n/a", ValueError("x"), doing=Doing.READING)
    faults.park("Workload n/b", Forbidden(Refusal("no rights")), doing=Doing.WRITING)
    assert faults.standing.parked == 2 and "Job n/a" in faults
    assert faults.standing.says == "Workload n/b could not be written: Forbidden: no rights"
    faults.clear("Workload n/b")
    assert faults.standing.says == "Job n/a could not be read: ValueError: x"
    faults.park("Job n/a", ValueError("y" * 9000), doing=Doing.READING)
    assert len(faults.standing.says) <= 500


def test_a_lost_lease_is_nobodys_fault():
    faults = Faults("east")
    with pytest.raises(LeaseLost):
        faults.park("Job n/a", LeaseLost(Refusal("gone")), doing=Doing.WRITING)
    assert faults.standing == ALL_WELL
