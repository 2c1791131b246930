"""Whatever the evidence holds, an owner reads no name, id or number of jobs of others."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.explaining.answers import read_answer
from clusters.explaining.evidence import read_evidence
from clusters.explaining.findings import explained
from clusters.explaining.names import Names
from tests.explained.evidence import FLAVORS, GPU, H100, holder, quota, waiting

# A mark that no word of ours has: wherever it shows up, a foreign name has slipped through.
MARK = "zqx"
UID = "0f3a9c1e-1111-4222-8333-abcdefabcdef"
VISIBLE = {"acme-vision": "Vision"}


def names(*foreign: str) -> Names:
    return Names(
        VISIBLE,
        accounts={"acme": "Acme"},
        flavors=FLAVORS,
        foreign=frozenset(foreign),
    )


labels = st.from_regex(r"[a-z0-9]{0,6}", fullmatch=True).map(lambda text: f"{MARK}{text}a")
accounts = labels
# Namespaces of other accounts, and of the reader's own account where it sees no other workspace.
namespaces = st.one_of(
    st.tuples(accounts, labels).map("-".join), labels.map(lambda slug: f"acme-{slug}")
)
workloads = st.one_of(labels, st.tuples(labels, labels).map(".".join), labels.map("job-{}".format))
texts = [
    "Preempted to accommodate a workload (UID: {uid}, JobUID: {uid}) due to reclamation within the "
    "cohort; preemptor path: /pool-{account}/{account}/{namespace}; preemptee path: /acme/"
    "acme-vision",
    "Workload didn't fit; waiting for {namespace}/{workload} to stop",
    "LocalQueue {namespace}/default of ClusterQueue {namespace} is inactive",
    '"{workload}" of {namespace}, {account}: denied (uid {uid})',
    "in {namespace}.",
    "{namespace}:{workload}; {account}!",
]


@st.composite
def evidence(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    """Evidence of an own job, full of others; and the names that the database knows besides."""
    account, namespace, workload = draw(accounts), draw(namespaces), draw(workloads)

    def text() -> str:
        found = draw(st.sampled_from(texts))
        return found.format(uid=UID, account=account, namespace=namespace, workload=workload)

    keys = [f"{namespace}/{workload}", *(f"{draw(namespaces)}/{draw(workloads)}" for _ in range(3))]
    document = waiting(
        draw(st.integers(0, 20)),
        own=quota(nominal=16, used=8, potential=16, lent=draw(st.integers(0, 8))),
        reason=draw(
            st.sampled_from(
                ["WaitingForQuota", "Misconfigured", "ExceedsMaxQuota", "CheckPending", text()]
            )
        ),
        message=text(),
        position=draw(st.integers(0, 3)),
        holders=[holder(key, protection=draw(st.sampled_from(["NONE", text()]))) for key in keys],
        holderCount=137,
        borrowers=[{"clusterQueue": key.partition("/")[0], "amounts": {H100: 4}} for key in keys],
        checks=[{"name": "budget", "state": "Pending", "message": text()}],
    )
    document["attempts"].append(
        {"podSet": "main", "flavor": "a100", "mode": "NO_FIT", "missing": {}, "reasons": [text()]}
    )
    if draw(st.booleans()):
        document["attempts"] = document["attempts"][-1:]
    return document, {account, f"pool-{account}", namespace}


@settings(max_examples=100)
@given(evidence())
def test_owner_reads_no_foreign_name(case: tuple[dict[str, Any], set[str]]):
    document, known = case
    shown = json.dumps(asdict(explained(read_evidence(document), names(*known))), default=str)
    assert MARK not in shown
    assert UID not in shown
    assert "137" not in shown


@pytest.mark.parametrize("text", texts)
def test_admin_reads_the_message_as_it_is(text: str):
    document = waiting(message=text)
    assert explained(read_evidence(document), Names(None)).message == text


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    def jobs() -> list[dict[str, Any]]:
        own = [{"key": "acme-vision/mine", "clusterQueue": "acme-vision", "amounts": {H100: 8}}]
        found = [
            {
                "key": f"{namespace}/{draw(workloads)}",
                "uid": UID,
                "clusterQueue": namespace,
                "amounts": {H100: 4},
            }
            for namespace in draw(st.lists(namespaces, max_size=3))
        ]
        other = f"{draw(namespaces)}/{draw(workloads)}"
        return [{**item, "preemptor": draw(st.sampled_from(["", other]))} for item in own + found]

    reach = st.dictionaries(namespaces | accounts, st.just({H100: 4}), max_size=3)
    return {
        "started": jobs(),
        "preempted": jobs(),
        "stopped": jobs(),
        "startedCount": 137,
        "preemptedCount": 137,
        "stoppedCount": 137,
        "lost": draw(reach),
        "gained": draw(reach),
        "settled": True,
        "tookMs": 12,
    }


@settings(max_examples=60)
@given(answers())
def test_owner_reads_no_foreign_name_in_an_answer(document: dict[str, Any]):
    shown = json.dumps(asdict(read_answer(document, names())))
    assert MARK not in shown
    assert UID not in shown
    assert "137" not in shown
    assert "acme-vision/mine" in shown


def test_admin_reads_every_name_in_an_answer():
    document = {
        "started": [{"key": "globex-search/a", "clusterQueue": "globex-search"}],
        "startedCount": 137,
        "lost": {"acme-vision": {f"h100/{GPU}": 4}, "globex-search": {"host/cpu": 1000}},
    }
    found = read_answer(document, Names(None, flavors=FLAVORS))
    assert found.started[0].name == "globex-search/a"
    assert found.started_count == 137
    assert [(change.name, change.amounts) for change in found.capacity] == [
        ("acme-vision", "4 H100")
    ]
    assert found.headline == "137 jobs start and 1 can get fewer GPUs."
