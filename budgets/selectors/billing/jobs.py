"""What jobs cost: the lines of statements shared out among the jobs behind them.

A job carries its GPU-seconds of a line at the price of their hours; cents are shared out by
:func:`budgets.charging.share_out`, so what jobs cost and what none used add up to the line, and a
whole month to its statement. Jobs are added up by the database over hours in which no rate
changes, so a month costs as many queries as it has rates, and a row for each job.

Source: spec money, section 3.4; issue 14, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.db.models import Max, Min, Q, QuerySet, Sum

from budgets.charging import ChargeRow, JobKey, JobPart, Rates, RowKind, share_out
from budgets.models import (
    BillingPeriod,
    Correction,
    Statement,
    StatementLine,
    User,
    WorkloadUsage,
)
from budgets.selectors.billing.costs import (
    by_month,
    correction_card,
    priced_alike,
)
from budgets.selectors.billing.prices import as_fraction
from budgets.selectors.billing.rows import Paper, PlainLine, charge_lines, paper_of, plain_line
from budgets.selectors.fleet.places import facts_in
from budgets.selectors.roles import RoleSet
from budgets.units import HOUR, HOUR_S, FlavorName, Money, Period, utc_hour

CLASS_OF = {RowKind.FLOOR: "committed_used", RowKind.BURST: "burst"}
"""What of a job each kind of line charges for; nobody's job is behind the others."""
Place = tuple[str, str, RowKind]
"""Namespace, flavor and kind of a line."""


@dataclass(slots=True)
class JobUse:
    """What one job used of a line: GPU-seconds, their exact cost, the hours that they lie in."""

    first: datetime
    last: datetime
    gpu_seconds: int = 0
    exact: Fraction = Fraction(0)

    def add(self, seconds: int, exact: Fraction, first: datetime, last: datetime) -> None:
        """Take more of it in."""
        self.gpu_seconds += seconds
        self.exact += exact
        self.first, self.last = min(self.first, first), max(self.last, last)


Uses = dict[Place, dict[JobKey, JobUse]]


def line_jobs(
    statement: Statement, line: StatementLine, *, card: Rates | None = None
) -> list[tuple[JobPart, JobUse | None]]:
    """A line's jobs with what each has of it, the largest first, then what no job used.

    The caller has asked who may see the line. A credit note has its statement's, turned.

    Args:
        statement: The line's document.
        line: One of its lines.
        card: The document's, as of :func:`budgets.selectors.billing.rows.card_of`, where known.
    """
    source = statement.credits or statement
    kind = RowKind(line.class_of or line.kind)
    if kind not in CLASS_OF or line.workspace is None or source.account_id is None:
        return []
    sign = 1 if source is statement else -1
    plain = plain_line(line, sign)
    paper = paper_of(source, (plain,))
    which = Q(workspace=line.workspace_id, flavor=line.flavor)
    place = (plain.workspace, plain.flavor, kind)
    uses = _uses_on(paper, which, card or paper.card()).get((plain.text, place), {})
    parts = parts_of(plain, uses, currency=paper.currency)
    turned = [
        JobPart(part.key, sign * part.gpu_seconds, sign * part.exact, sign * part.amount)
        for part in parts
    ]
    turned.sort(key=lambda part: (part.key is None, -abs(part.amount), -abs(part.gpu_seconds)))
    return [(part, uses.get(part.key) if part.key else None) for part in turned]


def job_rows(paper: Paper, roles: RoleSet) -> Iterator[ChargeRow]:
    """The rows of one statement by job, then what is no job's; they add up to it."""
    uses: Mapping[tuple[str, Place], Mapping[JobKey, JobUse]] = {}
    if paper.account_id is not None:
        uses = _uses_on(paper, paper.seen_by(roles), paper.card())
    for line in paper.lines:
        if paper.shows(line, roles):
            place = (line.workspace, line.flavor, line.class_of or line.kind)
            yield from _line_rows(paper, line, uses.get((line.text, place), {}))


def job_charge_lines(user: User, *, period: BillingPeriod) -> Iterator[ChargeRow]:
    """The rows of :func:`budgets.selectors.billing.rows.charge_lines` by job, not by hour."""
    return charge_lines(user, period=period, rows_of=job_rows)


