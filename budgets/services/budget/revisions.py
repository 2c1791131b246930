"""Budgets and their revisions: revise, decide, withdraw, restore, undo."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import Max

from budgets.errors import Fault, NotAllowed, Rejected, reject_any
from budgets.models import Approval, Budget, BudgetLine, BudgetRevision, Flavor, User, Workspace
from budgets.plan import Part, RevisionDraft, Spill, name_of, part_of
from budgets.selectors import RevisionPreview, flavor_terms, judge_draft
from budgets.services.alerts.rules import remind_of_end
from budgets.services.billing.guards import closed_edge, lock_billing
from budgets.services.budget.in_force import newest_at, settle_budget
from budgets.services.budget.versions import close_budget, mark_dirty, open_budget
from budgets.services.guards import by_admin, require_reason, roles_for
from budgets.services.spending.floors import cap_faults
from budgets.units import time_text

State = BudgetRevision.State


@transaction.atomic
def revise_budget(
    actor: User | None, *, workspace: Workspace, draft: RevisionDraft, expected_version: int
) -> BudgetRevision:
    """Save a new revision: live inside the account's envelope, a request beyond it.

    Args:
        actor: Owner, admin, finance, or None for the portal.
        workspace: Whose budget.
        draft: As typed.
        expected_version: ``Budget.version`` that the author saw.

    Returns:
        The revision with state ``live`` or ``requested``.

    Raises:
        StaleVersion: Somebody else saved in between.
    """
    return save_revision(actor, workspace, draft, expected_version)


@transaction.atomic
def restore_revision(
    actor: User | None, *, revision: BudgetRevision, reason: str, expected_version: int
) -> BudgetRevision:
    """Save an old revision's lines and preference again, as a new revision from now on."""
    draft = replace(
        draft_of(revision),
        valid_until=None,
        reason=reason.strip() or f"Restores revision {revision.number}.",
    )
    workspace = Workspace.objects.select_related("account").get(budget=revision.budget_id)
    return save_revision(actor, workspace, draft, expected_version, restored_from=revision.number)


@transaction.atomic
def undo_revision(
    actor: User | None, *, revision: BudgetRevision, expected_version: int
) -> BudgetRevision:
    """Take back what one saved a moment ago: what held before it holds again.

    Nothing is deleted and the past stays as it was: a new revision has the numbers and the end of
    the one before, from now on. A revision that has not begun is withdrawn.

    Args:
        actor: Who saved it.
        revision: The newest one of its budget, saved within ``UNDO_FOR``.
        expected_version: ``Budget.version`` that the author saw.

    Returns:
        The new revision, or the withdrawn one.

    Raises:
        NotAllowed: Somebody else saved it.
        StaleVersion: Somebody saved in between.
        Rejected: It is too late, something newer or a decision stands on it, its month is closed,
            or what held before would have to be asked for by now.
    """
    if actor is None or revision.author_id != actor.pk:
        raise NotAllowed("Only the person who saved a revision can undo it. Restore an older one.")
    lock_billing()
    budget, now = open_budget(revision.budget_id, expected_version)
    current = _fresh(revision)
    live = BudgetRevision.objects.filter(budget=budget)
    before = newest_at(live.exclude(pk=current.pk), now).first()
    if words := _why_not_undone(current, before, now):
        raise Rejected.because("", "not_undoable", words)
    if current.valid_from > now:
        return withdraw_request(
            actor, revision=current, expected_version=budget.version, reason="Undone."
        )
    draft = RevisionDraft(lines=()) if before is None else draft_of(before)
    return save_revision(
        actor,
        budget.workspace,
        replace(draft, reason=f"Undoes revision {current.number}."),
        budget.version,
        restored_from=before.number if before else None,
        undoes=current.number,
    )


def _why_not_undone(revision: BudgetRevision, before: BudgetRevision | None, now: datetime) -> str:
    """Why a revision is not undone any more, in a sentence; empty where it is."""
    own, until = f"Revision {revision.number}", revision.undo_until
    instead = "Save a new revision instead."
    if revision.state != State.LIVE:
        return f"{own} is {revision.get_state_display().lower()}: there is nothing to undo."
    if until is None:
        return f"Another person decided on revision {revision.number}: one alone cannot undo it."
    if now > until:
        return f"{own} could be undone until {time_text(until)}. {instead}"
    newer = revision.budget.revisions.filter(number__gt=revision.number)
    if found := newer.exclude(state=State.WITHDRAWN).order_by("-number").first():
        return f"Revision {found.number} was saved after revision {revision.number}. {instead}"
    if before is not None and revision.valid_from < before.valid_from:
        return f"Revision {before.number} has begun since. {instead}"
    if revision.valid_from > now:
        return ""
    edge = closed_edge(revision.budget.workspace.account)
    if edge is not None and edge > revision.valid_from:
        return f"{own} began in a month that is closed by now. {instead}"
    end = before.valid_until if before else None
    if end is not None and (revision.valid_until is None or revision.valid_until > end):
        assert before is not None
        return (
            f"Revision {before.number}, which held before, ends at {time_text(end)}, and revision "
            f"{revision.number} would hold again after that. {instead}"
        )
    return ""


