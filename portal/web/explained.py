"""What-if: a form with the answer of the clusters' engines beside it; and the shadow's record."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets.models import Flavor, User
from budgets.selectors.budget.cost_preview import burst_in_full, preview_costs
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.documents.labels import HOSTNAME
from clusters.models import Cluster, Question
from portal.web.forms import GpuField, NamesField, Offer, OfferedField, PortalForm, radio
from portal.web.htmx import is_partial, polled, render
from portal.web.pages import page

TEMPLATE = "explained/what_if.html"
MOST_QUESTIONS = 50
MOST: Final = 10**9
"""No form takes a larger number, nor one that is as much below 0."""


class CountField(GpuField):
    """A whole number, negative too; how many are sensible is the service's business.

    The address of an answer keeps it, and what it would cost is worked out from there.
    """

    default_error_messages = {
        "required": "Type a number of GPUs.",
        "min_value": f"Type a whole number from {-MOST:,} to {MOST:,}.",
        "max_value": f"Type a whole number from {-MOST:,} to {MOST:,}.",
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": -MOST, "max_value": MOST, **kwargs})


class GpuCountField(CountField):
    """Whole GPUs that are added or taken away."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(label="GPUs", initial=8, **kwargs)


class WhatIfForm(PortalForm):
    """Base of the questions.

    Attributes:
        change: What a POST names.
        title: For people.
        ask: Asks the clusters; raises Rejected.
    """

    change = ""
    title = ""
    # Fields without which the question is not shown: there is nothing to choose.
    is_about: ClassVar[tuple[str, ...]] = ()
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


class RackForm(WhatIfForm):
    """Nodes that stand together, and perhaps who gets their GPUs."""

    change, title = "rack", "Add a rack"
    is_about = ("place",)
    ask = staticmethod(enforcement.ask_rack)
    fault_fields = {
        "account": "receiver", "pool": "receiver", "cluster": "place", "flavor": "place",
        "within": "place",
    }  # fmt: skip

    place = OfferedField(label="Where", is_typed_of_many=True)
    nodes = CountField(
        label="Nodes",
        initial=4,
        error_messages={"required": "Type a number of nodes.", "invalid": "Type whole nodes."},
    )
    gpus = CountField(
        label="GPUs of each node",
        required=False,
        help_text="Leave it empty for as many as nodes of the flavor have.",
    )
    receiver = OfferedField(
        label="GPUs go to",
        empty_label="nobody: quota stays as it is",
        is_typed_of_many=True,
        help_text="Nodes start no job that has no quota.",
    )


class TaintForm(WhatIfForm):
    """Nodes that take no pods any more."""

    change, title = "taint", "Taint or drain nodes"
    is_about = ("grounds",)
    ask = staticmethod(enforcement.ask_taint)
    fault_fields = {
        "cluster": "grounds", "flavor": "grounds", "within": "grounds", "drains": "effect",
    }  # fmt: skip

    grounds = OfferedField(label="Which nodes", is_typed_of_many=True)
    names = NamesField(
        label="Names of nodes",
        help_text="One per line, where you chose nodes that you name.",
    )
    effect = radio(
        "What happens",
        cordon="No new pod starts there, and what runs goes on",
        drain="What runs there stops, too, and queues again",
    )
    taint = forms.CharField(
        label="Taint",
        required=False,
        max_length=400,
        help_text="key or key=value. Jobs that tolerate it stay. Empty: a cordon for all.",
    )

    def clean(self) -> dict[str, Any]:
        """What the service asks for: the effect as its name there."""
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        if "effect" in typed:
            typed["drains"] = typed["effect"] == "drain"
        return typed


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


def _places(user: Any) -> Offer:
    """Where a rack may stand: beside all others, or in a domain that there is."""
    offered: dict[str, tuple[str, Any]] = {}
    for cluster, flavor, standing in _standings(user):
        levels = [level for level in standing.levels if level != HOSTNAME]
        where = {"cluster": cluster, "flavor": flavor}
        name, key = f"{flavor.name} on {cluster.name}", f"{cluster.slug}/{flavor.slug}"
        smallest = seen.level_word(levels[-1]) if levels else "node"
        offered[key] = (f"{name}: a new {seen.level_word((levels or [HOSTNAME])[0])}", where)
        for path in _paths(standing, levels):
            is_whole = len(path) == len(levels)
            words = "more nodes" if is_whole else f"a new {smallest}"
            place = where | {"within": path}
            offered["/".join((key, *path))] = (f"{name}: {words} in {'/'.join(path)}", place)
    return offered


