"""Customers, workspaces, flavors, capacity and pools."""

from __future__ import annotations

from typing import Any

from budgets import services as promises
from budgets.models import (
    Account,
    Capacity,
    Envelope,
    Flavor,
    Pool,
    PoolAmount,
    PoolShare,
    Workspace,
)
from portal.actions.nudges import Actor, nudge


def create_account(actor: Actor, **arguments: Any) -> Account:
    """Add a customer."""
    return promises.create_account(actor, **arguments)


def edit_account(actor: Actor, **arguments: Any) -> Account:
    """Rename a customer."""
    return promises.edit_account(actor, **arguments)


def set_envelope(actor: Actor, **arguments: Any) -> Envelope:
    """Say what an account may promise itself without asking."""
    return promises.set_envelope(actor, **arguments)


def archive_account(actor: Actor, **arguments: Any) -> Account:
    """Close an account."""
    done = promises.archive_account(actor, **arguments)
    nudge()
    return done


def create_flavor(actor: Actor, **arguments: Any) -> Flavor:
    """Add a kind of GPU node."""
    done = promises.create_flavor(actor, **arguments)
    nudge()
    return done


def edit_flavor(actor: Actor, **arguments: Any) -> Flavor:
    """Change a kind of GPU node."""
    done = promises.edit_flavor(actor, **arguments)
    nudge()
    return done


def archive_flavor(actor: Actor, **arguments: Any) -> Flavor:
    """Close a flavor to new promises."""
    done = promises.archive_flavor(actor, **arguments)
    nudge()
    return done


def create_workspace(actor: Actor, **arguments: Any) -> Workspace:
    """Add a workspace with its budget."""
    done = promises.create_workspace(actor, **arguments)
    nudge()
    return done


def edit_workspace(actor: Actor, **arguments: Any) -> Workspace:
    """Rename a workspace or change its home flavor."""
    done = promises.edit_workspace(actor, **arguments)
    nudge()
    return done


def archive_workspace(actor: Actor, **arguments: Any) -> Workspace:
    """Close a workspace."""
    done = promises.archive_workspace(actor, **arguments)
    nudge()
    return done


def set_capacity(actor: Actor, **arguments: Any) -> Capacity:
    """State the GPUs of a flavor on a cluster."""
    done = promises.set_capacity(actor, **arguments)
    nudge()
    return done


def create_pool(actor: Actor, **arguments: Any) -> Pool:
    """Add an account's or a platform pool."""
    done = promises.create_pool(actor, **arguments)
    nudge()
    return done


def set_pool_amount(actor: Actor, **arguments: Any) -> PoolAmount:
    """Say how many GPUs a pool has."""
    done = promises.set_pool_amount(actor, **arguments)
    nudge()
    return done


def set_pool_share(actor: Actor, **arguments: Any) -> PoolShare:
    """Let an account draw on a platform pool."""
    done = promises.set_pool_share(actor, **arguments)
    nudge()
    return done


def remove_pool_share(actor: Actor, **arguments: Any) -> None:
    """Take an account off a platform pool."""
    promises.remove_pool_share(actor, **arguments)
    nudge()


def archive_pool(actor: Actor, **arguments: Any) -> Pool:
    """Close a pool."""
    done = promises.archive_pool(actor, **arguments)
    nudge()
    return done
