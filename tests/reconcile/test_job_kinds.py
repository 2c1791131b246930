"""The table of job kinds: what reads it, a row that a test adds, and numbers that are none."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from budgets.models import Interval
from clusters.documents import labels
from clusters.documents.resources import Resource
from clusters.jobs import batch, table
from clusters.jobs.batch import JOB
from clusters.jobs.described import Described, PodSetsAt
from clusters.jobs.kind import Priority
from clusters.jobs.leader_worker_sets import REPLICAS_MOST, replica_by_name
from clusters.jobs.table import KINDS, JobKinds, kind_of, workload_keys
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.manifests.rbac import Post
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.models import WorkloadState
from tests.builders import SmallFleet
from tests.reconcile.admission_harness import (
    INSTALLATION,
    NS,
    Document,
    Embedded,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.custom_kinds import serve
from tests.reconcile.fleet_rows import register
from tests.reconcile.pod_kinds import pod
from tests.reconcile.test_dispatch_sets import leader_worker_set
from tests.reconcile.test_queued_kinds import template
from tests.reconcile.usage_hand import usage_hand
from tests.waiting import eventually

PAGE = Path("docs/dispatch.md")
STATUS = WriteOptions(subresource="status")
# A made-up kind: this is its file, and `added` its row.
SWEEPS = Resource("example.test", "v1", "sweeps", "Sweep", True)
SWEEP = Described(
    SWEEPS,
    integration="example.test/sweep",
    suspend="paused",
    active=("running",),
    pod_sets_at=(PodSetsAt("trials.*", counts=(("pods",),), name_field="name"),),
    result=("result", {"done": "Succeeded", "lost": "Failed"}),
    ready_at=("state", "up"),
)


@pytest.fixture
def added(monkeypatch) -> None:
    monkeypatch.setitem(table.KINDS, (SWEEPS.group, SWEEPS.kind), SWEEP)


# What the table is read for


def rows_of_the_page() -> list[list[str]]:
    """Columns of the table of kinds: kinds, where they are named, who makes their Workloads."""
    text = PAGE.read_text()
    table_of_kinds, _, _ = text[text.index("| Kind |") :].partition("\n\n")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table_of_kinds.splitlines()[2:]
    ]


def test_the_docs_name_every_kind_of_the_table_and_no_other() -> None:
    shown = [row for row in rows_of_the_page() if "integrations.frameworks" in row[1]]
    for kind in KINDS.values():
        if kind is JOB:
            continue
        name = re.compile(rf"\b{kind.resource.kind}\b")
        [made_by, *_] = [made_by for names, _, made_by in shown if name.search(names)]
        assert made_by == kind.words, kind.resource.kind
    named = {word for names, _, _ in shown for word in re.findall(r"\b[A-Z]\w+\b", names)}
    assert named == {kind.resource.kind for kind in KINDS.values()} - {"Job"}


def test_every_row_can_be_served_and_has_a_name_of_its_own() -> None:
    names = [kind.integration for kind in KINDS.values()]
    assert len(set(names)) == len(names) and all(names)
    served = JobKinds(kind.resource for kind in KINDS.values())
    assert list(served) == list(KINDS.values())
    assert [kind.resource for kind in served if kind.is_required] == [r.JOB]


def test_a_known_kind_in_another_version_is_dispatched_and_not_queued_here() -> None:
    newer = Resource.guessed("JobSet", "v1beta1", "jobset.x-k8s.io")
    [_, kind] = JobKinds([newer])
    assert kind.resource == newer
    assert not kind.is_queued_here
    assert "spec.managedBy" in kind.refusal({"metadata": {}, "spec": {}})


# A new kind is one file and one row


def sweep(name: str, **spec: Any) -> Document:
    metadata = {"name": name, "namespace": NS, "labels": {labels.QUEUE: "default"}}
    trials = [{"name": "trial", "pods": 2, "template": template(2)}]
    body = {"trials": trials, "managedBy": labels.MULTIKUEUE, "paused": True, **spec}
    return {
        "apiVersion": SWEEPS.api_version,
        "kind": SWEEPS.kind,
        "metadata": metadata,
        "spec": body,
    }


def test_a_new_row_brings_its_rights_and_its_name_for_configurations(added) -> None:
    post = Post(is_manager=False, is_portal_mode=True, installation="test", kinds=(SWEEPS,))
    given = {
        verb for rule in portal_rules(post) if rule.group == SWEEPS.group for verb in rule.verbs
    }
    assert given == {"get", "list", "watch", "patch"}
    assert any(rule.group == SWEEPS.group for rule in multikueue_rules([SWEEPS]))
    assert table.integrations(["batch/job", "example.test/sweep"]) == (SWEEPS,)


@pytest.mark.embedded
@pytest.mark.django_db
def test_a_made_up_kind_is_queued_started_dispatched_metered_and_shown(
    added, monkeypatch, settings, fleet: SmallFleet, client: Client
) -> None:
    serve(monkeypatch, SWEEPS)
    settings.PORTAL_INSTALLATION = INSTALLATION
    configuration = {"integrations": {"frameworks": ["example.test/sweep"]}}
    with Embedded("hub", "gpu-east", webhooks=True) as road:
        hub, east = road["hub"], road["gpu-east"]
        hub.create(*multikueue_objects("gpu-east"), *quota_objects(8, check=True))
        east.create(*quota_objects(8))
        for place in (hub, east):
            role = "manager" if place is hub else "worker"
            register(place.name, place.kubeconfig, role=role, mode="portal")
            road.start(place.name, "admission", kueue_configuration=configuration)
        road.start("hub", "dispatch", workers=("gpu-east",), kueue_configuration=configuration)

        # Queued: the portal made its Workload. Dispatched and started where the worker is.
        hub.client.create(SWEEPS, sweep("tune"))
        made = eventually(lambda: hub.workload_of("tune"))
        assert [(item["name"], item["count"]) for item in made["spec"]["podSets"]] == [("trial", 2)]
        copied = eventually(
            lambda: (
                (found := east.get(SWEEPS, "tune", NS)) and not found["spec"]["paused"] and found
            ),
            why=lambda: str((hub.all(r.WORKLOAD), east.all(r.WORKLOAD))),
        )
        assert copied["spec"]["trials"][0]["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}
        assert hub.workload_of("tune")["status"]["clusterName"] == "gpu-east"
        say = lambda **status: east.client.patch(  # noqa: E731
            SWEEPS, "tune", {"status": status}, namespace=NS, options=STATUS
        )
        say(state="up", running=2)
        eventually(lambda: is_true(east.workload_of("tune"), "PodsReady"))
        eventually(lambda: hub.get(SWEEPS, "tune", NS).get("status", {}).get("running") == 2)

        # Metered on the worker, from the admission to the end.
        uid = east.workload_of("tune")["metadata"]["uid"]
        with usage_hand("gpu-east") as metering, usage_hand("hub") as watching:
            metering.until(WorkloadState.objects.filter(uid=uid, phase="running").exists)
            time.sleep(1.1)
            say(state="gone", running=0, result="done")
            eventually(lambda: is_true(hub.workload_of("tune"), "Finished"))
            metering.until(WorkloadState.objects.filter(uid=uid, phase="finished").exists)
            own = hub.workload_of("tune")["metadata"]["uid"]
            watching.until(WorkloadState.objects.filter(uid=own, phase="finished").exists)
        row = Interval.objects.get(uid=uid, kind="billable")
        assert (row.gpus, row.flavor, row.state) == (4, "h100", "closed")
        assert row.end > row.start

        # Shown with its kind and name.
        client.force_login(fleet.admin)
        page = client.get("/jobs/").content.decode()
        assert re.search(r">tune</a>\s*<span[^>]*>Sweep<", page), page
        assert all(shift.error is None for shift in road.shifts)


# Numbers that nobody can count with

LONG = "9" * 5_000


def live(document: Document) -> Document:
    """As an API server would have it."""
    document["metadata"] |= {"uid": "u-1", "resourceVersion": "1"}
    return document


def marked(document: Document, **marks: str) -> Document:
    document["metadata"].setdefault("annotations", {}).update(marks)
    return live(document)


def elastic(number: str) -> Document:
    return marked(job("train", managed=True), **{labels.ELASTIC: "true", labels.SLICE: number})


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(elastic(LONG), f"{labels.SLICE} is 99", id="slice of 5,000 digits"),
        pytest.param(elastic("1000000000"), "up to 10000.", id="slice of a billion"),
        pytest.param(
            marked(job("train", pods=4), **{labels.MIN_PARALLELISM: LONG}),
            f"{labels.MIN_PARALLELISM} is 99",
            id="least parallelism",
        ),
        pytest.param(
            live(job("train") | {"spec": {"parallelism": 10**5_000, "template": {"spec": {}}}}),
            "spec.parallelism is too large a number",
            id="parallelism",
        ),
        pytest.param(
            live(job("train") | {"spec": {"completions": "many", "template": {"spec": {}}}}),
            "spec.completions is many, and has to be a whole number",
            id="completions in words",
        ),
        pytest.param(
            live(pod("one", group="g", total=0) | {})
            | {
                "metadata": {
                    "name": "one",
                    "namespace": NS,
                    "uid": "u-1",
                    "labels": {labels.POD_GROUP: "g", labels.QUEUE: "default"},
                    "annotations": {labels.POD_GROUP_TOTAL: LONG},
                }
            },
            f"{labels.POD_GROUP_TOTAL} is 99",
            id="pods of a group",
        ),
        pytest.param(
            live(leader_worker_set(replicas=2_000_000_000)),
            "spec.replicas is 2000000000, and has to be a whole number up to 1000.",
            id="replicas of a set",
        ),
        pytest.param(
            live(sweep("tune", trials=[{"name": "a", "pods": -1, "template": template(1)}])),
            "pods of a is -1",
            id="a kind that paths describe",
        ),
        pytest.param(
            live(sweep("tune", trials=[{"name": "a", "pods": LONG, "template": template(1)}])),
            "(5000 characters)",
            id="text where a number is due",
        ),
    ],
)
def test_a_number_that_is_none_is_told_at_once_in_a_sentence(added, document, want) -> None:
    began = time.thread_time()
    kind = kind_of(document)
    fault = kind.fault(document)
    names = workload_keys(document)
    kind.is_clear(document)
    assert time.thread_time() - began < 0.5
    assert want in fault
    assert len(fault) < 200
    assert len(names) <= REPLICAS_MOST


def test_words_where_a_number_is_asked_for_say_nothing() -> None:
    document = marked(job("train", pods=4), **{labels.MIN_PARALLELISM: "few"})
    assert kind_of(document).fault(document) == ""
    assert "minCount" not in JOB.pod_sets(document)[0]


def test_a_worker_follows_no_size_that_is_none() -> None:
    local, copied = live(leader_worker_set(replicas=10**9)), live(leader_worker_set())
    assert kind_of(local).follow_patch(local, copied) is None
    assert len(replica_by_name(local)) == REPLICAS_MOST


def test_a_copy_of_an_old_slice_is_known_however_often_its_job_grew() -> None:
    document = elastic(str(batch.SLICES_MOST))
    assert batch.has_been(document, batch.slice_name(document, 1))
    began = time.thread_time()
    assert not batch.has_been(document, "somebody-else")
    assert time.thread_time() - began < 0.5
    made = JOB.workload_for(document, priority=Priority())
    before = batch.slice_name(document, batch.SLICES_MOST - 1)
    assert made["metadata"]["annotations"][labels.SLICE_OF] == f"{NS}/{before}"


@pytest.mark.embedded
def test_a_job_is_told_why_it_is_refused_and_queues_once_that_is_mended() -> None:
    with Embedded("solo", webhooks=True) as road:
        solo = road["solo"]
        solo.create(*quota_objects(8))
        road.start("solo", "admission")
        broken = job("broken", pods=2)
        broken["metadata"].setdefault("annotations", {})[labels.MIN_PARALLELISM] = LONG
        solo.create(broken, job("fine"))
        said = lambda: (  # noqa: E731
            (solo.job("broken") or {})["metadata"].get("annotations", {}).get(labels.REFUSED, "")
        )
        assert "has to be a whole number" in eventually(said)
        eventually(lambda: is_true(solo.workload_of("fine"), "Finished"))
        assert solo.workload_of("broken") is None
        told = lambda: [e for e in solo.all(r.EVENT) if e["reason"] == "Refused"]  # noqa: E731
        assert eventually(told)[0]["message"] == said()
        patch = {"metadata": {"annotations": {labels.MIN_PARALLELISM: "1"}}}
        solo.client.patch(r.JOB, "broken", patch, namespace=NS)
        eventually(lambda: is_true(solo.workload_of("broken"), "Admitted"))
        assert said() == ""
        assert all(shift.error is None for shift in road.shifts)
