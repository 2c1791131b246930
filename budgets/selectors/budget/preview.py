"""What a draft would do, before anything is saved: faults, reach, whom it touches, and the plan.

Whom it touches is told in names that the viewer may read. And what a fresh split would move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from budgets.errors import Fault
from budgets.models import BudgetRevision, User, Workspace
from budgets.plan import (
    FlavorTerms,
    FleetTimeline,
    ImpactRow,
    Promises,
    Reach,
    RevisionDraft,
    RevisionSpan,
    Room,
    check_draft,
    check_envelope,
    check_fleet,
    impact,
    name_of,
    reach,
    rooms,
)
from budgets.records import record_of
from budgets.selectors.budget.beginning import beginning_faults
from budgets.selectors.budget.future import parts_of, promises_at, split_for
from budgets.selectors.budget.promises import promises_in_force, with_held
from budgets.selectors.budget.timeline import flavor_terms, fleet_timeline, free_rooms
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import RoleSet, roles_of, visible_workspaces

DRAFT_NUMBER = 2**31
_OF_THE_FLEET = ("exceeds_capacity", "split_infeasible")
NO_ROOM = "The fleet has no room for so many. Ask for fewer, or ask an admin to add capacity."


@dataclass(frozen=True, slots=True)
class RevisionPreview:
    """The consequences of a draft.

    Attributes:
        faults: What forbids it, beside its fields; with faults nothing can be saved.
        warnings: What is allowed but worth knowing, likewise beside fields.
        state: ``live``, ``requested`` or ``rejected``.
        request_reasons: Why an admin has to accept it.
        reach: What each line can really reach; empty while lines are at fault.
        largest_job: Most GPUs of one pod set.
        promises_before: What stands at the draft's beginning (this account and its pools).
        promises_after: The same with the draft in its place.
        impact: Who can borrow more or less; names the viewer may not see are replaced.
        rooms: What it takes of the account's envelope, and of the fleet for who sees everything.
    """

    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]
    state: str
    request_reasons: tuple[Fault, ...]
    reach: tuple[Reach, ...]
    largest_job: int
    promises_before: Promises
    promises_after: Promises
    impact: tuple[ImpactRow, ...]
    rooms: tuple[Room, ...]


def preview_revision(
    user: User, workspace: Workspace, draft: RevisionDraft, now: datetime | None = None
) -> RevisionPreview:
    """Tell what a draft would do; writes nothing.

    Args:
        user: The viewer, whose role decides between live and requested.
        workspace: A workspace that this viewer may see.
        draft: As typed.
        now: UTC; None for the present.
    """
    roles, instant = roles_of(user), now or utc_now()
    preview = judge_draft(workspace, draft, roles=roles, now=instant)
    if roles.sees_everything:
        return preview
    stood = {
        entry.flavor: entry
        for entry in reach(
            promises_in_force(accounts=[workspace.account.slug]), workspace.namespace
        )
    }
    reaches = tuple(_without_place(entry, stood.get(entry.flavor)) for entry in preview.reach)
    return replace(
        preview,
        reach=reaches,
        largest_job=max((entry.largest_job for entry in reaches), default=0),
        impact=_anonymized(
            user, workspace, tuple(row for row in preview.impact if not row.cluster)
        ),
        # What is left of the fleet is what others have left.
        rooms=tuple(room for room in preview.rooms if room.kind == "envelope"),
    )


def _anonymized(
    user: User, workspace: Workspace, rows: tuple[ImpactRow, ...]
) -> tuple[ImpactRow, ...]:
    """Replace the names that a viewer may not see and add up what stands behind one such name."""
    roles = roles_of(user)
    seen = set(visible_workspaces(user).values_list("namespace", flat=True))
    if roles.sees_everything:
        return rows
    merged: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for row in rows:
        is_own = row.account == workspace.account.slug
        name = row.namespace if row.namespace in seen else "another workspace of this account"
        account = row.account if is_own else "another account"
        if not is_own and row.namespace not in seen:
            name = "another account"
        key = (name, account, row.flavor, row.cluster)
        before, after = merged.get(key, (0, 0))
        merged[key] = (before + row.before, after + row.after)
    return tuple(
        ImpactRow(*key, before=before, after=after)
        for key, (before, after) in merged.items()
        if before != after
    )


def _without_place(entry: Reach, stood: Reach | None) -> Reach:
    """Where a new line would stand depends on what others have: the most that could be is told."""
    if stood is not None and (stood.ceiling, stood.reachable) == (entry.ceiling, entry.reachable):
        return replace(entry, largest_job=stood.largest_job)
    return replace(entry, largest_job=entry.reachable)


def told_to(roles: RoleSet | None, faults: Iterable[Fault]) -> list[Fault]:
    """Faults as somebody may read them.

    How much the fleet has free, where and when, is what others have left: whoever does not see
    everything is told that there is no room, once for each field.
    """
    if roles is None or roles.sees_everything:
        return list(faults)
    told = (
        Fault(fault.field, "exceeds_capacity", NO_ROOM) if fault.code in _OF_THE_FLEET else fault
        for fault in faults
    )
    return list(dict.fromkeys(told))


def judge_draft(
    workspace: Workspace,
    draft: RevisionDraft,
    *,
    roles: RoleSet | None,
    now: datetime,
    is_dated_back: bool = False,
) -> RevisionPreview:
    """Check a draft as :func:`preview_revision` shows it and as saving decides it.

    Args:
        workspace: With its account.
        draft: As typed.
        roles: Of the author; None for the portal itself, which may do everything.
        now: UTC, whole seconds.
        is_dated_back: It is to begin in the past, by what two people of finance agree on.
    """
    terms = flavor_terms()
    own = [
        *check_draft(draft, flavors=terms, now=now),
        *(_start_faults(draft, now=now, is_dated_back=is_dated_back) if roles is not None else ()),
        *(_past_faults(workspace, draft.valid_from) if is_dated_back else ()),
        *_archived_faults(workspace),
    ]
    sound, start = _sound(draft, own, now)
    found, reasons, taken = _fleet_findings(workspace, sound, draft, start)
    accounts = [workspace.account.slug]
    before = (
        promises_at(start, accounts=accounts)
        if start > now
        else promises_in_force(accounts=accounts)
    )
    after, unmet = _promises_after(workspace, before, sound, draft, terms, start)
    faults, short = told_to(roles, found), told_to(roles, unmet)
    if not faults and start <= now:
        faults = short
    is_waived = roles is None or roles.is_admin
    if reasons and is_waived and roles is not None and not draft.reason.strip():
        words = "This goes beyond the account's envelope. Say why."
        faults.append(Fault("reason", "reason_required", words))
    reaches = reach(after, workspace.namespace) if not own else ()
    warnings = _warnings(draft, reaches, terms) + _later_warnings(workspace, sound, start)
    if not faults and start > now:
        warnings += short
    state = "requested" if reasons and not is_waived else "live"
    return RevisionPreview(
        faults=(*own, *faults),
        warnings=tuple(warnings),
        state="rejected" if own or faults else state,
        request_reasons=tuple(reasons),
        reach=reaches,
        largest_job=max((entry.largest_job for entry in reaches), default=0),
        promises_before=before,
        promises_after=after,
        impact=impact(before, after),
        rooms=taken,
    )


def _archived_faults(workspace: Workspace) -> list[Fault]:
    if workspace.archived_at is None:
        return []
    return [Fault("", "archived_workspace", "The workspace is archived and cannot have a budget.")]


def _start_faults(draft: RevisionDraft, *, now: datetime, is_dated_back: bool) -> list[Fault]:
    """The past is closed, except for two people of finance with a reason."""
    start = draft.valid_from
    if start is None or start.tzinfo is None or (start < now) == is_dated_back:
        return []
    if is_dated_back:
        words = "This does not begin in the past; save it like any other revision."
        return [Fault("valid_from", "valid_from_future", words)]
    words = (
        "A budget cannot begin in the past. To date it back, one person in finance proposes it "
        "and another one approves it."
    )
    return [Fault("valid_from", "valid_from_past", words)]


def _past_faults(workspace: Workspace, start: datetime | None) -> list[Fault]:
    if start is None or start.tzinfo is None:
        return []
    return beginning_faults("valid_from", start, workspace)


def _sound(
    draft: RevisionDraft, faults: Iterable[Fault], now: datetime
) -> tuple[RevisionDraft, datetime]:
    """What has no fault of its own, so that the fleet can be checked for it, and its start."""
    fields = {fault.field for fault in faults}
    broken = {field.split(".")[1] for field in fields if field.startswith("lines.")}
    lines = tuple(line for index, line in enumerate(draft.lines) if str(index) not in broken)
    if fields & {"valid_from", "valid_until"}:
        return replace(draft, lines=lines, valid_from=None, valid_until=None), now
    return replace(draft, lines=lines), max(draft.valid_from or now, now)


def _fields(draft: RevisionDraft, suffix: str = "") -> dict[str, str]:
    """Flavor -> its input; the first line of a flavor counts."""
    found: dict[str, str] = {}
    for index, line in enumerate(draft.lines):
        found.setdefault(line.flavor, f"lines.{index}{suffix}")
    return found


def _fleet_findings(
    workspace: Workspace,
    sound: RevisionDraft,
    draft: RevisionDraft,
    start: datetime,
) -> tuple[list[Fault], list[Fault], tuple[Room, ...]]:
    """Faults against the fleet, reasons why an admin has to accept, and what is left of both."""
    flavors = {line.flavor for line in sound.lines}
    before = fleet_timeline(start, flavors=flavors)
    after = with_draft(before, workspace, sound, start)
    faults = check_fleet(
        after,
        start=start,
        end=sound.valid_until,
        before=before,
        fields=_fields(draft, ".committed"),
    )
    reasons = check_envelope(
        after,
        account=workspace.account.slug,
        start=start,
        end=sound.valid_until,
        before=before,
        fields=_fields(draft),
    )
    taken = rooms(
        before,
        after,
        account=workspace.account.slug,
        namespace=workspace.namespace,
        flavors=dict.fromkeys(line.flavor for line in sound.lines if line.committed),
        instant=start,
    )
    return list(faults), list(reasons), taken


def with_draft(
    timeline: FleetTimeline, workspace: Workspace, draft: RevisionDraft, start: datetime
) -> FleetTimeline:
    """The timeline with a draft as the newest revision of its workspace."""
    span = record_of(
        RevisionSpan,
        draft,
        namespace=workspace.namespace,
        account=workspace.account.slug,
        number=DRAFT_NUMBER,
        valid_from=draft.valid_from or start,
    )
    return replace(timeline, revisions=(*timeline.revisions, span))


def _promises_after(
    workspace: Workspace,
    before: Promises,
    sound: RevisionDraft,
    draft: RevisionDraft,
    terms: Mapping[str, FlavorTerms],
    start: datetime,
) -> tuple[Promises, list[Fault]]:
    """What stands, with the draft laid out in its workspace's place; and what is short."""
    old = next((item for item in before.workspaces if item.namespace == workspace.namespace), None)
    if old is None:
        return before, []
    rooms = free_rooms(start, flavors=[line.flavor for line in sound.lines])
    splits = split_for(
        old, sound.lines, rooms=rooms, terms=terms, fields=_fields(draft, ".committed")
    )
    new = replace(
        old,
        lines=with_held(sound.lines, [line.flavor for line in old.lines]),
        preference=sound.preference,
        spill=sound.spill,
        split=parts_of(splits),
    )
    workspaces = tuple(
        new if item.namespace == workspace.namespace else item for item in before.workspaces
    )
    short = [split.fault for split in splits.values() if split.fault is not None]
    return replace(before, workspaces=workspaces), short


