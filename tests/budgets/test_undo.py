"""Undoing a revision: by its author, for five minutes, as a new revision."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.test import Client

from budgets import services
from budgets.errors import NotAllowed, Rejected, StaleVersion
from budgets.models import AuditEntry, BillingPeriod, Budget, BudgetRevision, Membership
from budgets.models.budget import UNDO_FOR
from budgets.plan import Part, RevisionDraft
from tests.builders import SmallFleet, agreed, hours, line

pytestmark = pytest.mark.django_db
NOW = hours(10)
SECOND = timedelta(seconds=1)
PAGE = "/workspaces/acme-vision/"


@pytest.fixture
def saved(fleet: SmallFleet) -> SmallFleet:
    """Revision 1 by an admin an hour ago, revision 2 by the owner at :data:`NOW`."""
    with time_machine.travel(NOW - timedelta(hours=1), tick=False):
        fleet.revise(fleet.vision, line("h100", 16, 32), preference=("h100",))
    with time_machine.travel(NOW, tick=False):
        fleet.revise(fleet.vision, line("h100", 8), actor=fleet.owner)
    return fleet


def undo(fleet: SmallFleet, *, number: int = 2, after: timedelta = SECOND, actor=None):
    budget = Budget.objects.get(workspace=fleet.vision)
    revision = budget.revisions.get(number=number)
    with time_machine.travel(NOW + after, tick=False):
        return services.undo_revision(
            actor or fleet.owner, revision=revision, expected_version=budget.version
        )


def refused(fleet: SmallFleet, **given) -> str:
    before = list(BudgetRevision.objects.values_list("number", "state"))
    with pytest.raises(Rejected) as caught:
        undo(fleet, **given)
    assert list(BudgetRevision.objects.values_list("number", "state")) == before
    return str(caught.value)


def held(fleet: SmallFleet) -> list[tuple[str, int, int]]:
    budget = Budget.objects.get(workspace=fleet.vision)
    assert budget.in_force is not None
    lines = budget.in_force.lines.select_related("flavor")
    return [(row.flavor.slug, row.committed, row.ceiling) for row in lines]


def test_what_held_before_holds_again_as_a_new_revision(saved: SmallFleet) -> None:
    before = Budget.objects.get(workspace=saved.vision)
    made = undo(saved, after=UNDO_FOR)

    after = Budget.objects.get(workspace=saved.vision)
    assert (made.number, made.restored_from, made.state) == (3, 1, "live")
    assert (made.author, made.reason) == (saved.owner, "Undoes revision 2.")
    assert held(saved) == [("h100", 16, 32)] and list(made.preference) == ["h100"]
    assert after.generation > before.generation, "the clusters follow"
    assert made.valid_from == NOW + UNDO_FOR, "the minutes in between stay as they were"
    states = BudgetRevision.objects.order_by("number").values_list("state", flat=True)
    assert list(states) == ["live"] * 3, "nothing is deleted"
    entry = AuditEntry.objects.filter(action="budget.undo").get()
    assert (entry.actor_name, entry.after["version"]) == ("olga", after.version)
    assert entry.after["summary"].startswith("undid revision 2 by revision 3: 16 H100 committed")


def test_an_undo_is_undone_like_any_other_revision(saved: SmallFleet) -> None:
    undo(saved)
    again = undo(saved, number=3, after=2 * SECOND)
    assert again.restored_from == 2 and held(saved) == [("h100", 8, 8)]


def test_the_first_budget_undone_is_none(fleet: SmallFleet) -> None:
    with time_machine.travel(NOW, tick=False):
        fleet.revise(fleet.vision, line("h100", 8), actor=fleet.owner)
    made = undo(fleet, number=1)
    assert held(fleet) == [] and made.restored_from is None


def test_only_its_author_undoes_it(saved: SmallFleet) -> None:
    for person in (saved.admin, saved.finance):
        with pytest.raises(NotAllowed, match="Only the person who saved"):
            undo(saved, actor=person)
    services.revoke_role(None, membership=Membership.objects.get(user=saved.owner))
    with pytest.raises(NotAllowed, match="owners, finance and admins"):
        undo(saved)
    assert BudgetRevision.objects.count() == 2


def test_after_five_minutes_it_says_until_when_it_could(saved: SmallFleet) -> None:
    words = refused(saved, after=UNDO_FOR + SECOND)
    assert f"could be undone until {NOW + UNDO_FOR:%Y-%m-%dT%H:%M:%SZ}" in words


def test_nobody_writes_over_what_was_saved_in_between(saved: SmallFleet) -> None:
    budget = Budget.objects.get(workspace=saved.vision)
    revision = budget.revisions.get(number=2)
    with time_machine.travel(NOW + SECOND, tick=False), pytest.raises(StaleVersion):
        services.undo_revision(saved.owner, revision=revision, expected_version=budget.version - 1)


def test_not_when_something_newer_was_saved_or_asked_for(saved: SmallFleet) -> None:
    with time_machine.travel(NOW + SECOND, tick=False):
        request = saved.revise(saved.vision, line("h100", 40), actor=saved.owner)
    assert request.state == "requested"
    assert "Revision 3 was saved after revision 2" in refused(saved)
    # One that was taken back again stands on nothing.
    with time_machine.travel(NOW + SECOND, tick=False):
        budget = Budget.objects.get(workspace=saved.vision)
        services.withdraw_request(saved.owner, revision=request, expected_version=budget.version)
    assert undo(saved, after=2 * SECOND).restored_from == 1


def accept(fleet: SmallFleet, part: Part | None) -> BudgetRevision:
    request = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    version = Budget.objects.get(workspace=fleet.vision).version
    return services.decide_request(
        fleet.admin, revision=request, accept=True, reason="go", expected_version=version, part=part
    )


@pytest.mark.parametrize("part", [None, Part((line("h100", 36),), None)])
def test_what_somebody_decided_on_is_undone_by_nobody_alone(saved: SmallFleet, part) -> None:
    with time_machine.travel(NOW, tick=False):
        made = accept(saved, part)
    assert made.undo_until is None and made.state == "live"
    words = refused(saved, number=made.number, actor=made.author)
    assert "Another person decided on revision" in words


def test_a_request_and_a_declined_one_are_not_undone(saved: SmallFleet) -> None:
    with time_machine.travel(NOW, tick=False):
        saved.revise(saved.vision, line("h100", 40), actor=saved.owner)
    assert "nothing to undo" in refused(saved, number=3)


def test_what_two_people_agreed_on_is_undone_by_nobody_alone(saved: SmallFleet) -> None:
    with time_machine.travel(NOW, tick=False):
        budget = Budget.objects.get(workspace=saved.vision)
        draft = RevisionDraft(
            lines=(line("h100", 4),), valid_from=NOW - timedelta(hours=2), reason="agreed by mail"
        )
        agreed(
            services.propose_dating_back(
                saved.finance,
                workspace=saved.vision,
                draft=draft,
                expected_version=budget.version,
            )
        )
    made = BudgetRevision.objects.get(is_dated_back=True)
    assert "one alone cannot undo it" in refused(saved, number=made.number, actor=made.author)


def test_not_when_its_month_was_closed_since(saved: SmallFleet) -> None:
    BillingPeriod.objects.create(
        name="2026-03",
        start=NOW - timedelta(days=20),
        end=NOW + SECOND,
        closed_at=NOW + 2 * SECOND,
        close_number=1,
        head="a" * 64,
    )
    assert "a month that is closed by now" in refused(saved, after=3 * SECOND)


def test_an_undo_never_widens_what_an_admin_has_to_accept(saved: SmallFleet) -> None:
    services.set_envelope(
        saved.admin,
        account=saved.acme,
        flavor=saved.flavors["h100"],
        committed=8,
        ceiling=8,
        pool=0,
    )
    words = refused(saved)
    assert "beyond the envelope of the account" in words and "restore revision 1" in words


def test_an_undo_of_an_admin_waives_nothing_either(saved: SmallFleet) -> None:
    with time_machine.travel(NOW, tick=False):
        saved.revise(saved.vision, line("h100", 44), reason="launch")
        saved.revise(saved.vision, line("h100", 40), reason="launch, smaller")
    services.set_envelope(
        saved.admin, account=saved.acme, flavor=saved.flavors["h100"], committed=8, ceiling=8,
        pool=0,
    )  # fmt: skip
    assert "beyond the envelope" in refused(saved, number=4, actor=saved.admin)


def test_one_that_has_not_begun_is_withdrawn(saved: SmallFleet) -> None:
    with time_machine.travel(NOW, tick=False):
        saved.revise(
            saved.vision, line("h100", 12), actor=saved.owner, valid_from=NOW + timedelta(days=3)
        )
    made = undo(saved, number=3)
    assert (made.number, made.state) == (3, "withdrawn")
    assert held(saved) == [("h100", 8, 8)]


def test_one_that_has_not_begun_is_withdrawn_whatever_ends_before(fleet: SmallFleet) -> None:
    end = NOW + timedelta(days=9)
    with time_machine.travel(NOW - timedelta(hours=1), tick=False):
        fleet.revise(fleet.vision, line("h100", 16), actor=fleet.owner, valid_until=end)
    with time_machine.travel(NOW, tick=False):
        fleet.revise(fleet.vision, line("h100", 8), actor=fleet.owner, valid_from=end)
    assert undo(fleet).state == "withdrawn"


def test_one_that_others_have_followed_by_the_clock_is_not_undone(saved: SmallFleet) -> None:
    with time_machine.travel(NOW, tick=False):
        soon = NOW + timedelta(minutes=2)
        saved.revise(saved.vision, line("h100", 12), actor=saved.owner, valid_from=soon)
        saved.revise(saved.vision, line("h100", 4), actor=saved.owner)
    assert "Revision 3 has begun since" in refused(saved, number=4, after=timedelta(minutes=3))


def test_the_end_of_what_held_before_stays(fleet: SmallFleet) -> None:
    end = NOW + timedelta(days=9)
    with time_machine.travel(NOW - timedelta(hours=1), tick=False):
        fleet.revise(fleet.vision, line("h100", 16), actor=fleet.owner, valid_until=end)
    with time_machine.travel(NOW, tick=False):
        fleet.revise(fleet.vision, line("h100", 8), actor=fleet.owner)
    # Without an end of its own it would come back at the end of the other.
    assert "revision 2 would hold again after that" in refused(fleet)
    with time_machine.travel(NOW, tick=False):
        fleet.revise(fleet.vision, line("h100", 4), actor=fleet.owner, valid_until=end)
        Budget.objects.get(workspace=fleet.vision).revisions.filter(number=2).update(
            state="withdrawn"
        )
    assert undo(fleet, number=3).valid_until == end


def page_of(person) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_the_page_offers_it_to_its_author_until_then(saved: SmallFleet) -> None:
    with time_machine.travel(NOW + UNDO_FOR, tick=False):
        text = page_of(saved.owner).get(PAGE).content.decode()
        assert "You can undo it until" in text and "Undo revision 2" in text
        assert f"{NOW + UNDO_FOR:%H:%M:%S}" in text
        assert "Undo revision" not in page_of(saved.admin).get(PAGE).content.decode()
    with time_machine.travel(NOW + UNDO_FOR + SECOND, tick=False):
        assert "Undo revision" not in page_of(saved.owner).get(PAGE).content.decode()


def test_the_button_undoes_and_says_what_came_of_it(saved: SmallFleet) -> None:
    version = Budget.objects.get(workspace=saved.vision).version
    address = f"{PAGE}history/2/undo/"
    with time_machine.travel(NOW + SECOND, tick=False):
        owner = page_of(saved.owner)
        assert owner.post(address, {"version": version - 1}).status_code == 409
        assert page_of(saved.admin).post(address, {"version": version}).status_code == 403
        done = owner.post(address, {"version": version}, follow=True)
        assert "what held before it is back as revision 3" in done.content.decode()
        late = owner.post(address, {"version": version + 1})
    assert late.status_code == 422
    assert "Revision 3 was saved after revision 2" in late.content.decode()
    assert held(saved) == [("h100", 16, 32)]


def test_the_api_undoes_and_tells_until_when(saved: SmallFleet) -> None:
    budget = Budget.objects.get(workspace=saved.vision)
    address = "/api/v1/workspaces/acme-vision/budget/revisions"
    with time_machine.travel(NOW + SECOND, tick=False):
        client = page_of(saved.owner)
        told = client.get(f"{address}/2").json()
        assert told["undo_until"] == f"{NOW + UNDO_FOR:%Y-%m-%dT%H:%M:%SZ}"
        assert client.post(f"{address}/2/undo").status_code == 428
        etag = {"HTTP_IF_MATCH": f'"{budget.version}"'}
        other = page_of(saved.admin).post(f"{address}/2/undo", **etag)
        assert other.status_code == 403
        made = client.post(f"{address}/2/undo", **etag)
    assert made.status_code == 200, made.content
    assert (made.json()["number"], made.json()["restored_from"]) == (3, 1)
