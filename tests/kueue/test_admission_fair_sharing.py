"""Usage of LocalQueues: charged, settled, decayed, sampled; and whom it puts first."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from clusters.kueue.configuration import AdmissionFairSharing, Configuration
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.quota.usage_ledger import (
    LedgerEntry,
    QueueShare,
    UsageLedger,
    format_nanos,
    nanos_of,
    parse_share,
)
from tests.kueue.builders import (
    GPU,
    START,
    cluster_queue,
    flavor,
    group,
    local_queue,
    pod_set,
    quota,
    reserved,
    workload,
)

USAGE_BASED = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
HOUR = timedelta(hours=1)
# Half of everything is forgotten in an hour, and an hour passes between two looks: the factor is ½.
RULES = AdmissionFairSharing(half_life_s=3600, sampling_interval_s=3600)
SECTION = {"usageHalfLifeTime": "1h0m0s", "usageSamplingInterval": "1h0m0s"}


def ledger(rules: AdmissionFairSharing | None = RULES, **weights: float) -> UsageLedger:
    made = UsageLedger(rules)
    for name, weight in weights.items():
        made.set_share(name, QueueShare(weight=weight))
    return made


def consumed(made: UsageLedger, name: str = "q") -> dict[str, str]:
    return {key: format_nanos(amount) for key, amount in made.entry(name).consumed.items()}


# The ledger


def test_charge_is_the_part_of_the_requests_that_one_interval_moves_usage_by():
    made = ledger()
    made.charge("q", "w", requests={"cpu": 3000, GPU: 8}, now=START)
    assert {key: format_nanos(value) for key, value in made.entry("q").pending.items()} == {
        "cpu": "1500m",
        GPU: "4",
    }
    assert made.usage_of("q") == 5.5


def test_second_reservation_replaces_the_charge_of_the_first():
    made = ledger()
    made.charge("q", "w", requests={GPU: 8}, now=START)
    made.charge("q", "w", requests={GPU: 2}, now=START)
    made.charge("q", "v", requests={GPU: 2}, now=START)
    assert made.usage_of("q") == 2.0
    made.drop("q", "w")
    assert made.usage_of("q") == 1.0
    made.drop("q", "w")
    made.drop("other", "w")
    assert made.usage_of("q") == 1.0


def test_settling_moves_exactly_the_charge_and_decays_first():
    made = ledger()
    made.charge("q", "w", requests={GPU: 8}, now=START)
    made.charge("q", "v", requests={GPU: 2}, now=START)
    made.settle("q", "w", admitted={GPU: 8}, now=START + HOUR)
    # Nothing was consumed; an hour of 8 moves it half of the way, and the charge of w comes on top.
    assert consumed(made) == {GPU: "8"}
    assert made.entry("q").penalties.keys() == {"v"}
    assert made.entry("q").updated_at == START + HOUR


def test_settling_twice_charges_once():
    made = ledger()
    made.charge("q", "w", requests={GPU: 8}, now=START)
    made.settle("q", "w", admitted={}, now=START)
    made.settle("q", "w", admitted={}, now=START)
    assert consumed(made) == {GPU: "4"}


def test_sampling_moves_usage_towards_what_is_admitted():
    made = ledger()
    assert made.sample("q", admitted={GPU: 8}, now=START)
    assert consumed(made) == {}
    for want in ("4", "6", "7", "7500m"):
        now = made.entry("q").updated_at + HOUR
        assert made.sample("q", admitted={GPU: 8}, now=now)
        assert consumed(made) == {GPU: want}
    assert made.sample("q", admitted={}, now=now + HOUR)
    assert consumed(made) == {GPU: "3750m"}


def test_sampling_waits_for_its_interval_unless_a_charge_is_pending():
    made = ledger()
    made.sample("q", admitted={}, now=START)
    assert not made.sample("q", admitted={GPU: 8}, now=START + HOUR - timedelta(seconds=1))
    made.charge("q", "w", requests={GPU: 1}, now=START)
    assert made.sample("q", admitted={GPU: 8}, now=START + HOUR - timedelta(seconds=1))


def test_first_sampling_takes_over_the_status_once_and_lets_nothing_decay():
    made = ledger()
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 6})))
    made.sample("q", admitted={GPU: 100}, now=START)
    assert consumed(made) == {GPU: "6"}
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 9})))
    made.sample("q", admitted={}, now=START + HOUR)
    assert consumed(made) == {GPU: "3"}


def test_status_is_added_to_a_line_that_a_charge_began():
    made = ledger()
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 6})))
    made.charge("q", "w", requests={GPU: 2}, now=START)
    made.settle("q", "w", admitted={}, now=START)
    made.sample("q", admitted={}, now=START)
    made.sample("q", admitted={}, now=START)
    assert consumed(made) == {GPU: "7"}


def test_status_counts_once_before_and_after_it_is_taken_over():
    made = ledger()
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 6})))
    assert made.usage_of("q") == 6.0
    made.charge("q", "w", requests={GPU: 2}, now=START)
    made.settle("q", "w", admitted={}, now=START)
    assert made.usage_of("q") == 7.0
    made.sample("q", admitted={}, now=START)
    made.sample("q", admitted={}, now=START)
    assert made.usage_of("q") == 7.0


def test_without_a_half_life_sampling_forgets_and_nothing_is_charged():
    made = ledger(AdmissionFairSharing(half_life_s=0, sampling_interval_s=60))
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 6})))
    made.charge("q", "w", requests={GPU: 8}, now=START)
    made.settle("q", "w", admitted={GPU: 8}, now=START)
    assert made.usage_of("q") == 0.0
    made.sample("q", admitted={GPU: 8}, now=START)
    assert made.sample("q", admitted={GPU: 8}, now=START + HOUR)
    assert consumed(made) == {}


def test_a_clock_that_goes_back_moves_nothing_and_is_not_believed():
    made = ledger()
    made.sample("q", admitted={}, now=START + HOUR)
    made.settle("q", "w", admitted={GPU: 8}, now=START)
    assert consumed(made) == {}
    assert made.entry("q").updated_at == START + HOUR


def test_what_decays_is_rounded_down_to_a_billionth():
    made = ledger(AdmissionFairSharing(half_life_s=1, sampling_interval_s=1))
    made.set_share("q", QueueShare(consumed={GPU: 3}))
    made.sample("q", admitted={}, now=START)
    made.sample("q", admitted={}, now=START + timedelta(seconds=1))
    assert made.entry("q").consumed == {GPU: 1}
    made.sample("q", admitted={}, now=START + timedelta(seconds=2))
    assert made.entry("q").consumed == {}


def test_usage_is_weighed_by_resource_and_divided_by_the_queues_weight():
    rules = AdmissionFairSharing(3600, 3600, resource_weights={GPU: 10.0, "cpu": 0.0})
    made = ledger(rules, heavy=4.0, none=0.0, negative=-1.0)
    for name in ("light", "heavy", "none"):
        made.charge(name, "w", requests={GPU: 2, "cpu": 64_000, "memory": 6}, now=START)
    assert made.usage_of("light") == 10.0 + 3.0
    assert made.usage_of("heavy") == 13.0 / 4
    assert made.usage_of("none") == made.usage_of("negative") == math.inf
    assert made.usage_of("idle") == 0.0


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        (0, "0"),
        (1, "1n"),
        (1_500_000, "1500u"),
        (2_000_000_000, "2"),
        (12_000_000_000_000, "12k"),
        (5 * 1024**3 * 10**9, "5368709120"),
    ],
)
def test_amounts_are_written_as_the_api_writes_them(amount, want):
    assert format_nanos(amount) == want


def test_share_of_a_document_is_read():
    document = local_queue("q", "cq", fairSharing={"weight": "1500m"})
    document["status"] = {
        "fairSharing": {
            "admissionFairSharingStatus": {"consumedResources": {"cpu": "2", "memory": "1Ki"}}
        }
    }
    share = parse_share(document)
    assert share == QueueShare(1.5, {"cpu": 2 * 10**9, "memory": 1024 * 10**9})
    assert parse_share(local_queue("q", "cq")) == QueueShare()


MINUTES = timedelta(minutes=1)
# An hour's half-life, looked at every ten minutes: 1 − 2^(−1/6) of the way in between.
OFTEN = AdmissionFairSharing(half_life_s=3600, sampling_interval_s=600)
# Billionths of a unit, rounded down; of two units one more is left.
SIXTH, TWO_SIXTHS = 109_101_281, 218_202_563


def test_line_of_a_queue_from_its_first_charge_to_its_last_look():
    made = ledger(OFTEN)
    assert made.entry("q") is None
    made.charge("q", "w", requests={GPU: 1, "cpu": 2000}, now=START)
    charge = {GPU: SIXTH, "cpu": TWO_SIXTHS}
    assert made.entry("q") == LedgerEntry(START, {}, {"w": charge}, has_history=False)
    made.charge("q", "v", requests={GPU: 1}, now=START + MINUTES)
    both = {"w": charge, "v": {GPU: SIXTH}}
    assert made.entry("q") == LedgerEntry(START, {}, both, has_history=False)
    assert made.entry("q").pending == {GPU: 2 * SIXTH, "cpu": TWO_SIXTHS}
    assert made.is_due("q", now=START)
    assert made.sample("q", admitted={}, now=START + MINUTES)
    assert made.entry("q") == LedgerEntry(START + MINUTES, {}, both, has_history=True)
    made.drop("q", "v")
    made.settle("q", "w", admitted={GPU: 1}, now=START + 11 * MINUTES)
    consumed = {GPU: 2 * SIXTH, "cpu": TWO_SIXTHS}
    line = LedgerEntry(START + 11 * MINUTES, consumed, {}, has_history=True)
    assert made.entry("q") == line
    for since, want in ((599, False), (600, True)):
        now = line.updated_at + timedelta(seconds=since)
        assert made.is_due("q", now=now) is want
    assert not made.sample("q", admitted={}, now=line.updated_at + 9 * MINUTES)
    assert made.entry("q") == line
    # Half an hour later 2^(−1/2) of it is left.
    assert made.sample("q", admitted={}, now=line.updated_at + 30 * MINUTES)
    assert made.entry("q").consumed == {
        name: int(amount * 0.7071067811865476) for name, amount in consumed.items()
    }


def test_charge_that_is_pending_makes_a_look_due_and_one_of_nothing_does_not():
    made = ledger(OFTEN)
    made.sample("q", admitted={}, now=START)
    made.charge("q", "w", requests={GPU: 0}, now=START)
    assert not made.is_due("q", now=START)
    made.charge("q", "v", requests={GPU: 1, "cpu": 0}, now=START)
    assert made.is_due("q", now=START)


@pytest.mark.parametrize(
    ("elapsed", "want"),
    [
        # 8 GPUs moved towards 0 by whole halvings, and by less and more than half of one.
        (timedelta(hours=1), "4"),
        (timedelta(hours=2), "2"),
        (timedelta(minutes=15), "6727171322n"),
        (timedelta(minutes=30), "5656854249n"),
        (timedelta(minutes=45), "4756828460n"),
        (timedelta(minutes=105), "2378414230n"),
        (timedelta(), "8"),
    ],
    ids=str,
)
def test_what_is_left_of_usage_after_a_time(elapsed, want):
    made = ledger()
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 8})))
    made.sample("q", admitted={}, now=START)
    made.settle("q", "none", admitted={}, now=START + elapsed)
    assert consumed(made) == {GPU: want}


def test_half_of_a_half_life_is_the_float_that_kueue_computes():
    """Ten billion bytes show its sixteenth digit; computed from the other side, it ends in 5254."""
    made = ledger(AdmissionFairSharing(half_life_s=3600, sampling_interval_s=1800))
    made.charge("q", "w", requests={"memory": 10**10}, now=START)
    assert made.entry("q").pending == {"memory": 2_928_932_188_134_524_000}


def test_ledger_without_rules_keeps_no_lines():
    made = ledger(None, light=4.0, none=0.0)
    made.set_share("used", QueueShare(consumed=nanos_of({GPU: 8})))
    made.charge("used", "w", requests={GPU: 8}, now=START)
    made.settle("used", "w", admitted={GPU: 8}, now=START)
    assert not made.sample("used", admitted={GPU: 8}, now=START)
    assert not made.is_due("used", now=START)
    other = ledger()
    other.charge("used", "w", requests={GPU: 8}, now=START)
    made.take_over(other)
    assert made.entry("used") is None
    assert [made.usage_of(name) for name in ("used", "light", "none")] == [0.0, 0.0, math.inf]


def test_lines_are_taken_over_copied_and_forgotten():
    first = ledger(heavy=4.0)
    first.charge("heavy", "w", requests={GPU: 8}, now=START)
    first.charge("q", "w", requests={GPU: 2}, now=START)
    copy, successor = ledger(q=0.5), ledger()
    copy.adopt(first)
    assert [copy.usage_of(name) for name in ("heavy", "q")] == [1.0, 1.0]
    successor.charge("own", "w", requests={GPU: 6}, now=START)
    successor.take_over(first)
    assert [successor.usage_of(name) for name in ("heavy", "q", "own")] == [4.0, 1.0, 3.0]
    copy.forget("heavy")
    copy.forget("unknown")
    assert copy.entry("heavy") is None
    copy.charge("heavy", "w", requests={GPU: 8}, now=START)
    assert (copy.usage_of("heavy"), first.usage_of("heavy")) == (4.0, 1.0)


def test_status_of_a_queue_counts_only_where_usage_is_remembered():
    for half_life_s, want in ((3600, 6.0), (0, 0.0)):
        rules = AdmissionFairSharing(half_life_s=half_life_s, sampling_interval_s=60)
        made = ledger(rules)
        made.set_share("q", QueueShare(consumed=nanos_of({GPU: 6})))
        assert made.usage_of("q") == want


def test_looking_without_a_half_life_empties_the_line_at_that_time():
    made = ledger(AdmissionFairSharing(half_life_s=0, sampling_interval_s=60))
    made.set_share("q", QueueShare(consumed=nanos_of({GPU: 6})))
    assert made.sample("q", admitted={GPU: 8}, now=START)
    assert made.entry("q") == LedgerEntry(START, {}, {}, has_history=True)
    assert not made.sample("q", admitted={GPU: 8}, now=START + timedelta(seconds=59))
    assert made.sample("q", admitted={GPU: 8}, now=START + MINUTES)
    assert made.entry("q") == LedgerEntry(START + MINUTES, {}, {}, has_history=True)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"status": None},
        {"status": {"fairSharing": None}},
        {"status": {"fairSharing": {"admissionFairSharingStatus": None}}},
        {"status": {"fairSharing": {"admissionFairSharingStatus": {"consumedResources": None}}}},
    ],
    ids=str,
)
def test_share_of_a_document_without_a_status_is_the_usual_one(status):
    assert parse_share({"metadata": {"name": "q"}, **status}) == QueueShare(1.0, {})
    assert parse_share({"metadata": {"name": "q"}, "spec": None, **status}) == QueueShare(1.0, {})


def test_consumed_amounts_are_read_to_the_billionth_below():
    used_before = {"cpu": "1500m", GPU: "0.0000000019", "memory": "1Ki"}
    document = {"status": {"fairSharing": {"admissionFairSharingStatus": {}}}}
    section = document["status"]["fairSharing"]["admissionFairSharingStatus"]
    section["consumedResources"] = used_before
    read = parse_share(document).consumed
    assert read == {"cpu": 1_500_000_000, GPU: 1, "memory": 1024 * 10**9}


def test_amounts_in_billionths():
    assert nanos_of({"cpu": 1500, GPU: 2}) == {"cpu": 1_500_000_000, GPU: 2_000_000_000}


# The configuration


def test_rules_are_read_with_their_default_interval():
    read = Configuration.from_document({"admissionFairSharing": {"usageHalfLifeTime": "168h"}})
    assert read.admission_fair_sharing == AdmissionFairSharing(168 * 3600, 300)
    assert Configuration.from_document({}).admission_fair_sharing is None


def test_the_gate_turns_it_off():
    document = {"admissionFairSharing": SECTION, "featureGates": {"AdmissionFairSharing": False}}
    assert Configuration.from_document(document).admission_fair_sharing is None


@pytest.mark.parametrize("weight", [-1, "nan", "inf"])
def test_weight_that_is_no_weight_is_refused(weight):
    section = SECTION | {"resourceWeights": {"cpu": weight}}
    with pytest.raises(ValueError, match="resource weight"):
        Configuration.from_document({"admissionFairSharing": section})


# The engine


def engine(*queues: dict, nominal: int = 4, mode: dict = USAGE_BASED, **spec) -> Engine:
    made = Engine({"admissionFairSharing": SECTION})
    made.upsert(flavor("f0"), now=START)
    made.upsert(cluster_queue("cq", group(f0=quota(nominal)), **mode, **spec), now=START)
    for queue in queues or (local_queue("a", "cq"), local_queue("b", "cq")):
        made.upsert(queue, now=START)
    return made


def arrive(made: Engine, *documents: dict) -> None:
    for document in documents:
        made.upsert(document, now=START)


def used(name: str, amount: int, **spec) -> dict:
    document = local_queue(name, "cq", **spec)
    document["status"] = {
        "fairSharing": {"admissionFairSharingStatus": {"consumedResources": {GPU: str(amount)}}}
    }
    return document


def admitted(made: Engine, *, cycles: int = 1) -> list[str]:
    """Names in the order of their admission."""
    names = []
    for _ in range(cycles):
        result = made.cycle(START)
        names += [item.key.removeprefix("ns/") for item in result.admitted]
        for item in result.admitted:
            made.confirm_admitted(item.key, now=START)
    return names


def test_workload_of_who_used_less_goes_before_one_of_higher_priority():
    made = engine(used("a", 5), used("b", 1))
    made.sample_usage(now=START)
    arrive(made, workload("w", "a", priority=100), workload("v", "b", age=9))
    assert admitted(made, cycles=2) == ["v", "w"]


def test_priority_decides_where_usage_is_equal_or_does_not_count():
    for mode in (USAGE_BASED, {"admissionScope": {"admissionMode": "NoAdmissionFairSharing"}}):
        is_equal = mode is USAGE_BASED
        made = engine(used("a", 5), used("b", 5 if is_equal else 1), mode=mode)
        made.sample_usage(now=START)
        arrive(made, workload("w", "a", priority=100), workload("v", "b", age=9))
        assert admitted(made, cycles=2) == ["w", "v"]


def test_each_admission_moves_its_queue_back():
    made = engine(nominal=100)
    arrive(made, *(workload(f"a{i}", "a", age=i) for i in range(3)))
    arrive(made, *(workload(f"b{i}", "b", age=10 + i) for i in range(3)))
    assert admitted(made, cycles=6) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_weight_lets_a_queue_use_more():
    heavy = local_queue("a", "cq", fairSharing={"weight": "2"})
    made = engine(heavy, local_queue("b", "cq"), nominal=100)
    arrive(made, *(workload(f"a{i}", "a", age=i) for i in range(4)))
    arrive(made, *(workload(f"b{i}", "b", age=10 + i) for i in range(3)))
    assert admitted(made, cycles=6) == ["a0", "b0", "a1", "a2", "b1", "a3"]


def test_weight_of_zero_waits_for_all_others():
    made = engine(local_queue("a", "cq", fairSharing={"weight": "0"}), used("b", 99))
    made.sample_usage(now=START)
    arrive(made, workload("w", "a", priority=100), workload("v", "b", age=9))
    assert admitted(made, cycles=2) == ["v", "w"]


def test_new_weight_leaves_what_is_parked_parked():
    made = engine(nominal=1)
    arrive(made, workload("w", "a", gpus=3))
    made.cycle(START)
    assert made.state.queues.queue("cq").parked_keys() == ["ns/w"]
    made.upsert(local_queue("a", "cq", fairSharing={"weight": "2"}), now=START)
    assert made.state.queues.queue("cq").parked_keys() == ["ns/w"]


def test_strict_head_of_who_used_least_blocks_the_others():
    made = engine(used("a", 5), used("b", 1), queueingStrategy="StrictFIFO", nominal=2)
    made.sample_usage(now=START)
    arrive(made, workload("w", "a"), workload("v", "b", gpus=3))
    assert admitted(made, cycles=3) == []
    assert made.state.queues.queue("cq").active_keys() == ["ns/v", "ns/w"]


def test_charge_waits_for_the_checks_and_settles_with_them():
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
    made = engine(**checks)
    check = {
        "kind": "AdmissionCheck",
        "metadata": {"name": "c"},
        "spec": {"controllerName": "x"},
        "status": {"conditions": [{"type": "Active", "status": "True"}]},
    }
    document = workload("w", "a", gpus=4)
    arrive(made, check, document)
    result = made.cycle(START)
    assert not result.admitted[0].is_admitted
    entry = made.state.ledger.entry("ns/a")
    assert entry.penalties.keys() == {"ns/w"}
    made.upsert(reserved(document, "cq", is_admitted=False), now=START)
    assert made.state.ledger.entry("ns/a").penalties
    made.upsert(reserved(document, "cq"), now=START)
    entry = made.state.ledger.entry("ns/a")
    assert not entry.penalties
    assert entry.consumed == {GPU: 2 * 10**9}


def test_document_of_an_assumed_admission_settles_it_once():
    made = engine()
    document = workload("w", "a", gpus=4)
    arrive(made, document)
    made.cycle(START)
    for _ in range(2):
        made.upsert(reserved(document, "cq"), now=START)
    entry = made.state.ledger.entry("ns/a")
    assert (entry.penalties, entry.consumed) == ({}, {GPU: 2 * 10**9})


def test_what_a_restart_finds_admitted_is_not_charged():
    made = engine()
    made.upsert(reserved(workload("w", "a", gpus=4), "cq"), now=START)
    assert made.state.ledger.entry("ns/a") is None


@pytest.mark.parametrize("what", ["forgotten", "deleted", "finished", "inactive", "moved"])
def test_charge_of_what_will_never_be_admitted_is_dropped(what):
    made = engine()
    document = workload("w", "a", gpus=4)
    arrive(made, document)
    made.cycle(START)
    assert made.state.ledger.usage_of("ns/a") == 2.0
    if what == "forgotten":
        made.forget("ns/w", now=START)
    elif what == "deleted":
        made.delete("Workload", key="ns/w", now=START)
    elif what == "finished":
        done = {"conditions": [{"type": "Finished", "status": "True"}]}
        made.upsert({**document, "status": done}, now=START)
    elif what == "inactive":
        made.upsert({**document, "spec": {**document["spec"], "active": False}}, now=START)
    else:
        made.upsert({**document, "spec": {**document["spec"], "queueName": "b"}}, now=START)
    assert made.state.ledger.usage_of("ns/a") == 0.0


def test_eviction_keeps_the_charge():
    made = engine()
    arrive(made, workload("w", "a", gpus=4))
    made.cycle(START)
    made.release_evicted("ns/w", now=START)
    assert made.state.ledger.usage_of("ns/a") == 2.0


def test_preemption_takes_from_who_used_most_before_lower_priority():
    rules = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    made = engine(used("a", 5), used("b", 1), nominal=2, **rules)
    made.sample_usage(now=START)
    made.upsert(reserved(workload("much", "a", priority=5), "cq"), now=START)
    made.upsert(reserved(workload("low", "b", priority=0), "cq"), now=START)
    arrive(made, workload("w", "b", priority=9))
    assert [item.key for item in made.cycle(START).preempted] == ["ns/much"]


def test_sampling_leaves_out_queues_that_admit_nothing_and_tells_the_others():
    stopped = local_queue("b", "cq", stopPolicy="Hold")
    made = engine(local_queue("a", "cq"), stopped, local_queue("c", "elsewhere"))
    assert made.sample_usage(now=START) == ["ns/a"]
    assert made.sample_usage(now=START) == []
    assert made.sample_usage(now=START + HOUR) == ["ns/a"]


def test_sampling_counts_what_is_admitted_and_no_mere_reservation():
    made = engine(nominal=9)
    made.sample_usage(now=START)
    made.upsert(reserved(workload("w", "a", gpus=4), "cq"), now=START)
    made.upsert(reserved(workload("v", "a", gpus=2), "cq", is_admitted=False), now=START)
    made.sample_usage(now=START + HOUR)
    assert made.state.ledger.entry("ns/a").consumed == {GPU: 2 * 10**9}


def test_charge_is_for_all_pods_of_a_workload_that_gets_some():
    made = engine(nominal=4)
    arrive(made, workload("w", "a", pod_set({GPU: 1}, count=8, min_count=2)))
    assert admitted(made) == ["w"]
    assert made.state.ledger.entry("ns/a").consumed == {GPU: 4 * 10**9}


def test_engine_that_takes_over_and_its_copies_go_on_from_the_same_lines():
    made = engine()
    arrive(made, workload("w", "a", gpus=4))
    made.cycle(START)
    fresh = engine()
    fresh.assume_again(made, [])
    copy = made.fork(now=START)
    assert fresh.state.ledger.usage_of("ns/a") == copy.state.ledger.usage_of("ns/a") == 2.0
    copy.state.ledger.drop("ns/a", "ns/w")
    assert made.state.ledger.usage_of("ns/a") == 2.0


def test_change_of_the_mode_keeps_everybody_waiting_in_the_new_order():
    made = engine(used("a", 5), used("b", 1), mode={}, nominal=1)
    made.sample_usage(now=START)
    arrive(made, workload("w", "a", priority=100), workload("v", "b"))
    assert made.state.queues.queue("cq").active_keys() == ["ns/w", "ns/v"]
    made.upsert(cluster_queue("cq", group(f0=quota(1)), **USAGE_BASED), now=START)
    assert made.state.queues.queue("cq").active_keys() == ["ns/v", "ns/w"]
    assert admitted(made) == ["v"]


def test_only_what_is_due_is_added_up():
    made = ledger()
    assert made.is_due("q", now=START)
    made.sample("q", admitted={}, now=START)
    assert not made.is_due("q", now=START + timedelta(minutes=59))
    assert made.is_due("q", now=START + HOUR)
    assert not UsageLedger(None).is_due("q", now=START)


def test_sampling_wakes_the_cycles_as_another_may_go_first_now():
    made = engine()
    before = made.state.revision
    made.sample_usage(now=START)
    assert made.state.revision > before
    before = made.state.revision
    made.sample_usage(now=START)
    assert made.state.revision == before
