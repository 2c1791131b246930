from __future__ import annotations

import pytest

from budgets.models import BudgetRevision
from tests.builders import line
from tests.web.conftest import Visitors

BASE = "/workspaces/acme-vision/history/"


@pytest.fixture
def two(visitors: Visitors) -> Visitors:
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16), reason="first")
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 8, 16), reason="second")
    return visitors


@pytest.fixture
def requested(visitors: Visitors) -> Visitors:
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 16))
    fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner, reason="the big run")
    return visitors


def version(visitors: Visitors) -> int:
    visitors.fleet.vision.budget.refresh_from_db()
    return visitors.fleet.vision.budget.version


def test_history_is_newest_first_and_says_what_is_in_force(two: Visitors):
    text = two.text("viewer", BASE)

    assert text.index("second") < text.index("first")
    assert text.count("in force") == 1


def test_revision_stands_beside_the_one_before_with_both_values(two: Visitors):
    text = two.text("viewer", f"{BASE}2/")

    assert "<del>16</del>" in text and "<ins>8</ins>" in text
    assert "Restore revision" not in text


def test_revision_can_be_compared_with_any_other(two: Visitors):
    answer = two["viewer"].get(f"{BASE}1/?with=2")

    assert answer.context["other"].number == 2
    assert two["viewer"].get(f"{BASE}1/?with=9").status_code == 404
    assert two["viewer"].get(f"{BASE}1/?with=x").status_code == 404


def test_restore_makes_a_new_revision_with_the_old_numbers(two: Visitors):
    values = {"reason": "the old one was right", "version": version(two)}

    assert two["owner"].post(f"{BASE}1/", values).status_code == 302

    newest = BudgetRevision.objects.order_by("-number")[0]
    assert (newest.number, newest.restored_from) == (3, 1)
    assert [(row.committed, row.ceiling) for row in newest.lines.all()] == [(16, 16)]


def test_restore_is_refused_to_who_may_only_look_and_to_the_late(two: Visitors):
    values = {"reason": "back", "version": version(two) - 1}

    assert two["viewer"].post(f"{BASE}1/", values).status_code == 403
    assert two["owner"].post(f"{BASE}1/", values).status_code == 409
    assert BudgetRevision.objects.count() == 2


def test_request_shows_the_reason_the_difference_and_the_impact(requested: Visitors):
    text = requested.text("admin", f"{BASE}2/decide/")

    assert "the big run" in text
    assert "<del>16</del>" in text and "<ins>40</ins>" in text
    assert "Why it waits" in text
    assert 'aria-label="1 waiting"' in requested.text("admin", "/")


@pytest.mark.parametrize(
    ("role", "decision", "want"),
    [
        ("admin", "accept", "live"),
        ("admin", "decline", "declined"),
        ("owner", "withdraw", "withdrawn"),
    ],
)
def test_request_is_decided_with_a_reason(requested: Visitors, role, decision, want):
    values = {"decision": decision, "reason": "because", "version": version(requested)}

    answer = requested[role].post(f"{BASE}2/decide/", values)

    revision = BudgetRevision.objects.get(number=2)
    assert answer.status_code == 302
    assert (revision.state, revision.decision_reason) == (want, "because")


def test_request_is_not_decided_by_its_owner_nor_without_a_reason(requested: Visitors):
    values = {"decision": "accept", "reason": "please", "version": version(requested)}

    assert requested["owner"].post(f"{BASE}2/decide/", values).status_code == 403
    values["reason"] = ""
    assert requested["admin"].post(f"{BASE}2/decide/", values).status_code == 422
    assert BudgetRevision.objects.get(number=2).state == "requested"


def test_request_decided_meanwhile_leads_to_its_revision(requested: Visitors):
    values = {"decision": "decline", "reason": "no", "version": version(requested)}
    requested["admin"].post(f"{BASE}2/decide/", values)

    answer = requested["owner"].get(f"{BASE}2/decide/")

    assert answer.status_code == 302
    assert "declined" in requested.text("owner", f"{BASE}2/").lower()


DECIDE = f"{BASE}2/decide/"


def decision(visitors: Visitors, **changes) -> dict[str, object]:
    return {
        "version": version(visitors),
        "reason": "half of it",
        "decision": "accept",
        "committed-h100": 24,
        "ceiling-h100": 32,
        "valid_until": "",
        **changes,
    }


def test_an_admin_accepts_a_part_with_a_comment_that_the_owner_reads(requested: Visitors):
    answer = requested["admin"].post(DECIDE, decision(requested), follow=True)

    assert "accepted in part: revision 3 is the new budget" in answer.content.decode()
    part = BudgetRevision.objects.get(number=3)
    assert (part.answers, part.state, part.lines.get().committed) == (2, "live", 24)
    text = requested.text("owner", BASE)
    assert "in part" in text and "half of it" in text


def test_more_than_asked_for_stands_beside_its_field(requested: Visitors):
    answer = requested["admin"].post(DECIDE, decision(requested, **{"ceiling-h100": 41}))

    assert answer.status_code == 422
    assert set(answer.context["form"].errors) == {"ceiling-h100"}
    assert BudgetRevision.objects.get(number=2).state == "requested"


def test_looking_at_a_part_shows_cost_and_room_and_decides_nothing(requested: Visitors):
    values = decision(requested, check="1", reason="")
    answer = requested["admin"].post(DECIDE, values, headers={"HX-Request": "true"})

    text = answer.content.decode()
    assert answer.status_code == 200 and "<html" not in text
    assert "24 here, 16 now" in text
    assert 'id="fleet-h100-committed-used"' in text
    assert BudgetRevision.objects.get(number=2).state == "requested"
    assert requested["owner"].post(DECIDE, values).status_code == 403


def test_an_owner_sees_the_envelope_and_not_the_fleet(requested: Visitors):
    owner, admin = (requested.text(role, DECIDE) for role in ("owner", "admin"))

    assert "envelope-h100" in owner and "fleet-h100" not in owner
    assert "fleet-h100" in admin