def job_uses(
    facts: QuerySet[WorkloadUsage],
    part: Period,
    *,
    card: Rates,
    window: Period,
    exchange: Fraction = Fraction(1),
) -> Uses:
    """What the jobs of one account used and cost, added up by the database.

    Args:
        facts: Their hour facts, of ``part``.
        part: The range.
        card: Prices, with the averages of volume steps.
        window: The whole month that the range lies in.
        exchange: Of the card's currency.
    """
    found: Uses = {}
    prices: dict[tuple[str, datetime, RowKind], Fraction] = {}
    for rows, at in priced_alike(facts, part, edges=card.edges(part), flavor="flavor"):
        keys = ("workspace__namespace", "flavor", "cluster", "uid", *(() if at else ("hour",)))
        sums = (Sum(CLASS_OF[RowKind.FLOOR]), Sum(CLASS_OF[RowKind.BURST]))
        grouped = rows.order_by().values_list(*keys).annotate(*sums, Min("hour"), Max("hour"))
        # At one price a job is one row; hour by hour there are more than should be held at once.
        read = grouped if at else grouped.iterator(chunk_size=5000)
        for namespace, flavor, cluster, uid, *rest in read:
            *classes, first, last = rest[-4:]
            hour = utc_hour(at or first)
            for kind, seconds in zip(CLASS_OF, classes, strict=True):
                if not seconds:
                    continue
                key = (flavor, hour, kind)
                if key not in prices:
                    prices[key] = per_second(card, *key, window) * exchange
                uses = found.setdefault((namespace, flavor, kind), {})
                use = uses.get((cluster, uid))
                if use is None:
                    use = uses[cluster, uid] = JobUse(first, last)
                use.add(seconds, prices[key] * seconds, first, last)
    return found


def per_second(card: Rates, flavor: str, hour: datetime, kind: RowKind, window: Period) -> Fraction:
    """What a GPU-second of a kind costs in an hour of a month; 0 without a price."""
    rate = card.rate_at(FlavorName(flavor), hour)
    return rate.of(kind) / HOUR_S * card.factor(kind, window) if rate else Fraction(0)


def _uses_on(paper: Paper, which: Q, card: Rates) -> dict[tuple[str, Place], dict[JobKey, JobUse]]:
    """What the jobs of a statement used, by the words and the place of their line.

    Args:
        paper: Of an account.
        which: Of facts of workloads and their corrections.
        card: The paper's.
    """
    assert paper.account_id is not None
    facts = facts_in(WorkloadUsage.objects.filter(which), paper.window)
    exchange = as_fraction(paper.rate)
    own = job_uses(facts, paper.window, card=card, window=paper.window, exchange=exchange)
    found = {("", place): uses for place, uses in own.items()}
    if paper.period.pk is None:
        return found
    booked = Correction.objects.filter(
        which, booked_in=paper.period, table=Correction.Table.WORKLOAD
    )
    rows = list(booked.select_related("workspace").order_by("start", "pk"))
    for old, late in by_month(rows, paper.period.zone):
        reaching = correction_card(paper.account_id, old, paper.period)
        window = Period(old.start, old.end)
        for row in late if reaching else ():
            assert row.workspace is not None and reaching is not None
            for kind, name in CLASS_OF.items():
                if seconds := getattr(row, name):
                    place = (row.workspace.namespace, row.flavor, kind)
                    uses = found.setdefault((f"of {old.name}", place), {})
                    use = uses.setdefault((row.cluster, row.uid), JobUse(row.hour, row.hour))
                    exact = per_second(reaching, row.flavor, row.hour, kind, window) * exchange
                    use.add(seconds, exact * seconds, row.hour, row.hour)
    return found


def _line_rows(paper: Paper, line: PlainLine, uses: Mapping[JobKey, JobUse]) -> Iterator[ChargeRow]:
    month = paper.period
    for part in parts_of(line, uses, currency=paper.currency):
        use = uses.get(part.key) if part.key else None
        yield ChargeRow(
            **paper.common,
            workspace=line.workspace,
            flavor=line.flavor,
            kind=line.kind,
            class_of=line.class_of,
            cluster=part.key[0] if part.key else "",
            uid=part.key[1] if part.key else "",
            start=use.first if use else month.start,
            end=use.last + HOUR if use else month.end,
            gpu_seconds=part.gpu_seconds,
            exact=part.exact,
            amount=part.amount,
        )


def parts_of(line: PlainLine, uses: Mapping[JobKey, JobUse], *, currency: str) -> list[JobPart]:
    """A line shared out among its jobs; one part where there are none."""
    return share_out(
        {key: (use.gpu_seconds, use.exact) for key, use in uses.items()},
        gpu_seconds=line.gpu_seconds,
        exact=line.exact,
        amount=Money(line.amount, currency),
    )
