"""GPU-seconds by hour or day, the workloads behind them, and the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets.errors import Fault, Rejected
from budgets.models import User
from portal.api.paging import NUMBER, keyset_page
from portal.api.schema import PAGED, paged
from portal.api.serializers import fleet as fleet_shapes
from portal.api.serializers import usage as shapes
from portal.api.views.base import View, actor, answers

STEPS = ("hour", "day")
SPLITS = ("none", "account", "workspace", "flavor", "cluster")
# What one answer may cover: some two months by the hour, three years by the day.
MOST = {"hour": timedelta(days=62), "day": timedelta(days=1100)}
STEP = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
MOST_ROWS = 100_000
UNIT = "GPU-seconds"
RANGE = (
    OpenApiParameter("start", str, description="ISO 8601 with zone; 7 days ago when left out."),
    OpenApiParameter("end", str, description="Exclusive; now when left out."),
    OpenApiParameter("workspace", str, many=True, description="Namespace; may be repeated."),
    OpenApiParameter("flavor", str, many=True, description="Slug; may be repeated."),
)
STEPPED = (
    OpenApiParameter("step", str, enum=STEPS),
    OpenApiParameter("split_by", str, enum=SPLITS),
)


class FilterReader:
    """Reads the query string of usage and collects all that is wrong with it."""

    def __init__(self, request: Request) -> None:
        self.given = request.query_params
        self.faults: list[Fault] = []

    def instant(self, name: str, preset: datetime) -> datetime:
        text = self.given.get(name)
        if not text:
            return preset
        try:
            # A bare plus in a query string arrives as a space.
            value = parse_datetime(text.replace(" ", "+"))
            if value is not None and value.tzinfo is not None:
                return value.astimezone(UTC).replace(microsecond=0)
        except (ValueError, OverflowError):
            pass  # the fault below says it
        message = f"{text[:80]!r} is not a time with a zone, such as 2026-03-01T00:00:00Z."
        self.faults.append(Fault(name, "invalid", message))
        return preset

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = self.given.get(name, allowed[0])
        if text in allowed:
            return text
        message = f"{text[:80]!r} is none of {', '.join(allowed)}."
        self.faults.append(Fault(name, "invalid", message))
        return allowed[0]

    def read(self) -> selectors.UsageFilter:
        """The filter.

        Raises:
            Rejected: everything in it that cannot be read, at once.
        """
        now = selectors.utc_now()
        end = self.instant("end", now)
        start = self.instant("start", now - timedelta(days=7))
        step = self.choice("step", STEPS)
        split_by = self.choice("split_by", SPLITS)
        if not self.faults and start >= end:
            message = "The end has to be later than the start."
            self.faults.append(Fault("end", "invalid", message))
        elif not self.faults and end - start > MOST[step]:
            message = f"At most {MOST[step].days} days by the {step}; ask for a shorter range."
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

    query = (*RANGE, *STEPPED)

    @answers(shapes.UsageSerializer)
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read()
        _check_size(user, chosen)
        return _with_unit(selectors.usage_table(user, chosen))


def _check_size(user: User, chosen: selectors.UsageFilter) -> None:
    """Refuse what one answer cannot hold: a row per step and workspace."""
    if chosen.split_by != "workspace":
        return
    workspaces = selectors.UsageScope(user, chosen).workspaces.count()
    rows = workspaces * (-(-(chosen.end - chosen.start) // STEP[chosen.step]))
    if rows > MOST_ROWS:
        message = (
            f"That is up to {rows:,} rows, more than {MOST_ROWS:,}; ask by the day, for a "
            "shorter range or for fewer workspaces."
        )
        raise Rejected([Fault("start", "too_many_rows", message)])


def _with_unit(found: Any) -> dict[str, Any]:
    return {"unit": UNIT, **{field.name: getattr(found, field.name) for field in fields(found)}}


class WorkloadUsageView(View):
    """The workloads behind a usage table, the largest first."""

    query = (*PAGED, *RANGE)

    @extend_schema(responses=paged(shapes.WorkloadUsageSerializer))
    def get(self, request: Request) -> Response:
        chosen = FilterReader(request).read()

        def read(limit: int, cursor: str | None) -> tuple[Sequence[Any], str | None]:
            after = int(cursor or 0)
            rows = selectors.workload_usage(actor(request), chosen, limit=limit + 1, after=after)
            following = str(after + limit) if len(rows) > limit else None
            return list(shapes.WorkloadUsageSerializer(rows[:limit], many=True).data), following

        return keyset_page(request, read, NUMBER.cursor, unit=UNIT)


class LendingView(View):
    """Who lent to whom, and what covered the burst of an account."""

    query = RANGE

    @answers(shapes.LendingSerializer)
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read()
        return _with_unit(selectors.lending(user, chosen, limit=MOST_ROWS))


class IdleView(View):
    """Committed GPUs that stood idle, the idlest first, with the floor that had been enough."""

    query = RANGE

    @answers(shapes.IdleSerializer)
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read()
        return _with_unit(selectors.idle_floors(user, chosen, limit=100))


class CapacityUseView(View):
    """Where the capacity went, flavor by cluster; for platform roles."""

    query = tuple(parameter for parameter in RANGE if parameter.name != "workspace")

    @answers(shapes.CapacityUseSerializer)
    def get(self, user: User) -> Any:
        chosen = FilterReader(self.request).read()
        found = selectors.capacity_use(user, chosen, now=selectors.utc_now())
        if found is None:
            return {"unit": UNIT, "start": None, "end": None, "rows": (), "total": None}
        return _with_unit(found)


class FleetView(View):
    """Capacity, promises and use, flavor by worker; for platform roles."""

    @answers(fleet_shapes.FleetSerializer)
    def get(self, user: User) -> Any:
        grid = selectors.fleet_grid(user)
        return {
            "flavors": [flavor.slug for flavor in grid.flavors],
            "clusters": grid.clusters,
            "cells": [
                {"flavor": flavor, "cluster": cluster, **asdict(cell)}
                for (flavor, cluster), cell in grid.cells.items()
            ],
            "totals": [{"flavor": flavor, **asdict(row)} for flavor, row in grid.totals.items()],
        }
