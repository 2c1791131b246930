from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from budgets.models import BudgetRevision
from tests.billing.conftest import active_card
from tests.builders import line
from tests.web.conftest import HTMX, Visitors

ADDRESS = "/workspaces/acme-vision/budget/"
CHECK = "/workspaces/acme-vision/budget/check/"


def typed(visitors: Visitors, **changes) -> dict[str, object]:
    budget = visitors.fleet.vision.budget
    budget.refresh_from_db()
    return {
        "version": budget.version,
        "shape": "short",
        "committed": 16,
        "ceiling": 32,
        "preferred": "h100-spot",
        "home_flavor": "h100",
        "lendable": "",
        "spill": "next_flavor_first",
        "valid_from": "",
        "valid_until": "",
        "reason": "training",
        **changes,
    }


def lines_of(revision: BudgetRevision) -> list[tuple[str, int, int, int]]:
    rows = revision.lines.select_related("flavor").order_by("position")
    return [(row.flavor.slug, row.committed, row.ceiling, row.lendable) for row in rows]


def in_force(visitors: Visitors) -> BudgetRevision | None:
    budget = visitors.fleet.vision.budget
    budget.refresh_from_db()
    return budget.in_force


def test_three_fields_become_two_lines_with_the_preferred_first(visitors: Visitors):
    answer = visitors["owner"].post(ADDRESS, typed(visitors), follow=True)

    revision = in_force(visitors)
    assert answer.redirect_chain[-1][0] == "/workspaces/acme-vision/"
    assert "Revision 1 is saved" in answer.content.decode()
    assert lines_of(revision) == [("h100", 16, 16, 16), ("h100-spot", 0, 16, 0)]
    assert revision.preference == ["h100-spot", "h100"]
    assert revision.author == visitors.fleet.owner


def test_three_fields_without_a_preference_are_one_line(visitors: Visitors):
    visitors["owner"].post(ADDRESS, typed(visitors, preferred="", lendable=4))

    assert lines_of(in_force(visitors)) == [("h100", 16, 32, 4)]


def test_a_line_for_each_flavor_counts_when_chosen(visitors: Visitors):
    values = typed(visitors, shape="lines", committed="", ceiling="")
    values |= {"committed-h100": 8, "ceiling-h100": 16, "lendable-h100": 2, "order-h100": 2}
    values |= {"ceiling-h100-spot": 8, "order-h100-spot": 1}

    visitors["owner"].post(ADDRESS, values)

    revision = in_force(visitors)
    assert lines_of(revision) == [("h100", 8, 16, 2), ("h100-spot", 0, 8, 0)]
    assert revision.preference == ["h100-spot", "h100"]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((line("h100", 16, 32),), id="one flavor"),
        pytest.param((line("h100", 16), line("h100-spot", 0, 16)), id="floor and burst apart"),
        pytest.param((line("h100", 16, 32, 4),), id="lends less"),
        pytest.param((line("h100", 8, 16), line("h100-spot", 0, 8)), id="lines of their own"),
    ],
)
def test_saving_what_the_form_shows_changes_nothing(visitors: Visitors, lines):
    visitors.fleet.revise(visitors.fleet.vision, *lines)
    before = lines_of(in_force(visitors))
    form = visitors["owner"].get(ADDRESS).context["form"]
    values = {name: form[name].value() for name in form.fields}

    values = {name: "" if value is None else value for name, value in values.items()}
    visitors["owner"].post(ADDRESS, {**values, "reason": "again"})

    assert lines_of(in_force(visitors)) == before
    assert in_force(visitors).number == 2


def test_every_fault_stands_beside_its_field_and_nothing_is_saved(visitors: Visitors):
    values = typed(visitors, preferred="", committed=20, ceiling=10, lendable=30)

    answer = visitors["owner"].post(ADDRESS, values)

    errors = answer.context["form"].errors
    assert answer.status_code == 422
    assert set(errors) >= {"ceiling", "lendable"}
    assert BudgetRevision.objects.count() == 0
    assert 'value="20"' in answer.content.decode()


def test_a_promise_beyond_the_fleet_names_the_capacity(visitors: Visitors):
    answer = visitors["admin"].post(
        ADDRESS, typed(visitors, committed=400, ceiling=400, preferred="")
    )

    assert answer.status_code == 422
    assert "committed" in answer.context["form"].errors
    assert in_force(visitors) is None


def test_beyond_the_envelope_waits_as_a_request(visitors: Visitors):
    answer = visitors["owner"].post(
        ADDRESS, typed(visitors, committed=40, ceiling=40, preferred=""), follow=True
    )

    assert "waits as a request" in answer.content.decode()
    assert in_force(visitors) is None
    assert BudgetRevision.objects.get().state == "requested"


