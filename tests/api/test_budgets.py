"""Budgets over the API: versions, faults, drafts, requests, history."""

from __future__ import annotations

import pytest

from budgets import services
from budgets.models import Budget, BudgetRevision
from portal.api.paging import etag_of
from tests.api.conftest import People

B = "workspaces/acme-vision/budget"


def lines(*rows: tuple[str, int, int], **more):
    return {
        "lines": [{"flavor": f, "committed": c, "ceiling": b} for f, c, b in rows],
        "reason": "test",
        **more,
    }


def save(people: People, body, *, role: str = "owner", etag: str | None = None):
    return people.send(role, "POST", f"{B}/revisions", body, HTTP_IF_MATCH=etag or people.etag())


def faults_of(answer) -> dict[str, str]:
    assert answer.status_code == 422, answer.json()
    return {fault["field"]: fault["code"] for fault in answer.json()["faults"]}


def test_revision_inside_the_envelope_is_live_with_the_budgets_new_etag(people):
    answer = save(people, lines(("h100", 16, 32)))
    assert answer.status_code == 201
    made = answer.json()
    assert (made["number"], made["state"], made["phase"]) == (1, "live", "in force")
    assert made["author"] == "olga"
    assert made["lines"] == [{"flavor": "h100", "committed": 16, "ceiling": 32, "lendable": 16}]
    read = people.send("owner", "GET", B)
    assert read.headers["ETag"] == answer.headers["ETag"]
    assert read.json()["in_force"] == made


def test_short_form_puts_the_floor_on_the_home_flavor(people):
    answer = save(people, {"short": {"committed": 16, "burst": 32, "prefer": "h100-spot"}})
    assert answer.status_code == 201
    made = answer.json()
    assert [(row["flavor"], row["committed"], row["ceiling"]) for row in made["lines"]] == [
        ("h100", 16, 16),
        ("h100-spot", 0, 16),
    ]
    assert made["preference"] == ["h100-spot", "h100"]


def test_short_form_and_lines_exclude_each_other(people):
    body = lines(("h100", 8, 8), short={"committed": 8, "burst": 8})
    assert faults_of(save(people, body)) == {"short": "not_both"}
    assert faults_of(save(people, {"reason": "x"})) == {"lines": "required"}


def test_revision_beyond_the_envelope_waits_and_changes_nothing(people):
    answer = save(people, lines(("h100", 40, 40)))
    assert answer.status_code == 202
    assert people.send("owner", "GET", B).json()["in_force"] is None
    waiting = people.send("owner", "GET", "requests").json()["results"]
    assert [row["number"] for row in waiting] == [1]
    assert waiting[0]["reasons"]
    decided = people.send(
        "admin",
        "POST",
        f"{B}/revisions/1/decide",
        {"accept": True, "reason": "season"},
        HTTP_IF_MATCH=people.etag(),
    )
    assert decided.json()["phase"] == "in force"
    assert decided.json()["decision_reason"] == "season"
    assert people.send("owner", "GET", "requests").json()["results"] == []


def test_second_of_two_writers_is_told_and_saves_nothing(people):
    etag = people.etag()
    assert save(people, lines(("h100", 8, 8)), role="admin", etag=etag).status_code == 201
    late = save(people, lines(("h100", 16, 16)), etag=etag)
    assert late.status_code == 412
    problem = late.json()
    assert problem["code"] == "stale_version"
    assert problem["changed_by"] == "ada"
    assert "8 H100 committed, burst limit 8" in problem["message"]
    assert BudgetRevision.objects.count() == 1
    again = f'"{problem["current_version"]}"'
    assert save(people, lines(("h100", 16, 16)), etag=again).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{B}/revisions", lines(("h100", 8, 8))),
        ("POST", f"{B}/revisions/1/withdraw", {}),
        ("POST", f"{B}/revisions/1/decide", {"accept": True, "reason": "r"}),
        ("POST", f"{B}/revisions/1/restore", {"reason": "r"}),
        ("PUT", f"{B}/stop", {"policy": "Hold", "reason": "r"}),
        ("POST", f"{B}/reallocation", {"reason": "r"}),
    ],
)
def test_every_write_asks_for_the_version_and_refuses_a_stale_one(people, method, path, body):
    save(people, lines(("h100", 40, 40)))
    before = Budget.objects.values_list("version", "stop_policy").get(workspace=people.fleet.vision)
    assert people.send("admin", method, path, body).status_code == 428
    stale = people.send("admin", method, path, body, HTTP_IF_MATCH='"1"')
    assert stale.status_code == 412
    nonsense = people.send("admin", method, path, body, HTTP_IF_MATCH="*")
    assert faults_of(nonsense) == {"If-Match": "invalid"}
    assert before == Budget.objects.values_list("version", "stop_policy").get(
        workspace=people.fleet.vision
    )


def test_unchanged_budget_is_304_and_a_changed_generation_is_not(people):
    save(people, lines(("h100", 8, 8)))
    etag = people.etag()
    same = people.send("owner", "GET", B, HTTP_IF_NONE_MATCH=f'"x", W/{etag}')
    assert (same.status_code, same.headers["ETag"], same.content) == (304, etag, b"")
    # What a scheduled revision does when its time comes.
    budget = people.fleet.vision.budget
    Budget.objects.filter(pk=budget.pk).update(generation=99)
    budget.refresh_from_db()
    changed = people.send("owner", "GET", B, HTTP_IF_NONE_MATCH=etag)
    assert changed.status_code == 200
    assert changed.headers["ETag"] == etag_of(budget) != etag
    assert people.send("stranger", "GET", B, HTTP_IF_NONE_MATCH=etag).status_code == 404


