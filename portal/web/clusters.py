"""Clusters: health of each in a row; one with its objects, drift, rights, switches and work."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache

from budgets import selectors
from budgets.errors import Rejected
from budgets.models import Operation, Proposal, User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.documents.kueue_versions import FEATURES, FOLLOWED, FORMER, Support
from clusters.selectors.configured import notes_of, settings_of
from portal.cluster_changes import CHANGES
from portal.web.audit import changes
from portal.web.fleet import summaries
from portal.web.forms import (
    NameForm,
    NamesField,
    PortalForm,
    ReasonForm,
    SecretArea,
    YamlField,
    radio,
)
from portal.web.htmx import is_partial, polled, render, target
from portal.web.pages import form_page, page, require_admin, typed

AUDIT_SHOWN = 20


class KubeconfigForm(PortalForm):
    """A new kubeconfig for the same cluster."""

    kubeconfig = forms.CharField(
        label="New kubeconfig",
        strip=False,
        max_length=200_000,
        widget=SecretArea(),
        help_text="It is stored encrypted and never shown again. The old one is forgotten.",
    )
    context = forms.CharField(label="Context", required=False, max_length=200)
    own_account = forms.BooleanField(
        label="Forget it and use the portal's own service account, which needs no kubeconfig. This "
        "works only for the cluster that the portal runs in",
        required=False,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if settings.PORTAL_OWN_CLUSTER_FOLDER:
            self.fields["kubeconfig"].required = False
        else:
            del self.fields["own_account"]


class FarewellForm(ReasonForm):
    """The slug typed again, so that nobody removes the wrong one."""

    slug = forms.CharField(max_length=40)
    field_order = ["slug", "reason"]

    def __init__(self, *args: Any, initial: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["slug"].label = f"Type {initial['slug']} to confirm"


class DeregisterForm(FarewellForm):
    """A cluster that is drained, or given up."""

    abandon = forms.BooleanField(
        label="It is lost for good: forget it at once and clean up nothing there", required=False
    )
    field_order = ["slug", "reason", "abandon"]


def _of(base: type[PortalForm] = PortalForm, **fields: forms.Field) -> type[PortalForm]:
    """The form of these fields, with those of its base after them."""
    return type("ChangeForm", (base,), {**fields, "field_order": list(fields)})


FORMS: Mapping[str, type[PortalForm]] = {
    "mode": _of(
        ReasonForm,
        mode=radio("Who decides", kueue="Kueue decides", portal="The portal decides"),
    ),
    "role": _of(
        ReasonForm,
        role=radio("What the cluster is there for", **dict(enforcement.Serving.choices)),
    ),
    "drift": _of(
        drift_policy=radio(
            "A hand edit of an owned field",
            restore="Put back what the portal wants",
            keep="Keep the hand edit and show it",
        )
    ),
    "guard": _of(
        ReasonForm,
        guard=radio(
            "Known defects of Kueue",
            off="Off: nothing is checked",
            tell="Report: shown here and on the job's page; nothing is changed",
            cure="Prevent and cure: the portal writes where Kueue would be stuck",
        ),
    ),
    "local-jobs": _of(
        allows_local_jobs=forms.BooleanField(
            label="Allow jobs on this worker directly", required=False
        )
    ),
    "operators": _of(
        operators=NamesField(
            label="Service accounts",
            help_text="One per line as NAMESPACE/NAME, such as "
            "jobset-system/jobset-controller-manager.",
        )
    ),
    "gpus-elsewhere": _of(
        denies_elsewhere=forms.BooleanField(
            label="Refuse pods with GPUs outside of workspaces", required=False
        ),
        gpu_namespaces=NamesField(
            label="Still allow them in these namespaces",
            help_text="One per line, such as gpu-operator.",
        ),
    ),
    "configuration": _of(
        kueue_configuration=YamlField(
            label="Kueue Configuration",
            help_text="Paste the YAML of Kueue's Configuration, from the ConfigMap "
            "kueue-manager-config. Leave it empty and the portal reads it from the cluster.",
        )
    ),
    "kubeconfig": KubeconfigForm,
    "token": PortalForm,
    "block": _of(
        ReasonForm,
        keep=radio(
            "Which side is right",
            cluster="The cluster: writing to it stops, so that budgets can be entered again",
            portal="The portal: its objects replace the cluster's, and the rest is drained",
        ),
    ),
    "deregister": DeregisterForm,
    "forget": FarewellForm,
    "rename": NameForm,
}
"""What is typed for a change; a reason alone where it is not listed."""


@page()
def clusters(request: HttpRequest, user: User) -> HttpResponseBase:
    """Health of each cluster in one row."""
    rows = seen.cluster_rows(user)
    context = {
        "rows": rows,
        "lost": [row for row in rows if not row.is_reachable],
        "is_admin": selectors.roles_of(user).is_admin,
    }
    if is_partial(request):
        return polled(request, "clusters/clusters.html", context, partial="rows")
    context["removed"] = seen.removed_clusters(user)
    context |= {"races": seen.dispatch_races(user), "preemptions": seen.recent_preemptions(user)}
    return render(request, "clusters/clusters.html", context)


@page()
def cluster(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """One cluster: what is applied against what is wanted, drift, preflight, switches."""
    detail = seen.cluster_detail(user, slug, with_tree=False)
    shown = seen.objects_of(user, slug, page=request.GET.get("page"))
    context = {"detail": detail, "row": detail.row, "shown": shown}
    if is_partial(request) and target(request) == "state":
        return polled(request, "clusters/cluster.html", context, partial="state")
    entries = selectors.audit_entries(user, selectors.AuditFilter(cluster=slug), limit=AUDIT_SHOWN)
    context |= {
        "is_admin": selectors.roles_of(user).is_admin,
        "entries": [{"entry": entry, "changes": changes(entry)} for entry in entries],
        "held": selectors.held_budgets(user),
        "windows": summaries(seen.windows_over(user, slug)),
        "stuck": [row for row in seen.stuck_actions(user) if row.cluster.slug == slug],
    }
    return render(request, "clusters/cluster.html", context)


@page()
def kueue_versions(request: HttpRequest, user: User) -> HttpResponseBase:
    """Which Kueue each cluster has, what it lacks, and what an upgrade would change there."""
    rows = seen.kueue_versions(user)
    context = {
        "rows": rows,
        "older": [row for row in rows if row.changes],
        "unknown": [row for row in rows if row.support is Support.UNKNOWN],
        "features": FEATURES,
        "followed": FOLLOWED,
        "former": FORMER,
    }
    return render(request, "clusters/kueue_versions.html", context)


@page()
def cluster_rights(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """The roles and policies that an admin applies there, as a file."""
    text = seen.generated_rights(user, slug)
    answer = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{slug}-rights.yaml"'
    return answer


@never_cache
@page("GET", "POST")
def cluster_change(request: HttpRequest, user: User, slug: str, change: str) -> HttpResponseBase:
    """One switch, confirmed on a page of its own that says what it touches."""
    if change not in CHANGES:
        raise Http404
    detail = seen.cluster_detail(user, slug, with_tree=False)
    require_admin(user, "Only a platform admin can change a cluster.")
    what, now = CHANGES[change], _now(detail)
    if change == "role":
        now["role"] = enforcement.serving_of(seen.cluster_for(user, slug))
    is_farewell = issubclass(FORMS.get(change, ReasonForm), FarewellForm)

    def carry_out(given: dict[str, Any]) -> None:
        require_typed(slug, given.pop("slug", slug))
        what.do(user, seen.cluster_for(user, slug), {**given, **what.fixed})

    return form_page(
        request,
        "clusters/change.html",
        FORMS.get(change, ReasonForm)(typed(request), initial=now),
        carry_out,
        said=what.said,
        to=reverse("clusters") if is_farewell else reverse("cluster", args=[slug]),
        context=lambda: {
            "row": detail.row,
            "detail": detail,
            "what": what,
            "change": change,
            "stake": seen.worker_at_stake(slug) if is_farewell else None,
            **(_configured(detail) if change == "configuration" else {}),
            **({"roles": _roles(user, slug)} if change == "role" else {}),
        },
    )


def _configured(detail: seen.ClusterDetail) -> dict[str, Any]:
    document = detail.kueue_configuration
    try:
        enforcement.read_configuration(document)
    except Rejected as rejected:  # told by the cluster itself, which nobody checked
        return {"notes": [fault.message for fault in rejected.faults]}
    return {"settings": settings_of(document), "notes": notes_of(document)}


def _roles(user: User, slug: str) -> list[dict[str, Any]]:
    """Each other role of a cluster: what it would change, or what is in the way."""
    found, rows = seen.cluster_for(user, slug), []
    now = enforcement.serving_of(found)
    for role, label in enforcement.Serving.choices:
        if role == now:
            continue
        try:
            changes = enforcement.preview_role_change(user, cluster=found, role=role)
            rows.append({"label": label, "places": changes})
        except Rejected as rejected:
            rows.append({"label": label, "faults": [fault.message for fault in rejected.faults]})
    return rows


@page("GET", "POST", only_admins="Only a platform admin can change a cluster.")
def take_back(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """What a removed cluster left in the books, taken back."""
    found = seen.removed_clusters(user).get(slug=slug)

    def carry_out(given: dict[str, Any]) -> Any:
        require_typed(slug, given.pop("slug"))
        return enforcement.take_back_cluster(user, cluster=found, **given)

    return form_page(
        request,
        "clusters/take_back.html",
        FarewellForm(typed(request), initial={"slug": slug}),
        carry_out,
        said=_said_of_taking_back,
        to=reverse("clusters"),
        context=lambda: {"found": found},
    )


def _said_of_taking_back(done: enforcement.TakenBack | Proposal) -> str:
    if isinstance(done, Proposal):
        return (
            f"Proposal {done.pk} is made. The cluster's use stays in the books until one of "
            "finance approves it."
        )
    return (
        f"{done.jobs} jobs and {done.hours} hours of capacity are taken back. No use of the "
        "cluster was in the books."
    )


def require_typed(slug: str, words: str) -> None:
    """Ask that the slug was typed again.

    Raises:
        Rejected: It was not.
    """
    if words != slug:
        raise Rejected.because("slug", "mistyped", f"Type {slug} to confirm.")


def _now(detail: seen.ClusterDetail) -> dict[str, Any]:
    """What the switches stand on."""
    return {
        "slug": detail.row.slug,
        "name": detail.row.name,
        "mode": detail.row.mode,
        "drift_policy": detail.drift_policy,
        "guard": detail.guard,
        "allows_local_jobs": detail.allows_local_jobs,
        "operators": list(detail.operators),
        "denies_elsewhere": detail.gpu_namespaces is not None,
        "gpu_namespaces": list(detail.gpu_namespaces or ()),
        "kueue_configuration": detail.kueue_configuration or "",
        "context": detail.context,
    }


@page("POST")
def cluster_preflight(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """Run the preflight again."""
    found = seen.cluster_for(user, slug)
    operation = enforcement.start_preflight(user, cluster=found)
    return redirect("operation", operation_id=operation.pk)


@page()
def operation(request: HttpRequest, user: User, operation_id: uuid.UUID) -> HttpResponseBase:
    """Long work, for who started it and for admins; the page stops asking when it has ended."""
    scope = Q() if selectors.roles_of(user).is_admin else Q(started_by=user)
    found = get_object_or_404(Operation.objects.filter(scope), pk=operation_id)
    kind, _, name = found.subject.partition(":")
    context = {
        "operation": found,
        "is_running": found.state == Operation.State.RUNNING,
        "about": name or found.subject,
        "cluster": name if kind == "cluster" else "",
    }
    return polled(request, "operations/operation.html", context, partial="progress")
