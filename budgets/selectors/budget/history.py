"""Revisions of a budget, their differences, and requests that wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Prefetch, Q, QuerySet, Subquery, prefetch_related_objects
from django.db.models.functions import Coalesce

from budgets.models import BudgetLine, BudgetRevision, User, Workspace
from budgets.plan import RevisionDraft, RevisionSpan, Spill, check_envelope, in_force_at
from budgets.selectors.budget.preview import with_draft
from budgets.selectors.budget.timeline import fleet_timeline, live_revisions
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of, visible_workspaces, workspace_for


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One property of two revisions side by side, as texts."""

    field: str
    label: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Whether the two sides differ."""
        return self.before != self.after


WAITING = Q(state=BudgetRevision.State.REQUESTED, budget__workspace__archived_at__isnull=True)
"""Revisions that somebody has to decide on."""


def with_lines(revision: BudgetRevision) -> BudgetRevision:
    """The same with its lines and their flavors, read by one query."""
    prefetch_related_objects([revision], _lines())
    return revision


def _lines() -> Prefetch[str]:
    return Prefetch("lines", BudgetLine.objects.select_related("flavor").order_by("position"))


def _revisions() -> QuerySet[BudgetRevision]:
    return BudgetRevision.objects.select_related(
        "author", "decided_by", "budget__workspace__account"
    ).prefetch_related(_lines())


def budget_history(user: User, workspace: Workspace) -> list[BudgetRevision]:
    """All revisions of a visible workspace, newest first, each with its ``phase``. Four queries.

    Raises:
        Workspace.DoesNotExist: Not for this user.
    """
    seen = workspace_for(user, workspace.namespace)
    own = _revisions().filter(budget=seen.budget).order_by("-number")
    return _phased(own, seen.budget.in_force_id, utc_now())


def budget_news(workspace: Workspace, *, most: int) -> list[BudgetRevision]:
    """The last revisions, and all that are still to come: requests and those that begin later.

    Newest first, each with its ``phase``. Two queries.

    Args:
        workspace: With its budget, found through a selector that checks who may see it.
        most: Of those that are past or in force.
    """
    instant = utc_now()
    own = _revisions().filter(budget=workspace.budget)
    last = own.order_by("-number").values("number")[most - 1 : most]
    is_recent = Q(number__gte=Coalesce(Subquery(last), 0))
    is_to_come = Q(state=BudgetRevision.State.REQUESTED) | Q(
        state=BudgetRevision.State.LIVE, valid_from__gt=instant
    )
    wanted = own.filter(is_recent | is_to_come).order_by("-number")
    return _phased(wanted, workspace.budget.in_force_id, instant)


def ending_revision(workspace: Workspace, now: datetime | None = None) -> BudgetRevision | None:
    """The revision in force, where it ends and no newer one takes over then. Three queries.

    Args:
        workspace: With its budget, found through a selector that checks who may see it.
        now: UTC; the present when None.
    """
    revision = workspace.budget.in_force
    end = revision.valid_until if revision is not None else None
    if revision is None or end is None or end <= (now or utc_now()):
        return None
    spans = live_revisions(end, namespaces=[workspace.namespace])
    after = in_force_at(spans, end).get(workspace.namespace)
    return revision if after is None or after.number < revision.number else None


def undoable(user: User, news: Iterable[BudgetRevision]) -> BudgetRevision | None:
    """The newest revision, where this person may undo it still. No query.

    Args:
        user: The viewer.
        news: Of one budget, newest first, as :func:`budget_news` gives them.
    """
    newest = next((row for row in news if row.state != BudgetRevision.State.WITHDRAWN), None)
    until = newest.undo_until if newest is not None else None
    if newest is None or until is None or newest.author_id != user.pk or utc_now() > until:
        return None
    return newest


def revision_for(user: User, namespace: str, number: int) -> BudgetRevision:
    """One revision of a visible workspace, with its lines.

    Raises:
        Workspace.DoesNotExist: The workspace is not for this user.
        BudgetRevision.DoesNotExist: It has no such revision.
    """
    seen = workspace_for(user, namespace)
    revision = _revisions().get(budget=seen.budget, number=number)
    revision.phase = _phase(revision, seen.budget.in_force_id, utc_now())
    return revision


def revision_diff(before: BudgetRevision, after: BudgetRevision) -> tuple[DiffRow, ...]:
    """Two revisions side by side: every line's three numbers, then preference, spill and window."""
    old = {line.flavor.slug: line for line in before.lines.all()}
    new = {line.flavor.slug: line for line in after.lines.all()}
    names = {slug: line.flavor.name for slug, line in (*old.items(), *new.items())}
    rows = []
    for flavor in dict.fromkeys([*old, *new]):
        for name, label in (
            ("committed", "committed"),
            ("ceiling", "burst limit"),
            ("lendable", "to lend at most"),
        ):
            sides = [
                str(getattr(side[flavor], name)) if flavor in side else "–" for side in (old, new)
            ]
            label = f"{names[flavor]}, {label}"
            rows.append(DiffRow(f"{flavor}.{name}", label, sides[0], sides[1]))
    for field, label in (
        ("preference", "Preferred flavors"),
        ("spill", "When the committed GPUs are in use"),
        ("valid_from", "From"),
        ("valid_until", "Until"),
        ("reason", "Reason"),
    ):
        sides = [_text(side, field, names) for side in (before, after)]
        rows.append(DiffRow(field, label, sides[0], sides[1]))
    return tuple(rows)