@by_admin
def decide_request(
    actor: User | None,
    *,
    revision: BudgetRevision,
    accept: bool,
    reason: str,
    expected_version: int,
    part: Part | None = None,
) -> BudgetRevision:
    """Accept a request, whole or in part, or decline it; what is accepted begins now or later.

    Args:
        actor: An admin.
        revision: The request.
        accept: Or decline.
        reason: The owner reads it.
        expected_version: ``Budget.version`` that the admin saw.
        part: What is accepted of it; None for all.

    Returns:
        The request; of one accepted in part, the revision that answers it.

    Raises:
        StaleVersion: Somebody else saved in between.
        Rejected: No reason, not waiting any more, the part is more than was asked for, or it does
            not fit the fleet by now.
    """
    flavors = revision.lines.values_list("flavor__slug", flat=True)
    budget, now = open_budget(revision.budget_id, expected_version, flavors=flavors)
    waiting = _fresh(revision)
    if waiting.state != State.REQUESTED:
        words = f"Revision {waiting.number} is already {waiting.get_state_display().lower()}."
        raise Rejected.because("", "not_waiting", words)
    require_reason(reason)
    whole = draft_of(waiting, start=max(waiting.valid_from, now))
    draft = whole if part is None else part_of(whole, part, flavors=flavor_terms())
    is_part = draft != whole
    if is_part:
        draft = replace(draft, reason=reason)
    answer, summary = waiting, f"declined request {waiting.number}"
    decision: dict[str, object] = {"state": State.DECLINED}
    if accept:
        answer, summary, decision = _accept(budget, actor, waiting, draft, now, is_part=is_part)
    BudgetRevision.objects.filter(pk=waiting.pk).update(
        **decision, decided_by=actor, decided_at=now, decision_reason=reason[:500]
    )
    if accept and draft.valid_until is not None:
        remind_of_end(budget.workspace)
    settle_budget(budget, now=now)
    close_budget(
        budget,
        actor,
        action="budget.accept" if accept else "budget.decline",
        reason=reason,
        summary=summary,
        before={"state": State.REQUESTED, "valid_from": waiting.valid_from.isoformat()},
    )
    return _fresh(answer)


def _accept(
    budget: Budget,
    actor: User | None,
    waiting: BudgetRevision,
    draft: RevisionDraft,
    now: datetime,
    *,
    is_part: bool,
) -> tuple[BudgetRevision, str, dict[str, object]]:
    """The revision that holds for a request, its summary, and what changes about the request."""
    judged = judge_draft(budget.workspace, draft, roles=roles_for(None), now=now)
    reject_any((*judged.faults, *cap_faults(budget.workspace, draft.lines, now)))
    summary = f"accepted request {waiting.number}"
    if not is_part:
        # The past is closed: what waited begins with its acceptance.
        return waiting, summary, {"state": State.LIVE, "valid_from": draft.valid_from}
    answer = _write(budget, actor, draft, judged, now=now, answers=waiting.number)
    summary += f" in part, as revision {answer.number}: {summary_of(draft)}"
    return answer, summary, {"state": State.IN_PART}


@transaction.atomic
def withdraw_request(
    actor: User | None, *, revision: BudgetRevision, expected_version: int, reason: str = ""
) -> BudgetRevision:
    """Take back a request, or a live revision that has not begun.

    Raises:
        StaleVersion: Somebody else saved in between.
        Rejected: It is decided, or has begun.
    """
    workspace = Workspace.objects.select_related("account").get(budget=revision.budget_id)
    if not roles_for(actor).may_edit(workspace):
        raise NotAllowed("Only the workspace's owners and admins can withdraw this.")
    budget, now = open_budget(revision.budget_id, expected_version)
    current = _fresh(revision)
    is_scheduled = current.state == State.LIVE and current.valid_from > now
    if current.state != State.REQUESTED and not is_scheduled:
        raise Rejected.because(
            "",
            "not_withdrawable",
            f"Revision {current.number} is {current.get_state_display().lower()} and has begun or "
            "ended; save a new revision instead.",
        )
    BudgetRevision.objects.filter(pk=current.pk).update(
        state=State.WITHDRAWN, decided_by=actor, decided_at=now, decision_reason=reason[:500]
    )
    close_budget(
        budget,
        actor,
        action="budget.withdraw",
        reason=reason,
        summary=f"withdrew revision {current.number}",
        before={"state": current.state},
    )
    return _fresh(current)


