"""What-if: a form with the answer of the clusters' engines beside it; and the shadow's record."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets.models import User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import Cluster, Question
from portal.web.forms import GpuField, PortalForm, offer_names
from portal.web.htmx import is_partial, polled, render
from portal.web.pages import page

TEMPLATE = "explained/what_if.html"
MOST_QUESTIONS = 50
ACCOUNT, POOL = "account", "pool"


class GpuCountField(forms.IntegerField):
    """Whole GPUs; how many are sensible is the service's business."""

    widget = GpuField.widget
    default_error_messages = {
        "invalid": "Type a number of whole GPUs.",
        "required": "Type a number of GPUs.",
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(label="GPUs", initial=8, **kwargs)


class WhatIfForm(PortalForm):
    """Base of the three questions.

    Attributes:
        change: What a POST names.
        title: For people.
    """

    change = ""
    title = ""
    button = "Ask"

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, auto_id=f"id_{self.change}_%s", **kwargs)
        self.user = user

    def ask(self) -> Any:
        """Ask the clusters; raises Rejected."""
        raise NotImplementedError

    def choose(self, name: str, offered: Mapping[str, str]) -> None:
        """Let one of these be chosen, by name and label."""
        part = self.part(name)
        offer_names(part, list(offered))
        part.choices = list(offered.items())


