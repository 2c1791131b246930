"""What-if on its page and in the API: who may ask what, and what of the answer is told to whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from budgets.models import Interval
from budgets.selectors import utc_now
from budgets.selectors.billing import month_at
from budgets.services import create_pool, set_pool_share
from clusters.explaining.answers import JobOutcome, WhatIfAnswer
from clusters.models import Cluster, Question
from clusters.services import ShownReply, verdict_of
from tests.billing.conftest import active_card, price
from tests.builders import line
from tests.explained.engines import answer, engine_of, held, job, portal_documents
from tests.explained.evidence import holder
from tests.explained.test_selectors import job as waiting_job
from tests.explained.test_selectors import reason as waiting_for
from tests.explained.test_selectors import recorded
from tests.web.conftest import HTMX, Visitors

pytestmark = pytest.mark.usefixtures("at_one_moment")
PAGE = "/what-if/"
API = "/api/v1/what-if"
RAISE = {"change": "raise", "workspace": "acme-vision", "flavor": "h100", "by": 8}
ADD = {
    "change": "add", "cluster": "gpu-east", "flavor": "h100", "by": 16, "receiver": "account:acme",
}  # fmt: skip


@pytest.fixture
def clusters(visitors: Visitors) -> dict[str, Cluster]:
    """A manager and a worker; vision and search have 8 H100 each, all of them in use."""
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 8))
    fleet.revise(fleet.search, line("h100", 8))
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


def queue_of(cluster: Cluster) -> dict[str, Any]:
    """What the ClusterQueue of vision is to be on a cluster."""
    documents = portal_documents(cluster)
    return next(
        document["spec"]
        for document in documents
        if (document["kind"], document["metadata"]["name"]) == ("ClusterQueue", "acme-vision")
    )


def answered(clusters: dict[str, Cluster], *more: dict[str, Any]) -> list[Question]:
    """Every open question, answered by an engine that has vision's second job waiting."""
    rows = list(Question.objects.filter(answered_at=None).order_by("created_at"))
    for row in rows:
        engine = engine_of(
            clusters[row.cluster],
            held("first", "acme-vision", 8),
            held("secret", "globex-search", 8),
            job("second", "acme-vision", 8),
            *more,
        )
        answer(engine, row)
    return rows


def test_owner_asks_and_reads_which_job_starts(visitors: Visitors, clusters):
    found = visitors["owner"].post(PAGE, RAISE)
    assert found.status_code == 302
    address = found["Location"]
    assert "workspace=acme-vision" in address and "by=8" in address
    assert "The cluster is calculating" in visitors.text("owner", address)

    answered(clusters)

    text = visitors.text("owner", address)
    assert "1 job starts" in text
    assert "1 waiting job starts as soon as there is room. None of your running jobs is" in text
    assert "preempted or stopped." in text
    assert text.index("1 waiting job starts") < text.index("What each cluster answered")
    assert "acme-vision/second" in text
    assert "hub" not in text and "gpu-east" not in text
    told = visitors.text("admin", address)
    assert "Hub" in told and "Gpu-East" in told
    assert "every 500ms" not in text


def test_asking_in_place_answers_with_the_panel_and_its_address(visitors: Visitors, clusters):
    found = visitors["owner"].post(PAGE, RAISE, **HTMX)
    text = found.content.decode()
    assert found.status_code == 200
    assert found["HX-Push-Url"].startswith("/what-if/?change=raise")
    assert "<html" not in text and "every 500ms" in text
    poll = visitors["owner"].get(found["HX-Push-Url"], **HTMX)
    again = visitors["owner"].get(found["HX-Push-Url"], **HTMX, HTTP_IF_NONE_MATCH=poll["ETag"])
    assert again.status_code == 304


def test_raise_becomes_the_documents_that_saving_it_would_become(visitors: Visitors, clusters):
    visitors["owner"].post(PAGE, RAISE)
    asked = {row.cluster: row.asked["changes"] for row in Question.objects.all()}
    before = {slug: queue_of(cluster) for slug, cluster in clusters.items()}
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    after = {slug: queue_of(cluster) for slug, cluster in clusters.items()}
    assert set(asked) == {slug for slug in clusters if before[slug] != after[slug]}
    assert "hub" in asked and len(asked) > 1
    for slug, [change] in asked.items():
        assert change["kind"] == "ClusterQueue"
        assert change["document"]["spec"] == after[slug]


def test_wish_that_could_not_be_saved_is_answered_with_a_note(visitors: Visitors, clusters):
    found = visitors["owner"].post(PAGE, {**RAISE, "by": 400}, **HTMX).content.decode()
    assert "could not be saved as it is" in found
    page = visitors["owner"].post(PAGE, {**RAISE, "by": 400}, follow=True).content.decode()
    assert "GPUs" in page


