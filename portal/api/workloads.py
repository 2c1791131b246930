"""Jobs as they were last seen, what was asked of them, and what a budget comes to now."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from budgets import selectors
from budgets.errors import Fault, Rejected
from budgets.models import User
from clusters import selectors as seen
from clusters.models import WorkloadState
from clusters.selectors.bars import BudgetBar
from clusters.selectors.pod_places import PodPlaces, PodsInDomain
from clusters.selectors.sync import SyncPlace
from clusters.selectors.workload_detail import TimelineEntry, WorkloadDetail, WorkloadHours
from clusters.selectors.workloads import WorkloadRow
from portal.api.paging import Order, Slice
from portal.api.shapes import RecordSerializer, beside
from portal.api.views import View, answers

BY_PLACE = Order("", re.compile(r"[!-~]{1,400}"))
WORKSPACES = OpenApiParameter(
    "workspace", str, many=True, description="Namespace; may be repeated."
)
SORTS = ("-created", "created", "-gpus", "gpus")
PHASES = tuple(WorkloadState.Phase.values)


class WorkloadSerializer(RecordSerializer[WorkloadRow]):
    """One job as it was last seen."""

    without = ("phase_label", "flavors", "is_remote_copy", "worker_name")
    phase = serializers.ChoiceField(WorkloadState.Phase.choices)
    why = serializers.CharField(
        allow_blank=True,
        help_text="Why it waits, stops or failed, in one sentence; empty while nothing is known.",
    )
    gpus = serializers.DictField(
        child=serializers.IntegerField(),
        help_text='Flavor to GPUs; before admission the request stands under "".',
    )


class MomentSerializer(RecordSerializer[TimelineEntry]):
    """One step of a job's life."""


class WorkloadHoursSerializer(RecordSerializer[WorkloadHours]):
    """GPU-seconds of a job on one cluster and flavor, by class."""


class PodsInDomainSerializer(RecordSerializer[PodsInDomain]):
    """Pods in one block, rack or node; ``values`` belong to the ``levels`` beside them."""


class PodPlacesSerializer(RecordSerializer[PodPlaces]):
    """Where the pods of one pod set are; ``more`` of them are in domains that are not listed."""


class WorkloadDetailSerializer(RecordSerializer[WorkloadDetail]):
    """A job with its time line and its copies on workers."""

    usage = WorkloadHoursSerializer(many=True)


class BarSerializer(RecordSerializer[BudgetBar]):
    """One flavor of a budget now, whole GPUs; never what is billed."""


class PlaceSerializer(RecordSerializer[SyncPlace]):
    """How far one cluster is behind a budget."""

    without = ("name",)
    generation = serializers.IntegerField(allow_null=True)
    observed_generation = serializers.IntegerField(allow_null=True)


class NowSerializer(serializers.Serializer[Any]):
    """A budget at this moment: what is held, and which clusters follow."""

    bars = BarSerializer(many=True)
    sync = PlaceSerializer(many=True)


class WorkloadsView(View):
    """Jobs of the visible workspaces, the newest first."""

    @answers(
        order=BY_PLACE,
        shape=WorkloadSerializer,
        query=(
            WORKSPACES,
            OpenApiParameter("phase", str, many=True, enum=PHASES),
            OpenApiParameter("cluster", str, description="Submitted to it, or running on it."),
            OpenApiParameter("flavor", str, description="Holds GPUs of it."),
            OpenApiParameter("sort", str, enum=SORTS),
            OpenApiParameter("text", str, description="A part of a job's or workload's name."),
        ),
    )
    def get(self, user: User) -> Callable[[int, str | None], Slice]:
        given = self.request.query_params
        phases = tuple(given.getlist("phase"))
        faults = [
            Fault("phase", "invalid", f"{phase[:80]!r} is not one of {', '.join(PHASES)}.")
            for phase in phases
            if phase not in PHASES
        ]
        if faults:
            raise Rejected(faults)
        wanted = seen.WorkloadFilter(
            namespaces=tuple(given.getlist("workspace")),
            phases=phases,
            cluster=given.get("cluster", ""),
            flavor=given.get("flavor", ""),
            text=given.get("text", ""),
            sort=given.get("sort") or SORTS[0],
        )

        def read(limit: int, cursor: str | None) -> Slice:
            try:
                found = seen.workloads(user, wanted, cursor=cursor, limit=limit)
            except OverflowError:
                # A well-formed cursor with a time or number that no row can have.
                message = "This is not a cursor of this list; follow the address in 'next'."
                raise Rejected([Fault("cursor", "invalid", message)]) from None
            return found.rows, found.next_cursor or None

        return read


class WorkloadView(View):
    """One job: its state in a sentence, its time line, its copies on workers."""

    @answers(WorkloadDetailSerializer)
    def get(self, user: User, slug: str, uid: str) -> Any:
        detail = seen.workload_detail(user, slug, uid)
        return beside(detail, usage=seen.workload_hours(user, detail))


class NowView(View):
    """What a budget comes to at this moment, and which clusters follow it."""

    @answers(NowSerializer)
    def get(self, user: User, namespace: str) -> Any:
        workspace = selectors.workspace_for(user, namespace)
        return {
            "bars": seen.bars_now([workspace]).get(workspace.pk, []),
            "sync": seen.sync_state(user, workspace),
        }
