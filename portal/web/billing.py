"""Months and statements: the check list and the close for finance, papers for everybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import content_disposition_header

from budgets import selectors
from budgets.models import BillingPeriod, Statement, User
from budgets.selectors import billing as read
from budgets.selectors.approvals import open_proposal
from budgets.selectors.billing.jobs import JobPart, JobUse, line_jobs
from budgets.selectors.billing.overview import month_overview
from budgets.selectors.clock import utc_now
from budgets.selectors.fleet.places import job_names
from budgets.services import billing as actions
from budgets.texts import is_storable
from clusters import selectors as seen
from portal.web.approvals import PROPOSED
from portal.web.billing_lines import ONE_PERSON, billed_to, change_views, part_views, price_steps
from portal.web.billing_lines import line_view as view_of
from portal.web.forms import PortalForm, ReasonForm
from portal.web.htmx import render
from portal.web.numbers import money_text
from portal.web.pages import (
    Deed,
    Said,
    asked_day,
    in_order,
    may_bill,
    page,
    pressed,
    typed,
)
from portal.web.statement_pdf import statement_pdf

MOST_MONTHS = 36
MOST_PAPERS = 200
MOST_JOBS = 50
MOST_STEPS = 50
SORTS: Mapping[str, Callable[[Statement], Any]] = {
    "number": lambda row: row.number or "",
    "account": lambda row: row.account.name if row.account else "",
    "month": lambda row: row.period.start,
    "state": lambda row: row.get_state_display(),
}
"""Column of the list of statements → what it sorts by, for everybody."""
# What a document comes to is no owner's to see, nor to sort by.
PLATFORM_SORTS: Mapping[str, Callable[[Statement], Any]] = {
    **SORTS,
    "payable": lambda row: (row.currency, row.payable),
}


@page()
def billing(request: HttpRequest, user: User) -> HttpResponseBase:
    """Months for platform roles; the papers that others were sent."""
    roles = selectors.roles_of(user)
    newest, sort = read.statement_rows(user)[:MOST_PAPERS], request.GET.get("sort", "")
    keys = PLATFORM_SORTS if roles.sees_everything else SORTS
    months = read.billing_months(user)[:MOST_MONTHS] if roles.sees_everything else []
    totals = read.month_totals(user, months)
    context = {
        "months": [
            {"period": month, "url": month_url(month), "totals": totals.get(month.pk, ())}
            for month in months
        ],
        "papers": in_order(newest, sort, keys),
        "sort": sort,
        "sorts": "|".join(keys),
        "sees_months": roles.sees_everything,
        "most": MOST_PAPERS,
    }
    return render(request, "billing/billing.html", context)


@page("GET", "POST")
def period(request: HttpRequest, user: User, name: str) -> HttpResponseBase:
    """One month: what stands in the way of its close, and its statements."""
    zone = request.GET.get("zone", "UTC")
    if not is_storable(zone):
        raise Http404
    month = read.period_for(user, name, zone)
    # At the size of a fleet the list takes seconds: the page comes first and asks for it.
    is_checked = "checks" in request.GET
    form = PortalForm(typed(request))
    if answer := pressed(request, _month_deeds(user, month, form), to=month_url(month)):
        return answer
    papers = list(read.statement_rows(user).filter(period=month.pk)) if month.pk else []
    drawing = read.draw(month) if is_checked and not month.closed_at else None
    context = {
        "month": month,
        "checks": read.check_list(month, drawing=drawing, clusters=seen.cluster_names())
        if drawing
        else (),
        "overview": month_overview(month, drawing=drawing) if drawing or month.closed_at else None,
        "until": selectors.freshness().complete_until if drawing else None,
        "is_over": month.end <= utc_now(),
        "checks_url": f"?{urlencode({'zone': zone, 'checks': 1})}",
        "papers": papers,
        "totals": read.month_totals(user, [month]).get(month.pk, ()),
        "corrections": read.corrections_in(month),
        "may_write": may_bill(user),
        "form": form,
        "has_drafts": any(row.state == Statement.State.DRAFT for row in papers),
        "has_reviewed": any(row.state == Statement.State.REVIEWED for row in papers),
    }
    return render(request, "billing/period.html", context, status=form.status)


def _month_deeds(user: User, month: BillingPeriod, form: PortalForm) -> dict[str, Deed]:
    """What the buttons of a month's page do; the form has nothing but their faults."""

    def deed(act: Callable[..., Any], said: Said) -> Deed:
        return Deed(partial(act, user, month=month.name, zone=month.zone), said, form)

    return {
        "draw_up": deed(
            actions.draw_up_statements,
            lambda made: f"{_statements(made.drawn)} drawn up; reviewed and kept: {made.kept}.",
        ),
        "review": deed(
            actions.review_statements, lambda done: f"{_statements(len(done))} reviewed."
        ),
        "close": deed(
            actions.close_period, f"{month.name} is closed: nothing in it changes any more."
        ),
        "issue": deed(actions.issue_statements, lambda done: f"{_statements(len(done))} issued."),
    }


