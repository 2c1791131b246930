"""Why a job waits, and what-if: asked with a POST, read until every cluster has answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Final
from uuid import UUID

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.request import Request

from budgets import selectors
from budgets.models import User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.explaining import findings
from clusters.explaining.answers import CapacityChange, JobOutcome, WhatIfAnswer
from clusters.explaining.stops import Stop, StopSource
from clusters.forecasting import StartForecast
from clusters.selectors.differences import DifferenceRow, ShadowReport, Side
from clusters.selectors.explained import PlaceWhy, WhyPending
from clusters.services import ShownReply
from portal.api.access import OperationSerializer
from portal.api.clusters import cluster_field
from portal.api.shapes import (
    NamedField,
    RecordSerializer,
    Strict,
    account_field,
    flavor_field,
    workspace_field,
)
from portal.api.views import ASKED, Noun, View, actor, admin, answers, deed, finds
from portal.bounds import WEIGHT

MOST_NAMES: Final = 5000
"""In a list of names; the service says how many make sense."""


class FlavorFindingSerializer(RecordSerializer[findings.FlavorFinding]):
    """One flavor that was tried."""


class HolderSerializer(RecordSerializer[findings.HolderFinding]):
    """Jobs that use the GPUs that it needs; others' jobs are added up under one name."""

    without = ("namespace", "workload")


class CheckSerializer(RecordSerializer[findings.CheckState]):
    """One admission check."""


class StopSerializer(RecordSerializer[Stop]):
    """Something that holds the whole queue."""

    without = ("source", "policy", "flavor")
    kind = serializers.ChoiceField([item.value for item in StopSource], source="source")
    what = serializers.CharField(
        allow_blank=True, help_text="The person, the cap or the place under maintenance."
    )
    note = serializers.CharField(allow_blank=True, help_text="The reason that a person gave.")
    keeper = serializers.CharField(
        allow_blank=True, help_text="Who may end it earlier; empty for nobody."
    )


class ExplainedSerializer(RecordSerializer[findings.Explained]):
    """The evidence of one cluster."""

    position = serializers.IntegerField(help_text="1 is next; 0 when it is in no queue.")
    stops = StopSerializer(
        many=True, help_text="The strongest first; the job waits until all of them have ended."
    )


class PlaceWhySerializer(RecordSerializer[PlaceWhy]):
    """Why a worker has not taken a job that has quota."""


class StartForecastSerializer(RecordSerializer[StartForecast]):
    """When a job is likely to start: a range, or why there is none."""

    coverage = serializers.FloatField(
        help_text="Share of such forecasts that come true; 0 when it is unknown."
    )
    runs = serializers.IntegerField(
        help_text="Recorded runs that it is based on; 0 where others' jobs are among them."
    )


class WhySerializer(RecordSerializer[WhyPending]):
    """Why a job waits."""

    is_waiting = serializers.BooleanField()
    is_stale = serializers.BooleanField(help_text="The cluster's worker is not running.")


def names_field(words: str) -> serializers.ListField:
    """Names of nodes, or values of their labels; how many make sense the service says."""
    return serializers.ListField(
        child=serializers.CharField(max_length=253),
        required=False,
        max_length=MOST_NAMES,
        help_text=words,
    )


class WhatIfInput(Strict):
    """A question; which fields it needs depends on ``change``."""

    NEEDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "raise": ("workspace", "flavor", "by"),
        "add": ("cluster", "flavor", "by"),
        "drain": ("cluster",),
        "weigh": ("workspace", "weight"),
        "rack": ("cluster", "flavor", "nodes"),
        "taint": ("cluster",),
    }
    TAKES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "add": ("account", "pool"),
        "rack": ("gpus", "within", "account", "pool"),
        "taint": ("flavor", "within", "names", "taint", "drains"),
    }

    change = serializers.ChoiceField(list(NEEDS))
    workspace = workspace_field(
        max_length=None, required=False, help_text="Namespace; for raise and weigh."
    )
    cluster = cluster_field(
        max_length=None, required=False, help_text="A worker; for add, drain, rack and taint."
    )
    flavor = flavor_field(max_length=None, required=False)
    by = serializers.IntegerField(
        required=False, help_text="Whole GPUs, not 0; raise also takes negative numbers."
    )
    weight = serializers.DecimalField(
        **WEIGHT, required=False, help_text="Of fair sharing among the account's workspaces."
    )
    nodes = serializers.IntegerField(required=False, help_text="Of the rack, 1 to 1,000.")
    gpus = serializers.IntegerField(
        required=False, help_text="Of each node of the rack; left out, as the flavor says."
    )
    within = names_field(
        "A domain of the flavor's nodes: values of its topology's levels, from the largest on, "
        "such as block and rack. A rack joins it; levels that are left out are new."
    )
    names = names_field("Nodes to taint, instead of a flavor and a domain; at most 1,000.")
    taint = serializers.CharField(
        required=False, max_length=400, allow_blank=True,
        help_text="key or key=value, which some pods tolerate; empty cordons the nodes.",
    )  # fmt: skip
    drains = serializers.BooleanField(
        required=False, help_text="What runs on the nodes stops, too, and queues again."
    )
    account = account_field(max_length=None, required=False, help_text="Who gets added nodes, or")
    pool = NamedField(
        selectors.visible_pools, "slug", required=False,
        help_text="the platform pool that gets them.",
    )  # fmt: skip

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        needed = self.NEEDS[attrs["change"]]
        known = (*needed, *self.TAKES.get(attrs["change"], ()), "change")
        faults = {
            name: [ErrorDetail(f"{attrs['change']} needs it.", "required")]
            for name in needed
            if name not in attrs
        }
        faults |= {
            name: [ErrorDetail(f"{attrs['change']} has no such field.", "unknown_field")]
            for name in attrs
            if name not in known
        }
        if faults:
            raise serializers.ValidationError(faults)
        return attrs