def _grounds(user: Any) -> Offer:
    """Whose nodes may take no pods: a domain's, a flavor's, or some that are named."""
    offered: dict[str, tuple[str, Any]] = {}
    for cluster, flavor, standing in _standings(user):
        levels = [level for level in standing.levels if level != HOSTNAME]
        where = {"cluster": cluster, "flavor": flavor}
        name, key = f"{flavor.name} on {cluster.name}", f"{cluster.slug}/{flavor.slug}"
        offered.setdefault(
            cluster.slug, (f"{cluster.name}: the nodes that you name", {"cluster": cluster})
        )
        for path in _paths(standing, levels):
            words = f"{name}: {seen.level_word(levels[len(path) - 1])} {'/'.join(path)}"
            offered["/".join((key, *path))] = (words, where | {"within": path})
        offered[key] = (f"{name}: all nodes", where)
    return offered


def _standings(user: Any) -> Iterator[tuple[Cluster, Flavor, seen.FlavorDomains]]:
    """Nodes of flavors with a topology, on clusters whose nodes are followed. Three queries."""
    clusters = {row.slug: row for row in seen.askable_about_nodes(user)}
    flavors = selectors.visible_flavors(user).filter(topology__isnull=False)
    placed = {row.slug: row for row in flavors.select_related("topology")} if clusters else {}
    for slug, nodes in (seen.nodes_of(placed) if placed else {}).items():
        topology = placed[slug].topology
        for standing in seen.standings(topology.levels if topology is not None else (), nodes):
            if standing.cluster in clusters:
                yield clusters[standing.cluster], placed[slug], standing


def _paths(standing: seen.FlavorDomains, levels: Sequence[str]) -> list[tuple[str, ...]]:
    """Domains above nodes, each right before those in it."""
    return sorted(path for domains in standing.domains[: len(levels)] for path in domains)


OFFERS: Mapping[str, Callable[[Any], Offer]] = {
    "workspace": lambda user: {
        row.namespace: (f"{row.name} ({row.namespace})", row)
        for row in seen.askable_workspaces(user)
    },
    "flavor": lambda user: {row.slug: (row.name, row) for row in selectors.visible_flavors(user)},
    "cluster": _workers,
    "receiver": _receivers,
    "place": _places,
    "grounds": _grounds,
}
"""Field of a question → what its reader may ask about."""
SEVERAL = ("receiver", "place", "grounds")
"""Fields that stand for several arguments of a question."""
ADMINS: tuple[type[WhatIfForm], ...] = (RaiseForm, AddForm, DrainForm, RackForm, TaintForm)
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
    return render(request, TEMPLATE, context | {"forms": _offering(shown)})


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
    given.pop("effect", None)
    named = [given.pop(name, None) or {} for name in SEVERAL]
    return form.ask(user, **given, **{key: value for each in named for key, value in each.items()})


def _refused(
    request: HttpRequest, form: WhatIfForm, kinds: dict[str, type[WhatIfForm]]
) -> HttpResponse:
    if is_partial(request):
        return render(request, TEMPLATE, {"refused": form}, partial="answer", status=422)
    shown = [
        form if change == form.change else kind(user=request.user) for change, kind in kinds.items()
    ]
    return render(request, TEMPLATE, {"forms": _offering(shown), "refused": form}, status=422)


def _offering(shown: Sequence[WhatIfForm]) -> list[WhatIfForm]:
    """Without questions about nodes where no node is followed."""
    return [form for form in shown if all(form.part(name).things for name in form.is_about)]


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
    kinds = {kind.change: kind for kind in (RaiseForm, AddForm, RackForm)}
    chosen = kinds.get(typed.get("change", ""))
    form = chosen(typed, user=user) if chosen is not None else None
    if form is None or not form.is_valid():
        return {}
    given, now = form.cleaned_data, selectors.utc_now()
    if isinstance(form, RackForm):
        return _cost_of_rack(given, now) if given["receiver"] else {}
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


def _cost_of_rack(given: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """What the GPUs of a rack cost in use."""
    flavor, account = given["place"]["flavor"], given["receiver"].get("account")
    by = given["nodes"] * (flavor.gpus_per_node if given["gpus"] is None else given["gpus"])
    key = account.pk if account is not None else None
    return {"added": burst_in_full(key, flavor.slug, by, now), "added_to": account}


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
        if name not in form.fields or value in (None, "", []):
            continue
        query[name] = str(form.fields[name].prepare_value(value))
    query.setlist("q", [str(question.pk) for question in questions])
    return query.urlencode()


def _initial(typed: QueryDict) -> dict[str, Any]:
    return {name: typed[name] for name in typed if name not in ("q", "change")}
