"""Exports: ask for a file, see how far it is, fetch it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from budgets import selectors
from budgets.exports import FORMATS
from budgets.models import Export, ExportPlan, Operation, User
from budgets.models.exports import DATASETS
from budgets.selectors.exports import listing as reads
from budgets.selectors.exports.rows import dataset_table
from budgets.selectors.exports.wishes import preview
from budgets.services.exports import plans
from budgets.services.exports.plans import request_export
from portal.downloads import send_file
from portal.web.context import account_names
from portal.web.forms import PortalForm, offer_names
from portal.web.htmx import polled, render
from portal.web.pages import page

SHOWN = 50
WISHED = ("dataset", "format", "period", "zone", "account", "workspace", "columns")


class ExportForm(PortalForm):
    """What the file shall hold; the columns are those of the data set."""

    dataset = forms.ChoiceField(label="What", choices=DATASETS)
    format = forms.ChoiceField(
        label="Format", choices=[(shape.name, shape.title) for shape in FORMATS.values()]
    )
    period = forms.CharField(label="Month", widget=forms.TextInput(attrs={"type": "month"}))
    zone = forms.ChoiceField(label="Months of")
    account = forms.ChoiceField(label="Account", required=False)
    workspace = forms.ChoiceField(label="Workspace", required=False)
    every = forms.ChoiceField(
        label="When",
        required=False,
        choices=[("", "now, once"), *ExportPlan.Every.choices],
        help_text="An export that is made regularly follows the months. You get a mail for each "
        "file.",
    )
    name = forms.CharField(
        label="Name",
        required=False,
        max_length=80,
        help_text="Needed for an export that is made regularly.",
    )
    columns = forms.MultipleChoiceField(
        label="Columns",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen means all.",
    )

    def wish(self) -> dict[str, Any]:
        """What the file shall hold."""
        return {name: self.cleaned_data[name] for name in WISHED}

    def __init__(self, *args: Any, user: Any, dataset: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.part("zone").choices = [(zone, zone) for zone in reads.billing_zones()]
        offer_names(self.part("account"), account_names(user))
        offer_names(self.part("workspace"), selectors.workspace_names(user))
        self.part("columns").choices = [
            (column.name, f"{column.name}: {column.help}" if column.help else column.name)
            for column in dataset_table(dataset).columns
        ]


@page("GET", "POST")
def exports(request: HttpRequest, user: User) -> HttpResponseBase:
    """The form and one's own exports; changing the data set brings its columns."""
    given = request.POST if request.method == "POST" else request.GET
    known = dict(DATASETS)
    dataset = given.get("dataset", "")
    dataset = dataset if dataset in known else next(iter(known))
    month = f"{timezone.localdate():%Y-%m}"
    start = {"dataset": dataset, "period": month, **{k: given[k] for k in given if k != "columns"}}
    form = ExportForm(request.POST or None, user=user, dataset=dataset, initial=start)
    context: dict[str, Any] = {
        "form": form,
        "exports": reads.visible_exports(user)[:SHOWN],
        "plans": reads.visible_export_plans(user),
    }
    if request.method == "POST" and form.is_valid():
        if "preview" in request.POST:
            context["preview"] = form.carry_out(lambda: preview(user, **form.wish()))
        elif (answer := _carry_out(request, user, form)) is not None:
            return answer
    partial = "columns" if request.method == "GET" else None
    return render(request, "exports/exports.html", context, partial=partial, status=form.status)


def _carry_out(request: HttpRequest, user: User, form: ExportForm) -> HttpResponseBase | None:
    """Ask for the file, or have it made regularly; None when the form has a fault."""
    every = form.cleaned_data["every"]
    if not every:
        made = form.carry_out(lambda: request_export(user, **form.wish()))
        return redirect("export", made.pk) if made is not None else None
    wish = {name: value for name, value in form.wish().items() if name != "period"}
    name = form.cleaned_data["name"]
    plan = form.carry_out(lambda: plans.save_export_plan(user, name=name, every=every, **wish))
    if plan is None:
        return None
    messages.success(request, f"{plan} is made {plan.get_every_display()}.")
    return redirect("exports")


@page("POST")
def export_plan_remove(request: HttpRequest, user: User, plan_id: int) -> HttpResponseBase:
    """Ends what is made regularly; the files stay until they expire."""
    plan = reads.visible_export_plans(user).get(pk=plan_id)
    plans.remove_export_plan(user, plan=plan)
    messages.success(request, f"{plan} is no longer made.")
    return redirect("exports")


@page()
def export(request: HttpRequest, user: User, export_id: int) -> HttpResponseBase:
    """One export: how far it is, what it holds, the way to the file."""
    found = reads.export_for(user, export_id)
    context = {
        "export": found,
        "operation": found.operation,
        "is_running": found.operation.state == Operation.State.RUNNING,
        "complete_until": parse_datetime(found.about.get("complete_until") or ""),
        "can_fetch": found.is_ready and reads.still_sees(user, found),
        "format_title": FORMATS[found.format].title,
        "deliveries": found.deliveries.all() if found.plan_id else (),
    }
    return polled(request, "exports/export.html", context, partial="progress")


@page()
def export_file(request: HttpRequest, user: User, export_id: int) -> HttpResponseBase:
    """The file, whole or from where a download stopped."""
    return send_file(request, reads.export_file_for(user, export_id))


@page()
def export_about(request: HttpRequest, user: User, export_id: int) -> HttpResponseBase:
    """The label beside the file, for formats that have no room for one."""
    found: Export = reads.export_file_for(user, export_id)
    answer = JsonResponse({"file": found.file_name, "sha256": found.sha256, **found.about})
    answer["Content-Disposition"] = f'attachment; filename="{found.file_name}.about.json"'
    return answer
