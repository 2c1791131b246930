"""Questions that change nothing: what a change would lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from budgets.models import User
from clusters import services as enforcement
from clusters.models import Question
from clusters.services import Asked, ShownReply
from portal.actions.nudges import Actor


def ask_raise(actor: Actor, **arguments: Any) -> Asked:
    """Ask what a larger or smaller budget would lead to; nothing is saved."""
    return enforcement.ask_raise(actor, **arguments)


def ask_add(actor: Actor, **arguments: Any) -> Asked:
    """Ask what a new node pool would lead to; nothing is saved."""
    return enforcement.ask_add(actor, **arguments)


def ask_drain(actor: Actor, **arguments: Any) -> Asked:
    """Ask what draining a worker would lead to; nothing is saved."""
    return enforcement.ask_drain(actor, **arguments)


def replies_to(user: User, questions: Sequence[Question]) -> list[ShownReply]:
    """What became of questions, in the names that their reader may see."""
    return enforcement.replies_to(user, questions)
