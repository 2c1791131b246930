"""Why a job waits, and what-if: asked with a POST, read until every cluster has answered."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from clusters import selectors as seen
from clusters import services as enforcement
from portal.api.serializers import explained as shapes
from portal.api.views.base import (
    View,
    account_named,
    actor,
    admin,
    checked,
    flavor_named,
    named,
    workspace_named,
)


class WhyView(View):
    """Why a job waits, with the evidence, and when it is likely to start."""

    @extend_schema(responses=shapes.WhySerializer)
    def get(self, request: Request, slug: str, uid: str) -> Response:
        found = seen.why_pending(actor(request), slug, uid)
        why = found or seen.WhyPending(sentence="", cluster=slug)
        answer = {"is_waiting": found is not None, **asdict(why)}
        return Response(shapes.WhySerializer(answer).data)


class ShadowView(View):
    """Where the engine of a cluster decided otherwise than Kueue did, with both sides."""

    @extend_schema(responses=shapes.ShadowReportSerializer)
    def get(self, request: Request, slug: str) -> Response:
        report = seen.shadow_report(actor(request), slug)
        return Response(shapes.ShadowReportSerializer(report).data)


class WhatIfView(View):
    """Ask what a change would lead to; nothing is saved or promised."""

    @extend_schema(request=shapes.WhatIfInput, responses={202: shapes.WhatIfSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.WhatIfInput, request)
        asked = self._ask(request, given)
        answer = {
            "notes": asked.notes,
            "questions": enforcement.replies_to(actor(request), asked.questions),
        }
        return Response(shapes.WhatIfSerializer(answer).data, status=status.HTTP_202_ACCEPTED)

    def _ask(self, request: Request, given: dict[str, Any]) -> Any:
        if given["change"] == "raise":
            user = actor(request)
            return enforcement.ask_raise(
                user,
                workspace=workspace_named(user, given["workspace"]),
                flavor=flavor_named(user, given["flavor"]),
                by=given["by"],
            )
        user = admin(request)
        cluster = named(seen.visible_clusters(user), "cluster", "slug", given["cluster"])
        if given["change"] == "drain":
            return enforcement.ask_drain(user, cluster=cluster)
        account, pool = given.get("account"), given.get("pool")
        return enforcement.ask_add(
            user,
            cluster=cluster,
            flavor=flavor_named(user, given["flavor"]),
            by=given["by"],
            account=account_named(user, account) if account else None,
            pool=named(selectors.visible_pools(user), "pool", "slug", pool) if pool else None,
        )


class QuestionView(View):
    """One cluster's part of a what-if; kept for a day."""

    @extend_schema(responses=shapes.QuestionSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        user = actor(request)
        [row] = enforcement.replies_to(user, seen.questions_for(user, [pk]))
        return Response(shapes.QuestionSerializer(row).data)
