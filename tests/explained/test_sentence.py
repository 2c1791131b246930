"""The one sentence, what stands behind it, and what helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.explaining.evidence import Room, evidence_document, read_evidence
from clusters.explaining.findings import explained
from clusters.explaining.names import Names
from clusters.explaining.sentence import sentence
from clusters.kueue.explanation.why import explain
from tests.explained.arithmetic import Sums
from tests.explained.evidence import EVERYTHING, GPU, H100, OWNER, attempt, holder, quota, waiting
from tests.kueue.builders import workload
from tests.kueue.test_topology import RACK, asking, fleet, racks

TAINT = "untolerated taint {spot true NoSchedule <nil>} in flavor h100-spot"
ROOM = quota(nominal=16, used=8, potential=32)
LENT = quota(nominal=16, used=8, available=0, potential=16, lent=8)


def told(document: dict[str, Any], names: Names = OWNER) -> str:
    return sentence(read_evidence(document), names)


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(
            waiting(),
            "Waits for 8 H100: 8 more are needed; 16 of its 16 committed are in use and none may "
            "be borrowed.",
            id="everything committed is in use",
        ),
        pytest.param(
            waiting(2, own=quota(nominal=16, used=22, available=6, potential=32)),
            "Waits for 8 H100; 16 of its 16 committed are in use and 6 of the 16 that it may "
            "borrow; others hold some of the 10 left.",
            id="part of the burst is in use",
        ),
        pytest.param(
            waiting(4, own=LENT, borrowers=[{"clusterQueue": "acme-speech", "amounts": {H100: 8}}]),
            "Starts when committed H100 lent to another workspace of Acme come back.",
            id="lent to a workspace that is not seen",
        ),
        pytest.param(
            waiting(8, own=LENT, borrowers=[{"clusterQueue": "globex-x", "amounts": {H100: 8}}]),
            "Starts when committed H100 lent to others come back.",
            id="all that is lent",
        ),
        pytest.param(
            waiting(position=3, waiting=7),
            "Waits for 8 H100: 8 more are needed; 16 of its 16 committed are in use and none may "
            "be borrowed; it is third in its queue.",
            id="third in its queue",
        ),
        pytest.param(
            {"reason": "", "message": "", "position": 3, "clusterQueue": "acme-vision"},
            "It is third in its queue.",
            id="not tried yet",
        ),
        pytest.param(
            waiting(hold="Hold", holdKind="ClusterQueue"),
            "Its budget is on hold: nothing starts until the hold ends; the page of its workspace "
            "says who set it.",
            id="budget on hold, straight from a cluster",
        ),
        pytest.param(
            waiting(hold="HoldAndDrain", holdKind="LocalQueue"),
            "Its LocalQueue was stopped on the cluster, not by the portal: nothing starts until "
            "its stopPolicy is removed there; running jobs are being stopped.",
            id="queue drained",
        ),
        pytest.param(
            waiting(
                32,
                gpus=64,
                reason="ExceedsMaxQuota",
                own=quota(nominal=16, potential=32, available=32),
            ),
            "It asks for 64 H100, and its budget never has more than 32 H100.",
            id="larger than the budget",
        ),
        pytest.param(
            waiting(attempts=[attempt("h100-spot", reason=TAINT)], lacking={}),
            "No flavor of its budget suits it (H100 spot: the job does not tolerate its taint "
            "spot=true (NoSchedule)).",
            id="taint",
        ),
        pytest.param(
            waiting(
                attempts=[attempt("a100", reason="flavor a100 doesn't match node affinity")],
                lacking={},
            ),
            "No flavor of its budget suits it (A100: the job's node selector or affinity does not "
            "match its nodes).",
            id="selector",
        ),
        pytest.param(
            waiting(
                attempts=[],
                lacking={},
                reason="CheckPending",
                checks=[{"name": "budget", "state": "Pending", "message": "cap is reached."}],
            ),
            "It has its quota and waits for the check budget: cap is reached.",
            id="check pending",
        ),
        pytest.param(
            waiting(reason="WaitingForPreemptedWorkloads"),
            "It starts when jobs that were told to make room have stopped.",
            id="others are stopping for it",
        ),
        pytest.param(
            waiting(requeueAt="2026-03-02T14:20:00Z"),
            "It was stopped and is tried again at 14:20 UTC.",
            id="backs off",
        ),
        pytest.param(
            {"reason": "Misconfigured", "message": "LocalQueue default doesn't exist"},
            "It cannot start as it is: its namespace has no queue default: submit it to a queue "
            "that is there.",
            id="misconfigured",
        ),
        pytest.param(
            {
                "reason": "NoMatchingFlavor",
                "message": "couldn't assign flavors to pod set main: resource amd.com/gpu "
                "unavailable in ClusterQueue",
            },
            "Its budget has no quota for amd.com/gpu.",
            id="resource without quota",
        ),
        pytest.param(
            {"reason": "Deactivated"},
            "It is deactivated and asks for no GPUs until somebody puts it back in the queue.",
            id="deactivated",
        ),
        pytest.param({}, "It has not been looked at yet.", id="nothing known"),
    ],
)
def test_sentence_says_what_is_in_the_way(document: dict[str, Any], want: str):
    assert told(document) == want


def test_memory_and_processors_are_told_in_their_units():
    document = waiting(
        attempts=[
            {"podSet": "m", "flavor": "host", "mode": "NO_FIT", "missing": {"cpu": 1500}},
        ],
        lacking={},
        quota={},
    )
    assert told(document) == "Waits for 1.5 CPUs more."
    document["attempts"][0]["missing"] = {"memory": 3 * 2**30 // 2}
    assert told(document) == "Waits for 1.5 GiB of memory more."


def test_nearest_flavor_is_told():
    document = waiting(
        attempts=[attempt("a100", missing=8), attempt("h100", missing=2, mode="NO_CANDIDATES")],
        own=quota(nominal=16, used=10, available=6, potential=16),
    )
    assert told(document).startswith("Waits for 8 H100: 2 more")


def test_admin_reads_names():
    borrowers = [{"clusterQueue": "globex-search", "amounts": {H100: 8}}]
    assert told(waiting(8, own=LENT, borrowers=borrowers), EVERYTHING) == (
        "Starts when the 8 H100 lent to globex-search come back."
    )


def test_findings_tell_who_holds_it_and_why_not_preempted():
    document = waiting(
        own=ROOM,
        holders=[
            holder("acme-vision/train-1", since="2026-03-02T10:00:00Z"),
            holder("globex-search/secret-1", protection="WITHIN_NOMINAL"),
            holder("globex-search/secret-2"),
        ],
        holderCount=3,
    )
    [own] = explained(read_evidence(document), OWNER).holders
    assert (own.name, own.amounts) == ("acme-vision/train-1", "8 H100")
    assert own.protection == "its priority, or its age, protects it"
    everyone = explained(read_evidence(document), EVERYTHING).holders
    assert [item.name for item in everyone] == [
        "acme-vision/train-1",
        "globex-search/secret-1",
        "globex-search/secret-2",
    ]


def test_what_others_hold_is_left_out_where_the_own_ceiling_is_reached():
    held = [holder("acme-vision/a"), holder("globex-search/b")]
    for own, want in ((ROOM, 2), (quota(nominal=16, used=12, potential=16), 1)):
        document = waiting(4, own=own, holders=held, holderCount=2)
        assert len(explained(read_evidence(document), EVERYTHING).holders) == want


def test_owner_is_not_told_how_many_others_hold_it():
    held = [holder(f"globex-search/j{n}") for n in range(50)]
    document = waiting(own=ROOM, holders=held, holderCount=400)
    assert explained(read_evidence(document), OWNER).holders_more == 0
    assert explained(read_evidence(document), EVERYTHING).holders_more == 388


@pytest.mark.parametrize("free", [0, 3, 6])
def test_how_much_others_have_left_is_not_an_owners_to_know(free: int):
    document = waiting(8 - free, own=quota(nominal=16, used=22, available=free, potential=32))
    assert told(document) == (
        "Waits for 8 H100; 16 of its 16 committed are in use and 6 of the 16 that it may borrow; "
        "others hold some of the 10 left."
    )
    assert f"{8 - free} more are needed" in told(document, EVERYTHING)
    assert f"others hold {10 - free} of the 10 left" in told(document, EVERYTHING)
    raw = "insufficient unused quota for nvidia.com/gpu in flavor h100, 4 more needed"
    assert OWNER.message(raw) == "insufficient unused quota for nvidia.com/gpu in flavor h100"
    assert EVERYTHING.message(raw) == raw


def test_flavors_that_were_tried_are_listed_once():
    document = waiting(
        attempts=[
            attempt("h100-spot", reason=TAINT),
            attempt("h100", missing=8, mode="PREEMPT"),
            attempt("h100", missing=4),
            {"podSet": "main", "flavor": "host", "mode": "FIT", "reasons": []},
        ]
    )
    found = explained(read_evidence(document), OWNER).flavors
    assert [(item.flavor, item.words) for item in found] == [
        ("H100 spot", "the job does not tolerate its taint spot=true (NoSchedule)"),
        ("H100", "8 H100 more needed; jobs of the same budget could be preempted for it"),
    ]


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(
            waiting(),
            ("Jobs that hold 8 H100 end.", "Raise the committed GPUs by 8 H100."),
            id="use",
        ),
        pytest.param(
            waiting(6, own=quota(nominal=16, used=14, available=2, potential=16)),
            (
                "A job of up to 2 H100 would start now.",
                "Jobs that hold 6 H100 end.",
                "Raise the committed GPUs by 6 H100.",
            ),
            id="a smaller job fits",
        ),
        pytest.param(
            waiting(32, gpus=64, reason="ExceedsMaxQuota", own=quota(nominal=16, potential=32)),
            ("Ask for 32 H100 or less in one job.", "Raise the budget's burst limit by 32 H100."),
            id="too large",
        ),
        pytest.param(waiting(hold="Hold"), (), id="on hold, nobody knows by what"),
    ],
)
def test_remedies_say_what_would_change_it(document: dict[str, Any], want: tuple[str, ...]):
    assert explained(read_evidence(document), OWNER).remedies == want


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=6)
json = leaves | st.lists(
    leaves | st.dictionaries(st.text(max_size=4), leaves, max_size=2), max_size=2
)
fields = st.sampled_from([*waiting(), "requeueAt", "holderCount", "holdKind"])
fast = settings(max_examples=60)


@fast
@given(st.dictionaries(fields, json, max_size=4) | json)
def test_any_document_is_read_and_told(document: Any):
    """A row of another version must not take the page down."""
    found = explained(read_evidence(document), OWNER)
    assert found.sentence.endswith(".")


@fast
@given(st.data())
def test_damaged_documents_are_read_and_told(data: st.DataObject):
    document = waiting(holders=[holder("acme-vision/a")], checks=[{"name": "x", "state": "y"}])
    document[data.draw(fields)] = data.draw(json)
    document["quota"] = {H100: data.draw(json), GPU: {}}
    assert explained(read_evidence(document), OWNER).sentence


def test_what_is_free_by_now_is_told():
    document = waiting(attempts=[attempt(reason="insufficient unused quota")], lacking={})
    assert told(document) == "There is room for it now, and it is tried again."


FEW = (
    "couldn't assign flavors to pod set main: "
    'topology "racks" allows to fit only 5 out of 8 pod(s); excluded: resource "cpu": 3'
)
NONE = """no flavor for pod set main: topology "racks" doesn't allow to fit any of 8 pod(s)"""


