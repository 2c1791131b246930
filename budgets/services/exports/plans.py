"""Exports that are asked for, once, or to be made again and again: after a close, or each day.

Asking tells everything that is wrong with the wish, or makes a row that the workers find.

A run is a row of :class:`Export` with a key of its own, so it is made once however often this
looks, and a worker writes it like any other.

Source: issue 6, section 3; spec features, section 5 (scheduled exports).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from budgets.announcements import Work, announce
from budgets.errors import Fault, reject_any
from budgets.models import BillingPeriod, Export, ExportPlan, Operation, User
from budgets.records import record_of
from budgets.selectors.billing import month_at
from budgets.selectors.clock import utc_now
from budgets.selectors.exports.wishes import ExportWish, faults_of_wish
from budgets.services.audit import audit, state_of
from budgets.services.guards import save_checked
from budgets.services.operations import start_operation

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
        message = (
            f"{MOST_PLANS} exports are already made for you regularly. Remove one of them first."
        )
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
        faults = [Fault("", "inactive", f"{user} is no longer active.")]
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


KIND = "export"
MOST_WAITING = 5
TOLD = ("dataset", "format", "zone", "account", "workspace")


def request_export(actor: User, **wanted: Any) -> Export:
    """Ask for a file of one month; a worker writes it.

    Args:
        actor: Sees in the file what they see on the pages.
        **wanted: The fields of :class:`ExportWish`.
    """
    wish = ExportWish(**wanted)
    waiting = Export.objects.filter(
        requested_by=actor, operation__state=Operation.State.RUNNING
    ).count()
    faults = [*faults_of_wish(actor, wish)]
    if waiting >= MOST_WAITING:
        message = f"{waiting} of your exports are still being written. Wait until one is ready."
        faults.append(Fault("", "too_many", message))
    reject_any(faults)
    return store_export(actor, wish)


@transaction.atomic
def store_export(
    actor: User, wish: ExportWish, *, plan: ExportPlan | None = None, run_key: str = ""
) -> Export:
    """Write the row of a wish without faults; the workers look for it.

    Args:
        actor: Whose eyes decide about the rows.
        wish: What it shall hold.
        plan: That asks for it again and again; its maker is told of the file.
        run_key: Which run of the plan it is; each is made once.
    """
    export = wish.as_export(actor)
    export.operation = start_operation(actor, kind=KIND, subject=f"{wish.dataset} {wish.period}")
    export.plan, export.run_key = plan, run_key
    export.save()
    announce(Work.EXPORTS)
    audit(
        actor,
        "export.request",
        export,
        after=state_of(wish, *TOLD, "period") | ({"plan": plan.pk} if plan else {}),
    )
    return export
