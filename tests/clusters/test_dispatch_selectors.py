"""The trail of a dispatched job, races and preemptions, as a person may see them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.utils import timezone

from budgets.errors import NotAllowed
from budgets.models import Interval
from clusters import selectors
from clusters.models import Cluster, DispatchRound, WorkloadEvent, WorkloadState
from clusters.selectors import OfferRow
from clusters.selectors.preemptions import SideRow
from tests.builders import START, SmallFleet, hours, line

pytestmark = pytest.mark.django_db
_numbers = count(1)


@pytest.fixture
def clusters(fleet: SmallFleet) -> dict[str, Cluster]:
    return {
        slug: Cluster.objects.create(
            slug=slug, name=slug.title(), role=role, mode="portal", server="https://x.invalid",
            context=slug, user_kind="bearer token", kubeconfig_sealed=b"sealed",
        )
        for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("gpu-west", "worker"))
    }  # fmt: skip


def seen(cluster: Cluster, namespace: str, name: str, **facts: Any) -> WorkloadState:
    return WorkloadState.objects.create(
        **{
            "cluster": cluster, "uid": f"uid-{name}-{cluster.slug}", "namespace": namespace,
            "name": name, "phase": "running", "gpus": {"h100": 8}, "gpu_total": 8,
            "created_at": START, "resource_version": "1", **facts,
        }
    )  # fmt: skip


def asked(own: WorkloadState, number: int, *nominated: str, **facts: Any) -> DispatchRound:
    return DispatchRound.objects.create(
        **{
            "cluster": own.cluster, "workload_uid": own.uid, "namespace": own.namespace,
            "name": own.name, "attempt": "a", "number": number, "nominated": list(nominated),
            "dispatcher": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
            "started_at": START + timedelta(minutes=number), **facts,
        }
    )  # fmt: skip


def preempted(victim: WorkloadState, preemptor: WorkloadState | str) -> None:
    uid = preemptor if isinstance(preemptor, str) else preemptor.uid
    message = (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: x) due to reclamation within "
        "the cohort; preemptor path: /platform/globex/globex-search; preemptee path: /platform/a"
    )
    condition = {
        "type": "Preempted",
        "status": "True",
        "reason": "InCohortReclamation",
        "message": message,
        "lastTransitionTime": hours(2).isoformat(),
    }
    for _ in range(2):  # every later state of the workload tells it again
        WorkloadEvent.objects.create(
            cluster=victim.cluster.slug, uid=victim.uid, type="SEEN", namespace=victim.namespace,
            resource_version=str(next(_numbers)), name=victim.name, observed_at=hours(2),
            digest="d", payload={"status": {"conditions": [condition]}},
        )  # fmt: skip


def detail(user, state: WorkloadState):
    return selectors.workload_detail(user, state.cluster.slug, state.uid)


def test_trail_tells_rounds_answers_and_ends(fleet, clusters):
    own = seen(clusters["hub"], "acme-vision", "train")
    at = START + timedelta(minutes=5)
    asked(own, 1, "gpu-east", outcome="passed", decided_at=at, why={"gpu-west": "not connected"})
    asked(
        own, 2, "gpu-west", "gpu-east", outcome="won", winner="gpu-west", decided_at=at,
        losers={"gpu-east": at.isoformat()}, why={"gpu-west": "1. fits"},
        ended_at=at, ending="finished: Succeeded: done",
    )  # fmt: skip
    asked(own, 1, "gpu-east", attempt="b", started_at=START + timedelta(hours=1))
    first, second, again = selectors.dispatch_trail(fleet.admin, detail(fleet.admin, own))
    assert (first.dispatcher, first.outcome) == ("incremental", "Nobody took it in time")
    assert first.offers == (
        OfferRow("gpu-east", "did not take it", "", at),
        OfferRow("gpu-west", "passed over", "not connected"),
    )
    assert second.offers == (
        OfferRow("gpu-west", "won", "1. fits", at),
        OfferRow("gpu-east", "lost the race", "", at),
    )
    assert (second.attempt, second.ending) == (1, "finished: Succeeded: done")
    assert (again.attempt, again.offers) == (2, (OfferRow("gpu-east", "asked", ""),))


def test_trail_tells_an_owner_who_took_the_job_and_nothing_of_other_workers(fleet, clusters):
    own = seen(clusters["hub"], "acme-vision", "train")
    at = START + timedelta(minutes=5)
    asked(own, 1, "gpu-east", outcome="passed", decided_at=at, why={"gpu-west": "not connected"})
    asked(
        own, 2, "gpu-west", "gpu-east", outcome="won", winner="gpu-west", decided_at=at,
        losers={"gpu-east": at.isoformat()}, why={"gpu-west": "1. fits"},
    )  # fmt: skip
    first, second = selectors.dispatch_trail(fleet.owner, detail(fleet.owner, own))
    assert first.offers == (OfferRow("", "did not take it", "", at),)
    assert second.offers == (OfferRow("gpu-west", "won", "", at),)


def test_trail_of_a_copy_is_that_of_the_managers_workload(fleet, clusters):
    own = seen(clusters["hub"], "acme-vision", "train")
    copy = seen(clusters["gpu-east"], "acme-vision", "train", is_remote_copy=True)
    asked(own, 1, "gpu-east", "gpu-west")
    assert len(selectors.dispatch_trail(fleet.owner, detail(fleet.owner, copy))) == 1
    assert len(selectors.dispatch_trail(fleet.owner, detail(fleet.owner, own))) == 1


def test_trail_is_for_those_who_see_the_job(fleet, clusters):
    own = seen(clusters["hub"], "globex-search", "secret")
    asked(own, 1, "gpu-east")
    shown = detail(fleet.admin, own)
    for read in (selectors.dispatch_trail, selectors.preemptions_of):
        with pytest.raises(WorkloadState.DoesNotExist):
            read(fleet.owner, shown)


def test_trail_passes_on_no_names_of_others(fleet, clusters):
    own = seen(clusters["hub"], "acme-vision", "train")
    ending = "evicted: Preempted: for (UID: 1, JobUID: 2); preemptor path: /platform/globex"
    asked(own, 1, "gpu-east", ended_at=START, ending=ending, why={"gpu-east": "globex-search"})
    assert "globex" not in str(selectors.dispatch_trail(fleet.owner, detail(fleet.owner, own)))
    assert "globex" in str(selectors.dispatch_trail(fleet.admin, detail(fleet.admin, own)))


def test_preemption_tells_who_why_and_what_it_cost(fleet, clusters):
    victim = seen(clusters["gpu-east"], "acme-vision", "train", evictions=1)
    winner = seen(clusters["gpu-east"], "globex-search", "query", job_name="query-job")
    preempted(victim, winner)
    for epoch, (start, end) in enumerate(((0, 1), (1, 2), (3, 4))):
        Interval.objects.create(
            cluster="gpu-east", uid=victim.uid, epoch=epoch, pod_set="main", flavor="h100", seq=0,
            namespace="acme-vision", workload="train", gpus=8, admitted_at=hours(start),
            start=hours(start), end=hours(end), state="closed", kind="billable",
        )  # fmt: skip
    [found] = selectors.preemptions_of(fleet.admin, detail(fleet.admin, victim))
    assert (found.at, found.why) == (
        hours(2),
        "It was preempted: it ran on borrowed GPUs, and the workspace that they are committed to "
        "took them back.",
    )
    assert found.preemptor == SideRow("query-job", "globex-search", "gpu-east", winner.uid)
    assert found.lost == 8 * 3600
    [redacted] = selectors.preemptions_of(fleet.owner, detail(fleet.owner, victim))
    assert redacted.preemptor == SideRow("a workload of another account")
    assert redacted.lost == found.lost
    assert "globex" not in str(redacted)


def test_preemption_for_a_copy_without_its_job_names_the_job(fleet, clusters):
    victim = seen(clusters["gpu-east"], "acme-vision", "train", evictions=1)
    winner = seen(clusters["gpu-east"], "acme-vision", "job-q-1", is_remote_copy=True)
    preempted(victim, winner)
    own = seen(clusters["hub"], "acme-vision", "job-q-1", job_name="query")
    [found] = selectors.preemptions_of(fleet.owner, detail(fleet.owner, victim))
    assert found.preemptor == SideRow("query", "acme-vision", "hub", own.uid)


def test_preemption_by_a_workload_that_is_gone(fleet, clusters):
    victim = seen(clusters["gpu-east"], "acme-vision", "train", evictions=1)
    preempted(victim, "gone")
    [found] = selectors.preemptions_of(fleet.owner, detail(fleet.owner, victim))
    assert (found.preemptor.uid, found.lost) == ("", None)


def test_recent_preemptions_and_races_are_for_the_platform(fleet, clusters):
    victim = seen(clusters["gpu-east"], "acme-vision", "train", evictions=1)
    preempted(victim, "x")
    assert [row.victim.name for row in selectors.recent_preemptions(fleet.auditor)] == ["train"]
    for read in (selectors.recent_preemptions, selectors.dispatch_races):
        with pytest.raises(NotAllowed):
            read(fleet.owner)


def test_races_count_what_was_asked_won_and_lost_in_a_day(fleet, clusters):
    now = timezone.now()
    own = seen(clusters["hub"], "acme-vision", "train")
    seen(clusters["gpu-west"], "acme-vision", "train", is_remote_copy=True)
    won = {"winner": "gpu-west", "outcome": "won", "losers": {"gpu-east": now.isoformat()}}
    asked(own, 1, "gpu-east", "gpu-west", started_at=now, **won)
    asked(own, 2, "gpu-east", started_at=now)
    asked(own, 3, "gpu-east", started_at=now - timedelta(days=2))
    east, west = selectors.dispatch_races(fleet.admin)
    assert (east.running, east.asked, east.won, east.lost) == (0, 2, 0, 1)
    assert (west.running, west.gpus, west.asked, west.won, west.lost) == (1, 8, 1, 1, 0)


def test_a_worker_shows_its_part_of_the_split(fleet, clusters):
    fleet.revise(fleet.vision, line("h100", 40))
    east, west = selectors.dispatch_races(fleet.admin)
    assert east.floor + west.floor == 40
    assert (east.share, west.share) == (100 * east.floor // 40, 100 * west.floor // 40)
    assert east.floor > 0 and west.floor > 0
