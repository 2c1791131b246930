"""Routes of the REST API, version 1."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path
from rest_framework.routers import SimpleRouter

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

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    path("schema", access.SchemaView.as_view(), name="schema"),
    path("login", access.LoginView.as_view(), name="login"),
    path("me", access.MeView.as_view(), name="me"),
    path(
        "users/<str:username>/tokens/<int:pk>",
        access.TokenOfUserView.as_view(),
        name="user-token",
    ),
    path("audit", access.AuditView.as_view(), name="audit"),
    path("setup", access.SetupView.as_view(), name="setup"),
    path("exports/<int:pk>/file", exports.ExportFileView.as_view(), name="export-file"),
    path(
        "accounts/<slug:slug>/billing-terms",
        prices.BillingTermsView.as_view(),
        name="account-billing-terms",
    ),
    path(
        "flavors/<slug:slug>/spot-prices",
        prices.SpotPricesView.as_view(),
        name="flavor-spot-prices",
    ),
    path("installation", proposals.InstallationView.as_view(), name="installation"),
    path(
        "installation/price-tolerance",
        proposals.PriceToleranceView.as_view(),
        name="price-tolerance",
    ),
    path("installation/one-person", proposals.OnePersonView.as_view(), name="one-person"),
    path("envelopes", fleet.EnvelopesView.as_view(), name="envelopes"),
    path(
        "pools/<slug:slug>/shares/<slug:account>", fleet.PoolShareView.as_view(), name="pool-share"
    ),
    path(f"{WORKSPACE}/now", workloads.NowView.as_view(), name="now"),
    path(BUDGET, budgets.BudgetView.as_view(), name="budget"),
    path(f"{BUDGET}/preview", drafts.PreviewView.as_view(), name="preview"),
    path(f"{BUDGET}/stop", budgets.StopView.as_view(), name="stop"),
    path(f"{BUDGET}/dating-back", budgets.DatingBackView.as_view(), name="dating-back"),
    path(f"{BUDGET}/reallocation", budgets.ReallocationView.as_view(), name="reallocation"),
    path(
        f"{BUDGET}/revisions/<int:number>/diff/<int:other>",
        budgets.DiffView.as_view(),
        name="revision-diff",
    ),
    path("requests", budgets.RequestsView.as_view(), name="requests"),
    path("reconciliation", statements.ReconciliationView.as_view(), name="reconciliation"),
    path("usage", usage.UsageView.as_view(), name="usage"),
    path("usage/lending", usage.LendingView.as_view(), name="usage-lending"),
    path("usage/idle", usage.IdleView.as_view(), name="usage-idle"),
    path("usage/capacity", usage.CapacityUseView.as_view(), name="usage-capacity"),
    path("usage/workloads", usage.WorkloadUsageView.as_view(), name="usage-workloads"),
    path("fleet", fleet.FleetView.as_view(), name="fleet"),
    path("cluster-inspection", clusters.InspectView.as_view(), name="cluster-inspection"),
    path("clusters/<slug:slug>/shadow", explained.ShadowView.as_view(), name="cluster-shadow"),
    path("workloads", workloads.WorkloadsView.as_view(), name="workloads"),
    path(JOB, workloads.WorkloadView.as_view(), name="workload"),
    path(f"{JOB}/why", explained.WhyView.as_view(), name="workload-why"),
    path(f"{JOB}/actions", acting.JobActionView.as_view(), name="workload-actions"),
    re_path(r"^.*$", NowhereView.as_view(), name="nowhere"),
]