class RaiseForm(WhatIfForm):
    """A budget with more, or fewer, committed GPUs."""

    change, title = "raise", "Change a budget"

    workspace = forms.ChoiceField()
    flavor = forms.ChoiceField()
    by = GpuCountField(help_text="More committed GPUs; a minus takes some away.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = {row.namespace: row for row in seen.askable_workspaces(self.user)}
        self.flavors = {row.slug: row for row in selectors.visible_flavors(self.user)}
        self.choose("workspace", {name: name for name in self.rows})
        self.choose("flavor", {slug: row.name for slug, row in self.flavors.items()})

    def ask(self) -> Any:
        typed = self.cleaned_data
        return enforcement.ask_raise(
            self.user,
            workspace=self.rows[typed["workspace"]],
            flavor=self.flavors[typed["flavor"]],
            by=typed["by"],
        )


class AddForm(WhatIfForm):
    """A node pool for a worker, and who gets its GPUs."""

    change, title = "add", "Add a node pool"
    fault_fields = {"account": "receiver", "pool": "receiver"}

    cluster = forms.ChoiceField(label="Worker")
    flavor = forms.ChoiceField()
    by = GpuCountField()
    receiver = forms.ChoiceField(
        label="Goes to", help_text="Nodes alone start nothing: somebody has to be given them."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clusters = _workers(self.user)
        self.flavors = {row.slug: row for row in selectors.visible_flavors(self.user)}
        self.accounts = {row.slug: row for row in selectors.visible_accounts(self.user)}
        pools = selectors.visible_pools(self.user).filter(account__isnull=True)
        self.pools = {row.slug: row for row in pools}
        self.choose("cluster", {slug: row.name for slug, row in self.clusters.items()})
        self.choose("flavor", {slug: row.name for slug, row in self.flavors.items()})
        offered = {f"{POOL}:{slug}": f"platform pool {row}" for slug, row in self.pools.items()}
        offered |= {f"{ACCOUNT}:{slug}": f"pool of {row}" for slug, row in self.accounts.items()}
        self.choose("receiver", offered)

    def ask(self) -> Any:
        typed = self.cleaned_data
        kind, _, slug = typed["receiver"].partition(":")
        return enforcement.ask_add(
            self.user,
            cluster=self.clusters[typed["cluster"]],
            flavor=self.flavors[typed["flavor"]],
            by=typed["by"],
            account=self.accounts[slug] if kind == ACCOUNT else None,
            pool=self.pools[slug] if kind == POOL else None,
        )


class DrainForm(WhatIfForm):
    """A worker without its jobs."""

    change, title = "drain", "Drain a worker"

    cluster = forms.ChoiceField(label="Worker")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clusters = _workers(self.user)
        self.choose("cluster", {slug: row.name for slug, row in self.clusters.items()})

    def ask(self) -> Any:
        return enforcement.ask_drain(self.user, cluster=self.clusters[self.cleaned_data["cluster"]])


ADMINS: tuple[type[WhatIfForm], ...] = (RaiseForm, AddForm, DrainForm)
OWNERS: tuple[type[WhatIfForm], ...] = (RaiseForm,)


@page("GET", "POST")
def what_if(request: HttpRequest, user: User) -> HttpResponseBase:
    """Ask, and read the answer; an owner about own budgets, an admin about everything."""
    is_admin = selectors.roles_of(user).is_admin
    if not is_admin and not seen.askable_workspaces(user).exists():
        raise PermissionDenied("Only who may change a budget can ask what a change would lead to.")
    kinds = {kind.change: kind for kind in (ADMINS if is_admin else OWNERS)}
    if request.method == "POST":
        return _asked(request, user, kinds)
    context = _answered(user, _keys(request))
    if is_partial(request):
        return polled(request, TEMPLATE, context, partial="answer")
    typed = request.GET if request.GET.get("change") in kinds else QueryDict()
    shown = [
        kind(user=user, initial=_initial(typed) if typed.get("change") == change else None)
        for change, kind in kinds.items()
    ]
    return render(request, TEMPLATE, context | {"forms": shown})


@page()
def shadow(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """Where the engine decided otherwise than Kueue did, with both sides."""
    context = {
        "cluster": seen.cluster_for(user, slug),
        "report": seen.shadow_report(user, slug),
    }
    return render(request, "explained/shadow.html", context)


def _asked(
    request: HttpRequest, user: User, kinds: dict[str, type[WhatIfForm]]
) -> HttpResponseBase:
    chosen = kinds.get(request.POST.get("change", ""))
    if chosen is None:
        raise PermissionDenied("This question is for platform admins.")
    form = chosen(request.POST, user=user)
    asked = form.carry_out(form.ask) if form.is_valid() else None
    if asked is None:
        return _refused(request, form, kinds)
    address = f"{reverse('what_if')}?{_query(form, asked.questions)}"
    if not is_partial(request):
        for note in asked.notes:
            messages.warning(request, note)
        return redirect(address)
    context = _answered(user, [row.pk for row in asked.questions])
    context |= {"notes": asked.notes, "address": address}
    answer = render(request, TEMPLATE, context, partial="answer")
    answer["HX-Push-Url"] = address
    return answer


def _refused(
    request: HttpRequest, form: WhatIfForm, kinds: dict[str, type[WhatIfForm]]
) -> HttpResponse:
    if is_partial(request):
        return render(request, TEMPLATE, {"refused": form}, partial="answer", status=422)
    shown = [
        form if change == form.change else kind(user=request.user) for change, kind in kinds.items()
    ]
    return render(request, TEMPLATE, {"forms": shown, "refused": form}, status=422)


def _answered(user: Any, keys: list[uuid.UUID]) -> dict[str, Any]:
    """What the clusters have said so far; six queries and one for each question."""
    questions = seen.questions_for(user, keys) if keys else []
    rows = enforcement.replies_to(user, questions)
    return {"replies": rows, "is_waiting": any(row.state == "waiting" for row in rows)}


def _keys(request: HttpRequest) -> list[uuid.UUID]:
    try:
        found = [uuid.UUID(text) for text in request.GET.getlist("q")]
    except ValueError as error:
        raise BadRequest("The address names a question that there cannot be.") from error
    if len(found) > MOST_QUESTIONS:
        raise BadRequest(f"The address names more than {MOST_QUESTIONS} questions.")
    return found


def _query(form: WhatIfForm, questions: Sequence[Question]) -> str:
    """What was asked and under which keys, for the address."""
    query = QueryDict(mutable=True)
    query["change"] = form.change
    for name, value in form.cleaned_data.items():
        query[name] = str(value)
    query.setlist("q", [str(question.pk) for question in questions])
    return query.urlencode()


def _initial(typed: QueryDict) -> dict[str, Any]:
    return {name: typed[name] for name in typed if name not in ("q", "change")}


def _workers(user: Any) -> dict[str, Cluster]:
    rows = seen.visible_clusters(user).filter(role=Cluster.Role.WORKER, state=Cluster.State.ACTIVE)
    return {row.slug: row for row in rows}
