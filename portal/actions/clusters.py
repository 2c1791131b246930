"""Registered clusters, their credentials and their switches."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from celery import current_app

from budgets.errors import Fault, Rejected
from budgets.models import Operation
from clusters import services as enforcement
from clusters import vault
from clusters.models import Cluster
from clusters.services import KubeconfigReport
from clusters.services.preflight.checks import PreflightTable
from clusters.services.registration import Departure
from portal.actions.nudges import BROKER_ERRORS, PREFLIGHT_TASK, Actor, nudge

log = logging.getLogger(__name__)


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


def set_guard(actor: Actor, **arguments: Any) -> Cluster:
    """Say what may be done about known defects of a manager's Kueue."""
    done = enforcement.set_guard(actor, **arguments)
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
