"""Use and costs by a label of jobs: what is kept, and that groups add up to the second and cent."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry, JobLabel, UsageLabel, User
from budgets.selectors.billing.job_costs import add_up_jobs, job_costs, job_groups
from budgets.selectors.usage.labels import kept_labels
from budgets.selectors.usage.scope import UsageFilter
from budgets.services.usage.labels import MOST_LABELS, store_labels, values_of
from tests.billing.conftest import APRIL, MARCH, Books, active_card, held, meter, price, store
from tests.builders import hours

pytestmark = pytest.mark.django_db
RANGE = "start=2026-03-01&until=2026-03-31"
TEAMS = ("red", "green", "=cmd", "")


def workload(uid: str, *, own: Any = None, template: Any = None) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": uid, "labels": own},
        "spec": {"podSets": [{"template": {"metadata": {"labels": template}}}]},
    }


@pytest.fixture
def teams(books: Books) -> Books:
    """Twelve jobs of odd lengths and prices more, of two teams, of none, and of nonsense."""
    active_card(books.fleet, price(committed="2.12345678", burst="3.33333333"), start=hours(6))
    store(*(held(f"j{at:02}", at * 0.37, at * 0.91 + 1, gpus=1 + at % 5) for at in range(12)))
    store(held("other", 3, 9, namespace="acme-speech"))
    meter()
    services.name_label(books.fleet.admin, key="team", reason="asked for by research")
    told = [workload(f"j{at:02}", own={"team": TEAMS[at % 4]}) for at in range(12)]
    store_labels([*told, workload("other", own={"team": "red"})], cluster="gpu-east",
                 labels=kept_labels())  # fmt: skip
    return books


def test_groups_add_up_to_the_workspace_to_the_second_and_the_cent(teams: Books) -> None:
    for reader in (teams.fleet.finance, teams.fleet.owner):
        costs = job_costs(reader, UsageFilter(MARCH, APRIL))
        groups = job_groups(costs, "team")

        assert {group.value for group in groups} == {"red", "green", ""}
        whole = add_up_jobs(costs.jobs)
        sums = [group.sums for group in groups]
        assert sum(row.committed_used for row in sums) == whole.committed_used
        assert sum(row.burst for row in sums) == whole.burst
        assert sum(row.cost for row in sums) + costs.unused == costs.charged
        assert sum(group.jobs for group in groups) == len({row.uid for row in costs.jobs})
    red = next(group for group in groups if group.value == "red")
    assert {row.uid for row in red.rows} == {"j00", "j04", "j08"}, "of own workspaces alone"


def test_the_page_the_file_and_the_api_tell_the_same_groups(teams: Books) -> None:
    client = Client()
    client.force_login(teams.fleet.owner)
    page = client.get(f"/usage/?{RANGE}&split=label:team")
    groups, text = page.context["groups"], page.content.decode()
    file = client.get(f"/usage/?{RANGE}&split=label:team&format=groups")
    rows = list(csv.DictReader(io.StringIO(b"".join(file).decode())))
    told = client.get("/api/v1/usage/groups?label=team&start=2026-03-01T00:00:00Z"
                      "&end=2026-04-01T00:00:00Z").json()  # fmt: skip

    assert "Jobs without the label" in text and ">red</a>" in text
    assert sum(Decimal(row["cost"]) for row in rows) == groups["costs"].charged
    assert Decimal(told["cost"]) == groups["costs"].charged
    assert sum(Decimal(row["cost"]) for row in told["rows"]) + Decimal(told["unused_cost"]) == (
        Decimal(told["cost"])
    )
    by_page = {group.value: (group.jobs, sums.burst) for group, sums in groups["rows"]}
    assert by_page == {row["value"]: (row["jobs"], row["burst"]) for row in told["rows"]}
    assert by_page == {
        row["value"]: (int(row["jobs"]), int(row["burst_gpu_seconds"])) for row in rows[:-1]
    }
    seconds = sum(int(row["committed_gpu_seconds"]) for row in rows)
    assert seconds == page.context["table"].totals.committed


def test_the_jobs_of_one_group_are_shown_alone_and_still_add_up(teams: Books) -> None:
    client = Client()
    client.force_login(teams.fleet.owner)
    jobs = client.get(f"/usage/?{RANGE}&split=label:team&value=red").context["jobs"]

    assert {row.uid for _, row in jobs["rows"]} == {"j00", "j04", "j08"}
    paid = sum(row.cost for _, row in jobs["rows"]) + jobs["others"].cost
    assert paid + jobs["costs"].unused == jobs["costs"].charged
    # Without the label a value means nothing, and a label that is not kept is no split.
    alone = client.get(f"/usage/?{RANGE}&value=red").context["jobs"]
    assert len(alone["rows"]) == 14
    assert client.get(f"/usage/?{RANGE}&split=label:user").status_code == 422
    for look in ("lending", "idle"):
        assert client.get(f"/usage/{look}/?{RANGE}&split=label:team").status_code == 200


def test_jobs_as_csv_have_a_column_for_each_label(teams: Books) -> None:
    client = Client()
    client.force_login(teams.fleet.owner)
    answer = client.get(f"/usage/?{RANGE}&format=jobs")
    rows = {row["uid"]: row for row in csv.DictReader(io.StringIO(b"".join(answer).decode()))}
    assert [rows[uid]["label:team"] for uid in ("j00", "j01", "j02")] == ["red", "green", ""]
    assert rows[""]["label:team"] == "", "the row of what no job used has all columns"


def test_the_table_of_jobs_has_a_column_for_each_label(teams: Books) -> None:
    client = Client()
    client.force_login(teams.fleet.owner)
    page = client.get(f"/usage/?{RANGE}")
    text = page.content.decode()
    table = text[text.index('id="jobs"') :].partition("</table>")[0]

    assert table.count('<th scope="col">team</th>') == 1
    said = {row.uid: name[3] for name, row in page.context["jobs"]["rows"]}
    assert said["j00"] == ["red"] and said["j02"] == [""], "nonsense was not kept"
    widths = {
        sum(int(re.search(r'colspan="(\d+)"', cell)[1]) if "colspan" in cell else 1
            for cell in re.findall(r"<t[dh]\b[^>]*>", row))
        for row in table.split("<tr>")[1:]
    }  # fmt: skip
    assert widths == {9}, "every row is as wide as the head"


def test_a_label_that_is_not_kept_is_refused_with_those_that_are(teams: Books) -> None:
    client = Client()
    client.force_login(teams.fleet.owner)
    answer = client.get("/api/v1/usage/groups?label=user&start=never")
    assert answer.status_code == 422
    assert {fault["field"] for fault in answer.json()["faults"]} == {"label", "start"}
    assert "choose one of team" in answer.content.decode()


def test_the_first_value_of_a_job_stays(teams: Books) -> None:
    said = [workload("j00", own={"team": "green"}), workload("j03", own={"team": "late"})]
    store_labels(said, cluster="gpu-east", labels=kept_labels())
    values = dict(JobLabel.objects.filter(uid__in=("j00", "j03")).values_list("uid", "value"))
    assert values == {"j00": "red", "j03": "late"}


@pytest.mark.parametrize(
    "nonsense",
    ["", " ", "-red", "red-", "a b", "é", "x" * 64, "red\n", "=1+1", "<b>", 7, None, ["red"], {}],
)
def test_what_kubernetes_would_not_take_is_no_value(nonsense: Any) -> None:
    assert values_of(workload("u", own={"team": nonsense}), ["team"]) == {}
    told = workload("u", own={"team": nonsense}, template={"team": "red"})
    assert values_of(told, ["team"]) == {"team": "red"}, "the template's stands behind it"


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": {"uid": "u"}},
        {"metadata": {"uid": "u", "labels": ["team"]}, "spec": []},
        {"metadata": {"uid": "u", "labels": "team"}, "spec": {"podSets": {"template": 1}}},
        {"metadata": {"uid": "u"}, "spec": {"podSets": [None, 5, {"template": {"metadata": []}}]}},
    ],
)
def test_nonsense_where_labels_stand_says_nothing(document: dict[str, Any]) -> None:
    assert values_of(document, ["team"]) == {}


@pytest.mark.parametrize("uid", ["", "u" * 65, None])
def test_a_job_without_a_sound_uid_is_not_kept(teams: Books, uid: Any) -> None:
    before = JobLabel.objects.count()
    document = workload("x", own={"team": "red"})
    document["metadata"]["uid"] = uid
    store_labels([document], cluster="gpu-east", labels=kept_labels())
    assert JobLabel.objects.count() == before


def test_only_an_admin_names_labels_and_the_log_says_which(books: Books) -> None:
    fleet = books.fleet
    for person in (fleet.finance, fleet.owner, User.objects.create(username="nobody")):
        with pytest.raises(NotAllowed):
            services.name_label(person, key="team", reason="why not")
    label = services.name_label(fleet.admin, key="example.org/cost-centre", reason="asked for")
    with pytest.raises(NotAllowed):
        services.drop_label(fleet.owner, label=label)
    services.drop_label(fleet.admin, label=label)
    assert kept_labels() == {}
    log = AuditEntry.objects.filter(subject="label:example.org/cost-centre").order_by("pk")
    assert [(row.action, row.reason) for row in log] == [
        ("label.name", "asked for"),
        ("label.drop", ""),
    ]
    again = services.name_label(fleet.admin, key="example.org/cost-centre", reason="again")
    assert again.pk == label.pk


@pytest.mark.parametrize("key", ["", "a b", "/team", "x/", "a/b/c", "UP/team", "team\n", "t" * 64])
def test_what_is_no_key_of_a_label_is_refused(books: Books, key: str) -> None:
    with pytest.raises(Rejected) as refused:
        services.name_label(books.fleet.admin, key=key, reason="asked for")
    assert [fault.field for fault in refused.value.faults] == ["key"]
    assert not UsageLabel.objects.exists()


def test_labels_are_few(books: Books) -> None:
    for number in range(MOST_LABELS):
        services.name_label(books.fleet.admin, key=f"label-{number}", reason="asked for")
    with pytest.raises(Rejected, match="At most"):
        services.name_label(books.fleet.admin, key="one-more", reason="asked for")
    with pytest.raises(Rejected, match="kept already"):
        services.name_label(books.fleet.admin, key="label-0", reason="asked for")


def test_the_set_up_names_and_drops_labels(books: Books) -> None:
    client = Client()
    client.force_login(books.fleet.admin)
    given = {"section": "labels", "key": "team", "reason": "asked for"}
    assert client.post("/setup/installation/", given).status_code == 302
    assert list(kept_labels()) == ["team"]
    page = client.get("/setup/installation/").content.decode()
    assert "Labels to group by" in page and re.search(r">\s*team\s*<", page)
    pressed = {"section": "labels", "remove": str(kept_labels()["team"])}
    assert client.post("/setup/installation/", pressed).status_code == 302
    assert kept_labels() == {}
