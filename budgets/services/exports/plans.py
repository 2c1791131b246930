"""Exports that are made again and again: after a close, or each day.

A run is a row of :class:`Export` with a key of its own, so it is made once however often this
looks, and a worker writes it like any other.

Source: issue 6, section 3; spec features, section 5 (scheduled exports).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from budgets.errors import Fault
from budgets.models import BillingPeriod, Export, ExportPlan, User
from budgets.records import record_of
from budgets.selectors.billing import month_at
from budgets.selectors.clock import utc_now
from budgets.selectors.exports.wishes import ExportWish, faults_of_wish
from budgets.services.audit import audit, state_of
from budgets.services.exports.requests import TOLD, store_export
from budgets.services.guards import save_checked

MOST_PLANS = 20
Every = ExportPlan.Every


@transaction.atomic
def save_export_plan(actor: User, *, name: str, every: str, **wanted: Any) -> ExportPlan:
    """Have an export made from now on.

    Args:
        actor: Whose eyes decide about the rows, each time anew, and who is told.
        name: For people.
        every: ``close`` or ``day``.
        **wanted: The fields of :class:`ExportWish`, but for the period.
    """
    wish = ExportWish(period=month_at(utc_now()).name, **wanted)
    faults = faults_of_wish(actor, wish)
    if ExportPlan.objects.filter(made_by=actor, removed_at=None).count() >= MOST_PLANS:
        message = f"{MOST_PLANS} exports are made for you already; remove one of them."
        faults.append(Fault("", "too_many", message))
    plan = ExportPlan(
        name=name.strip(),
        made_by=actor,
        every=every,
        columns=list(wish.columns),
        **{field: getattr(wish, field) for field in TOLD},
    )
    save_checked(plan, also=faults)
    audit(actor, "export_plan.save", plan, after=state_of(plan, "name", "every", *TOLD))
    return plan


@transaction.atomic
def remove_export_plan(actor: User, *, plan: ExportPlan) -> None:
    """Make no more files of a plan; those that are there stay until they expire."""
    gone = ExportPlan.objects.filter(pk=plan.pk, made_by=actor, removed_at=None)
    if gone.update(removed_at=utc_now()):
        audit(actor, "export_plan.remove", plan)


def run_plans(now: datetime | None = None) -> int:
    """Ask for every file that is due and was not asked for yet; returns how many are new."""
    instant = now or utc_now()
    made = 0
    for plan in ExportPlan.objects.filter(removed_at=None).select_related("made_by"):
        for key, period in _due(plan, instant):
            made += _run(plan, key, period)
    return made


def _due(plan: ExportPlan, now: datetime) -> Iterator[tuple[str, str]]:
    """(key of the run, month) of what should be there by now."""
    done = set(Export.objects.filter(plan=plan).values_list("run_key", flat=True))
    if plan.every == Every.DAY:
        # Yesterday's month: on the first of a month the last one is whole.
        key = f"day:{now:%Y-%m-%d}"
        if key not in done and now.date() > plan.created_at.date():
            yield key, month_at(now - timedelta(days=1), plan.zone).name
        return
    closed = BillingPeriod.objects.filter(zone=plan.zone, closed_at__gte=plan.created_at)
    for name in closed.order_by("start").values_list("name", flat=True):
        if f"close:{name}" not in done:
            yield f"close:{name}", name


def _run(plan: ExportPlan, key: str, period: str) -> int:
    """Ask for one file; what its maker may not see any more is the plan's problem."""
    user = plan.made_by
    wish = record_of(ExportWish, plan, period=period)
    faults = faults_of_wish(user, wish)
    if not user.is_active:
        faults = [Fault("", "inactive", f"{user} is not active any more.")]
    problem = " ".join(fault.message for fault in faults)[:300]
    if problem != plan.problem:
        ExportPlan.objects.filter(pk=plan.pk).update(problem=problem)
    if problem:
        return 0
    try:
        store_export(user, wish, plan=plan, run_key=key)
    except IntegrityError:  # another worker asked for the same run
        return 0
    return 1