def test_who_saves_second_is_told_who_changed_what_and_loses_nothing(visitors: Visitors):
    values = typed(visitors, committed=12, ceiling=28, reason="mine, typed for long")
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 8), actor=visitors.fleet.admin)

    answer = visitors["owner"].post(ADDRESS, values)

    text = answer.content.decode()
    assert answer.status_code == 409
    assert "ada saved a change before you" in text
    assert 'value="12"' in text and "mine, typed for long" in text
    assert lines_of(in_force(visitors)) == [("h100", 8, 8, 8)]

    form = answer.context["form"]
    again = {name: form[name].value() or "" for name in form.fields}
    assert visitors["owner"].post(ADDRESS, again).status_code == 302
    assert lines_of(in_force(visitors))[0] == ("h100", 12, 12, 12)


def test_check_answers_a_part_with_faults_out_of_band_and_saves_nothing(visitors: Visitors):
    answer = visitors["owner"].post(CHECK, typed(visitors, ceiling=4, preferred=""), **HTMX)

    text = answer.content.decode()
    assert answer.status_code == 200
    assert "<html" not in text
    assert 'hx-swap-oob="true" id="id_ceiling_error"' in text
    assert "cannot be saved" in text
    assert BudgetRevision.objects.count() == 0


def test_check_tells_state_reach_and_largest_job(visitors: Visitors):
    text = visitors["owner"].post(CHECK, typed(visitors), **HTMX).content.decode()

    assert "starts at once" in text
    assert "The largest single job can have" in text
    assert "h100-spot" in text


def test_check_tells_the_cost_now_and_after_and_the_room_in_the_envelope(visitors: Visitors):
    fleet = visitors.fleet
    active_card(fleet)
    fleet.revise(fleet.vision, line("h100", 8))

    shown = visitors["owner"].post(CHECK, typed(visitors, preferred="", ceiling=16), **HTMX)

    now, after = shown.context["costs"]
    text = shown.content.decode()
    assert after.floor.amount == 2 * now.floor.amount > 0
    assert f"{now.floor.amount:,.2f} EUR" in text and f"{after.floor.amount:,.2f} EUR" in text
    assert "16 here, 8 now" in text and "16 of 32 left" in text
    assert "fleet-h100" not in text, "what is left of the fleet is what others have left"


def test_check_of_an_owner_names_no_other_account(visitors: Visitors):
    visitors.fleet.revise(visitors.fleet.search, line("h100", 8, 16))

    text = visitors["owner"].post(CHECK, typed(visitors), **HTMX).content.decode()

    assert "globex" not in text


def test_a_budget_that_ends_says_so_and_is_renewed_for_as_long_again(visitors: Visitors):
    begin = datetime.now(UTC).replace(second=0, microsecond=0)
    end = begin + timedelta(days=10)
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 8), valid_until=end)

    assert "?renew=1" in visitors.text("owner", "/workspaces/acme-vision/")
    form = visitors["owner"].get(f"{ADDRESS}?renew=1").context["form"]
    values = {name: form[name].value() for name in form.fields}
    values |= {name: f"{values[name]:%Y-%m-%dT%H:%M}" for name in ("valid_from", "valid_until")}
    visitors["owner"].post(ADDRESS, {k: "" if v is None else v for k, v in values.items()})

    newest = BudgetRevision.objects.order_by("-number")[0]
    assert (newest.number, newest.valid_from) == (2, end)
    assert newest.valid_until - end in (timedelta(days=10), timedelta(days=10, minutes=-1))
    assert "?renew=1" not in visitors.text("owner", "/workspaces/acme-vision/")


def test_looking_works_without_scripts(visitors: Visitors):
    answer = visitors["owner"].post(ADDRESS, typed(visitors, check="1"))

    text = answer.content.decode()
    assert answer.status_code == 200
    assert "<html" in text and "starts at once" in text
    assert in_force(visitors) is None


def test_a_future_window_is_scheduled_in_the_readers_zone(visitors: Visitors):
    owner = visitors.fleet.owner
    owner.time_zone = "Europe/Berlin"
    owner.save()

    visitors["owner"].post(ADDRESS, typed(visitors, valid_from="2030-01-15T12:00"))

    revision = BudgetRevision.objects.get()
    assert revision.valid_from.isoformat() == "2030-01-15T11:00:00+00:00"
    assert "begins" in visitors.text("owner", "/workspaces/acme-vision/")


def test_hold_says_what_happens_and_is_undone(visitors: Visitors):
    budget = visitors.fleet.vision.budget
    address = f"{ADDRESS}stop/"
    values = {"policy": "Hold", "reason": "month is over", "version": budget.version}

    assert visitors["owner"].post(address, values).status_code == 302
    budget.refresh_from_db()
    assert budget.stop_policy == "Hold"
    assert "month is over" in visitors.text("owner", "/workspaces/acme-vision/")

    stale = visitors["owner"].post(address, {**values, "policy": "None"})
    assert stale.status_code == 409
    values |= {"policy": "None", "version": budget.version}
    visitors["owner"].post(address, values)
    budget.refresh_from_db()
    assert budget.stop_policy == "None"
