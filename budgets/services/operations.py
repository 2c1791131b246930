"""Long work that somebody started and watches."""

from __future__ import annotations

import uuid

from budgets.models import Operation, User
from budgets.selectors.clock import utc_now


def start_operation(
    actor: User | None, *, kind: str, subject: str = "", total: int = 0
) -> Operation:
    """Open an operation; ``total`` steps are expected, 0 when nobody knows."""
    return Operation.objects.create(kind=kind, subject=subject[:200], total=total, started_by=actor)


def advance_operation(
    operation_id: uuid.UUID | str, *, step: str, done: int | None = None, total: int | None = None
) -> None:
    """Tell how far it is; quiet when it has ended or is unknown."""
    changes: dict[str, object] = {"step": step[:200]}
    if done is not None:
        changes["done"] = done
    if total is not None:
        changes["total"] = total
    Operation.objects.filter(pk=operation_id, state=Operation.State.RUNNING).update(**changes)


def finish_operation(
    operation_id: uuid.UUID | str, *, message: str = "", failed: bool = False
) -> None:
    """Close it once; a second close changes nothing."""
    Operation.objects.filter(pk=operation_id, state=Operation.State.RUNNING).update(
        state=Operation.State.FAILED if failed else Operation.State.DONE,
        message=message[:500],
        finished_at=utc_now(),
    )
