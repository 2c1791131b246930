"""What jobs cost: every figure worked out again from the rows of the ledger."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from unittest import mock

import pytest
import time_machine
from django.db.models import Sum
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from budgets.charging import JobKey, RowKind, share_out
from budgets.models import Interval, Statement, UsageRecord, User, WorkloadUsage
from budgets.selectors.billing import charge_lines, month_of
from budgets.selectors.billing.job_costs import job_costs
from budgets.selectors.billing.jobs import CLASS_OF, job_charge_lines
from budgets.selectors.usage.scope import UsageFilter
from budgets.services import billing
from budgets.units import HOUR_S, Money
from portal.web.numbers import money_text
from tests.billing.conftest import (
    AFTER,
    APRIL,
    MARCH,
    Books,
    active_card,
    held,
    meter,
    price,
    store,
)
from tests.builders import agreed, hours

pytestmark = pytest.mark.django_db
ODD = {"committed": "2.12345678", "burst": "3.33333333"}


@pytest.fixture
def many(books: Books) -> Books:
    """Twelve jobs more of odd lengths, at odd prices from the sixth hour on."""
    active_card(books.fleet, price(**ODD), start=hours(6))
    store(*(held(f"j{at:02}", at * 0.37, at * 0.91 + 1, gpus=1 + at % 5) for at in range(12)))
    meter()
    return books


AMOUNTS = st.builds(
    Fraction, st.integers(-(10**6), 10**6), st.sampled_from((3600, 7200, 360_000_000_000))
)


@given(
    parts=st.lists(AMOUNTS, max_size=20),
    rest=AMOUNTS,
    currency=st.sampled_from(["EUR", "JPY", "KWD"]),
)
def test_share_out_adds_up_and_moves_no_part_by_a_cent(parts, rest, currency) -> None:
    exact = sum(parts, Fraction(0)) + rest
    line = Money.rounded(exact, currency=currency)
    jobs: dict[JobKey, tuple[int, Fraction]] = {
        ("east", f"u{at:02}"): (at, part) for at, part in enumerate(parts)
    }
    used = sum(seconds for seconds, _ in jobs.values())

    shared = share_out(jobs, gpu_seconds=used + 5, exact=exact, amount=line)

    digits = {"EUR": 2, "JPY": 0, "KWD": 3}[currency]
    assert sum(part.amount for part in shared) == line.amount
    assert sum(part.exact for part in shared) == exact
    assert sum(part.gpu_seconds for part in shared) == used + 5
    assert all(abs(Fraction(part.amount) - part.exact) * 10**digits <= 1 for part in shared)
    again = share_out(dict(reversed(jobs.items())), gpu_seconds=used + 5, exact=exact, amount=line)
    assert again == shared, "the order in which jobs are read moves no cent"


def test_share_out_gives_the_missing_cents_to_those_that_lost_most() -> None:
    thirds = {("east", uid): (1, Fraction(1, 300)) for uid in "cab"}
    more = thirds | {("east", "d"): (1, Fraction(2, 300))}

    shared = share_out(
        more, gpu_seconds=4, exact=Fraction(5, 300), amount=Money(Decimal("0.02"), "EUR")
    )

    assert [(part.key, part.amount) for part in shared] == [
        (("east", "a"), Decimal("0.01")),
        (("east", "b"), Decimal("0.00")),
        (("east", "c"), Decimal("0.00")),
        (("east", "d"), Decimal("0.01")),
    ]


def test_jobs_of_a_month_add_up_to_its_lines_and_its_payable(many: Books) -> None:
    many.issued()
    paper = Statement.objects.get(account__slug="acme", period__name="2026-03")
    every = job_charge_lines(many.fleet.finance, period=paper.period)
    rows = [row for row in every if row.statement == paper.number]

    sums: dict[tuple[str, ...], list] = defaultdict(lambda: [0, Fraction(0), Decimal(0)])
    for row in rows:
        found = sums[row.workspace, row.flavor, row.kind, row.class_of or ""]
        found[0] += row.gpu_seconds
        found[1] += row.exact
        found[2] += row.amount
    lines = {
        (line.workspace.namespace, line.flavor, line.kind, line.class_of): [
            line.gpu_seconds,
            line.exact,
            line.amount,
        ]
        for line in paper.lines.all()
    }
    assert sums == lines
    assert sum(row.amount for row in rows) == paper.payable
    jobs = {row.uid for row in rows if row.uid}
    assert jobs == {"a", "b", *(f"j{at:02}" for at in range(12))}


def test_each_job_costs_what_its_hours_come_to_at_the_prices_of_their_time(many: Books) -> None:
    rows = list(job_charge_lines(many.fleet.finance, period=month_of("2026-03")))
    want: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    early = (Fraction(2), Fraction(3))
    late = (Fraction(ODD["committed"]), Fraction(ODD["burst"]))
    for fact in WorkloadUsage.objects.all():
        committed, burst = early if fact.hour < hours(6) else late
        want[fact.uid, "floor"] += committed * fact.committed_used / HOUR_S
        want[fact.uid, "burst"] += burst * fact.burst / HOUR_S

    told = {(row.uid, row.kind.value): row.exact for row in rows if row.uid}

    assert told == {key: exact for key, exact in want.items() if exact}


def test_jobs_of_an_hour_use_what_the_hour_says(many: Books) -> None:
    for kind, name in CLASS_OF.items():
        by_hour = (
            WorkloadUsage.objects.filter(workspace=many.fleet.vision)
            .values_list("hour")
            .annotate(Sum(name))
            .order_by("hour")
        )
        facts = UsageRecord.objects.filter(workspace=many.fleet.vision)
        want = dict(facts.values_list("hour").annotate(Sum(name)).order_by("hour"))
        assert {hour: sum for hour, sum in by_hour if sum} == {
            hour: sum for hour, sum in want.items() if sum
        }, kind


def test_what_no_job_used_stands_without_a_job(many: Books) -> None:
    rows = list(job_charge_lines(many.fleet.finance, period=month_of("2026-03")))

    (rest,) = [
        row
        for row in rows
        if row.kind is RowKind.FLOOR and not row.uid and row.workspace == "acme-vision"
    ]

    facts = UsageRecord.objects.filter(workspace=many.fleet.vision, hour__lt=APRIL)
    sums = facts.aggregate(idle=Sum("idle"), lent=Sum("lent"))
    assert rest.gpu_seconds == sums["idle"] + sums["lent"]
    assert not [row for row in rows if row.kind is RowKind.BURST and not row.uid]


def test_corrections_are_jobs_too_and_a_credit_note_turns_them(books: Books) -> None:
    books.issued()
    store(held("late", 20, 21.5, gpus=12))
    meter(AFTER)
    finance = books.fleet.finance
    april = list(job_charge_lines(finance, period=month_of("2026-04")))
    late = [row for row in april if row.uid == "late"]

    # The floor was paid already, so only what stood above it costs more.
    assert [(row.kind, row.class_of) for row in late] == [(RowKind.CORRECTION, RowKind.BURST)]
    assert late[0].gpu_seconds == 4 * 5400 and late[0].amount == Decimal("18.00")
    assert sum(row.amount for row in april) == sum(
        row.amount for row in charge_lines(finance, period=month_of("2026-04"))
    )

    paper = Statement.objects.get(account__slug="acme", period__name="2026-03")
    with time_machine.travel(AFTER, tick=True):
        agreed(billing.propose_void(finance, statement=paper, reason="wrong prices"))
    note = paper.credit_note
    every = job_charge_lines(finance, period=note.period)
    turned = [row for row in every if row.statement == note.number]
    assert sum(row.amount for row in turned) == note.payable == -paper.payable
    assert [row.uid for row in turned if row.uid] and all(
        row.amount <= 0 for row in turned if row.uid
    )


def test_an_owner_sees_jobs_of_own_workspaces_only(books: Books) -> None:
    store(held("other", 3, 9, namespace="acme-speech"))
    meter()
    owner = books.fleet.owner
    march = month_of("2026-03")
    chosen = UsageFilter(MARCH, APRIL)

    assert {row.workspace for row in job_charge_lines(owner, period=march)} == {"acme-vision"}
    assert {row.namespace for row in job_costs(owner, chosen).jobs} == {"acme-vision"}
    asked = UsageFilter(MARCH, APRIL, workspaces=("acme-speech",))
    assert job_costs(owner, asked).jobs == ()
    assert {row.namespace for row in job_costs(books.fleet.finance, chosen).jobs} == {
        "acme-vision",
        "acme-speech",
        "globex-search",
    }
    assert job_costs(User.objects.create(username="nobody"), chosen).jobs == ()


def test_a_whole_month_of_jobs_is_the_statement_of_it(many: Books) -> None:
    finance = many.fleet.finance
    rows = list(job_charge_lines(finance, period=month_of("2026-03")))
    told = job_costs(finance, UsageFilter(MARCH, APRIL))

    by_uid: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        if row.uid:
            by_uid[row.uid] += row.amount
    assert {row.uid: row.cost for row in told.jobs} == by_uid
    floor_and_burst = [row for row in rows if row.kind in CLASS_OF]
    assert told.charged == sum(row.amount for row in floor_and_burst)
    assert told.charged == told.unused + sum(row.cost for row in told.jobs)
    assert told.currency == "EUR" and not told.unpriced


def test_a_range_over_two_months_and_a_flavor_without_a_price(books: Books) -> None:
    store(held("x", 1, 5, flavor="l4", gpus=2), held("y", 742, 747, gpus=3))
    meter(APRIL + timedelta(days=1))
    told = job_costs(books.fleet.finance, UsageFilter(MARCH, APRIL + timedelta(hours=4)))

    costs = {row.uid: row for row in told.jobs}
    assert costs["x"].burst == 4 * 2 * HOUR_S and costs["x"].cost == 0
    assert told.unpriced == {"l4"}
    assert costs["y"].committed_used == 5 * 3 * HOUR_S, "two hours of March, three of April"
    assert costs["y"].cost == 30 and costs["y"].first == hours(742) == APRIL - timedelta(hours=2)
    assert told.charged == told.unused + sum(row.cost for row in told.jobs)
    chosen = "/usage/?start=2026-03-01&until=2026-03-31&workspace=acme-vision"
    assert "L4 had no price" in pages_of(books.fleet.finance).get(chosen).content.decode()


def pages_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


RANGE = "start=2026-03-01&until=2026-03-31"


def test_the_usage_page_has_the_cost_of_each_job_and_a_sum_that_adds_up(many: Books) -> None:
    page = pages_of(many.fleet.owner).get(f"/usage/?{RANGE}&workspace=acme-vision")
    jobs, text = page.context["jobs"], page.content.decode()
    paid = sum(row.cost for _, row in jobs["rows"])

    assert len(jobs["rows"]) == 14
    assert paid + jobs["costs"].unused == jobs["costs"].charged
    assert money_text(jobs["costs"].charged, "EUR") in text
    assert all(money_text(row.cost, "EUR") in text for _, row in jobs["rows"])
    totals = page.context["table"].totals
    assert jobs["committed"] == totals.committed and jobs["total"].burst == totals.burst


def test_jobs_beyond_the_shown_ones_stand_in_one_row(many: Books) -> None:
    with mock.patch("portal.web.usage.WORKLOADS", 3):
        page = pages_of(many.fleet.owner).get(f"/usage/?{RANGE}")
    jobs = page.context["jobs"]
    assert "11 more jobs" in page.content.decode()
    paid = sum(row.cost for _, row in jobs["rows"]) + jobs["others"].cost
    assert paid + jobs["costs"].unused == jobs["costs"].charged


def test_jobs_as_csv_add_up_and_names_are_no_formulas(many: Books) -> None:
    Interval.objects.filter(uid="j03").update(job_name='=HYPERLINK("http://x")', job_kind="Job")
    answer = pages_of(many.fleet.owner).get(f"/usage/?{RANGE}&format=jobs")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    told = job_costs(many.fleet.owner, UsageFilter(MARCH, APRIL))

    assert sum(Decimal(row["cost"]) for row in rows) == told.charged
    assert {row["workspace"] for row in rows} == {"acme-vision", ""}
    (named,) = [row for row in rows if row["uid"] == "j03"]
    assert named["job"] == '\'=HYPERLINK("http://x")' and named["job_kind"] == "Job"


def test_a_statement_line_shows_its_jobs_and_they_add_up(many: Books) -> None:
    many.issued()
    paper = Statement.objects.get(account__slug="acme", period__name="2026-03")
    client = pages_of(many.fleet.finance)
    for line in paper.lines.filter(kind__in=("floor", "burst"), workspace=many.fleet.vision):
        page = client.get(f"/billing/statements/{paper.pk}/lines/{line.position}/")
        jobs = page.context["jobs"]
        rest = jobs["rest"].amount if jobs["rest"] else 0
        assert sum(part.amount for _, part in jobs["rows"]) + rest == line.amount
        assert 'id="jobs"' in page.content.decode()
    speech = paper.lines.get(kind="floor", workspace=many.fleet.speech)
    page = client.get(f"/billing/statements/{paper.pk}/lines/{speech.position}/")
    assert not page.context["jobs"]["rows"]