def _warnings(
    draft: RevisionDraft, reaches: tuple[Reach, ...], terms: Mapping[str, FlavorTerms]
) -> list[Fault]:
    found = []
    fields = _fields(draft)
    for entry in reaches:
        if entry.ceiling > entry.reachable:
            found.append(
                Fault(
                    f"{fields.get(entry.flavor, '')}.ceiling",
                    "beyond_reach",
                    f"Jobs can get {entry.reachable} of the {entry.ceiling} "
                    f"{name_of(entry.flavor, terms)} of this burst limit: today's pools and "
                    "lenders have no more.",
                )
            )
    for line in draft.lines:
        spec = terms.get(line.flavor)
        if spec is not None and isinstance(line.committed, int) and line.committed % spec.node_gpus:
            found.append(
                Fault(
                    f"{fields[line.flavor]}.committed",
                    "not_whole_nodes",
                    f"A node has {spec.node_gpus} GPUs, so {line.committed} "
                    f"{name_of(line.flavor, terms)} leave a part of a node to others.",
                )
            )
    return found


def _later_warnings(workspace: Workspace, draft: RevisionDraft, start: datetime) -> list[Fault]:
    """Revisions that are scheduled already and will take the draft's place."""
    later = BudgetRevision.objects.filter(
        budget__workspace=workspace,
        state=BudgetRevision.State.LIVE,
        valid_from__gt=draft.valid_from or start,
    )
    if draft.valid_until is not None:
        later = later.filter(valid_from__lt=draft.valid_until)
    return [
        Fault(
            "valid_until",
            "replaced_later",
            f"Revision {number} is scheduled and replaces this budget at "
            f"{begins:%Y-%m-%d %H:%M} UTC.",
        )
        for number, begins in later.order_by("valid_from").values_list("number", "valid_from")
    ]


def preview_reallocation(user: User, workspace: Workspace) -> dict[str, dict[str, tuple[int, int]]]:
    """Show an admin where a fresh split would put a workspace's floor.

    Returns:
        flavor -> worker -> (GPUs now, GPUs then); workers without a part in either are left out.

    Raises:
        Workspace.DoesNotExist: Anybody else asks.
    """
    if not roles_of(user).is_admin:
        raise Workspace.DoesNotExist
    promises = promises_in_force(accounts=[workspace.account.slug])
    promise = next(item for item in promises.workspaces if item.namespace == workspace.namespace)
    splits = split_for(
        promise,
        promise.lines,
        rooms=free_rooms(utc_now(), flavors=[line.flavor for line in promise.lines]),
        terms=flavor_terms(),
        afresh=True,
    )
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for flavor, split in splits.items():
        workers = {worker for name, worker in promise.split if name == flavor} | set(split.parts)
        found[flavor] = {
            worker: (
                promise.split.get((flavor, worker), (0, 0))[0],
                split.parts.get(worker, (0, 0))[0],
            )
            for worker in sorted(workers)
        }
    return found
