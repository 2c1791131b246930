"""What an admin does with clusters; each checks the role, refuses with every fault, and is audited.

The network is asked before a transaction begins, never inside one. No credential is in an argument
of a task, an audit entry, an error or a log.
"""

from __future__ import annotations

from clusters.services.blocks import resolve_block
from clusters.services.capacity import state_capacity
from clusters.services.forecasts import note_forecasts
from clusters.services.health import check_health
from clusters.services.inspection import (
    held_kubeconfig,
    hold_kubeconfig,
    inspect_kubeconfig,
    kubeconfig_from_file,
)
from clusters.services.looking import look_at_job, start_look
from clusters.services.maintenance import (
    advance_maintenance,
    end_maintenance,
    measure_maintenance,
    plan_maintenance,
    preview_maintenance,
)
from clusters.services.own_cluster import (
    OwnOffer,
    OwnRegistration,
    ensure_own_cluster,
    own_cluster_offer,
)
from clusters.services.preflight.checks import run_preflight, start_preflight
from clusters.services.registration import (
    deregister_cluster,
    register_cluster,
    rotate_kubeconfig,
)
from clusters.services.roles import Serving, change_role, preview_role_change, serving_of
from clusters.services.switches import (
    edit_cluster,
    read_configuration,
    set_drift_policy,
    set_gpu_namespaces,
    set_guard,
    set_kueue_configuration,
    set_local_jobs,
    set_mode,
    set_operators,
    set_writes_enabled,
)
from clusters.services.taking_back import TakenBack, take_back_cluster
from clusters.services.tokens import (
    broken_credentials,
    reseal_credentials,
    rotate_due_tokens,
    rotate_multikueue_token,
    words_of_broken,
)
from clusters.services.what_if import (
    Asked,
    ShownReply,
    Verdict,
    ask_add,
    ask_drain,
    ask_raise,
    ask_weigh,
    raised_draft,
    replies_to,
    verdict_of,
)
from clusters.services.what_if_nodes import ask_rack, ask_taint
from clusters.services.workload_actions import (
    act_on_workloads,
    jobs_at_stake,
    run_workload_actions,
    withdraw_action,
)
