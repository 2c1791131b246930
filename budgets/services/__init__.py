"""Writes: each one atomic, checked in full, allowed or refused, and in the audit log.

The first argument is who acts, None for the portal itself. Whoever may not gets ``NotAllowed``;
what is wrong is told at once, in one ``Rejected``, and nothing is written. Locks are taken in one
order: account, flavors, pool, budget.
"""

from __future__ import annotations

from budgets.selectors.clock import utc_now
from budgets.services.access import (
    authenticate_api_token,
    create_api_token,
    create_first_admin,
    create_user,
    deactivate_user,
    grant_role,
    reactivate_user,
    revoke_api_token,
    revoke_role,
    set_password,
)
from budgets.services.audit import audit
from budgets.services.budget.dating_back import propose_dating_back
from budgets.services.budget.holds import reallocate, set_stop_policy
from budgets.services.budget.in_force import advance_in_force
from budgets.services.budget.revisions import (
    decide_request,
    restore_revision,
    revise_budget,
    undo_revision,
    withdraw_request,
)
from budgets.services.budget.versions import mark_dirty
from budgets.services.company import (
    add_group_rule,
    connect_identity,
    disconnect_identity,
    enter,
    remove_group_rule,
)
from budgets.services.finance import end_one_person, propose_price_tolerance, start_one_person
from budgets.services.fleet.accounts import (
    archive_account,
    archive_workspace,
    create_account,
    create_workspace,
    edit_account,
    edit_workspace,
    set_envelope,
    weigh_account,
    weigh_workspace,
)
from budgets.services.fleet.flavors import archive_flavor, create_flavor, edit_flavor
from budgets.services.fleet.measured import HeldNow, record_measured_capacity
from budgets.services.fleet.pools import (
    archive_pool,
    create_pool,
    remove_pool_share,
    retire_capacity,
    set_capacity,
    set_pool_amount,
    set_pool_share,
)
from budgets.services.fleet.topologies import archive_topology, create_topology, give_topology
from budgets.services.operations import advance_operation, finish_operation, start_operation
from budgets.services.second_factor import (
    Begun,
    begin_second_factor,
    broken_second_factors,
    confirm_second_factor,
    drop_second_factor,
    has_second_factor,
    remove_second_factor,
    renew_recovery_codes,
    second_factor_of,
    use_code,
)
from budgets.services.usage.hour_facts import (
    MeterError,
    count_wrong_totals,
    rebuild_totals,
    rewrite_totals,
)
from budgets.services.usage.labels import drop_label, name_label
from budgets.services.usage.ledger import record_progress, store_intervals
from budgets.services.usage.meter import meter_usage
