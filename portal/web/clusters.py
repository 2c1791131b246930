"""Clusters: health of each in a row; one with its objects, drift, rights and switches."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from clusters import selectors as seen
from clusters import services as enforcement
from portal.web.audit import changes
from portal.web.cluster_changes import CHANGES
from portal.web.htmx import is_partial, render, target, unchanged
from portal.web.maintenance import summaries
from portal.web.pages import page

AUDIT_SHOWN = 20


@page()
def clusters(request: HttpRequest) -> HttpResponseBase:
    """Health of each cluster in one row."""
    user: Any = request.user
    rows = seen.cluster_rows(user)
    context = {
        "rows": rows,
        "lost": [row for row in rows if not row.is_reachable],
        "is_admin": selectors.roles_of(user).is_admin,
    }
    if is_partial(request):
        answer = render(request, "clusters/clusters.html", context, partial="rows")
        return unchanged(request, answer)
    context |= {"races": seen.dispatch_races(user), "preemptions": seen.recent_preemptions(user)}
    return render(request, "clusters/clusters.html", context)


@page()
def cluster(request: HttpRequest, slug: str) -> HttpResponseBase:
    """One cluster: what is applied against what is wanted, drift, preflight, switches."""
    user: Any = request.user
    detail = seen.cluster_detail(user, slug)
    context = {"detail": detail, "row": detail.row}
    if is_partial(request) and target(request) == "state":
        answer = render(request, "clusters/cluster.html", context, partial="state")
        return unchanged(request, answer)
    entries = selectors.audit_entries(user, cluster=slug, limit=AUDIT_SHOWN)
    context |= {
        "is_admin": selectors.roles_of(user).is_admin,
        "entries": [{"entry": entry, "changes": changes(entry)} for entry in entries],
        "rights": seen.generated_rights(user, slug),
        "held": selectors.held_budgets(user),
        "windows": summaries(seen.windows_over(user, slug)),
        "stuck": [row for row in seen.stuck_actions(user) if row.cluster.slug == slug],
    }
    return render(request, "clusters/cluster.html", context)


@page()
def cluster_rights(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The roles and policies that an admin applies there, as a file."""
    user: Any = request.user
    text = seen.generated_rights(user, slug)
    answer = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{slug}-rights.yaml"'
    return answer


@page("GET", "POST")
def cluster_change(request: HttpRequest, slug: str, change: str) -> HttpResponseBase:
    """One switch, confirmed on a page of its own that says what it touches."""
    user: Any = request.user
    if change not in CHANGES:
        raise Http404
    detail = seen.cluster_detail(user, slug)
    if not selectors.roles_of(user).is_admin:
        raise PermissionDenied("Only a platform admin changes a cluster.")
    what = CHANGES[change]
    form = what.form(request.POST if request.method == "POST" else None, initial=_now(detail))
    if request.method == "POST" and form.is_valid():
        if change == "deregister" and form.cleaned_data["slug"] != slug:
            form.add_error("slug", f"Type {slug} to remove this cluster.")
        else:
            form.carry_out(lambda: _carry_out(user, slug, change, form.cleaned_data))
        if not form.errors:
            messages.success(request, what.said)
            return redirect(
                "clusters" if change == "deregister" else reverse("cluster", args=[slug])
            )
    context = {
        "row": detail.row,
        "detail": detail,
        "what": what,
        "form": form,
        "change": change,
        "stake": seen.worker_at_stake(slug) if change == "deregister" else None,
    }
    return render(request, "clusters/change.html", context, status=422 if form.errors else 200)


def _now(detail: Any) -> dict[str, Any]:
    """What the switches stand on."""
    return {
        "mode": detail.row.mode,
        "policy": detail.drift_policy,
        "guard": detail.guard,
        "allowed": detail.allows_local_jobs,
        "configuration": detail.kueue_configuration or "",
        "context": detail.context,
    }


def _carry_out(user: Any, slug: str, change: str, typed: dict[str, Any]) -> None:
    found = seen.cluster_for(user, slug)
    reason = typed.get("reason", "")
    if change in {"stop-writing", "start-writing"}:
        enabled = change == "start-writing"
        enforcement.set_writes_enabled(user, cluster=found, enabled=enabled, reason=reason)
    elif change == "mode":
        enforcement.set_mode(user, cluster=found, mode=typed["mode"], reason=reason)
    elif change == "drift":
        enforcement.set_drift_policy(user, cluster=found, policy=typed["policy"])
    elif change == "guard":
        enforcement.set_guard(user, cluster=found, guard=typed["guard"], reason=reason)
    elif change == "local-jobs":
        enforcement.set_local_jobs(user, cluster=found, allowed=typed["allowed"])
    elif change == "configuration":
        wanted = typed["configuration"] or {}
        enforcement.set_kueue_configuration(user, cluster=found, configuration=wanted)
    elif change == "kubeconfig":
        enforcement.rotate_kubeconfig(
            user, cluster=found, kubeconfig=typed["kubeconfig"], context=typed["context"]
        )
    elif change == "token":
        enforcement.rotate_multikueue_token(user, cluster=found)
    elif change == "block":
        apply_ours = typed["keep"] == "portal"
        enforcement.resolve_block(user, cluster=found, apply_ours=apply_ours, reason=reason)
    else:
        enforcement.deregister_cluster(user, cluster=found, reason=reason, abandon=typed["abandon"])


@page("POST")
def cluster_preflight(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Run the preflight again."""
    user: Any = request.user
    found = seen.cluster_for(user, slug)
    operation = enforcement.start_preflight(user, cluster=found)
    return redirect("operation", operation_id=operation.pk)
