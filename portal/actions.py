"""One function per thing that a user can do: the service, then a nudge to the clusters.

Names and arguments are those of the services. The nudge is only speed: it is sent on commit, and
a broker that is down is logged and forgotten, because the periodic sweep finds every generation
that a cluster has not observed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import KombuError, OperationalError

from budgets import services as promises
from budgets.errors import Fault, Rejected
from budgets.models import (
    Account,
    ApiToken,
    Budget,
    BudgetRevision,
    Capacity,
    Envelope,
    Export,
    Flavor,
    Membership,
    Operation,
    Pool,
    PoolAmount,
    PoolShare,
    User,
    Workspace,
)
from budgets.services import exports
from clusters import services as enforcement
from clusters import vault
from clusters.models import Cluster, Question
from clusters.services import Asked, KubeconfigReport, ShownReply
from clusters.services.preflight import PreflightTable
from clusters.services.registration import Departure

log = logging.getLogger(__name__)

Actor = User | None
SYNC_TASK = "clusters.tasks.nudge_sync"
PREFLIGHT_TASK = "clusters.tasks.run_preflight"
EXPORT_TASK = "budgets.run_exports"
BROKER_ERRORS = (KombuError, OperationalError, OSError)


def nudge() -> None:
    """Ask the quota shifts of every cluster to look again, once this transaction stands.

    Every promise stands on the manager and on all workers, so all are affected.
    """
    transaction.on_commit(_send_nudge)


def _send_nudge() -> None:
    try:
        current_app.send_task(SYNC_TASK, retry=False, ignore_result=True)
    except BROKER_ERRORS as error:
        log.warning("nudge_not_sent error=%s", type(error).__name__)


def is_broker_reachable() -> bool:
    """Whether a nudge would arrive now; for the readiness address."""
    try:
        with current_app.connection_for_write(connect_timeout=1) as connection:
            connection.ensure_connection(max_retries=0, timeout=1)
    except BROKER_ERRORS as error:
        log.warning("broker_unreachable error=%s", type(error).__name__)
        return False
    return True


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


def create_account(actor: Actor, **arguments: Any) -> Account:
    """Add a customer."""
    return promises.create_account(actor, **arguments)


def edit_account(actor: Actor, **arguments: Any) -> Account:
    """Rename a customer."""
    return promises.edit_account(actor, **arguments)


def set_envelope(actor: Actor, **arguments: Any) -> Envelope:
    """Say what an account may promise itself without asking."""
    return promises.set_envelope(actor, **arguments)


def withdraw_request(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Take back a request, or a revision that has not begun."""
    return promises.withdraw_request(actor, **arguments)


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