def test_silence_is_said(visitors: Visitors, clusters):
    address = visitors["owner"].post(PAGE, RAISE)["Location"]
    Question.objects.update(created_at=datetime.now(UTC) - timedelta(seconds=6))
    assert "no process of the portal works" in visitors.text("admin", address)
    text = visitors.text("owner", address)
    assert "A cluster that this is about does not answer" in text
    assert "hub" not in text and "gpu-east" not in text


def test_problem_is_told_without_foreign_names(visitors: Visitors, clusters):
    address = visitors["owner"].post(PAGE, RAISE)["Location"]
    Question.objects.update(
        answered_at=datetime.now(UTC), problem="There is no ClusterQueue globex-search here."
    )
    text = visitors.text("owner", address)
    assert "There is no ClusterQueue somebody else here" in text


def test_owner_reads_no_foreign_name_and_admin_does(visitors: Visitors, clusters):
    address = visitors["owner"].post(PAGE, RAISE)["Location"]
    row = Question.objects.filter(cluster="hub").get()
    answered(clusters)
    row.refresh_from_db()
    row.answer["preempted"] = [
        {"key": "globex-search/secret", "clusterQueue": "globex-search", "amounts": {}}
    ]
    row.answer["preemptedCount"] = 1
    row.answer["lost"] = {"globex-search": {"h100/nvidia.com/gpu": 8}}
    row.save()
    text = visitors.text("owner", address)
    assert "another account" not in text
    assert "globex" not in text and "secret" not in text
    assert "globex-search/secret" in visitors.text("admin", address)


def test_question_of_somebody_else_is_not_there(visitors: Visitors, clusters):
    address = visitors["admin"].post(PAGE, RAISE)["Location"]
    assert visitors["owner"].get(address).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "auditor", "finance", "nobody"])
def test_who_changes_no_budget_may_not_ask(visitors: Visitors, clusters, role: str):
    assert visitors[role].get(PAGE).status_code == 403
    assert visitors[role].post(PAGE, RAISE).status_code == 403
    assert visitors[role].post(API, RAISE, content_type="application/json").status_code in (
        403,
        422,
    )
    assert not Question.objects.exists()


def test_owner_asks_about_own_budgets_only(visitors: Visitors, clusters):
    other = {**RAISE, "workspace": "globex-search"}
    assert visitors["owner"].post(PAGE, other).status_code == 422
    assert (
        visitors["owner"].post(PAGE, {"change": "drain", "cluster": "gpu-east"}).status_code == 403
    )
    assert visitors["owner"].post(API, other, content_type="application/json").status_code == 422
    drain = {"change": "drain", "cluster": "gpu-east"}
    assert visitors["owner"].post(API, drain, content_type="application/json").status_code == 403
    assert not Question.objects.exists()
    assert "globex" not in visitors.text("owner", PAGE)


def test_admin_adds_nodes_for_an_account(visitors: Visitors, clusters):
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 8, 24))
    add = {"change": "add", "cluster": "gpu-east", "flavor": "h100", "by": 16}
    address = visitors["admin"].post(PAGE, {**add, "receiver": "account:acme"})["Location"]
    [hub] = [row for row in answered(clusters) if row.cluster == "hub"]
    assert hub.answer["gained"]["acme-vision"] == {"h100/nvidia.com/gpu": 16}
    text = visitors.text("admin", address)
    assert "acme-vision/second" in text
    assert "gains 16 H100" in text


def test_admin_adds_nodes_for_a_platform_pool(visitors: Visitors, clusters):
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 8, 24))
    pool = create_pool(None, slug="shared", name="Shared")
    set_pool_share(None, pool=pool, account=fleet.acme, limits={})
    add = {"change": "add", "cluster": "gpu-east", "flavor": "h100", "by": 8}
    address = visitors["admin"].post(PAGE, {**add, "receiver": "pool:shared"})["Location"]
    answered(clusters)
    assert "acme-vision/second" in visitors.text("admin", address)


def test_admin_drains_a_worker(visitors: Visitors, clusters):
    address = visitors["admin"].post(PAGE, {"change": "drain", "cluster": "gpu-east"})["Location"]
    answered(clusters)
    text = visitors.text("admin", address)
    assert "are stopped" in text
    assert "globex-search/secret" in text and "acme-vision/first" in text


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        pytest.param({**RAISE, "by": 0}, "not 0", id="nothing"),
        pytest.param({**RAISE, "by": "x"}, "number of whole GPUs", id="no number"),
        pytest.param({**RAISE, "flavor": "b200"}, "Select a valid choice", id="unknown flavor"),
        pytest.param({"change": "drain", "cluster": "hub"}, "Select a valid choice", id="manager"),
        pytest.param(
            {"change": "add", "cluster": "gpu-east", "flavor": "a100", "by": -1},
            "field is required",
            id="no receiver",
        ),
    ],
)
def test_what_is_wrong_is_said_beside_the_answer(visitors: Visitors, clusters, typed, want: str):
    found = visitors["admin"].post(PAGE, typed, **HTMX)
    assert found.status_code == 422
    assert want in found.content.decode()
    assert visitors["admin"].post(PAGE, typed).status_code == 422


