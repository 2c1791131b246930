"""Jobs as they were last seen, and what a budget comes to at this moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets.errors import Fault, Rejected
from budgets.models import User
from clusters import selectors as seen
from clusters.models import WorkloadState
from portal.api.paging import keyset_page
from portal.api.schema import PAGED, paged
from portal.api.serializers import clusters as shapes
from portal.api.views.base import View, actor, answers

CURSOR = re.compile(r"[!-~]{1,400}")
SORTS = ("-created", "created", "-gpus", "gpus")
PHASES = tuple(WorkloadState.Phase.values)


class WorkloadsView(View):
    """Jobs of the visible workspaces, the newest first."""

    query = (
        *PAGED,
        OpenApiParameter("workspace", str, many=True, description="Namespace; may be repeated."),
        OpenApiParameter("phase", str, many=True, enum=PHASES),
        OpenApiParameter("cluster", str, description="Submitted to it, or running on it."),
        OpenApiParameter("flavor", str, description="Holds GPUs of it."),
        OpenApiParameter("sort", str, enum=SORTS),
        OpenApiParameter("text", str, description="A part of a job's or workload's name."),
    )

    @extend_schema(responses=paged(shapes.WorkloadSerializer))
    def get(self, request: Request) -> Response:
        given = request.query_params
        phases = tuple(given.getlist("phase"))
        faults = [
            Fault("phase", "invalid", f"{phase[:80]!r} is none of {', '.join(PHASES)}.")
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

        def read(limit: int, cursor: str | None) -> tuple[Sequence[Any], str | None]:
            try:
                found = seen.workloads(actor(request), wanted, cursor=cursor, limit=limit)
            except OverflowError:
                # A well-formed cursor with a time or number that no row can have.
                message = "This is no cursor of this list; follow the address in 'next'."
                raise Rejected([Fault("cursor", "invalid", message)]) from None
            rows = shapes.WorkloadSerializer(found.rows, many=True).data
            return list(rows), found.next_cursor or None

        return keyset_page(request, read, CURSOR)


class WorkloadView(View):
    """One job: its state in a sentence, its time line, its copies on workers."""

    @answers(shapes.WorkloadDetailSerializer)
    def get(self, user: User, slug: str, uid: str) -> Any:
        detail = seen.workload_detail(user, slug, uid)
        return {
            "row": detail.row,
            "sentence": detail.sentence,
            "timeline": detail.timeline,
            "copies": detail.copies,
            "usage": seen.workload_hours(user, detail),
        }


class NowView(View):
    """What a budget comes to at this moment, and which clusters follow it."""

    @answers(shapes.NowSerializer)
    def get(self, user: User, namespace: str) -> Any:
        workspace = selectors.workspace_for(user, namespace)
        return {
            "bars": seen.bars_now([workspace]).get(workspace.pk, []),
            "sync": seen.sync_state(workspace),
        }
