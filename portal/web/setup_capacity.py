"""Capacity: what an admin states, beside what is measured."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase

from budgets import selectors
from budgets import services as promises
from budgets.models import Capacity, MeasuredCapacity
from clusters import selectors as seen
from portal.web import setup_forms
from portal.web.pages import page
from portal.web.setup_pages import Row, Section, crumbs, sections_page, setup_admin
from portal.web.tags import gpus, when


@page("GET", "POST")
def capacity(request: HttpRequest) -> HttpResponseBase:
    """GPUs by cluster and flavor: what an admin states wins over what is measured."""
    user = setup_admin(request)
    clusters = [row.slug for row in seen.cluster_rows(user) if row.role == "worker"]
    stated = Capacity.objects.select_related("flavor").order_by("cluster", "flavor", "-valid_from")
    measured = MeasuredCapacity.objects.select_related("flavor").order_by("cluster", "flavor")
    sections = [
        Section(
            key="stated",
            title="Stated",
            text="Wins over what is measured, while its window lasts.",
            columns=("Cluster", "Flavor", "GPUs", "From", "Until", "Reason"),
            numbers=("GPUs",),
            rows=[
                Row(
                    (
                        r.cluster,
                        r.flavor.name,
                        gpus(r.gpus),
                        when(r.valid_from),
                        when(r.valid_until) if r.valid_until else "for good",
                        r.reason,
                    )
                )
                for r in stated
            ],
            empty="Nothing is stated: what is measured counts.",
            form=setup_forms.CapacityForm,
            arguments={"clusters": clusters, "flavors": selectors.visible_flavors(user)},
            do=lambda typed: promises.set_capacity(user, **typed),
            button="State capacity",
        ),
        Section(
            key="measured",
            title="Measured",
            text="Ready nodes that carry the flavor's labels.",
            columns=("Cluster", "Flavor", "Ready", "Broken", "In use", "Measured"),
            numbers=("Ready", "Broken", "In use"),
            rows=[
                Row(
                    (
                        r.cluster,
                        r.flavor.name,
                        gpus(r.ready_gpus),
                        gpus(r.broken_gpus),
                        gpus(r.used_gpus),
                        when(r.measured_at),
                    )
                )
                for r in measured
            ],
            empty="Nothing measured yet. Register a worker cluster; it is measured within seconds.",
        ),
    ]
    headline = "GPUs that promises are checked against, at every instant of a budget's window."
    return sections_page(
        request, title="Capacity", headline=headline, sections=sections, crumbs=crumbs()
    )