@pytest.mark.parametrize(
    ("message", "names", "want"),
    [
        pytest.param(
            FEW,
            EVERYTHING,
            "Its pods with 64 H100 cannot be placed together in topology racks, as the job asks: "
            "5 of 8 pods would fit, though 80 H100 are free in the quota.",
            id="who sees everything reads how many fit and how many are free",
        ),
        pytest.param(
            NONE,
            EVERYTHING,
            "Its pods with 64 H100 cannot be placed together in topology racks, as the job "
            "asks: none would fit, though 80 H100 are free in the quota.",
            id="none fits",
        ),
        pytest.param(
            FEW,
            OWNER,
            "Its pods with 64 H100 cannot be placed together in topology racks, as the job asks.",
            id="an owner reads no figure of others",
        ),
    ],
)
def test_a_job_that_no_rack_holds_says_so_though_gpus_are_free(message, names, want):
    free = quota(nominal=96, used=16, available=80, potential=96)
    document = waiting(0, own=free) | {"message": message, "requests": {GPU: 64}}
    document |= {"lacking": {}, "reason": "WaitingForQuota"}
    assert told(document, names) == want


ROOMS = "; the gpu-rack with most room has 16 free, and 80 are free on all nodes"


@pytest.mark.parametrize(
    ("room", "names", "want"),
    [
        pytest.param(Room(16, 80), EVERYTHING, True, id="less in any rack than the job asks for"),
        pytest.param(Room(64, 80), EVERYTHING, False, id="a rack that was emptied a moment ago"),
        pytest.param(None, EVERYTHING, False, id="nodes are not known"),
        pytest.param(Room(16, 80), OWNER, False, id="an owner reads no figure of others"),
    ],
)
def test_what_the_rack_with_most_room_has_free_is_told(room, names, want):
    free = quota(nominal=96, used=16, available=80, potential=96)
    document = waiting(0, own=free) | {"message": FEW, "requests": {GPU: 64}, "lacking": {}}
    document["within"] = "example.com/gpu-rack"
    found = sentence(replace(read_evidence(document), room=room), names)
    assert (ROOMS in found) is want
    assert not Sums().wrong(found, {"H100"})


def test_a_job_of_64_gpus_does_not_fit_a_rack_though_80_are_free():
    world = fleet(*racks(b1_r1=5, b1_r2=5))
    world.feed(workload("w", "q", asking(8, required=RACK)))
    world.run()
    document = evidence_document(explain(world.engine, "ns/w", now=world.now))
    assert told(document, EVERYTHING).startswith(
        "Its pods with 64 f0 cannot be placed together in topology topo, as the job asks: 5 of 8"
    )
