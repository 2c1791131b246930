"""When a LocalQueue is charged for a workload, when that becomes usage, when it is forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from budgets.plan import StopPolicy
from clusters.kueue.configuration import AdmissionFairSharing, Configuration
from clusters.kueue.cycle.usage_accounts import UsageAccounts
from clusters.kueue.queueing.queue_set import QueueSet
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import LocalQueueSpec, parse_cluster_queue
from clusters.kueue.quota.usage_ledger import LedgerEntry, UsageLedger
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from clusters.kueue.workload.workloads import Workload
from tests.kueue.builders import GPU, START, cluster_queue, group, quota, reserved, workload

HOUR = timedelta(hours=1)
# An hour is a half-life, and passes between two looks: half of a request is charged.
RULES = AdmissionFairSharing(half_life_s=3600, sampling_interval_s=3600)
BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
PARSER = WorkloadParser(Configuration())
AROUND = SurroundingsByNamespace(Configuration()).of("ns")


class Books:
    """Two ClusterQueues, of which q is ordered by usage; a LocalQueue of each, and their ledger."""

    def __init__(self, rules: AdmissionFairSharing | None = RULES) -> None:
        self.ledger = UsageLedger(rules)
        self.snapshot = Snapshot(ledger=self.ledger)
        self.queues = QueueSet(hashes_equals=True)
        for name, spec in (("q", BY_USAGE), ("plain", {})):
            document = cluster_queue(name, group(f0=quota(9)), **spec)
            self.snapshot.set_queue(parse_cluster_queue(document))
            self.snapshot.set_active(name, is_active=True)
            self.feed(name, name)
        self.snapshot.refresh()
        self.accounts = UsageAccounts(self.snapshot, self.queues)

    def feed(self, name: str, queue: str, policy: StopPolicy = StopPolicy.NONE) -> None:
        spec = LocalQueueSpec(f"ns/{name}", "ns", queue, policy)
        self.queues.set_local_queue(spec, now=START)


def holder(name: str = "w", queue: str = "q", *, gpus: int = 4, **changes: Any) -> Workload:
    document = reserved(workload(name, queue, gpus=gpus), queue, **changes)
    return PARSER.parse(document, surroundings=AROUND)


def test_reservation_is_charged_where_usage_orders_the_queue():
    books = Books()
    books.accounts.charge(holder(), now=START)
    charged = LedgerEntry(START, {}, {"ns/w": {GPU: 2 * 10**9}})
    assert books.ledger.entry("ns/q") == charged
    books.accounts.charge(holder("v", "plain"), now=START)
    waits = PARSER.parse(workload("u", "q"), surroundings=AROUND)
    books.accounts.charge(waits, now=START)
    books.accounts.charge(holder("t", "gone"), now=START)
    assert books.ledger.entry("ns/q") == charged
    assert [books.ledger.entry(f"ns/{name}") for name in ("plain", "gone")] == [None, None]
    without = Books(None)
    without.accounts.charge(holder(), now=START)
    assert without.ledger.entry("ns/q") is None


def test_charge_becomes_usage_beside_what_is_admitted():
    books = Books()
    item, other = holder(), holder("v", gpus=8)
    for found in (item, other, holder("u", is_admitted=False)):
        books.snapshot.hold(found, is_evicted=False)
    books.accounts.charge(item, now=START)
    books.accounts.settle(item, now=START + HOUR)
    # An hour of the twelve that are admitted is half of the way to them; the charge comes on top.
    settled = LedgerEntry(START + HOUR, {GPU: 8 * 10**9}, {})
    assert books.ledger.entry("ns/q") == settled
    waits = PARSER.parse(workload("t", "q"), surroundings=AROUND)
    books.accounts.settle(waits, now=START + 2 * HOUR)
    books.accounts.settle(holder("s", "plain"), now=START)
    assert books.ledger.entry("ns/q") == settled
    assert books.ledger.entry("ns/plain") is None


def test_queues_are_looked_at_that_admit_and_are_due():
    books = Books()
    books.snapshot.hold(holder("a"), is_evicted=False)
    books.feed("held", "q", StopPolicy.HOLD)
    books.feed("lost", "gone")
    books.feed("also", "q")
    assert books.accounts.sample(now=START) == ["ns/q", "ns/plain", "ns/also"]
    assert books.accounts.sample(now=START + HOUR - timedelta(seconds=1)) == []
    books.snapshot.set_active("plain", is_active=False)
    assert books.accounts.sample(now=START + HOUR) == ["ns/q", "ns/also"]
    assert books.ledger.entry("ns/q") == LedgerEntry(
        START + HOUR, {GPU: 2 * 10**9}, {}, has_history=True
    )
    assert books.ledger.entry("ns/also") == LedgerEntry(START + HOUR, {}, {}, has_history=True)
    assert Books(None).accounts.sample(now=START) == []


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        pytest.param({}, True, id="nothing changed"),
        pytest.param({"queue_name": "plain"}, False, id="another LocalQueue"),
        pytest.param({"is_finished": True}, False, id="finished"),
        pytest.param({"is_active": False}, True, id="switched off, and still holding quota"),
        pytest.param({"is_active": False, "reservation": None}, False, id="switched off"),
        pytest.param({"reservation": None}, True, id="evicted"),
    ],
)
def test_charge_is_forgotten_that_can_never_become_usage(changes, is_kept):
    books = Books()
    item = holder()
    books.accounts.charge(item, now=START)
    books.accounts.follow(None, replace(item, is_finished=True))
    books.accounts.follow(item, replace(item, **changes))
    entry = books.ledger.entry("ns/q")
    assert entry is not None
    assert entry.penalties == ({"ns/w": {GPU: 2 * 10**9}} if is_kept else {})
