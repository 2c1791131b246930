"""What an admin does with clusters; each checks the role, refuses with every fault, and is audited.

The network is asked before a transaction begins, never inside one. No credential is in an argument
of a task, an audit entry, an error or a log.
"""

from __future__ import annotations

from clusters.services.blocks import resolve_block
from clusters.services.health import check_health
from clusters.services.inspection import (
    ContextRow,
    KubeconfigReport,
    held_kubeconfig,
    hold_kubeconfig,
    inspect_kubeconfig,
    kubeconfig_from_file,
)
from clusters.services.keys import reseal_credentials
from clusters.services.preflight import run_preflight, start_preflight
from clusters.services.registration import (
    deregister_cluster,
    register_cluster,
    rotate_kubeconfig,
)
from clusters.services.switches import (
    edit_cluster,
    set_drift_policy,
    set_kueue_configuration,
    set_local_jobs,
    set_mode,
    set_writes_enabled,
)
from clusters.services.tokens import rotate_due_tokens, rotate_multikueue_token
from clusters.services.what_if import Asked, ShownReply, ask_add, ask_drain, ask_raise, replies_to

__all__ = [
    "Asked",
    "ContextRow",
    "KubeconfigReport",
    "ShownReply",
    "ask_add",
    "ask_drain",
    "ask_raise",
    "check_health",
    "deregister_cluster",
    "edit_cluster",
    "held_kubeconfig",
    "hold_kubeconfig",
    "inspect_kubeconfig",
    "kubeconfig_from_file",
    "register_cluster",
    "replies_to",
    "reseal_credentials",
    "resolve_block",
    "rotate_due_tokens",
    "rotate_kubeconfig",
    "rotate_multikueue_token",
    "run_preflight",
    "set_drift_policy",
    "set_kueue_configuration",
    "set_local_jobs",
    "set_mode",
    "set_writes_enabled",
    "start_preflight",
]