def visible_requests(user: User) -> QuerySet[BudgetRevision]:
    """Requests that a user sees, oldest first: an admin all, an owner those of own workspaces."""
    waiting = _revisions().filter(WAITING)
    if not roles_of(user).sees_everything:
        waiting = waiting.filter(budget__workspace__in=visible_workspaces(user).values("pk"))
    return waiting.order_by("created_at", "pk")


def requests_waiting(user: User) -> list[BudgetRevision]:
    """All of :func:`visible_requests` by :func:`with_reasons`."""
    return with_reasons(visible_requests(user))


def with_reasons(requests: Iterable[BudgetRevision]) -> list[BudgetRevision]:
    """Requests, each with the ``reasons`` why it waits.

    The number of queries does not depend on the number of requests.
    """
    found = list(requests)
    if not found:
        return []
    now = utc_now()
    fleet = fleet_timeline(now)
    # An envelope is about one account; what others are promised says nothing about it.
    spans: dict[str, list[RevisionSpan]] = defaultdict(list)
    for span in fleet.revisions:
        spans[span.account].append(span)
    for revision in found:
        revision.phase = revision.state
        workspace = revision.budget.workspace
        account = workspace.account.slug
        before = replace(fleet, revisions=tuple(spans[account]))
        draft = draft_of(revision)
        revision.reasons = check_envelope(
            with_draft(before, workspace, draft, now),
            account=account,
            start=max(revision.valid_from, now),
            end=revision.valid_until,
            before=before,
            fields={line.flavor: f"lines.{index}" for index, line in enumerate(draft.lines)},
        )
    return found


def draft_of(request: BudgetRevision) -> RevisionDraft:
    """What a request would make if it was accepted now: it begins no earlier."""
    return RevisionDraft(
        lines=tuple(line.as_plan() for line in request.lines.all()),
        preference=tuple(request.preference),
        spill=Spill(request.spill),
        valid_from=request.valid_from if request.valid_from > utc_now() else None,
        valid_until=request.valid_until,
        reason=request.reason or "as requested",
    )


def _phased(
    revisions: Iterable[BudgetRevision], in_force_id: int | None, now: datetime
) -> list[BudgetRevision]:
    found = list(revisions)
    for revision in found:
        revision.phase = _phase(revision, in_force_id, now)
    return found


def _phase(revision: BudgetRevision, in_force_id: int | None, now: datetime) -> str:
    if revision.pk == in_force_id:
        return "in force"
    if revision.state != BudgetRevision.State.LIVE:
        return revision.state
    return "scheduled" if revision.valid_from > now else "past"


def _text(revision: BudgetRevision, field: str, names: Mapping[str, str]) -> str:
    value = getattr(revision, field)
    if field == "spill":
        return revision.get_spill_display()
    if isinstance(value, list):
        return ", ".join(names.get(slug, slug) for slug in value) or "–"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return str(value or "–")
