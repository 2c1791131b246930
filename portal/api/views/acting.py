"""Actions on jobs, and windows of maintenance."""

from __future__ import annotations

from typing import Any

from budgets.models import User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import MaintenanceWindow
from portal.api.serializers import acting as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import ASKED, MADE, View, admin, answers, deed, shows


class JobActionsView(View):
    """Cancel, put back or delete jobs; all of them, or none."""

    @answers(shapes.JobActionsSerializer, takes=shapes.JobActionsInput, code=ASKED)
    def post(self, user: User, jobs: list[dict[str, str]], **given: Any) -> Any:
        keys = [(job["cluster"], job["uid"]) for job in jobs]
        return {"actions": enforcement.act_on_workloads(user, jobs=keys, **given)}


class JobActionView(View):
    """What was asked of one job, newest first; or ask."""

    def found(self, user: User, slug: str, uid: str) -> dict[str, Any]:
        seen.workload_detail(user, slug, uid)
        return {"slug": slug, "uid": uid}

    @answers(shapes.JobActionsSerializer)
    def get(self, user: User, slug: str, uid: str) -> Any:
        return {"actions": seen.actions_on(user, slug, uid)}

    @answers(shapes.JobActionSerializer, takes=shapes.JobActionInput, code=ASKED)
    def post(self, user: User, slug: str, uid: str, **given: Any) -> Any:
        (made,) = enforcement.act_on_workloads(user, jobs=[(slug, uid)], **given)
        return made


class WithdrawJobActionView(View):
    """Takes back what was not carried out yet."""

    post = deed(enforcement.withdraw_action, shapes.JobActionSerializer)

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"action": seen.action_for(user, pk)}


class MaintenanceView(View):
    """Windows of maintenance; owners see those that touch a floor of theirs."""

    post = deed(
        enforcement.plan_maintenance,
        shapes.MaintenanceSerializer,
        takes=shapes.MaintenanceInput,
        code=MADE,
        by=admin,
    )

    @answers(shapes.MaintenanceListSerializer)
    def get(self, user: User) -> Any:
        return {"results": seen.visible_windows(user)}

    def shown(self, user: User, made: MaintenanceWindow) -> MaintenanceWindow:
        return seen.window_for(user, made.pk)


class PreviewMaintenanceView(View):
    """What a window would mean to whom; nothing is saved."""

    only_reads = True
    post = deed(
        enforcement.preview_maintenance,
        shapes.MaintenancePreviewSerializer,
        takes=shapes.MaintenancePlaceInput,
        by=admin,
    )


class MaintenanceWindowPart(View):
    """One window that the caller sees."""

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"window": seen.window_for(user, pk)}


class MaintenanceWindowView(MaintenanceWindowPart):
    """One window."""

    get = shows(shapes.MaintenanceSerializer)


class EndMaintenanceView(MaintenanceWindowPart):
    """Ends a window before its time, or calls off one that has not begun."""

    post = deed(enforcement.end_maintenance, shapes.MaintenanceSerializer, takes=ReasonInput)

    def shown(self, user: User, made: MaintenanceWindow, pk: int) -> MaintenanceWindow:
        return seen.window_for(user, pk)