def _statements(count: int) -> str:
    return "One statement is" if count == 1 else f"{count} statements are"


@page("GET", "POST")
def statement(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One statement or credit note: for the screen and for paper."""
    paper = read.statement_for(user, key)
    roles = selectors.roles_of(user)
    form = ReasonForm(typed(request))
    sheet = read.statement_sheet(user, paper)
    if request.POST.get("deed") == "seen":
        actions.note_look(user, sheet)
        return redirect("statement", key=paper.pk)
    if answer := pressed(request, _statement_deeds(user, paper, form), to=request.path):
        return answer
    changes = read.changes_since_look(user, sheet)
    if changes is None:
        actions.note_look(user, sheet)
    context = {
        "paper": paper,
        "sheet": sheet,
        "one_person": ONE_PERSON if sheet.is_one_person else "",
        "billed_to": billed_to(sheet),
        "parts": part_views(sheet),
        "changes": changes if changes and changes.lines else None,
        "changed": change_views(changes) if changes else (),
        "month": paper.period,
        "is_over": paper.period.end <= utc_now(),
        "month_url": month_url(paper.period),
        "sees_month": roles.sees_everything,
        "may_write": may_bill(user),
        "note": getattr(paper, "credit_note", None),
        "proposal": paper.state == Statement.State.ISSUED
        and open_proposal("statement.void", f"statement:{paper.pk}"),
        "form": form,
    }
    return render(request, "billing/statement.html", context, status=form.status)


@page()
def statement_file(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """The same document as a PDF, with what the reader sees of it."""
    paper = read.statement_for(user, key)
    made = statement_pdf(read.statement_sheet(user, paper))
    name = f"{paper.number or f'draft-{paper.period.name}-{paper.pk}'}.pdf"
    answer = HttpResponse(made, content_type="application/pdf")
    answer["Content-Disposition"] = content_disposition_header(True, name)
    return answer


def _statement_deeds(user: User, paper: Statement, form: ReasonForm) -> dict[str, Deed]:
    """What the buttons of a statement's page do."""
    of_month: dict[str, Any] = {
        "month": paper.period.name,
        "zone": paper.period.zone,
        "only": [paper.pk],
    }
    review = partial(actions.review_statements, user, **of_month)
    issue = partial(actions.issue_statements, user, **of_month)
    send_back = partial(actions.send_back_statement, user, statement=paper)
    void = partial(actions.propose_void, user, statement=paper)
    return {
        "review": Deed(review, "The statement is reviewed."),
        "issue": Deed(issue, "The statement is issued."),
        "send_back": Deed(send_back, "The statement is a draft again.", form),
        "void": Deed(void, PROPOSED, form),
    }


@page()
def statement_line(request: HttpRequest, user: User, key: int, position: int) -> HttpResponseBase:
    """Where a line comes from: its prices, its days, the hours and workloads of one day."""
    paper = read.statement_for(user, key)
    line = read.line_for(user, paper, position)
    day = asked_day(request)
    card = read.card_of(paper) if line.flavor else None  # others have no hours
    trace = read.line_trace(paper, line, day=day, card=card)
    steps = price_steps(line)
    context = {
        "paper": paper,
        "view": view_of(line),
        "line": line,
        "trace": trace,
        "day": day,
        "steps": steps[:MOST_STEPS],
        "more_steps": len(steps[MOST_STEPS:]),
        "more_seconds": sum(step["gpu_seconds"] for step in steps[MOST_STEPS:]),
        "amount": money_text(line.amount, paper.currency),
        "jobs": _jobs_of(line_jobs(paper, line, card=card)),
    }
    return render(request, "billing/line.html", context)


def _jobs_of(parts: list[tuple[JobPart, JobUse | None]]) -> dict[str, Any]:
    """The largest jobs of a line, the others as one row, and what no job used."""
    rest = next((part for part, _ in parts if part.key is None), None)
    jobs = [(part, use) for part, use in parts if use is not None]
    shown, others = jobs[:MOST_JOBS], [part for part, _ in jobs[MOST_JOBS:]]
    names = job_names(part.key for part, _ in shown if part.key)
    return {
        "rows": [(names.get(part.key or ("", ""), ("", "", "")), part) for part, _ in shown],
        "rest": rest,
        "others": {
            "count": len(others),
            "gpu_seconds": sum(part.gpu_seconds for part in others),
            "amount": sum((part.amount for part in others), Decimal(0)),
        },
    }


def month_url(month: BillingPeriod) -> str:
    """The page of a month."""
    address = reverse("billing_period", args=[month.name])
    return address if month.zone == "UTC" else f"{address}?zone={month.zone}"
