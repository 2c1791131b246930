"""What people of the demo did and planned: last month closed, a request, caps, prices, maintenance.

Goes through the services that the pages use. Caps are set from what the history cost, so that
one is nearly reached whatever the day of the month is.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from budgets.models import ExportPlan, Flavor, SpendRule, User, Workspace
from budgets.selectors import draft_of
from budgets.selectors.billing import card_in_force, month_at, prices_of
from budgets.selectors.spending import cap_states
from budgets.services import billing, revise_budget, utc_now
from budgets.services.exports.plans import save_export_plan
from budgets.services.spending import RuleDraft, create_spend_rule, settle_spending
from clusters.models import Cluster
from clusters.services import plan_maintenance

STEP = 50
DEARER = Decimal("1.1")


def close_last_month(finance: User) -> None:
    """Close, review and issue last month; what is told of it later is corrected in this one."""
    month = month_at(month_at(utc_now()).start - timedelta(days=1)).name
    billing.draw_up_statements(finance, month=month)
    billing.close_period(finance, month=month)
    billing.review_statements(finance, month=month)
    billing.issue_statements(finance, month=month)


def write_plans(people: dict[str, User]) -> None:
    """Plans of the owner, of finance and of the admin.

    Args:
        people: ``owner``, ``finance`` and ``admin``.
    """
    research = Workspace.objects.get(namespace="acme-research")
    create_spend_rule(
        people["owner"],
        workspace=research,
        draft=RuleDraft(
            unit=SpendRule.Unit.MONEY,
            amount=_cap(research, SpendRule.Unit.MONEY, filled=Fraction(82, 100)),
            action=SpendRule.Action.DROP_TO_FLOOR,
        ),
        reason="The grant pays for the committed GPUs and this much beyond them",
    )
    training = Workspace.objects.get(namespace="acme-training")
    create_spend_rule(
        people["finance"],
        workspace=training,
        draft=RuleDraft(
            unit=SpendRule.Unit.GPU_HOURS,
            amount=_cap(training, SpendRule.Unit.GPU_HOURS, filled=Fraction(110, 100)),
        ),
        reason="Tell us when training bursts more than was agreed",
    )
    folding = Workspace.objects.get(namespace="globex-folding")
    create_spend_rule(
        people["finance"],
        workspace=folding,
        draft=RuleDraft(
            unit=SpendRule.Unit.MONEY,
            amount=_cap(folding, SpendRule.Unit.MONEY, filled=Fraction(134, 100), step=1),
            action=SpendRule.Action.DROP_TO_FLOOR,
        ),
        reason="Globex pays no more burst than this a month",
    )
    settle_spending()
    _request(people["owner"], research)
    billing.draw_up_statements(people["finance"], month=month_at(utc_now()).name)
    _next_prices(people["finance"])
    _maintenance(people["admin"])
    save_export_plan(
        people["finance"],
        name="FOCUS file of the day",
        every=ExportPlan.Every.DAY,
        dataset="focus-1.4",
        format="csv",
    )


def _request(owner: User, research: Workspace) -> None:
    """More committed GPUs than the account's envelope has room for: an admin decides."""
    research.budget.refresh_from_db()
    current = research.budget.in_force
    assert current is not None, "the seed promised something"
    draft = draft_of(current)
    lines = tuple(
        replace(line, committed=line.committed + 24, ceiling=line.ceiling + 32)
        if line.flavor == research.home_flavor.slug
        else line
        for line in draft.lines
    )
    revise_budget(
        owner,
        workspace=research,
        draft=replace(
            draft, lines=lines, valid_from=None, reason="The foundation model trains until spring"
        ),
        expected_version=research.budget.version,
    )


def _next_prices(finance: User) -> None:
    """A dearer list for the month after this one, which waits for a second person."""
    current = card_in_force(None, utc_now())
    assert current is not None
    card = billing.propose_rate_card(
        finance,
        name="List prices, next quarter",
        currency=current.currency,
        prices=[
            billing.PriceDraft(
                flavor, price.committed * DEARER, price.burst * DEARER, price.lending_credit
            )
            for flavor, price in prices_of(current).items()
        ],
        reason="Power costs more",
    )
    billing.propose_activation(
        finance, card=card, valid_from=month_at(utc_now()).end, reason="Power costs more"
    )


def _cap(workspace: Workspace, unit: str, *, filled: Fraction, step: int = STEP) -> Decimal:
    """A cap on this month's use beyond the floor that is filled so far, in round steps."""
    asked = SpendRule(budget=workspace.budget, unit=unit, amount=Decimal(1))
    spent = cap_states([asked])[0].spent
    return Decimal(max(step, round(spent / filled / step) * step))


def _maintenance(admin: User) -> None:
    """A night at the end of the week, told to the owners whose floors stand there."""
    begin = (utc_now() + timedelta(days=3)).replace(hour=20, minute=0, second=0, microsecond=0)
    plan_maintenance(
        admin,
        cluster=Cluster.objects.running_jobs().order_by("position").last(),
        flavor=Flavor.objects.get(slug="h100"),
        starts_at=begin,
        ends_at=begin + timedelta(hours=8),
        drains=False,
        reason="New firmware for the switches of Dublin's H100 racks",
    )
