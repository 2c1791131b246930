"""Shares: who goes first and why, and the weights that an admin gives."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import Account, User, Workspace
from clusters import selectors as seen
from portal.bounds import REASON, WEIGHT
from portal.web.forms import PortalForm, ReasonField
from portal.web.htmx import render
from portal.web.pages import page, typed

ADMINS = "Only a platform admin can set weights."


class WeightForm(PortalForm):
    """A weight of fair sharing."""

    weight = forms.DecimalField(
        label="Weight",
        help_text="1 is usual. With 2 it may borrow twice as much before others go first. With 0 "
        "it goes last whenever it borrows.",
        **WEIGHT,
    )
    reason = ReasonField(required=False, help_text="Kept in the audit log.", **REASON)
    fault_fields = {"fair_weight": "weight"}


@page()
def shares(request: HttpRequest, user: User) -> HttpResponseBase:
    """Every contest where jobs are submitted: who goes first, and why."""
    if not selectors.roles_of(user).sees_everything:
        raise PermissionDenied("Only people who see the whole platform can see everybody's shares.")
    found, left_out = seen.contests(user)
    keys = {row.name for each in found for row in each.rows} | {each.cohort for each in found}
    ours = selectors.visible_workspaces(user).filter(namespace__in=keys)
    workspaces = dict(ours.values_list("namespace", "name"))
    rows = selectors.visible_accounts(user).filter(slug__in=keys)
    accounts = dict(rows.values_list("slug", "name"))
    context = {
        "contests": found,
        "workspaces": workspaces,
        "accounts": accounts,
        "names": accounts | workspaces,
        "left_out": left_out,
        "fair": seen.fair_clusters(),
        "is_admin": selectors.roles_of(user).is_admin,
    }
    return render(request, "fleet/shares.html", context)


@page("GET", "POST", only_admins=ADMINS)
def weigh_workspace(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """The weight of a workspace among those of its account; what it changes, before it is saved."""
    found = selectors.workspace_for(user, namespace)
    deed = partial(promises.weigh_workspace, user, workspace=found)
    return _weigh(request, user, found, namespace, deed, "setup_workspace")


@page("GET", "POST", only_admins=ADMINS)
def weigh_account(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """The weight of an account among those that draw on the same platform pool; likewise."""
    found = selectors.account_for(user, slug)
    deed = partial(promises.weigh_account, user, account=found)
    return _weigh(request, user, found, slug, deed, "setup_account")


def _weigh(
    request: HttpRequest,
    user: User,
    place: Workspace | Account,
    name: str,
    deed: Callable[..., Any],
    route: str,
) -> HttpResponseBase:
    to = reverse(route, args=[name])
    form = WeightForm(typed(request), initial={"weight": f"{place.fair_weight.normalize():f}"})
    weight: Decimal | None = None
    if request.method == "POST" and form.is_valid():
        weight = form.cleaned_data["weight"]
        if request.POST.get("step") == "save":
            done = form.carry_out(lambda: deed(**form.cleaned_data))
            if done is not None:
                messages.success(request, f"The weight of {place.name} is {weight.normalize():f}.")
                return redirect(to)
    context = {
        "form": form,
        "place": place,
        "name": name,
        "is_account": isinstance(place, Account),
        "names": _names(user, place),
        "weight": weight,
        "fair": seen.fair_clusters(),
        "outlooks": [
            seen.with_weight(each, name, place.fair_weight if weight is None else weight)
            for each in seen.contest_of(place)
        ],
        "to": to,
    }
    return render(request, "setup/weigh.html", context, status=form.status)


def _names(user: User, place: Workspace | Account) -> dict[str, str]:
    """Names of those beside a place, by what their queues are called."""
    if isinstance(place, Account):
        return dict(selectors.visible_accounts(user).values_list("slug", "name"))
    return selectors.workspace_names(user)