class LookInput(Strict):
    """Which job of the workspace to look at."""

    job = serializers.CharField(
        max_length=253, help_text="metadata.name of the job, or the name of a pod group."
    )


class JobOutcomeSerializer(RecordSerializer[JobOutcome]):
    """What becomes of a job; others' jobs are added up under one name."""

    without = ("namespace", "workload")


class CapacityChangeSerializer(RecordSerializer[CapacityChange]):
    """Whose largest possible number of GPUs changes."""


class WhatIfAnswerSerializer(RecordSerializer[WhatIfAnswer]):
    """What one cluster's engine says; for platform roles of everybody, else of own accounts."""


class QuestionSerializer(RecordSerializer[ShownReply]):
    """One cluster's part of a question; all parts as one for who does not see clusters."""

    state = serializers.ChoiceField(["waiting", "answered", "refused", "silent"])


class WhatIfSerializer(serializers.Serializer[Any]):
    """A question on its way: one part for each cluster; read each until it does not wait."""

    notes = serializers.ListField(
        child=serializers.CharField(), help_text="Why it could not be saved as it is."
    )
    questions = QuestionSerializer(many=True)


class SideSerializer(RecordSerializer[Side]):
    """What one of the two said."""


class DifferenceSerializer(RecordSerializer[DifferenceRow]):
    """One workload about which Kueue and the engine do not agree."""


class ShadowReportSerializer(RecordSerializer[ShadowReport]):
    """Decisions of Kueue on one cluster, compared with the engine's; the newest differences."""


class WhyView(View):
    """Why a job waits, with the evidence, and when it is likely to start."""

    @answers(WhySerializer)
    def get(self, user: User, slug: str, uid: str) -> Any:
        found = seen.why_pending(user, slug, uid)
        why = found or seen.WhyPending(sentence="", cluster=slug)
        return {"is_waiting": found is not None, **asdict(why)}


class LooksView(View):
    """Look at the objects of one job: no Workload, pods that do not start, a worker that refuses.

    The operation's message says what is wrong, or that nothing is.
    """

    found = finds("workspace", selectors.workspace_for)
    post = deed(enforcement.start_look, OperationSerializer, takes=LookInput, code=ASKED)


class ShadowView(View):
    """Decisions in which the engine of a cluster differed from Kueue, with both sides."""

    get = deed(seen.shadow_report, ShadowReportSerializer)


def _asker(request: Request) -> User:
    """Whoever may change a budget asks for raises; for the rest it takes an admin."""
    given = request.data
    change = given.get("change") if isinstance(given, Mapping) else None
    is_fleet = change in WhatIfInput.NEEDS and change != "raise"
    return admin(request) if is_fleet else actor(request)


class WhatIf(Noun):
    """Ask what a change would lead to; nothing is saved or promised."""

    each = "One cluster's part of a what-if; kept for a day."
    lookup_value_converter = "uuid"
    questions: Mapping[str, Callable[..., enforcement.Asked]] = {
        "raise": enforcement.ask_raise,
        "add": enforcement.ask_add,
        "drain": enforcement.ask_drain,
        "weigh": enforcement.ask_weigh,
        "rack": enforcement.ask_rack,
        "taint": enforcement.ask_taint,
    }

    @answers(WhatIfSerializer, takes=WhatIfInput, code=ASKED, by=_asker)
    def create(self, user: User, change: str, **given: Any) -> Any:
        asked = self.questions[change](user, **given)
        return {"notes": asked.notes, "questions": enforcement.replies_to(user, asked.questions)}

    @answers(QuestionSerializer)
    def retrieve(self, user: User, pk: UUID) -> Any:
        [row] = enforcement.replies_to(user, seen.questions_for(user, [pk]))
        return row