def test_all_faults_are_told_at_once_beside_their_fields(people):
    body = lines(
        ("h100", 16, 8),
        ("nonesuch", 1, 1),
        preference=["l4"],
        valid_until="2020-01-01T00:00:00Z",
    )
    found = faults_of(save(people, body))
    assert found == {
        "lines.0.ceiling": "ceiling_below_committed",
        "lines.1.flavor": "unknown_flavor",
        "preference.0": "preference_without_line",
        "valid_until": "empty_window",
    }
    assert not BudgetRevision.objects.exists()


def test_shape_faults_are_told_at_once_beside_their_fields(people):
    body = {
        "lines": [
            {"flavor": "h100", "committed": 16.5, "ceiling": "32", "lendable": True},
            {"committed": -1, "ceiling": 10**7, "burst": 3},
        ],
        "valid_from": "2030-01-01T00:00:00",
        "valid_until": "2030-01-01T00:00:00.5Z",
        "spill": "sideways",
        "comment": "?",
    }
    assert faults_of(save(people, body)) == {
        "lines.0.committed": "invalid",
        "lines.0.ceiling": "invalid",
        "lines.0.lendable": "invalid",
        "lines.1.flavor": "required",
        "lines.1.committed": "min_value",
        "lines.1.ceiling": "max_value",
        "lines.1.burst": "unknown_field",
        "valid_from": "naive",
        "valid_until": "fraction",
        "spill": "invalid_choice",
        "comment": "unknown_field",
    }


def test_preview_tells_the_consequences_and_writes_nothing(people):
    before = Budget.objects.values().get(workspace=people.fleet.vision)
    seen = people.send("viewer", "POST", f"{B}/preview", lines(("h100", 8, 40))).json()
    assert seen["faults"] == []
    assert [row["flavor"] for row in seen["reach"]] == ["h100"]
    assert {"state", "warnings", "request_reasons", "largest_job", "impact"} <= seen.keys()
    broken = people.send("owner", "POST", f"{B}/preview", lines(("h100", 8, 4))).json()
    assert broken["state"] == "rejected"
    assert [fault["field"] for fault in broken["faults"]] == ["lines.0.ceiling"]
    assert Budget.objects.values().get(workspace=people.fleet.vision) == before


def test_history_diff_and_restore(people):
    save(people, lines(("h100", 8, 8)))
    save(people, lines(("h100", 16, 24)))
    history = people.send("owner", "GET", f"{B}/revisions").json()["results"]
    assert [(row["number"], row["phase"]) for row in history] == [(2, "in force"), (1, "past")]
    diff = people.send("owner", "GET", f"{B}/revisions/1/diff/2").json()
    changed = {
        row["field"]: (row["before"], row["after"]) for row in diff["rows"] if row["changed"]
    }
    assert changed["h100.committed"] == ("8", "16")
    restored = people.send(
        "owner",
        "POST",
        f"{B}/revisions/1/restore",
        {"reason": "back"},
        HTTP_IF_MATCH=people.etag(),
    )
    assert restored.status_code == 201
    assert restored.json()["restored_from"] == 1
    assert restored.json()["lines"] == history[1]["lines"]


def test_withdrawn_request_is_gone_from_the_requests(people):
    save(people, lines(("h100", 40, 40)))
    taken = people.send(
        "owner", "POST", f"{B}/revisions/1/withdraw", {}, HTTP_IF_MATCH=people.etag()
    )
    assert taken.json()["state"] == "withdrawn"
    assert people.send("admin", "GET", "requests").json()["results"] == []


def test_stop_policy_holds_and_releases(people):
    for policy in ("Hold", "None"):
        answer = people.send(
            "owner",
            "PUT",
            f"{B}/stop",
            {"policy": policy, "reason": "maintenance"},
            HTTP_IF_MATCH=people.etag(),
        )
        assert answer.json()["stop_policy"] == policy
        assert answer.headers["ETag"] == people.etag()


def test_reallocation_is_shown_and_then_made(people):
    save(people, lines(("h100", 8, 8)))
    moves = people.send("admin", "GET", f"{B}/reallocation").json()["moves"]
    assert sum(move["after"] for move in moves) == 8
    made = people.send(
        "admin",
        "POST",
        f"{B}/reallocation",
        {"reason": "even out"},
        HTTP_IF_MATCH=people.etag(),
    )
    assert made.status_code == 200
    assert sum(part["committed"] for part in made.json()["parts"]) == 8


def test_revision_by_the_portal_itself_has_no_author(people):
    services.archive_workspace(None, workspace=people.fleet.vision, reason="over")
    row = people.send("admin", "GET", f"{B}/revisions").json()["results"][0]
    assert row["author"] is None
    listed = people.send("admin", "GET", "workspaces").json()["results"]
    assert "acme-vision" not in [item["namespace"] for item in listed]
    everything = people.send("admin", "GET", "workspaces?archived=true").json()["results"]
    assert "acme-vision" in [item["namespace"] for item in everything]