def test_address_that_names_no_question_is_an_error(visitors: Visitors, clusters):
    assert visitors["admin"].get(f"{PAGE}?q=nonsense").status_code == 400
    none = "00000000-0000-4000-8000-000000000000"
    assert visitors["admin"].get(PAGE, {"q": [none] * 51}).status_code == 400
    assert visitors["admin"].get(f"{PAGE}?q={none}").status_code == 404


def test_api_asks_and_reads(visitors: Visitors, clusters):
    sent = visitors["owner"].post(API, RAISE, content_type="application/json")
    assert sent.status_code == 202
    [first] = sent.json()["questions"]
    assert (first["state"], first["answer"], first["cluster"]) == ("waiting", None, "")
    answered(clusters)
    found = visitors["owner"].get(f"{API}/{first['id']}").json()
    assert found["state"] == "answered"
    assert [row["name"] for row in found["answer"]["started"]] == ["acme-vision/second"]
    assert visitors["stranger"].get(f"{API}/{first['id']}").status_code == 404


def test_api_names_everything_that_is_wrong(visitors: Visitors, clusters):
    body = {"change": "raise", "by": 8, "cluster": "gpu-east", "colour": "red"}
    found = visitors["admin"].post(API, body, content_type="application/json")
    assert found.status_code == 422
    assert {fault["field"] for fault in found.json()["faults"]} >= {"colour"}
    del body["colour"]
    found = visitors["admin"].post(API, body, content_type="application/json")
    assert {fault["field"] for fault in found.json()["faults"]} == {
        "workspace",
        "flavor",
        "cluster",
    }


def test_the_verdict_has_the_cost_of_the_raise(visitors: Visitors, clusters):
    active_card(visitors.fleet)
    address = visitors["owner"].post(PAGE, RAISE)["Location"]
    answered(clusters)

    shown = visitors["owner"].get(address)

    now, after = shown.context["costs"]
    assert after.floor.amount == 2 * now.floor.amount > 0
    assert f"{after.floor.amount:,.2f} EUR" in shown.content.decode()
    # An address is only words: what somebody may not ask about has no cost.
    foreign = address.replace("acme-vision", "globex-search")
    assert not visitors["owner"].get(foreign).context["costs"]


@pytest.mark.parametrize(
    ("receiver", "price_of_burst", "is_of_all"),
    [
        pytest.param("account:acme", 4, False, id="at the account's own prices"),
        pytest.param("pool:shared", 3, True, id="at the prices for all accounts"),
    ],
)
def test_the_verdict_has_the_cost_of_added_gpus_in_use(
    visitors: Visitors, clusters, receiver: str, price_of_burst: int, is_of_all: bool
):
    fleet = visitors.fleet
    active_card(fleet)
    active_card(fleet, price(burst="4.00"), account=fleet.acme)
    fleet.revise(fleet.vision, line("h100", 8, 24))
    set_pool_share(
        None, pool=create_pool(None, slug="shared", name="Shared"), account=fleet.acme, limits={}
    )
    add = {"change": "add", "cluster": "gpu-east", "flavor": "h100", "by": 16, "receiver": receiver}
    months = [month_at(utc_now())]
    address = visitors["admin"].post(PAGE, add)["Location"]
    assert "Nothing is charged" not in visitors.text("admin", address), "no verdict yet"
    answered(clusters)

    text = visitors.text("admin", address)

    months.append(month_at(utc_now()))
    hours = {int((month.end - month.start) / timedelta(hours=1)) for month in months}
    assert "Nothing is charged for these GPUs until jobs use them" in text
    assert any(f"{16 * price_of_burst * count:,.2f} EUR" in text for count in hours)
    assert ("at the prices for all accounts" in text) is is_of_all
    own = visitors["owner"].post(PAGE, RAISE)["Location"].rpartition("q=")[2]
    answered(clusters)
    assert "Nothing is charged" not in visitors.text("owner", PAGE, data={**add, "q": own})


