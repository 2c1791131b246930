"""The guided tour of ``make demo``: what each role can try there, with a link to each.

A step is found by what its reader may see; one that there is nothing of, or not yet, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets.models import Discrepancy, Statement, User
from budgets.selectors import attention
from budgets.selectors.billing import month_at, visible_discrepancies, visible_statements
from budgets.selectors.usage.labels import kept_labels
from budgets.spending import QueueEffect
from clusters import selectors as seen
from portal.web.htmx import render
from portal.web.pages import page

DAYS = 30


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to try: what it is, what to look at, and where."""

    title: str
    text: str
    url: str


@page()
def tour(request: HttpRequest, user: User) -> HttpResponseBase:
    """What to try, for the roles of the reader; a real installation has no such page."""
    if not settings.PORTAL_DEMO:
        raise Http404
    roles = selectors.roles_of(user)
    steps = [*_jobs(user), *_budgets(user, roles), *_money(user, roles)]
    return render(request, "tour.html", {"steps": steps})


def _jobs(user: User) -> Iterator[Step]:
    yield Step(
        "A job that waits",
        "Each waiting job says in one sentence why it waits. Open one for its time line.",
        f"{reverse('jobs')}?phase=pending",
    )
    stopped = seen.newest_preempted(user)
    if stopped is not None:
        yield Step(
            "A job that was stopped for another",
            "Its page says when, for whom, by which rule, what was lost, and what it cost.",
            reverse("job", args=stopped),
        )
    if seen.askable_workspaces(user):
        yield Step(
            "Will my job start?",
            "Ask for 8 GPUs before you submit: a verdict with its cost and time comes first.",
            reverse("what_if"),
        )


def _budgets(user: User, roles: selectors.RoleSet) -> Iterator[Step]:
    waiting = selectors.visible_requests(user).select_related("budget__workspace").first()
    if waiting is not None:
        place = waiting.budget.workspace.namespace, waiting.number
        yield Step(
            "A request that waits",
            "It asks for more than the account's envelope has: see what it would cost"
            + (", and accept it whole, in part or until a date." if roles.is_admin else "."),
            reverse("decide" if roles.is_admin else "revision", args=place),
        )
    caps = attention.caps_that_tell(user)
    # One that keeps jobs from something shows more than one that only tells.
    for state in sorted(caps, key=lambda cap: cap.verdict.effect == QueueEffect())[:1]:
        yield Step(
            "A cap that was reached",
            "The cap on spending says what it counts, what it does now, and how to lift it.",
            reverse("spend_rules", args=[state.rule.budget.workspace.namespace]),
        )
    own = selectors.visible_workspaces(user).order_by("namespace").first()
    if own is not None and not roles.is_finance:
        yield Step(
            "Change a budget",
            "Type other numbers: its cost, the envelope and the fleet move while you type.",
            reverse("budget", args=[own.namespace]),
        )


def _money(user: User, roles: selectors.RoleSet) -> Iterator[Step]:
    for label in list(kept_labels())[:1]:
        yield Step(
            f"Costs by {label}",
            f"What the jobs of each {label} used and cost; choose one to see its jobs alone.",
            f"{reverse('usage')}?days={DAYS}&split=label:{label}",
        )
    now = selectors.utc_now()
    this, last = month_at(now), month_at(month_at(now).start - timedelta(days=1))
    issued = visible_statements(user).filter(state=Statement.State.ISSUED).order_by("pk").first()
    if issued is not None:
        yield Step(
            f"The statement of {issued.period.name}",
            "Issued for good: open a line down to its jobs, or take the PDF along.",
            reverse("statement", args=[issued.pk]),
        )
    if not roles.sees_everything:
        return
    yield Step(
        f"A month that is closed: {last.name}",
        "Its check list was met; its statements are digested in the chain and change no more.",
        reverse("billing_period", args=[last.name]),
    )
    yield Step(
        f"The month that runs, with a correction: {this.name}",
        "One job became known only after the close: it is billed here, on a line of its own.",
        reverse("billing_period", args=[this.name]),
    )
    lost = visible_discrepancies(user).filter(kind=Discrepancy.Kind.UNWATCHED).first()
    if lost is not None:
        yield Step(
            "A worker that was lost and came back",
            "What it ran meanwhile is known from the manager alone. Finance decides what counts.",
            reverse("discrepancy", args=[lost.pk]),
        )
    if roles.is_finance:
        yield Step(
            "Two people for what moves money",
            "Dearer prices wait: one person of finance proposed them, and another one decides.",
            reverse("approvals"),
        )
    if roles.is_admin:
        yield Step(
            "The fleet at one glance",
            "Promises against capacity, what needs you, and the maintenance that is planned.",
            reverse("home"),
        )
