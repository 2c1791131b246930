"""Whatever somebody changes is in the audit log: found in the code, so that nothing is left out.

A service that takes an actor changes something in that name. From each, calls are followed as far
as they lead within the services; one of them has to write the log.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.controls import ROOT

FOLDERS = ("budgets/services", "clusters/services")
LOG = ("budgets.services.audit", "audit")
# What takes an actor and has nothing for the log, and why.
ASKS, LOOKS = "refuses, and changes nothing", "looks, and keeps nothing but what was seen"
NOTHING_TO_LOG = {
    "budgets.services.alerts.webhooks.test_webhook": "sends a test, and keeps nothing",
    "budgets.services.billing.approvals.approve": "the signature of a deed, which is logged",
    "budgets.services.finance.require_fair_grant": ASKS,
    "budgets.services.guards.require_admin": ASKS,
    "budgets.services.guards.require_finance": ASKS,
    "budgets.services.guards.require_office": ASKS,
    "budgets.services.guards.roles_for": ASKS,
    "budgets.services.operations.start_operation": "how far something is, which is logged",
    "budgets.services.saved_views.delete_view": "a list of their own",
    "budgets.services.saved_views.save_view": "a list of their own",
    "budgets.services.second_factor.begin_second_factor": "logged once it is confirmed",
    "clusters.services.inspection.held_kubeconfig": LOOKS,
    "clusters.services.inspection.hold_kubeconfig": "for some minutes, until it is registered",
    "clusters.services.inspection.kubeconfig_from_file": LOOKS,
    "clusters.services.looking.start_look": LOOKS,
    "clusters.services.maintenance.preview_maintenance": LOOKS,
    "clusters.services.own_cluster.own_cluster_offer": LOOKS,
    "clusters.services.preflight.checks.run_preflight": LOOKS,
    "clusters.services.preflight.checks.start_preflight": LOOKS,
    "clusters.services.roles.preview_role_change": LOOKS,
    "clusters.services.what_if.ask_add": LOOKS,
    "clusters.services.what_if.ask_drain": LOOKS,
    "clusters.services.what_if.ask_raise": LOOKS,
    "clusters.services.what_if.ask_weigh": LOOKS,
    "clusters.services.what_if.require_admin": ASKS,
    "clusters.services.what_if_nodes.ask_rack": LOOKS,
    "clusters.services.what_if_nodes.ask_taint": LOOKS,
    "clusters.services.workload_actions.jobs_at_stake": LOOKS,
}

Place = tuple[str, str]
"""Of a function: its module, and its name there."""


def test_every_service_that_changes_something_writes_the_audit_log():
    silent = {f"{place[0]}.{place[1]}" for place in _services() if not _reaches_log(place)}
    assert silent == set(NOTHING_TO_LOG)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("budgets.services.alerts.deliver.retry_delivery", True, id="itself"),
        pytest.param("budgets.services.budget.revisions.restore_revision", True, id="by another"),
        pytest.param("budgets.services.alerts.deliver.deliver_alerts", False, id="not at all"),
    ],
)
def test_calls_are_followed_to_the_log(name: str, want: bool):
    module, _, function = name.rpartition(".")
    assert _reaches_log((module, function)) is want


def _services() -> Iterator[Place]:
    """Public functions of services whose first parameter is the actor."""
    for module in _modules():
        for node in _tree(module).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            names = [given.arg for given in (*node.args.posonlyargs, *node.args.args)]
            if names[:1] == ["actor"]:
                yield module, node.name


def _reaches_log(place: Place) -> bool:
    seen, waiting = set[Place](), [place]
    while waiting:
        module, name = at = waiting.pop()
        if at == LOG:
            return True
        if at not in seen and module in _modules():
            seen.add(at)
            waiting += _called(module, name)
    return False


def _called(module: str, name: str) -> Iterator[Place]:
    """What a function names of what is known in its module; where it comes from, of what is not."""
    known = _known(module)
    body = next((node for node in _tree(module).body if getattr(node, "name", "") == name), None)
    if body is None:
        if name in known:
            yield known[name]
        return
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id in known:
            yield known[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            whole = known.get(node.value.id)
            if whole is not None:
                yield ".".join(whole), node.attr


@cache
def _known(module: str) -> Mapping[str, Place]:
    """Names of a module → where they are from: its own functions, and what it imports."""
    found: dict[str, Place] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = (module, node.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(import_module(module).__file__ or "").read_text())


@cache
def _modules() -> frozenset[str]:
    paths = (path.relative_to(ROOT) for each in FOLDERS for path in (ROOT / each).rglob("*.py"))
    names = (str(path.with_suffix("")).replace("/", ".") for path in paths)
    return frozenset(name.removesuffix(".__init__") for name in names)
