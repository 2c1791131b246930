"""Register a cluster in three steps: kubeconfig, context and mode, preflight table.

The cluster that the portal runs in needs no kubeconfig: its first step is a button.

Between the steps the kubeconfig travels only as a sealed token in the form: it is never sent
back as text and never stored before somebody says which cluster it is.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache

from budgets.errors import Rejected
from budgets.models import User
from clusters import services as enforcement
from clusters.models import Cluster
from portal.web.forms import PortalForm, SecretArea, YamlField, radio
from portal.web.htmx import render
from portal.web.pages import page

TEMPLATE = "clusters/register.html"
MOST_BYTES = 200_000


class SourceForm(PortalForm):
    """Step 1: paste, upload, or name a file on the server."""

    kubeconfig = forms.CharField(
        label="Paste a kubeconfig",
        required=False,
        strip=False,
        max_length=MOST_BYTES,
        widget=SecretArea(),
    )
    upload = forms.FileField(label="or upload one", required=False)
    file_name = forms.CharField(
        label="or name a file on the server",
        required=False,
        max_length=200,
        help_text="For local use. Only files in the folder that PORTAL_KUBECONFIG_FOLDER names "
        "can be read.",
    )

    def clean(self) -> dict[str, Any]:
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        given = [name for name in self.fields if typed.get(name)]
        if len(given) != 1:
            words = "Give one kubeconfig: paste it, upload it, or name a file."
            raise forms.ValidationError(words)
        upload = typed.get("upload")
        if upload is not None and upload.size > MOST_BYTES:
            self.add_error("upload", "A kubeconfig can have at most 200 kB; this is larger.")
        return typed

    def text(self, actor: Any) -> str:
        """The kubeconfig.

        Raises:
            Rejected: The file is no text, or is not in the folder.
        """
        typed = self.cleaned_data
        if typed.get("upload"):
            return str(typed["upload"].read(), "utf-8", errors="replace")
        if typed.get("file_name"):
            return enforcement.kubeconfig_from_file(actor, name=typed["file_name"])
        return str(typed["kubeconfig"])


class PlaceForm(PortalForm):
    """Step 2: which context, what it is, who decides there."""

    held = forms.CharField(widget=forms.HiddenInput)
    context = forms.ChoiceField(label="Context", widget=forms.RadioSelect)
    slug = forms.CharField(
        label="Slug",
        max_length=40,
        help_text="It never changes; capacity and use are kept under it.",
    )
    name = forms.CharField(label="Name", max_length=120)
    role = radio(
        "It is",
        single="a cluster of its own: jobs are submitted there, and run there",
        manager="the manager of a fleet: jobs are submitted there, and run on workers",
        worker="a worker of the fleet: jobs come from the manager",
    )
    mode = radio(
        "Who decides there",
        kueue="Kueue: its controller runs there, the portal writes quota",
        portal="The portal: only Kueue's CRDs are there",
        help_text="The preflight checks which of them is possible.",
    )
    kueue_configuration = YamlField(
        label="Kueue Configuration",
        help_text="YAML. Leave it empty to read it from the cluster; without one there, Kueue's "
        "defaults hold.",
    )

    def __init__(self, *args: Any, contexts: list[Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "context" in self.fields:
            self.part("context").choices = [
                (row.name, f"{row.name}: {row.server}, {row.user_kind}") for row in contexts
            ]


class OwnPlaceForm(PlaceForm):
    """Step 2 for the cluster that the portal runs in: there is nothing to choose a context of."""

    held = None  # type: ignore[assignment]  # as Django takes a field away
    context = None  # type: ignore[assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, contexts=[], **kwargs)


@never_cache
@page("GET", "POST", only_admins="Only a platform admin can register a cluster.")
def register(request: HttpRequest, user: User) -> HttpResponseBase:
    """Steps 1 and 2; step 3 is the preflight table of the new cluster."""
    if "held" in request.POST:
        return _second(request, user)
    offer = enforcement.own_cluster_offer(user)
    if "own" in request.POST:
        return _own(request, user, offer)
    form = SourceForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        answer = form.carry_out(lambda: _first(request, user, form))
        if answer is not None:
            return answer
    context = {
        "form": form,
        "step": 1,
        "has_folder": bool(settings.PORTAL_KUBECONFIG_FOLDER),
        "own": offer,
    }
    return render(request, TEMPLATE, context, status=form.status)


def _own(request: HttpRequest, user: User, offer: enforcement.OwnOffer | None) -> HttpResponseBase:
    """The cluster that the portal runs in: step 2, and registering it."""
    if offer is None or offer.problem:
        return redirect("register")
    is_sent = "slug" in request.POST
    place = OwnPlaceForm(
        request.POST if is_sent else None, initial={"role": "single", "mode": "kueue"}
    )
    if is_sent and place.is_valid():
        typed = {name: place.cleaned_data[name] for name in place.fields}
        made = place.carry_out(
            lambda: enforcement.register_cluster(user, own_account=True, **typed)
        )
        if made is not None:
            return _registered(request, made)
    context = {"form": place, "step": 2, "own": offer}
    return render(request, TEMPLATE, context, status=place.status)


def _first(request: HttpRequest, user: Any, form: SourceForm) -> HttpResponse:
    text = form.text(user)
    report = enforcement.inspect_kubeconfig(text)
    usable = [row for row in report.contexts if not row.faults]
    if report.faults or not usable:
        faults = [*report.faults, *(fault for row in report.contexts for fault in row.faults)]
        raise Rejected(faults)
    chosen = next((row for row in usable if row.is_current), usable[0])
    initial = {
        "held": enforcement.hold_kubeconfig(user, text=text),
        "context": chosen.name,
        "role": "single",
        "mode": "kueue",
    }
    place = PlaceForm(initial=initial, contexts=usable)
    refused = [row for row in report.contexts if row.faults]
    return render(request, TEMPLATE, {"form": place, "step": 2, "refused": refused})


def _second(request: HttpRequest, user: Any) -> HttpResponseBase:
    try:
        text = enforcement.held_kubeconfig(user, held=request.POST["held"])
    except Rejected as rejected:
        form = SourceForm(data={})
        form.errors.clear()
        form.take(rejected.faults)
        return render(request, TEMPLATE, {"form": form, "step": 1}, status=422)
    report = enforcement.inspect_kubeconfig(text)
    place = PlaceForm(request.POST, contexts=[row for row in report.contexts if not row.faults])
    if place.is_valid():
        typed = {name: place.cleaned_data[name] for name in place.fields if name != "held"}
        made = place.carry_out(lambda: enforcement.register_cluster(user, kubeconfig=text, **typed))
        if made is not None:
            return _registered(request, made)
    return render(request, TEMPLATE, {"form": place, "step": 2}, status=422)


def _registered(request: HttpRequest, made: Cluster) -> HttpResponse:
    messages.success(request, f"{made.name} is registered. Its preflight is below.")
    return redirect(f"{reverse('cluster', args=[made.slug])}#preflight")
