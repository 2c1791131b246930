"""Do the books agree with the clusters: identities by hour, and what disagrees, to be settled."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.utils.text import capfirst

from budgets.amounts import BY_NAME, HELD
from budgets.models import User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from clusters import selectors as seen
from portal.web.approvals import PROPOSED, Approving
from portal.web.forms import DayField, PortalForm, ReasonForm
from portal.web.htmx import render
from portal.web.pages import (
    Deed,
    asked_day,
    may_bill,
    page,
    pressed,
    typed,
)
from portal.web.tags import named

SHOWN = 200
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
    day = asked_day(request)
    found = read.reconciliation(user, cluster=request.GET.get("cluster", ""), day=day)
    form = DayForm(initial={"cluster": found.cluster, "day": found.day})
    names = seen.cluster_names()
    form.part("cluster").choices = [(slug, named(slug, names)) for slug in found.clusters]
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
        "discrepancies": rows[:SHOWN],
        "before": _link(found.cluster, found.day - timedelta(days=1)),
        "after": _link(found.cluster, found.day + timedelta(days=1)),
        "shown": SHOWN if len(rows) > SHOWN else 0,
    }
    return render(request, "billing/reconciliation.html", context)


@page("GET", "POST")
def discrepancy(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One discrepancy; one of finance says why it may stand, somebody else accepts that."""
    row = read.visible_discrepancies(user).get(pk=key)
    form = ReasonForm(typed(request))
    decide = partial(actions.decide_acceptance, user, discrepancy=row)
    propose = partial(actions.propose_acceptance, user, discrepancy=row)
    deeds = {
        "accept": Deed(partial(decide, is_approved=True), "It is accepted."),
        "decline": Deed(partial(decide, is_approved=False), "It is open."),
        "propose": Deed(propose, PROPOSED, form),
    }
    if answer := pressed(request, deeds, to=request.path):
        return answer
    context = {
        "row": row,
        # Of unwatched time a text stands there instead, once the manager was asked.
        "samples": [
            (datetime.fromisoformat(sample[0]), *sample[1:])
            for sample in row.samples
            if not isinstance(sample, str)
        ],
        "form": form,
        "may_write": may_bill(user),
        "approving": Approving.of(user, row.proposed_by_id),
        "day_link": _link(row.cluster, row.start.date()),
    }
    return render(request, "billing/discrepancy.html", context, status=form.status)


def _signed(fact: Any, name: str) -> int:
    """What is over-admitted is held twice over, so it is taken off."""
    amount: int = getattr(fact, name)
    return -amount if name == "over_admitted" else amount


def _link(cluster: str, day: date) -> str:
    return f"?{urlencode({'cluster': cluster, 'day': day.isoformat()})}"
