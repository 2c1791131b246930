"""Do the books agree with the clusters: identities by hour, and what disagrees, to be settled."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.text import capfirst

from budgets.amounts import BY_NAME, HELD
from budgets.models import Discrepancy, User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.web.forms import DayField, PortalForm, ReasonForm
from portal.web.htmx import render
from portal.web.pages import asked_day, may_bill, page, rejected_aside, require_finance

SHOWN = 200
TAGS = {
    Discrepancy.State.OPEN: "trouble",
    Discrepancy.State.PROPOSED: "pending",
    Discrepancy.State.ACCEPTED: "good",
    Discrepancy.State.CLEARED: "good",
}
PARTS = (
    *((name, capfirst(BY_NAME[name].words)) for name in HELD),
    ("race", "Race losers"),
    ("undecided", "Undecided"),
    ("outside", "Outside budgets"),
    ("starting", "Pods not ready"),
    ("free", "Free"),
    ("down", "Down"),
    ("over_admitted", "Over-admitted"),
)
ALWAYS = (*HELD, "free", "down")


class DayForm(PortalForm):
    """Which cluster and day."""

    cluster = forms.ChoiceField(label="Cluster", required=False)
    day = DayField(label="Day (UTC)", required=False)


@page()
def reconciliation(request: HttpRequest, user: User) -> HttpResponseBase:
    """One day of one cluster by hour and flavor, and every discrepancy."""
    day = asked_day(request, "day")
    found = read.reconciliation(user, cluster=request.GET.get("cluster", ""), day=day)
    form = DayForm(initial={"cluster": found.cluster, "day": found.day})
    form.part("cluster").choices = [(name, name) for name in found.clusters]
    # Columns of what never happened on the day would only be zeros.
    parts = [
        (name, words)
        for name, words in PARTS
        if name in ALWAYS or any(getattr(fact, name) for fact in found.facts)
    ]
    rows = list(read.discrepancies_to_settle(user)[: SHOWN + 1])
    context = {
        "found": found,
        "form": form,
        "parts": [words for _, words in parts],
        "rows": [
            (fact, [_signed(fact, name) for name, _ in parts], fact.is_explained)
            for fact in found.facts
        ],
        "discrepancies": [(row, TAGS[Discrepancy.State(row.state)]) for row in rows[:SHOWN]],
        "before": _link(found.cluster, found.day - timedelta(days=1)),
        "after": _link(found.cluster, found.day + timedelta(days=1)),
        "shown": SHOWN if len(rows) > SHOWN else 0,
    }
    return render(request, "billing/reconciliation.html", context)


@page("GET", "POST")
def discrepancy(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One discrepancy; one of finance says why it may stand, somebody else accepts that."""
    row = read.visible_discrepancies(user).get(pk=key)
    may_write = may_bill(user)
    form = ReasonForm(request.POST or None)
    if request.method == "POST":
        require_finance(user)
        if _deed(request, user, row, form):
            return redirect("discrepancy", key=row.pk)
    context = {
        "row": row,
        "samples": [(datetime.fromisoformat(at), *gpus) for at, *gpus in row.samples],
        "tag": TAGS[Discrepancy.State(row.state)],
        "form": form,
        "may_write": may_write,
        "is_own": row.proposed_by_id == user.pk,
        "day_link": _link(row.cluster, row.start.date()),
    }
    return render(request, "billing/discrepancy.html", context, status=form.status)


def _deed(request: HttpRequest, user: User, row: Discrepancy, form: ReasonForm) -> bool:
    """Do what a button says; False when its form has a fault."""
    deed = request.POST.get("deed", "")
    if deed in ("accept", "decline"):
        with rejected_aside(request):
            actions.decide_acceptance(user, discrepancy=row, is_approved=deed == "accept")
            messages.success(request, "It is accepted." if deed == "accept" else "It is open.")
        return True
    if deed != "propose":
        raise Http404
    if not form.is_valid():
        return False
    reason = form.cleaned_data["reason"]
    done = form.carry_out(lambda: actions.propose_acceptance(user, discrepancy=row, reason=reason))
    if done is not None:
        messages.success(request, "It waits for somebody else's approval.")
    return done is not None


def _signed(fact: Any, name: str) -> int:
    """What is over-admitted is held twice over, so it is taken off."""
    amount: int = getattr(fact, name)
    return -amount if name == "over_admitted" else amount


def _link(cluster: str, day: date) -> str:
    return f"?{urlencode({'cluster': cluster, 'day': day.isoformat()})}"
