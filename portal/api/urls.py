"""Routes of the REST API, version 1."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView

from portal.api import (
    access,
    acting,
    alerts,
    budgets,
    clusters,
    drafts,
    explained,
    exports,
    fleet,
    prices,
    proposals,
    spending,
    statements,
    usage,
    workloads,
)
from portal.api.views import NowhereView

app_name = "api"

WORKSPACE = "workspaces/<slug:namespace>"
BUDGET = f"{WORKSPACE}/budget"
JOB = "workloads/<slug:slug>/<str:uid>"

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("tokens", access.Tokens, "token")
router.register("users", access.Users, "user")
router.register("members", access.Members, "member")
router.register("group-rules", access.GroupRules, "group-rule")
router.register("operations", access.Operations, "operation")
router.register("exports", exports.Exports, "export")
router.register("export-plans", exports.ExportPlans, "export-plan")
router.register("accounts", fleet.Accounts, "account")
router.register("flavors", fleet.Flavors, "flavor")
router.register("workspaces", fleet.Workspaces, "workspace")
router.register("capacities", fleet.Capacities, "capacity")
router.register("pools", fleet.VisiblePools, "pool")
router.register(f"{BUDGET}/revisions", budgets.Revisions, "revision")
router.register(f"{BUDGET}/spend-rules", spending.SpendRules, "spend-rule")
router.register("rate-cards", prices.RateCards, "rate-card")
router.register("proposals", proposals.Proposals, "proposal")
router.register("exchange-rates", prices.ExchangeRates, "exchange-rate")
router.register("months", statements.Months, "month")
router.register("statements", statements.Statements, "statement")
router.register("adjustments", statements.Adjustments, "adjustment")
router.register("discrepancies", statements.Discrepancies, "discrepancy")
router.register("clusters", clusters.Clusters, "cluster")
router.register("workload-actions", acting.JobActions, "workload-action")
router.register("maintenance", acting.Maintenance, "maintenance")
router.register("what-if", explained.WhatIf, "what-if")
router.register("alerts", alerts.Alerts, "alert")
router.register("alert-rules", alerts.AlertRules, "alert-rule")
router.register("webhooks", alerts.Webhooks, "webhook")


def at(address: str, view: type[APIView], name: str) -> URLPattern:
    """The address of a view that is no noun's."""
    return path(address, view.as_view(), name=name)


urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    at("schema", access.SchemaView, "schema"),
    at("login", access.LoginView, "login"),
    at("me", access.MeView, "me"),
    at("users/<str:username>/tokens/<int:pk>", access.TokenOfUserView, "user-token"),
    at("audit", access.AuditView, "audit"),
    at("audit/file", access.AuditFileView, "audit-file"),
    at("setup", access.SetupView, "setup"),
    at("exports/<int:pk>/file", exports.ExportFileView, "export-file"),
    at("accounts/<slug:slug>/billing-terms", prices.BillingTermsView, "account-billing-terms"),
    at("accounts/<slug:slug>/invoice-details", prices.InvoiceDetailsView, "invoice-details"),
    at("flavors/<slug:slug>/spot-prices", prices.SpotPricesView, "flavor-spot-prices"),
    at("installation", proposals.InstallationView, "installation"),
    at("installation/price-tolerance", proposals.PriceToleranceView, "price-tolerance"),
    at("installation/one-person", proposals.OnePersonView, "one-person"),
    at("envelopes", fleet.EnvelopesView, "envelopes"),
    at("pools/<slug:slug>/shares/<slug:account>", fleet.PoolShareView, "pool-share"),
    at(f"{WORKSPACE}/now", workloads.NowView, "now"),
    at(f"{WORKSPACE}/looks", explained.LooksView, "workspace-looks"),
    at(BUDGET, budgets.BudgetView, "budget"),
    at(f"{BUDGET}/preview", drafts.PreviewView, "preview"),
    at(f"{BUDGET}/stop", budgets.StopView, "stop"),
    at(f"{BUDGET}/dating-back", budgets.DatingBackView, "dating-back"),
    at(f"{BUDGET}/reallocation", budgets.ReallocationView, "reallocation"),
    at(f"{BUDGET}/revisions/<int:number>/diff/<int:other>", budgets.DiffView, "revision-diff"),
    at("requests", budgets.RequestsView, "requests"),
    at("reconciliation", statements.ReconciliationView, "reconciliation"),
    at("usage", usage.UsageView, "usage"),
    at("usage/lending", usage.LendingView, "usage-lending"),
    at("usage/idle", usage.IdleView, "usage-idle"),
    at("usage/capacity", usage.CapacityUseView, "usage-capacity"),
    at("usage/groups", usage.GroupView, "usage-groups"),
    at("usage/workloads", usage.WorkloadUsageView, "usage-workloads"),
    at("fleet", fleet.FleetView, "fleet"),
    at("cluster-inspection", clusters.InspectView, "cluster-inspection"),
    at("clusters/<slug:slug>/shadow", explained.ShadowView, "cluster-shadow"),
    at("workloads", workloads.WorkloadsView, "workloads"),
    at(JOB, workloads.WorkloadView, "workload"),
    at(f"{JOB}/why", explained.WhyView, "workload-why"),
    at(f"{JOB}/actions", acting.JobActionView, "workload-actions"),
    re_path(r"^.*$", NowhereView.as_view(), name="nowhere"),
]
