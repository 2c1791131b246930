"""Actions on jobs, and windows of maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import serializers

from budgets.models import User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import MaintenanceWindow, WorkloadAction
from clusters.selectors.maintenance import FloorAtStake, WindowPreview
from portal.api.clusters import cluster_field
from portal.api.shapes import InstantField, ReasonInput, RecordSerializer, Strict, flavor_field
from portal.api.views import ASKED, MADE, Noun, View, admin, answers, deed, finds, shows

_VERBS = [
    (verb.value, verb.label) for verb in WorkloadAction.Verb if verb != WorkloadAction.Verb.RESTART
]


class JobKeyInput(Strict):
    """One job: the cluster that it was submitted to, and the UID of its Workload there."""

    cluster = serializers.CharField(max_length=40)
    uid = serializers.CharField(max_length=64)


class JobActionInput(Strict):
    """What is to be done to one job, and why."""

    verb = serializers.ChoiceField(_VERBS)
    reason = serializers.CharField(max_length=300)


class JobActionsInput(JobActionInput):
    """The same for several jobs; for all of them or for none."""

    jobs = serializers.ListField(child=JobKeyInput(), min_length=1, max_length=200)


class JobActionSerializer(serializers.Serializer[Any]):
    """What was asked for, and what became of it; ``waiting`` is tried until it works."""

    id = serializers.IntegerField()
    cluster = serializers.CharField(source="cluster.slug")
    uid = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    verb = serializers.ChoiceField(WorkloadAction.Verb.choices)
    reason = serializers.CharField()
    asked_by = serializers.CharField(source="asked_by.username", default=None, allow_null=True)
    state = serializers.ChoiceField(WorkloadAction.State.choices)
    attempts = serializers.IntegerField()
    message = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class JobActionsSerializer(serializers.Serializer[Any]):
    """Every one that was asked for."""

    actions = JobActionSerializer(many=True)


class MaintenancePlaceInput(Strict):
    """Where and when; without a worker on all of them, without a flavor the whole worker."""

    cluster = cluster_field(allow_null=True, default=None)
    flavor = flavor_field(max_length=40, allow_null=True, default=None)
    starts_at = InstantField(allow_null=True, default=None)
    ends_at = InstantField()


class MaintenanceInput(MaintenancePlaceInput):
    """With what becomes of jobs that run there, and why."""

    drains = serializers.BooleanField(default=False)
    reason = serializers.CharField(max_length=300)


class MaintenanceFloorSerializer(serializers.Serializer[Any]):
    """Committed GPUs of a workspace in a window; ``unmet`` were asked for and not given."""

    workspace = serializers.CharField(source="workspace.namespace")
    flavor = serializers.CharField(source="flavor.slug")
    gpus = serializers.IntegerField()
    committed = serializers.IntegerField()
    unmet_gpu_seconds = serializers.IntegerField(source="unmet")


class MaintenanceSerializer(serializers.Serializer[Any]):
    """A window with the committed GPUs that the caller may see."""

    id = serializers.IntegerField()
    cluster = serializers.CharField(source="cluster.slug", default=None, allow_null=True)
    flavor = serializers.CharField(source="flavor.slug", default=None, allow_null=True)
    drains = serializers.BooleanField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    state = serializers.ChoiceField(MaintenanceWindow.State.choices)
    reason = serializers.CharField()
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    end_reason = serializers.CharField(allow_blank=True)
    floors = MaintenanceFloorSerializer(source="floors.all", many=True)


class MaintenanceListSerializer(serializers.Serializer[Any]):
    """Open windows, and those of the last 30 days, in order of time."""

    results = MaintenanceSerializer(many=True)


class FloorAtStakeSerializer(RecordSerializer[FloorAtStake]):
    """How many committed GPUs are there, and what runs there now."""

    workspace = serializers.CharField(source="workspace.namespace")
    flavor = serializers.CharField(source="flavor.slug")


class MaintenancePreviewSerializer(RecordSerializer[WindowPreview]):
    """What a window would mean; ``elsewhere`` is flavor → GPUs of others, promised to nobody."""

    gpu_seconds = serializers.IntegerField()
    overlapping = serializers.ListField(child=serializers.IntegerField(), source="overlapping_ids")


class JobActions(Noun):
    """Cancel, put back or delete jobs; all of them, or none."""

    found = finds("action", seen.action_for)
    withdraw = deed(
        enforcement.withdraw_action,
        JobActionSerializer,
        text="Takes back an action that has not been carried out yet.",
    )

    def shown(self, user: User, made: Any, *args: Any, **address: Any) -> Any:
        """One that was taken back, as it may be read; those that were asked for say nothing yet."""
        return seen.action_for(user, made.pk) if isinstance(made, WorkloadAction) else made

    @answers(JobActionsSerializer, takes=JobActionsInput, code=ASKED)
    def create(self, user: User, jobs: Sequence[Mapping[str, str]], **given: Any) -> Any:
        keys = [(job["cluster"], job["uid"]) for job in jobs]
        return {"actions": enforcement.act_on_workloads(user, jobs=keys, **given)}


class JobActionView(View):
    """What was asked of one job, newest first; or ask."""

    def found(self, user: User, slug: str, uid: str) -> dict[str, Any]:
        seen.workload_detail(user, slug, uid)
        return {"slug": slug, "uid": uid}

    @answers(JobActionsSerializer)
    def get(self, user: User, slug: str, uid: str) -> Any:
        return {"actions": seen.actions_on(user, slug, uid)}

    @answers(JobActionSerializer, takes=JobActionInput, code=ASKED)
    def post(self, user: User, slug: str, uid: str, **given: Any) -> Any:
        (made,) = enforcement.act_on_workloads(user, jobs=[(slug, uid)], **given)
        return made


class Maintenance(Noun):
    """Windows of maintenance; owners see those that affect their committed GPUs."""

    each = "One window."
    shape = MaintenanceSerializer
    found = finds("window", seen.window_for)
    create = deed(enforcement.plan_maintenance, takes=MaintenanceInput, code=MADE, by=admin)
    retrieve = shows()
    preview = deed(
        enforcement.preview_maintenance,
        MaintenancePreviewSerializer,
        takes=MaintenancePlaceInput,
        by=admin,
        is_of_all=True,
        only_reads=True,
        text="Whom a window would affect, and how; nothing is saved.",
    )
    end = deed(
        enforcement.end_maintenance,
        takes=ReasonInput,
        text="Ends a window before its time, or calls off one that has not begun.",
    )

    @answers(MaintenanceListSerializer)
    def list(self, user: User) -> Any:
        return {"results": seen.visible_windows(user)}

    def shown(self, user: User, made: Any, pk: int | None = None) -> Any:
        """A window, read again; a preview as it is."""
        return seen.window_for(user, made.pk) if isinstance(made, MaintenanceWindow) else made
