"""What-if: a form with the answer of the clusters' engines beside it; and the shadow's record."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets.models import User
from budgets.selectors.budget.cost_preview import burst_in_full, preview_costs
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import Cluster, Question
from portal.web.forms import GpuField, Offer, OfferedField, PortalForm
from portal.web.htmx import is_partial, polled, render
from portal.web.pages import page

TEMPLATE = "explained/what_if.html"
MOST_QUESTIONS = 50


class GpuCountField(GpuField):
    """Whole GPUs; how many are sensible is the service's business."""

    default_error_messages = {"required": "Type a number of GPUs."}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(label="GPUs", initial=8, min_value=None, max_value=None, **kwargs)


class WhatIfForm(PortalForm):
    """Base of the three questions.

    Attributes:
        change: What a POST names.
        title: For people.
        ask: Asks the clusters; raises Rejected.
    """

    change = ""
    title = ""
    button = "Show what would happen"
    ask: ClassVar[Callable[..., Any]]

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        offered = {name: OFFERS[name](user) for name in self.base_fields if name in OFFERS}
        super().__init__(*args, auto_id=f"id_{self.change}_%s", offered=offered, **kwargs)


class RaiseForm(WhatIfForm):
    """A budget with more, or fewer, committed GPUs."""

    change, title = "raise", "Change a budget"
    ask = staticmethod(enforcement.ask_raise)

    workspace = OfferedField(is_typed_of_many=True)
    flavor = OfferedField(is_typed_of_many=True)
    by = GpuCountField(help_text="Committed GPUs to add. A negative number takes some away.")


class AddForm(WhatIfForm):
    """A node pool for a worker, and who gets its GPUs."""

    change, title = "add", "Add a node pool"
    ask = staticmethod(enforcement.ask_add)
    fault_fields = {"account": "receiver", "pool": "receiver"}

    cluster = OfferedField(label="Worker", is_typed_of_many=True)
    flavor = OfferedField(is_typed_of_many=True)
    by = GpuCountField()
    receiver = OfferedField(
        label="Goes to",
        is_typed_of_many=True,
        help_text="Nodes alone start nothing. Say who gets their GPUs.",
    )


class DrainForm(WhatIfForm):
    """A worker without its jobs."""

    change, title = "drain", "Drain a worker"
    ask = staticmethod(enforcement.ask_drain)

    cluster = OfferedField(label="Worker", is_typed_of_many=True)


def _receivers(user: Any) -> Offer:
    """Platform pools, and the pools of accounts: what the service is asked about each."""
    pools = selectors.visible_pools(user).filter(account__isnull=True)
    offered = {f"pool:{row.slug}": (f"platform pool {row}", {"pool": row}) for row in pools}
    return offered | {
        f"account:{row.slug}": (f"pool of {row}", {"account": row})
        for row in selectors.visible_accounts(user)
    }


def _workers(user: Any) -> Offer:
    found = seen.visible_clusters(user).filter(state=Cluster.State.ACTIVE)
    return {row.slug: (row.name, row) for row in found.running_jobs()}


OFFERS: Mapping[str, Callable[[Any], Offer]] = {
    "workspace": lambda user: {
        row.namespace: (f"{row.name} ({row.namespace})", row)
        for row in seen.askable_workspaces(user)
    },
    "flavor": lambda user: {row.slug: (row.name, row) for row in selectors.visible_flavors(user)},
    "cluster": _workers,
    "receiver": _receivers,
}
"""Field of a question → what its reader may ask about."""
ADMINS: tuple[type[WhatIfForm], ...] = (RaiseForm, AddForm, DrainForm)
OWNERS: tuple[type[WhatIfForm], ...] = (RaiseForm,)


