"""A budget that begins in the past changes what was used already: two people of finance agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from budgets.errors import Rejected, reject_any
from budgets.models import Approval, Proposal, User, Workspace
from budgets.plan import Line, RevisionDraft, Spill, in_force_at
from budgets.selectors import judge_draft, roles_of
from budgets.selectors.budget.timeline import live_revisions
from budgets.selectors.clock import utc_now
from budgets.services.billing.approvals import MoneyDeed, Seen, propose
from budgets.services.billing.guards import lock_billing
from budgets.services.budget.revisions import save_revision, summary_of
from budgets.services.budget.versions import open_budget
from budgets.services.guards import by_finance, require_reason
from budgets.units import time_text


@by_finance
def propose_dating_back(
    actor: User | None, *, workspace: Workspace, draft: RevisionDraft, expected_version: int
) -> Proposal:
    """Propose a revision that begins in the past.

    Args:
        actor: One of finance.
        workspace: Whose budget.
        draft: As typed; it has a beginning, before now, and a reason.
        expected_version: ``Budget.version`` that the author saw; no other may be there at the
            approval.

    Raises:
        StaleVersion: Somebody else saved in between.
        Rejected: Everything that is wrong with it, or one of the budget waits.
    """
    require_reason(draft.reason)
    if draft.valid_from is None:
        raise Rejected.because("valid_from", "required", "Say from when the budget is to hold.")
    lock_billing()
    open_budget(workspace.budget.pk, expected_version)
    terms = {"spill": draft.spill.value, "preference": list(draft.preference)}
    window = {
        name: at.isoformat() if at else None
        for name, at in (("valid_from", draft.valid_from), ("valid_until", draft.valid_until))
    }
    lines = [asdict(line) for line in draft.lines]
    return propose(
        actor,
        DATE_BACK,
        subject=f"budget:{workspace.namespace}",
        reason=draft.reason,
        workspace=workspace,
        author=actor,
        draft={**terms, **window, "lines": lines, "reason": draft.reason},
    )


def _draft(stored: Mapping[str, Any]) -> RevisionDraft:
    until = stored["valid_until"]
    return RevisionDraft(
        lines=tuple(Line(**line) for line in stored["lines"]),
        preference=tuple(stored["preference"]),
        spill=Spill(stored["spill"]),
        valid_from=datetime.fromisoformat(stored["valid_from"]),
        valid_until=datetime.fromisoformat(until) if until else None,
        reason=stored["reason"],
    )


def _dating_back(workspace: Workspace, author: User, draft: RevisionDraft, *, at: datetime) -> Seen:
    """What would hold, and the version of the budget that it was looked at in."""
    judged = judge_draft(
        workspace, draft, roles=roles_of(author), now=utc_now(), is_dated_back=True
    )
    reject_any(judged.faults)
    if judged.state != "live":
        raise Rejected(judged.request_reasons)
    assert draft.valid_from is not None
    spans = live_revisions(draft.valid_from, namespaces=[workspace.namespace])
    held = in_force_at(spans, draft.valid_from)
    before = RevisionDraft(lines=tuple(line for span in held.values() for line in span.lines))
    return {
        "Budget of": workspace.namespace,
        "From": time_text(draft.valid_from),
        "Until": time_text(draft.valid_until) if draft.valid_until else "something newer begins",
        "Holds then": summary_of(before),
        "Would hold": summary_of(draft),
        "Version of the budget": str(workspace.budget.version),
    }


def _date_back(
    actor: User,
    approval: Approval,
    *,
    workspace: Workspace,
    author: User,
    draft: RevisionDraft,
    reason: str,
) -> str:
    version = workspace.budget.version
    row = save_revision(author, workspace, draft, version, approval=approval)
    since = time_text(row.valid_from)
    return f"Revision {row.number} of {workspace.name} is in force from {since}."


DATE_BACK = MoneyDeed(
    name="budget.date_back",
    title="Date a budget back",
    takes={
        "workspace": lambda key: Workspace.objects.select_related("account", "budget").get(pk=key),
        "author": lambda key: User.objects.get(pk=key),
        "draft": _draft,
    },
    look=_dating_back,
    do=_date_back,
)