def test_a_raise_says_when_the_first_waiting_job_starts_without_it(visitors: Visitors, clusters):
    told = "Without this change the first waiting job is likely to start between"
    states = {name: waiting_job(clusters["hub"], name) for name in ("eval-1", "eval-2")}
    since = datetime.now(UTC).isoformat()
    later = waiting_for(
        states["eval-2"], position=2, holders=[holder("acme-vision/train-1", since=since)]
    )
    address = visitors["owner"].post(PAGE, RAISE)["Location"]
    recorded(visitors.fleet.vision, 20)
    assert told not in visitors.text("owner", address), "no verdict yet"
    answered(clusters)
    assert told not in visitors.text("owner", address), "it is not the first"
    later.delete()
    waiting_for(states["eval-1"], holders=[holder("acme-vision/train-1", since=since)])

    text = visitors.text("owner", address)

    assert told in text and "80 % sure" in text
    Interval.objects.all().delete()
    assert told not in visitors.text("owner", address), "no run is known that says when"


@pytest.mark.django_db
def test_the_verdict_is_one_sentence_for_who_starts_and_who_stops():
    def reply(cluster: str, **counts: int) -> ShownReply:
        return ShownReply(uuid4(), cluster, "answered", "", WhatIfAnswer("x", **counts))

    assert verdict_of([]) is None
    alone = [reply("a", started_count=2, preempted_count=1, preempted=(JobOutcome("x"),))]
    assert verdict_of(alone).words == (
        "2 waiting jobs start at once. 1 running job is preempted. It queues again."
    )
    none = verdict_of([reply("a", started_count=0)])
    assert (none.words, none.is_good) == (
        "No waiting job starts. No running job is preempted or stopped.",
        False,
    )


WEIGH = {"change": "weigh", "workspace": "acme-vision", "weight": "2"}


def ask(visitors: Visitors, role: str, body: dict[str, Any]) -> Any:
    return visitors[role].post(API, body, content_type="application/json")


def test_admin_asks_what_another_weight_would_lead_to(visitors: Visitors, clusters):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 8))
    before = {slug: queue_of(cluster) for slug, cluster in clusters.items()}
    found = ask(visitors, "admin", WEIGH)
    assert found.status_code == 202, found.content
    asked = {row.cluster: row.asked["changes"] for row in Question.objects.all()}
    assert "hub" in asked
    for slug, [change] in asked.items():
        assert change["document"]["metadata"]["name"] == "acme-vision"
        assert change["document"]["spec"] == before[slug] | {"fairSharing": {"weight": "2"}}
    answered(clusters)
    part = found.json()["questions"][0]["id"]
    reply = visitors["admin"].get(f"{API}/{part}").json()
    assert reply["state"] == "answered"
    assert reply["answer"]["headline"] == "No waiting job starts."
    assert {slug: queue_of(cluster) for slug, cluster in clusters.items()} == before
    visitors.fleet.vision.refresh_from_db()
    assert visitors.fleet.vision.fair_weight == 1


def test_weights_are_asked_about_by_admins_alone(visitors: Visitors, clusters):
    assert ask(visitors, "owner", WEIGH).status_code == 403
    assert not Question.objects.exists()


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        pytest.param("1", "changes no quota", id="the one in force"),
        pytest.param("-1", "", id="negative"),
        pytest.param("much", "", id="no number"),
    ],
)
def test_a_weight_that_is_none_or_is_in_force_is_refused(
    visitors: Visitors, clusters, weight: str, want: str
):
    found = ask(visitors, "admin", {**WEIGH, "weight": weight})
    assert found.status_code == 422
    [fault] = found.json()["faults"]
    assert fault["field"] == "weight"
    assert want in fault["message"]


@pytest.mark.parametrize("by", ["9" * 5_000, "9" * 4_299, "-" + "9" * 4_299, "1000000001"])
@pytest.mark.parametrize("change", [RAISE, ADD])
def test_an_address_of_more_gpus_than_there_can_be_has_its_verdict_alone(
    visitors: Visitors, clusters, change: dict[str, Any], by: str
):
    active_card(visitors.fleet)
    typed = {**change, "by": by}
    assert visitors["admin"].post(PAGE, typed).status_code == 422
    asked = visitors["admin"].post(PAGE, change)["Location"].rpartition("q=")[2]
    answered(clusters)
    told = visitors.text("admin", PAGE, data={**typed, "q": asked})
    assert "What each cluster answered" in told
    assert "Nothing is charged" not in told and "committed GPUs of this budget" not in told


def test_an_address_of_the_largest_numbers_is_shown(visitors: Visitors, clusters):
    active_card(visitors.fleet)
    for by in (10**9, -(10**9)):
        asked = visitors["admin"].post(PAGE, RAISE)["Location"].rpartition("q=")[2]
        answered(clusters)
        for change in (RAISE, ADD):
            visitors.text("admin", PAGE, data={**change, "by": by, "q": asked})
