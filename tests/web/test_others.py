"""What an owner reads does not depend on what others have: they get yes or no, and no figures.

The same fleet with other figures of another account, again and again; every page and address that
an owner can read says the same, and a draft of theirs is taken or refused in the same words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
import time_machine
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

from budgets import services
from budgets.errors import Rejected
from budgets.models import User
from budgets.plan import RevisionDraft
from budgets.selectors import preview_revision
from budgets.selectors.budget.preview import NO_ROOM
from clusters.explaining.evidence import evidence_document
from clusters.kueue.explanation.why import explain
from clusters.models import Cluster, Question, ShiftRun, WorkloadAction, WorkloadState
from tests.builders import SmallFleet, line
from tests.explained import engines
from tests.factories import PendingReasonFactory, UsageRecordFactory
from tests.web.conftest import DRAWN_ANEW, Visitors
from tests.web.test_every_route import ROUTES, address_of
from tests.web.test_query_counts import add_job, busy  # noqa: F401  a fixture
from tests.web.test_what_if import RAISE
from tests.web.test_what_if import clusters as clusters  # a fixture

T = TypeVar("T")
NOW = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
DRAFTS = (8, 24, 32)
WORLDS = (0, 1, 2)


def vary(fleet: SmallFleet, seed: int) -> None:
    """Another budget, other use, other jobs and another pool of globex."""
    chosen = random.Random(seed)
    gpus = (0, 24, 32)[seed]
    fleet.revise(fleet.search, line("h100", gpus, gpus + 8), line("l4", 4 * seed % 8))
    pool = services.create_pool(None, slug=f"own-{seed}", name="Own", account=fleet.globex)
    a100 = fleet.flavors["a100"]
    services.set_envelope(None, account=fleet.globex, flavor=a100, committed=0, ceiling=0, pool=16)
    services.set_pool_amount(None, pool=pool, flavor=a100, gpus=8 * chosen.randint(0, 2))
    east = Cluster.objects.get(slug="gpu-east")
    numbers = [1000 + number for number in range(chosen.randint(1, 9))]
    for number in numbers:
        add_job(east, number, NOW)
    theirs = WorkloadState.objects.filter(uid__in=[f"uid-{number}" for number in numbers])
    theirs.update(namespace="globex-search")
    hour = NOW.replace(minute=0, second=0) - timedelta(hours=seed)
    UsageRecordFactory(workspace=fleet.search, flavor=fleet.flavors["h100"], hour=hour)


def told(client: Client) -> dict[str, tuple[int, str]]:
    """Everything that this reader can read, by route."""
    found = {}
    for route in ROUTES:
        address = address_of(route, {})
        answer: HttpResponse = client.get(address)
        if not answer.streaming:
            found[route] = (
                answer.status_code,
                DRAWN_ANEW.sub("", answer.content.decode(errors="replace")),
            )
    return found


def drafts(fleet: SmallFleet, user: User) -> Iterator[tuple[str, str]]:
    """(whether it is taken, all words) of drafts of acme-vision, shown and saved."""
    for gpus in DRAFTS:
        for start in (None, NOW + timedelta(days=3)):
            shown = {"lines": [{"flavor": "h100", "committed": gpus, "ceiling": gpus + 8}]}
            if start is not None:
                shown["valid_from"] = start.isoformat()
            answer = signed_in(user).post(
                "/api/v1/workspaces/acme-vision/budget/preview",
                json.dumps(shown),
                content_type="application/json",
            )
            yes = str(answer.json().get("state"))
            yield yes, json.dumps(answer.json(), sort_keys=True)
    with transaction.atomic():
        try:
            fleet.revise(fleet.vision, line("h100", 32, 40), actor=user)
            yield "saved", ""
        except Rejected as refused:
            yield "refused", str(refused)
        transaction.set_rollback(True)


def in_worlds(visitors: Visitors, read: Callable[[], T]) -> list[T]:
    """What is read in worlds that differ by another account alone."""
    found = []
    with time_machine.travel(NOW, tick=False):
        for seed in WORLDS:
            with transaction.atomic():
                vary(visitors.fleet, seed)
                found.append(read())
                transaction.set_rollback(True)
    return found


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_no_page_that_an_owner_reads_depends_on_another_account(busy: Visitors):  # noqa: F811
    pages = in_worlds(busy, lambda: told(signed_in(busy.fleet.owner)))
    assert sum(code == 200 for code, _ in pages[0].values()) > 50
    differing = [route for route in pages[0] if len({page[route] for page in pages}) > 1]
    assert differing == []


def test_a_draft_of_an_owner_is_taken_or_refused_in_the_same_words(busy: Visitors):  # noqa: F811
    worlds = in_worlds(busy, lambda: list(drafts(busy.fleet, busy.fleet.owner)))
    words: dict[tuple[int, str], set[str]] = {}
    for world in worlds:
        for place, (yes, text) in enumerate(world):
            words.setdefault((place, yes), set()).add(text)
    assert {yes for _, yes in words} >= {"rejected", "saved", "refused"}, "yes and no"
    assert [texts for texts in words.values() if len(texts) > 1] == []


def test_an_admin_reads_the_figures(busy: Visitors):  # noqa: F811
    """The worlds differ indeed."""
    worlds = in_worlds(busy, lambda: list(drafts(busy.fleet, busy.fleet.admin)))
    assert worlds[0] != worlds[1]
    assert "more than the fleet can promise" in str(worlds)


def test_an_owner_of_an_account_learns_nothing_from_its_pool(busy: Visitors):  # noqa: F811
    fleet = busy.fleet
    services.grant_role(None, user=fleet.owner, role="owner", account=fleet.acme)
    fleet.revise(fleet.search, line("h100", 24))
    pool = services.create_pool(None, slug="extra", name="Extra", account=fleet.acme)
    with pytest.raises(Rejected) as refused:
        services.set_pool_amount(fleet.owner, pool=pool, flavor=fleet.flavors["h100"], gpus=16)
    assert NO_ROOM in {fault.message for fault in refused.value.faults}
    assert "more than the fleet" not in str(refused.value)


def test_where_a_draft_would_stand_is_not_told(busy: Visitors):  # noqa: F811
    """Or somebody could ask worker by worker what others have left there."""
    fleet = busy.fleet
    fleet.revise(fleet.speech, line("h100", 8))
    draft = RevisionDraft(lines=(line("h100", 24, 32),))
    seen = preview_revision(fleet.owner, fleet.vision, draft)
    whole = preview_revision(fleet.admin, fleet.vision, draft)
    assert {row.cluster for row in seen.impact} == {""} < {row.cluster for row in whole.impact}
    assert seen.largest_job == seen.reach[0].reachable >= whole.largest_job


# Why a job waits, and what a change would lead to, as an engine says it.

HELD_BY_OTHERS = (12, 14, 16)
"""GPUs of globex, 8 of them its own, the others of a pool of 16 for which a job of vision waits."""
WHY_PAGES = (
    "/jobs/hub/uid-0/",
    "/jobs/",
    "/workspaces/acme-vision/",
    "/api/v1/workloads/hub/uid-0/why",
    "/api/v1/workloads",
)


def engine_with(cluster: Cluster, gpus: int) -> engines.Engine:
    return engines.engine_of(
        cluster,
        engines.held("first", "acme-vision", 8),
        engines.held("secret", "globex-search", gpus),
        engines.job("job-0", "acme-vision", 16),
    )


@pytest.fixture
def hub(visitors: Visitors, clusters: dict[str, Cluster]) -> Cluster:
    fleet = visitors.fleet
    pool = services.create_pool(None, slug="shared", name="Shared")
    for account in (fleet.acme, fleet.globex):
        services.set_pool_share(None, pool=pool, account=account, limits={})
    services.set_pool_amount(None, pool=pool, flavor=fleet.flavors["h100"], gpus=16)
    fleet.revise(fleet.vision, line("h100", 8, 24))
    fleet.revise(fleet.search, line("h100", 8, 24))
    ShiftRun.objects.create(
        cluster=clusters["hub"], role="shadow", holder="h", started_at=NOW, heartbeat_at=NOW
    )
    add_job(clusters["hub"], 0, NOW)
    return clusters["hub"]


def with_others(read: Callable[[int], T]) -> list[T]:
    """What is read in worlds where globex holds other numbers of GPUs."""
    found = []
    for gpus in HELD_BY_OTHERS:
        with transaction.atomic(), time_machine.travel(NOW, tick=False):
            found.append(read(gpus))
            transaction.set_rollback(True)
    return found


def whys(hub: Cluster, user: User) -> list[str]:
    def read(gpus: int) -> str:
        engine = engine_with(hub, gpus)
        found = explain(engine, "acme-vision/job-0", now=engines.NOW)
        assert found is not None and found.lacking
        PendingReasonFactory(uid="uid-0", name="job-0", evidence=evidence_document(found))
        client = signed_in(user)
        answers = [client.get(address) for address in WHY_PAGES]
        assert {answer.status_code for answer in answers} == {200}
        return "".join(
            DRAWN_ANEW.sub(
                "", b"".join(answer).decode() if answer.streaming else answer.content.decode()
            )
            for answer in answers
        )

    return with_others(read)


def test_why_a_job_waits_does_not_depend_on_what_others_hold(visitors: Visitors, hub: Cluster):
    pages = whys(hub, visitors.fleet.owner)
    assert "Waits for 16 H100" in pages[0]
    assert "others hold some of the 16 left" in pages[0]
    assert len(set(pages)) == 1
    assert len(set(whys(hub, visitors.fleet.admin))) == len(HELD_BY_OTHERS)


def test_what_would_come_of_a_change_does_not_depend_on_what_others_hold(
    visitors: Visitors, hub: Cluster
):
    """Asked for 8 more, of which the job of 16 is not helped: no, and not by how little."""

    def read(user: User) -> Callable[[int], str]:
        def asked(gpus: int) -> str:
            client = signed_in(user)
            address = client.post("/what-if/", RAISE)["Location"]
            for row in Question.objects.order_by("created_at"):
                engine = engine_with(Cluster.objects.get(slug=row.cluster), gpus)
                engines.answer(engine, row)
                row.answer["tookMs"] = gpus
                row.answer["preempted"] = [
                    {
                        "key": "globex-search/secret",
                        "clusterQueue": "globex-search",
                        "amounts": {"h100/nvidia.com/gpu": gpus},
                    }
                ]
                row.answer["lost"] = {"globex": {"h100/nvidia.com/gpu": gpus}}
                row.save()
            [first, *_] = Question.objects.order_by("created_at")
            page = client.get(address).content.decode()
            told = client.get(f"/api/v1/what-if/{first.pk}").content.decode()
            for row in Question.objects.all():
                page, told = page.replace(str(row.pk), ""), told.replace(str(row.pk), "")
            return DRAWN_ANEW.sub("", page) + told

        return asked

    answers = with_others(read(visitors.fleet.owner))
    assert len(set(answers)) == 1
    for word in ("hub", "gpu-east", "gpu-west", "globex", "another account", " ms "):
        assert word not in answers[0]
    admins = with_others(read(visitors.fleet.admin))
    assert len(set(admins)) == len(HELD_BY_OTHERS)
    assert "hub" in admins[0] and "globex" in admins[0]


def test_what_a_cluster_says_of_an_action_is_told_without_names_of_others(
    visitors: Visitors, hub: Cluster
):
    def asked(state: str) -> WorkloadAction:
        said = "It says: globex-search/secret holds the quota of acme-vision, 24 more needed"
        job = {"cluster": hub, "uid": "uid-0", "namespace": "acme-vision", "name": "job-0"}
        return WorkloadAction.objects.create(
            **job, verb="deactivate", reason="x", state=state, message=said, next_attempt_at=NOW
        )

    asked("failed")
    for address in ("/jobs/hub/uid-0/", "/api/v1/workloads/hub/uid-0/actions"):
        text = signed_in(visitors.fleet.owner).get(address).content.decode()
        assert "It says: somebody else holds the quota of acme-vision" in text, address
        assert "globex" not in text and "more needed" not in text, address
        whole = signed_in(visitors.fleet.admin).get(address).content.decode()
        assert "It says: globex-search/secret holds" in whole, address
    back = f"/api/v1/workload-actions/{asked('waiting').pk}/withdraw"
    answer = signed_in(visitors.fleet.owner).post(back)
    assert answer.json()["state"] == "withdrawn"
    assert "somebody else holds" in answer.json()["message"]
