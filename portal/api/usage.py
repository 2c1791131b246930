"""GPU-seconds by hour or day, and the workloads behind them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from budgets import selectors
from budgets.amounts import AMOUNTS
from budgets.errors import Fault, Rejected
from budgets.metering import FloorAdvice
from budgets.models import User
from budgets.selectors.billing.job_costs import job_costs, job_groups
from budgets.selectors.usage.labels import kept_labels
from budgets.units import year_fault
from portal.api.paging import BY_NUMBER, Slice
from portal.api.shapes import RecordSerializer, beside
from portal.api.views import View, answers

STEPS = ("hour", "day")
BY_DAY = ("day",)
SPLITS = ("none", "account", "workspace", "flavor", "cluster")
# What one answer may cover: some two months by the hour, three years by the day.
MOST = {"hour": timedelta(days=62), "day": timedelta(days=1100)}
STEP = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
MOST_ROWS = 100_000
UNIT = "GPU-seconds"
COST: Any = {"max_digits": 20, "decimal_places": 4}
RANGE = (
    OpenApiParameter(
        "start", str, description="ISO 8601 with a time zone; 7 days ago when left out."
    ),
    OpenApiParameter("end", str, description="Exclusive; now when left out."),
    OpenApiParameter("workspace", str, many=True, description="Namespace; may be repeated."),
    OpenApiParameter("flavor", str, many=True, description="Slug; may be repeated."),
)
LABEL = OpenApiParameter("label", str, required=True, description="One that an admin named.")
STEPPED = (
    OpenApiParameter("step", str, enum=STEPS),
    OpenApiParameter("split_by", str, enum=SPLITS),
)


class UsageRowSerializer(serializers.Serializer[Any]):
    """GPU-seconds of one step and key; null where a class has no meaning."""

    start = serializers.DateTimeField(allow_null=True)
    key = serializers.CharField(allow_blank=True)
    name = serializers.CharField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        amounts = {
            amount.name: serializers.IntegerField(allow_null=not amount.is_held)
            for amount in AMOUNTS
        }
        return {**super().get_fields(), **amounts}


class FreshnessSerializer(RecordSerializer[selectors.Freshness]):
    """Up to when the facts are complete."""


class UsageSerializer(serializers.Serializer[Any]):
    """Rows that add up to the totals."""

    unit = serializers.CharField()
    rows = UsageRowSerializer(many=True)
    totals = UsageRowSerializer()
    freshness = FreshnessSerializer()


class WorkloadUsageSerializer(RecordSerializer[selectors.WorkloadUsageRow]):
    """GPU-seconds of one workload on one cluster and flavor within the range."""


class LendingRowSerializer(RecordSerializer[selectors.LendingRow]):
    """GPU-seconds of one workspace; of the rest of them where the namespace is empty."""


class PairSerializer(RecordSerializer[selectors.PairRow]):
    """GPU-seconds lent by one workspace to another; one that you may not see has no name."""


class CoverSerializer(RecordSerializer[selectors.CoverRow]):
    """What covered an account's burst: burst is the sum of the other four."""


class LendingSerializer(RecordSerializer[selectors.Lending]):
    """Borrowed and lent; ``pairs`` is null when there are too many to match."""

    unit = serializers.CharField()


class FloorAdviceSerializer(RecordSerializer[FloorAdvice]):
    """The number of committed GPUs that would have covered the use in 95 of 100 hours."""


class IdleSumsSerializer(serializers.Serializer[Any]):
    """GPU-seconds: committed = used + lent + idle."""

    committed = serializers.IntegerField()
    committed_used = serializers.IntegerField()
    lent = serializers.IntegerField()
    idle = serializers.IntegerField()


class IdleRowSerializer(RecordSerializer[selectors.IdleRow]):
    """Committed GPUs of one flavor; ``committed_now`` is null where the budget has none now."""


class IdleSerializer(RecordSerializer[selectors.IdleTable]):
    """Committed GPUs, the most idle first, the rest as one sum, and the total of both."""

    unit = serializers.CharField()
    others = IdleSumsSerializer()
    totals = IdleSumsSerializer()


class CapacityUseRowSerializer(RecordSerializer[selectors.CapacityRow]):
    """GPU-seconds: capacity = held + not_held; null where no capacity is stated."""

    held = serializers.IntegerField()
    not_held = serializers.IntegerField(allow_null=True)


class CapacityUseSerializer(RecordSerializer[selectors.CapacityUse]):
    """Where the capacity went, up to ``end``, the last hour that every cluster has told."""

    unit = serializers.CharField()
    start = serializers.DateTimeField(allow_null=True)
    end = serializers.DateTimeField(allow_null=True)
    total = CapacityUseRowSerializer(allow_null=True)


class GroupSerializer(serializers.Serializer[Any]):
    """Jobs of one value of the label in GPU-seconds and money; an empty value: without it."""

    value = serializers.CharField(allow_blank=True)
    jobs = serializers.IntegerField()
    committed_used = serializers.IntegerField(source="sums.committed_used")
    burst = serializers.IntegerField(source="sums.burst")
    cost = serializers.DecimalField(**COST, source="sums.cost")


class GroupsSerializer(serializers.Serializer[Any]):
    """Groups, the most expensive first; cost = the sum of their costs + unused_cost."""

    unit = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # what a field of a form is called
    currency = serializers.CharField(allow_blank=True)
    rows = GroupSerializer(many=True)
    unused = serializers.IntegerField()
    unused_cost = serializers.DecimalField(**COST)
    cost = serializers.DecimalField(**COST)


Preset = TypeVar("Preset", bound="datetime | None")


