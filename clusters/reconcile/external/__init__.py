"""Beside a live Kueue on a manager: who is nominated, and the eyes that the guard looks through."""

from __future__ import annotations

from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.external.body import BesideBody


def dispatch_body(context: ShiftContext) -> DispatchBody | BesideBody:
    """The body of a manager's dispatch shift: the portal dispatches, or a Kueue does."""
    return DispatchBody(context) if context.cluster.is_portal_mode else BesideBody(context)
