"""Why a job does not run, from the objects: every row of the guide, said and written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusters.explaining.names import Names
from clusters.explaining.objects import Objects, looked_at
from tests.explained.looks import (
    ADMIN,
    ADMITTED,
    ADMITTED_THERE,
    GROUPS,
    ON_EAST,
    ON_HUB,
    OWNER,
    RESERVED,
    UNSTARTED,
    condition,
    event,
    full,
    job,
    workload,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
ROWS = {name: row for rows in GROUPS.values() for name, row in rows.items()}


def said(found: Objects, names: Names = ADMIN) -> str:
    trouble = looked_at(found, names)
    return trouble.sentence if trouble is not None else ""


def told() -> dict[str, tuple[str, str]]:
    """Case → symptom and sentence, as the page has them."""
    cells = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in row] for row in cells if len(row) == 3]
    return {case: (symptom, sentence) for symptom, sentence, case in rows if case in ROWS}


@pytest.mark.parametrize("name", ROWS)
def test_the_guide_has_what_is_said_of_the_objects(name: str):
    assert told()[name][1] == said(ROWS[name])


def test_the_guide_names_no_case_that_is_none():
    text = PAGE.read_text()
    tables = text.partition("## No Workload was made")[2].partition("## Told elsewhere")[0]
    cases = [line.split("|")[3].strip() for line in tables.splitlines() if line[:2] == "| "]
    assert {case for case in cases if case not in ("case", "---")} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_an_owner_reads_of_no_cluster_by_name(name: str):
    words = said(ROWS[name], OWNER)
    assert words
    assert "East" not in words and "Hub" not in words


def test_an_owner_is_not_told_how_many_nodes_there_are():
    found = UNSTARTED["no node"]
    assert "0/9 nodes are available: 3 Insufficient nvidia.com/gpu" in said(found)
    words = said(found, OWNER)
    assert "Insufficient nvidia.com/gpu, node(s) didn't match" in words
    assert not set("0369") & set(words.replace("train-0", ""))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(
            replace(ADMITTED_THERE, job=job(suspend=False, status={"active": 1, "ready": 1})),
            id="pods run",
        ),
        pytest.param(
            replace(
                ADMITTED_THERE,
                job=job(suspend=False, status={"active": 1}),
                events=(event("FailedCreate", "exceeded quota: old"),),
            ),
            id="what was refused before and is there now",
        ),
        pytest.param(
            replace(ON_EAST, quotas=(full("requests.nvidia.com/gpu", "8", "16"),)),
            id="a ResourceQuota with just enough room",
        ),
        pytest.param(replace(ON_HUB, workload=workload(RESERVED)), id="the manager dispatches"),
        pytest.param(replace(ON_HUB, workload=workload(RESERVED, ADMITTED)), id="a worker has it"),
        pytest.param(
            replace(ON_HUB, workload=workload(condition("Finished", "True", "Succeeded", ""))),
            id="it has finished",
        ),
        pytest.param(
            replace(ON_HUB, workload=workload(condition("QuotaReserved", "False", "Pending", ""))),
            id="it waits for quota, which its page explains",
        ),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(found: Objects):
    assert said(found) == ""


@pytest.mark.parametrize(
    "name",
    [
        "LocalQueue is not there",
        "LocalQueue leads nowhere",
        "LocalQueue is stopped",
        "ClusterQueue is stopped",
        "worker's queue is not active",
        "worker's queue takes other namespaces",
    ],
)
def test_a_workload_that_waits_is_told_what_its_queue_lacks(name: str):
    pending = workload(condition("QuotaReserved", "False", "Pending", ""))
    found = replace(ROWS[name], cluster="hub", role="manager", workload=pending)
    assert said(found).partition(". ")[0] == (
        said(ROWS[name]).partition(". ")[0].replace("East", "Hub")
    )
