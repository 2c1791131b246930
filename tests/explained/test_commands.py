"""``manage.py why`` and ``manage.py what_if``, as an operator types them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from budgets.models import Interval
from clusters.management.commands import what_if
from clusters.models import Cluster, Question, WorkloadState
from tests.builders import SmallFleet, line
from tests.explained.engines import answer, engine_of, held, job
from tests.explained.evidence import holder, waiting
from tests.factories import IntervalFactory, PendingReasonFactory
from tests.reconcile import admission_harness as harness
from tests.waiting import eventually

NOW = datetime.now(UTC)


def say(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


@pytest.fixture
def clusters(fleet: SmallFleet) -> dict[str, Cluster]:
    fleet.revise(fleet.vision, line("h100", 8))
    return {
        slug: Cluster.objects.create(
            slug=slug,
            name=slug.title(),
            role=role,
            mode="kueue",
            server="https://x",
            context="x",
            user_kind="token",
            kubeconfig_sealed=b"x",
        )
        for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("gpu-west", "worker"))
    }


@pytest.mark.django_db
def test_why_reads_what_the_portal_stored(clusters: dict[str, Cluster], fleet: SmallFleet):
    state = WorkloadState.objects.create(
        cluster=clusters["hub"],
        uid="uid-1",
        namespace="acme-vision",
        name="job-train-x1",
        job_name="train",
        phase="pending",
        created_at=NOW,
        resource_version="1",
    )
    held_since = (NOW - timedelta(hours=1)).isoformat()
    PendingReasonFactory(
        uid=state.uid,
        name=state.name,
        evidence=waiting(
            position=2, waiting=4, holders=[holder("acme-vision/train-1", since=held_since)]
        ),
    )
    for number in range(12):
        IntervalFactory(
            workspace=fleet.vision,
            job_name="train",
            start=NOW - timedelta(days=1),
            end=NOW - timedelta(days=1) + timedelta(minutes=90 + number),
            state=Interval.State.CLOSED,
        )
    text = say("why", "acme-vision/train")
    assert text.startswith("acme-vision/job-train-x1 on hub, since 2026-03-02 12:00 UTC\nWaits for")
    assert "place in its queue: 2 of 4" in text
    assert "acme-vision/train-1  8 H100  since" in text
    assert "Raise the committed GPUs by 8 H100." in text
    assert "Likely to start between" in text and "from 12 earlier runs" in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["acme-vision/none"], "Nothing is stored of acme-vision/none"),
        (["train"], "write it as NAMESPACE/NAME"),
        (["a/b/c"], "write it as NAMESPACE/NAME"),
        (["a/b", "--config", "x"], "goes with --kubeconfig"),
        (["a/b", "--kubeconfig", "/nowhere"], "/nowhere cannot be read"),
    ],
)
def test_why_says_what_is_wrong(words: list[str], want: str):
    with pytest.raises(CommandError, match=want):
        say("why", *words)


@pytest.mark.embedded
def test_why_asks_a_cluster_without_a_database(tmp_path: Path):
    """No database mark here: a query would fail the test."""
    with harness.Embedded("w1") as world:
        place = world["w1"]
        place.create(*harness.quota_objects(8))
        shift = world.start("w1", "admission")
        place.create(harness.job("first", gpus=8, run_s=60))
        eventually(lambda: harness.is_true(place.workload_of("first"), "Admitted"))
        place.create(harness.job("second", gpus=4, run_s=60))
        eventually(lambda: place.workload_of("second"))
        shift.stop()
        before = [item["metadata"]["resourceVersion"] for item in place.all(harness.r.WORKLOAD)]
        file = tmp_path / "kubeconfig"
        file.write_text(place.kubeconfig)

        text = say("why", "acme-vision/second", "--kubeconfig", str(file))

        assert "Waits for 4 h100: 4 more are needed; 8 of its 8 committed are in use" in text
        assert "acme-vision/job-first" in text
        assert "The job does not wait" in say("why", "acme-vision/first", "--kubeconfig", str(file))
        after = [item["metadata"]["resourceVersion"] for item in place.all(harness.r.WORKLOAD)]
        assert after == before, "it only reads"
        with pytest.raises(CommandError, match="no Workload acme-vision/none"):
            say("why", "acme-vision/none", "--kubeconfig", str(file))


@pytest.fixture
def shifts(monkeypatch: pytest.MonkeyPatch, clusters: dict[str, Cluster]) -> None:
    """While the command waits, open questions are answered as the clusters' shifts would."""

    def work(seconds: float) -> None:
        for row in Question.objects.filter(answered_at=None):
            workloads = (held("first", "acme-vision", 8), job("second", "acme-vision", 8))
            answer(engine_of(clusters[row.cluster], *workloads), row)

    monkeypatch.setattr(what_if, "time", SimpleNamespace(sleep=work))


@pytest.mark.django_db
def test_what_if_raises_a_budget(shifts: None):
    text = say("what_if", "raise", "acme-vision", "--flavor", "h100", "--by", "8")
    assert text.startswith("hub:\n  1 job starts.\n")
    assert "acme-vision/second  8 H100" in text
    assert "workspace Vision of Acme gains 8 H100" in text


@pytest.mark.django_db
def test_what_if_lowers_a_budget(shifts: None):
    text = say("what_if", "raise", "acme-vision", "--flavor", "h100", "--by", "-8")
    assert "workspace Vision of Acme loses 8 H100" in text


@pytest.mark.django_db
def test_what_if_adds_nodes(shifts: None, fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 8, 16))
    words = ["--flavor", "h100", "--by", "8", "--account", "acme"]
    assert "acme-vision/second  8 H100" in say("what_if", "add", "gpu-east", *words)


@pytest.mark.django_db
def test_what_if_drains_a_worker(shifts: None):
    assert "acme-vision/first" in say("what_if", "drain", "gpu-east")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["raise", "acme-none", "--flavor", "h100", "--by", "8"], "no workspace 'acme-none'"),
        (["raise", "acme-vision", "--flavor", "b200", "--by", "8"], "no flavor 'b200'"),
        (["raise", "acme-vision", "--flavor", "h100", "--by", "0"], "not 0"),
        (["drain", "hub"], "holds no GPUs to drain"),
        (["add", "hub", "--flavor", "h100", "--by", "8", "--account", "acme"], "to a worker"),
    ],
)
def test_what_if_says_what_is_wrong(clusters: dict[str, Cluster], words: list[str], want: str):
    with pytest.raises(CommandError, match=want):
        say("what_if", *words)
    assert not Question.objects.exists()


@pytest.mark.django_db
def test_what_if_says_that_nobody_answers(
    clusters: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
):
    def wait(seconds: float) -> None:
        Question.objects.update(created_at=datetime.now(UTC) - timedelta(minutes=1))

    monkeypatch.setattr(what_if, "time", SimpleNamespace(sleep=wait))
    with pytest.raises(CommandError, match="Nothing answers for Gpu-East"):
        say("what_if", "drain", "gpu-east")
