"""People, their roles and their tokens; nothing of it concerns a cluster."""

from __future__ import annotations

from typing import Any

from budgets import services as promises
from budgets.models import ApiToken, Membership, User
from portal.actions.nudges import Actor


def create_user(actor: Actor, **arguments: Any) -> User:
    """Add a person."""
    return promises.create_user(actor, **arguments)


def set_password(actor: Actor, **arguments: Any) -> None:
    """Set a password."""
    promises.set_password(actor, **arguments)


def grant_role(actor: Actor, **arguments: Any) -> Membership:
    """Give a role."""
    return promises.grant_role(actor, **arguments)


def revoke_role(actor: Actor, **arguments: Any) -> None:
    """Take a role away."""
    promises.revoke_role(actor, **arguments)


def create_api_token(actor: Actor, **arguments: Any) -> tuple[ApiToken, str]:
    """Make an API token; its plain text is in the answer only."""
    return promises.create_api_token(actor, **arguments)


def revoke_api_token(actor: Actor, **arguments: Any) -> None:
    """End an API token."""
    promises.revoke_api_token(actor, **arguments)