def draft_of(revision: BudgetRevision, *, start: datetime | None = None) -> RevisionDraft:
    """A stored revision as a draft that begins at ``start``, or at once."""
    return RevisionDraft(
        lines=tuple(line.as_plan() for line in revision.lines.select_related("flavor")),
        preference=tuple(revision.preference),
        spill=Spill(revision.spill),
        valid_from=start,
        valid_until=revision.valid_until,
        reason=revision.reason or "request",
    )


def save_revision(
    actor: User | None,
    workspace: Workspace,
    draft: RevisionDraft,
    expected_version: int,
    *,
    restored_from: int | None = None,
    approval: Approval | None = None,
    undoes: int | None = None,
) -> BudgetRevision:
    """Save a revision; one that begins in the past has an approval, but for the portal's own.

    One that undoes another never waits as a request, nor waives one: it is refused.
    """
    roles = roles_for(actor)
    if not (roles.may_edit(workspace) or roles.is_finance):
        raise NotAllowed("Only the workspace's owners, finance and admins can change its budget.")
    budget, now = open_budget(
        workspace.budget.pk, expected_version, flavors={line.flavor for line in draft.lines}
    )
    judged = judge_draft(
        budget.workspace,
        draft,
        roles=None if actor is None else roles,
        now=now,
        is_dated_back=approval is not None,
    )
    faults = [*judged.faults, *cap_faults(budget.workspace, draft.lines, now)]
    if undoes is not None and judged.request_reasons:
        words = (
            "The budget of before now goes beyond the envelope of the account, so undo cannot "
            f"bring it back. Ask for it: restore revision {restored_from} on its page."
        )
        faults.append(Fault("", "beyond_envelope", words))
    reject_any(faults)
    revision = _write(
        budget, actor, draft, judged, now=now, restored_from=restored_from, approval=approval
    )
    if revision.state == State.LIVE:
        if revision.valid_until is not None:
            remind_of_end(budget.workspace)
        settle_budget(budget, now=now)
        if revision.valid_from < now:
            mark_dirty(revision.valid_from)
    action = "budget.revise" if revision.state == State.LIVE else "budget.request"
    verb = "saved" if undoes is None else f"undid revision {undoes} by"
    close_budget(
        budget,
        actor,
        action=action if undoes is None else "budget.undo",
        reason=draft.reason,
        summary=f"{verb} revision {revision.number}: {summary_of(draft)}",
    )
    return revision


def summary_of(draft: RevisionDraft) -> str:
    """The lines of a draft in a few words. One query."""
    flavors = flavor_terms()
    lines = [
        f"{line.committed} {name_of(line.flavor, flavors)} committed, burst limit {line.ceiling}"
        for line in draft.lines
    ]
    return "; ".join(lines) or "nothing"


def _write(
    budget: Budget,
    actor: User | None,
    draft: RevisionDraft,
    judged: RevisionPreview,
    *,
    now: datetime,
    restored_from: int | None = None,
    answers: int | None = None,
    approval: Approval | None = None,
) -> BudgetRevision:
    is_waived = judged.state == "live" and bool(judged.request_reasons)
    newest = budget.revisions.aggregate(newest=Max("number"))["newest"] or 0
    revision = BudgetRevision(
        budget=budget,
        number=newest + 1,
        author=actor,
        reason=draft.reason[:500],
        valid_from=draft.valid_from or now,
        valid_until=draft.valid_until,
        preference=list(draft.preference),
        spill=draft.spill.value,
        restored_from=restored_from,
        answers=answers,
        is_dated_back=actor is not None and draft.valid_from is not None and draft.valid_from < now,
        approval=approval,
        state=judged.state,
        decided_by=actor if is_waived else None,
        decided_at=now if is_waived else None,
        decision_reason=draft.reason[:500] if is_waived else "",
    )
    revision.full_clean()
    revision.save()
    slugs = [line.flavor for line in draft.lines]
    flavors = {flavor.slug: flavor for flavor in Flavor.objects.filter(slug__in=slugs)}
    for position, line in enumerate(draft.lines):
        row = BudgetLine(
            revision=revision,
            flavor=flavors[line.flavor],
            position=position,
            committed=line.committed,
            ceiling=line.ceiling,
            lendable=line.lendable,
        )
        row.full_clean()
        row.save()
    return revision


def _fresh(revision: BudgetRevision) -> BudgetRevision:
    return BudgetRevision.objects.select_related("budget__workspace__account").get(pk=revision.pk)