class FilterReader:
    """Reads a query string with times and collects all that is wrong with it."""

    def __init__(self, request: Request) -> None:
        self.given = request.query_params
        self.faults: list[Fault] = []

    def instant(self, name: str, preset: Preset) -> datetime | Preset:
        text = self.given.get(name)
        if not text:
            return preset
        fault = "invalid"
        message = f"{text[:80]!r} is not a time with a time zone, such as 2026-03-01T00:00:00Z."
        try:
            # A bare plus in a query string arrives as a space.
            value = parse_datetime(text.replace(" ", "+"))
            if value is not None and value.tzinfo is not None:
                moment = value.astimezone(UTC).replace(microsecond=0)
                if not (words := year_fault(moment)):
                    return moment
                fault, message = "year", words
        except (ValueError, OverflowError):
            pass  # the message says it
        self.faults.append(Fault(name, fault, message))
        return preset

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = self.given.get(name, allowed[0])
        if text in allowed:
            return text
        message = f"{text[:80]!r} is not one of {', '.join(allowed)}."
        self.faults.append(Fault(name, "invalid", message))
        return allowed[0]

    def label(self, kept: tuple[str, ...]) -> str:
        text = self.given.get("label", "")
        if text not in kept:
            named = f"choose one of {', '.join(kept)}" if kept else "an admin names labels first"
            self.faults.append(Fault("label", "invalid", f"{text[:80]!r} is not kept: {named}."))
        return text

    def read(self, steps: tuple[str, ...] = STEPS) -> selectors.UsageFilter:
        """The filter.

        Args:
            steps: What may be asked for, the preset first; what has no steps covers what days do.

        Raises:
            Rejected: everything in it that cannot be read, at once.
        """
        now = selectors.utc_now()
        end = self.instant("end", now)
        start = self.instant("start", now - timedelta(days=7))
        step = self.choice("step", steps)
        split_by = self.choice("split_by", SPLITS)
        if not self.faults and start >= end:
            message = "The end has to be later than the start."
            self.faults.append(Fault("end", "invalid", message))
        elif not self.faults and end - start > MOST[step]:
            by = f"by the {step}" if len(steps) > 1 else "at once"
            message = f"At most {MOST[step].days} days can be shown {by}. Ask for a shorter range."
            self.faults.append(Fault("start", "range_too_long", message))
        if self.faults:
            raise Rejected(self.faults)
        return selectors.UsageFilter(
            start=start,
            end=end,
            workspaces=tuple(self.given.getlist("workspace")),
            flavors=tuple(self.given.getlist("flavor")),
            step=step,
            split_by=split_by,
        )


class UsageView(View):
    """Committed used, burst, lent, idle and waiting GPU-seconds, in rows that add up."""

    @answers(UsageSerializer, query=(*RANGE, *STEPPED))
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read()
        _check_size(user, chosen)
        return beside(selectors.usage_table(user, chosen), unit=UNIT)


def _check_size(user: User, chosen: selectors.UsageFilter) -> None:
    """Refuse what one answer cannot hold: a row per step and workspace."""
    if chosen.split_by != "workspace":
        return
    workspaces = selectors.UsageScope(user, chosen).workspaces.count()
    rows = workspaces * (-(-(chosen.end - chosen.start) // STEP[chosen.step]))
    if rows > MOST_ROWS:
        message = (
            f"That is up to {rows:,} rows, more than {MOST_ROWS:,}. Ask by the day, for a shorter "
            "range or for fewer workspaces."
        )
        raise Rejected([Fault("start", "too_many_rows", message)])


class WorkloadUsageView(View):
    """The workloads behind a usage table, the largest first."""

    @answers(order=BY_NUMBER, shape=WorkloadUsageSerializer, query=RANGE, more={"unit": UNIT})
    def get(self, user: User) -> Callable[[int, str | None], Slice]:
        chosen = FilterReader(self.request).read(BY_DAY)

        def read(limit: int, cursor: str | None) -> Slice:
            after = int(cursor or 0)
            rows = selectors.workload_usage(user, chosen, limit=limit + 1, after=after)
            return rows[:limit], str(after + limit) if len(rows) > limit else None

        return read


class GroupView(View):
    """Use and costs of jobs by the value of a label; with what no job used they add up."""

    @answers(GroupsSerializer, query=(LABEL, *RANGE))
    def get(self, user: User) -> Any:
        labels, reader = kept_labels(), FilterReader(self.request)
        label = reader.label(tuple(labels))
        costs = job_costs(user, reader.read(BY_DAY))
        return {
            "unit": UNIT,
            "label": label,
            "currency": costs.currency,
            "rows": job_groups(costs, label),
            "unused": costs.unused_seconds,
            "unused_cost": costs.unused,
            "cost": costs.charged,
        }


class LendingView(View):
    """Who lent to whom, and what covered the burst of an account."""

    @answers(LendingSerializer, query=RANGE)
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read(BY_DAY)
        return beside(selectors.lending(user, chosen, limit=MOST_ROWS), unit=UNIT)


class IdleView(View):
    """Committed GPUs that were idle, the most idle first, and how many would have been enough."""

    @answers(IdleSerializer, query=RANGE)
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read(BY_DAY)
        return beside(selectors.idle_floors(user, chosen, limit=100), unit=UNIT)


class CapacityUseView(View):
    """Where the capacity went, flavor by cluster; for platform roles."""

    @answers(
        CapacityUseSerializer,
        query=[parameter for parameter in RANGE if parameter.name != "workspace"],
    )
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read(BY_DAY)
        found = selectors.capacity_use(user, chosen, now=selectors.utc_now())
        if found is None:
            return {"unit": UNIT, "start": None, "end": None, "rows": (), "total": None}
        return beside(found, unit=UNIT)