@page("GET", "POST")
def what_if(request: HttpRequest, user: User) -> HttpResponseBase:
    """Ask, and read the answer; an owner about own budgets, an admin about everything."""
    is_admin = selectors.roles_of(user).is_admin
    if not is_admin and not seen.askable_workspaces(user).exists():
        raise PermissionDenied(
            "Only people who may change a budget can ask what a change would lead to."
        )
    kinds = {kind.change: kind for kind in (ADMINS if is_admin else OWNERS)}
    if request.method == "POST":
        return _asked(request, user, kinds)
    context = _answered(user, _keys(request), request.GET)
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
    asked = form.carry_out(lambda: _ask(user, form)) if form.is_valid() else None
    if asked is None:
        return _refused(request, form, kinds)
    address = f"{reverse('what_if')}?{_query(form, asked.questions)}"
    if not is_partial(request):
        for note in asked.notes:
            messages.warning(request, note)
        return redirect(address)
    context = _answered(user, [row.pk for row in asked.questions], request.POST)
    context |= {"notes": asked.notes, "address": address}
    answer = render(request, TEMPLATE, context, partial="answer")
    answer["HX-Push-Url"] = address
    return answer


def _ask(user: User, form: WhatIfForm) -> Any:
    given = form.cleaned_data.copy()
    return form.ask(user, **given.pop("receiver", {}), **given)


def _refused(
    request: HttpRequest, form: WhatIfForm, kinds: dict[str, type[WhatIfForm]]
) -> HttpResponse:
    if is_partial(request):
        return render(request, TEMPLATE, {"refused": form}, partial="answer", status=422)
    shown = [
        form if change == form.change else kind(user=request.user) for change, kind in kinds.items()
    ]
    return render(request, TEMPLATE, {"forms": shown, "refused": form}, status=422)


def _answered(user: Any, keys: list[uuid.UUID], typed: QueryDict) -> dict[str, Any]:
    """What the clusters have said so far; once all have, the verdict with its cost and time."""
    questions = seen.questions_for(user, keys) if keys else []
    rows = enforcement.replies_to(user, questions)
    verdict = enforcement.verdict_of(rows)
    return {
        "replies": rows,
        "is_waiting": any(row.state == "waiting" for row in rows),
        "verdict": verdict,
        "costs": (),
        **(_beside(user, typed) if verdict is not None else {}),
    }


def _beside(user: Any, typed: QueryDict) -> dict[str, Any]:
    """What goes with a verdict, as far as it is known; nothing for other questions.

    Of a raise what the budget costs now and after, and when the first job starts without it; of
    added GPUs what they cost in use.
    """
    kinds = {kind.change: kind for kind in (RaiseForm, AddForm)}
    chosen = kinds.get(typed.get("change", ""))
    form = chosen(typed, user=user) if chosen is not None else None
    if form is None or not form.is_valid():
        return {}
    given, now = form.cleaned_data, selectors.utc_now()
    flavor, by = given["flavor"], given["by"]
    if isinstance(form, AddForm):
        account = given["receiver"].get("account")
        key = account.pk if account is not None else None
        return {"added": burst_in_full(key, flavor.slug, by, now), "added_to": account}
    workspace = given["workspace"]
    drafts = [enforcement.raised_draft(workspace, flavor, more).lines for more in (0, by)]
    return {
        "costs": preview_costs(workspace, drafts, now),
        "first_start": seen.first_start(user, workspace),
    }


def _keys(request: HttpRequest) -> list[uuid.UUID]:
    try:
        found = [uuid.UUID(text) for text in request.GET.getlist("q")]
    except ValueError as error:
        raise BadRequest("The address names a question that cannot exist.") from error
    if len(found) > MOST_QUESTIONS:
        raise BadRequest(f"The address names more than {MOST_QUESTIONS} questions.")
    return found


def _query(form: WhatIfForm, questions: Sequence[Question]) -> str:
    """What was asked and under which keys, for the address."""
    query = QueryDict(mutable=True)
    query["change"] = form.change
    for name, value in form.cleaned_data.items():
        query[name] = str(form.fields[name].prepare_value(value))
    query.setlist("q", [str(question.pk) for question in questions])
    return query.urlencode()


def _initial(typed: QueryDict) -> dict[str, Any]:
    return {name: typed[name] for name in typed if name not in ("q", "change")}
