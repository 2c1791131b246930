"""Why a job waits, and what-if: asked with a POST, read until every cluster has answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from rest_framework.request import Request

from budgets.models import User
from clusters import selectors as seen
from clusters import services as enforcement
from portal.api.serializers import explained as shapes
from portal.api.views.base import ASKED, View, actor, admin, answers


class WhyView(View):
    """Why a job waits, with the evidence, and when it is likely to start."""

    @answers(shapes.WhySerializer)
    def get(self, user: User, slug: str, uid: str) -> Any:
        found = seen.why_pending(user, slug, uid)
        why = found or seen.WhyPending(sentence="", cluster=slug)
        return {"is_waiting": found is not None, **asdict(why)}


class ShadowView(View):
    """Where the engine of a cluster decided otherwise than Kueue did, with both sides."""

    @answers(shapes.ShadowReportSerializer)
    def get(self, user: User, slug: str) -> Any:
        return seen.shadow_report(user, slug)


def _asker(request: Request) -> User:
    """Whoever may change a budget asks for raises; for the rest it takes an admin."""
    given = request.data
    is_fleet = isinstance(given, Mapping) and given.get("change") in ("add", "drain")
    return admin(request) if is_fleet else actor(request)


class WhatIfView(View):
    """Ask what a change would lead to; nothing is saved or promised."""

    questions: Mapping[str, Callable[..., enforcement.Asked]] = {
        "raise": enforcement.ask_raise,
        "add": enforcement.ask_add,
        "drain": enforcement.ask_drain,
    }

    @answers(shapes.WhatIfSerializer, takes=shapes.WhatIfInput, code=ASKED, by=_asker)
    def post(self, user: User, change: str, **given: Any) -> Any:
        asked = self.questions[change](user, **given)
        return {"notes": asked.notes, "questions": enforcement.replies_to(user, asked.questions)}


class QuestionView(View):
    """One cluster's part of a what-if; kept for a day."""

    @answers(shapes.QuestionSerializer)
    def get(self, user: User, pk: UUID) -> Any:
        [row] = enforcement.replies_to(user, seen.questions_for(user, [pk]))
        return row