def revise_budget(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Save a revision: live, or waiting as a request."""
    done = promises.revise_budget(actor, **arguments)
    nudge()
    return done


def decide_request(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Accept or decline a request."""
    done = promises.decide_request(actor, **arguments)
    nudge()
    return done


def restore_revision(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Bring an old revision back as a new one."""
    done = promises.restore_revision(actor, **arguments)
    nudge()
    return done


def set_stop_policy(actor: Actor, **arguments: Any) -> Budget:
    """Hold, drain or resume a budget."""
    done = promises.set_stop_policy(actor, **arguments)
    nudge()
    return done


def reallocate(actor: Actor, **arguments: Any) -> dict[str, Any]:
    """Split a budget over the workers anew."""
    done = promises.reallocate(actor, **arguments)
    nudge()
    return done


def register_cluster(actor: Actor, **arguments: Any) -> Cluster:
    """Register a cluster; its preflight runs at once."""
    done = enforcement.register_cluster(actor, **arguments)
    nudge()
    return done


def rotate_kubeconfig(actor: Actor, **arguments: Any) -> Cluster:
    """Replace the credential of a cluster."""
    done = enforcement.rotate_kubeconfig(actor, **arguments)
    nudge()
    return done


def rotate_multikueue_token(actor: Actor, **arguments: Any) -> datetime:
    """Mint a new token for the manager's access to a worker."""
    done = enforcement.rotate_multikueue_token(actor, **arguments)
    nudge()
    return done


def set_mode(actor: Actor, **arguments: Any) -> Cluster:
    """Change who decides on a cluster."""
    done = enforcement.set_mode(actor, **arguments)
    nudge()
    return done


def set_writes_enabled(actor: Actor, **arguments: Any) -> Cluster:
    """Stop or resume all writing to a cluster."""
    done = enforcement.set_writes_enabled(actor, **arguments)
    nudge()
    return done


def set_drift_policy(actor: Actor, **arguments: Any) -> Cluster:
    """Say what happens to a hand edit."""
    done = enforcement.set_drift_policy(actor, **arguments)
    nudge()
    return done


def set_local_jobs(actor: Actor, **arguments: Any) -> Cluster:
    """Say whether jobs may be submitted on a worker directly."""
    done = enforcement.set_local_jobs(actor, **arguments)
    nudge()
    return done


def edit_cluster(actor: Actor, **arguments: Any) -> Cluster:
    """Rename a cluster."""
    done = enforcement.edit_cluster(actor, **arguments)
    nudge()
    return done


def set_kueue_configuration(actor: Actor, **arguments: Any) -> Cluster:
    """Store the Kueue Configuration that holds on a cluster."""
    done = enforcement.set_kueue_configuration(actor, **arguments)
    nudge()
    return done


def resolve_block(actor: Actor, **arguments: Any) -> Cluster:
    """Decide which side is right after a restored backup."""
    done = enforcement.resolve_block(actor, **arguments)
    nudge()
    return done


def deregister_cluster(actor: Actor, **arguments: Any) -> Departure:
    """Let a cluster go."""
    done = enforcement.deregister_cluster(actor, **arguments)
    nudge()
    return done


def run_preflight(actor: Actor, **arguments: Any) -> PreflightTable:
    """Examine a cluster now, in this request."""
    return enforcement.run_preflight(actor, **arguments)


def start_preflight(actor: Actor, *, cluster: Cluster) -> Operation:
    """Examine a cluster in the background; without a broker it is done before this returns."""
    operation = enforcement.start_preflight(actor, cluster=cluster)
    try:
        current_app.send_task(PREFLIGHT_TASK, args=(cluster.slug, str(operation.pk)), retry=False)
    except BROKER_ERRORS as error:
        log.warning("preflight_not_sent error=%s", type(error).__name__)
        enforcement.run_preflight(actor, cluster=cluster, operation_id=operation.pk)
    return operation


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


def request_export(actor: User, **arguments: Any) -> Export:
    """Ask for a file; the workers are told, and look by themselves if that is lost."""
    export = exports.request_export(actor, **arguments)
    transaction.on_commit(_send_export)
    return export


def _send_export() -> None:
    try:
        current_app.send_task(EXPORT_TASK, retry=False, ignore_result=True)
    except BROKER_ERRORS as error:
        log.warning("export_not_announced error=%s", type(error).__name__)


def inspect_kubeconfig(text: str) -> KubeconfigReport:
    """Say which contexts a kubeconfig has and what is wrong with it."""
    return enforcement.inspect_kubeconfig(text)


def kubeconfig_from_file(actor: Actor, *, name: str) -> str:
    """Read a kubeconfig from the folder that the server allows."""
    return enforcement.kubeconfig_from_file(actor, name=name)


def hold_kubeconfig(text: str) -> str:
    """Seal a kubeconfig, so that a form can carry it to its next step unread."""
    return vault.seal(text).decode()


def held_kubeconfig(held: str) -> str:
    """Open what :func:`hold_kubeconfig` sealed.

    Raises:
        Rejected: It was changed on the way, or the keys have changed since.
    """
    try:
        return vault.unseal(held.encode())
    except vault.SealBroken:
        words = "The kubeconfig of the first step can no longer be read; give it again."
        raise Rejected([Fault("", "held_unreadable", words)]) from None
