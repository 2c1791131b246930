"""Routes of the REST API, version 1."""

from __future__ import annotations

from django.urls import URLPattern, path, re_path

from portal.api.views import access, budgets, clusters, fleet, people, pools, usage, workloads
from portal.api.views.base import NowhereView

app_name = "api"

WORKSPACE = "workspaces/<slug:namespace>"
BUDGET = f"{WORKSPACE}/budget"
REVISION = f"{BUDGET}/revisions/<int:number>"
CLUSTER = "clusters/<slug:slug>"

urlpatterns: list[URLPattern] = [
    path("schema", access.SchemaView.as_view(), name="schema"),
    path("login", access.LoginView.as_view(), name="login"),
    path("me", access.MeView.as_view(), name="me"),
    path("tokens", access.TokensView.as_view(), name="tokens"),
    path("tokens/<int:pk>", access.TokenView.as_view(), name="token"),
    path("users", people.UsersView.as_view(), name="users"),
    path("users/<str:username>/password", people.PasswordView.as_view(), name="password"),
    path("members", people.MembersView.as_view(), name="members"),
    path("members/<int:pk>", people.MemberView.as_view(), name="member"),
    path("audit", access.AuditView.as_view(), name="audit"),
    path("operations/<uuid:pk>", access.OperationView.as_view(), name="operation"),
    path("setup", access.SetupView.as_view(), name="setup"),
    path("accounts", fleet.AccountsView.as_view(), name="accounts"),
    path("accounts/<slug:slug>", fleet.AccountView.as_view(), name="account"),
    path(
        "accounts/<slug:slug>/archive", fleet.ArchiveAccountView.as_view(), name="account-archive"
    ),
    path("flavors", fleet.FlavorsView.as_view(), name="flavors"),
    path("flavors/<slug:slug>", fleet.FlavorView.as_view(), name="flavor"),
    path("flavors/<slug:slug>/archive", fleet.ArchiveFlavorView.as_view(), name="flavor-archive"),
    path("capacities", fleet.CapacitiesView.as_view(), name="capacities"),
    path("envelopes", fleet.EnvelopesView.as_view(), name="envelopes"),
    path("pools", pools.PoolsView.as_view(), name="pools"),
    path("pools/<slug:slug>", pools.PoolView.as_view(), name="pool"),
    path("pools/<slug:slug>/archive", pools.ArchivePoolView.as_view(), name="pool-archive"),
    path("pools/<slug:slug>/amounts", pools.PoolAmountsView.as_view(), name="pool-amounts"),
    path("pools/<slug:slug>/shares", pools.PoolSharesView.as_view(), name="pool-shares"),
    path(
        "pools/<slug:slug>/shares/<slug:account>",
        pools.PoolShareView.as_view(),
        name="pool-share",
    ),
    path("workspaces", fleet.WorkspacesView.as_view(), name="workspaces"),
    path(WORKSPACE, fleet.WorkspaceView.as_view(), name="workspace"),
    path(f"{WORKSPACE}/archive", fleet.ArchiveWorkspaceView.as_view(), name="workspace-archive"),
    path(BUDGET, budgets.BudgetView.as_view(), name="budget"),
    path(f"{BUDGET}/preview", budgets.PreviewView.as_view(), name="preview"),
    path(f"{BUDGET}/stop", budgets.StopView.as_view(), name="stop"),
    path(f"{BUDGET}/reallocation", budgets.ReallocationView.as_view(), name="reallocation"),
    path(f"{BUDGET}/revisions", budgets.RevisionsView.as_view(), name="revisions"),
    path(REVISION, budgets.RevisionView.as_view(), name="revision"),
    path(f"{REVISION}/diff/<int:other>", budgets.DiffView.as_view(), name="revision-diff"),
    path(f"{REVISION}/decide", budgets.DecideView.as_view(), name="decide"),
    path(f"{REVISION}/withdraw", budgets.WithdrawView.as_view(), name="withdraw"),
    path(f"{REVISION}/restore", budgets.RestoreView.as_view(), name="restore"),
    path("requests", budgets.RequestsView.as_view(), name="requests"),
    path("usage", usage.UsageView.as_view(), name="usage"),
    path("usage/workloads", usage.WorkloadUsageView.as_view(), name="workload-usage"),
    path("fleet", usage.FleetView.as_view(), name="fleet"),
    path("clusters", clusters.ClustersView.as_view(), name="clusters"),
    path("cluster-inspection", clusters.InspectView.as_view(), name="inspect"),
    path(CLUSTER, clusters.ClusterView.as_view(), name="cluster"),
    path(f"{CLUSTER}/preflight", clusters.PreflightView.as_view(), name="preflight-run"),
    path(f"{CLUSTER}/kubeconfig", clusters.KubeconfigView.as_view(), name="kubeconfig"),
    path(f"{CLUSTER}/token", clusters.MultikueueTokenView.as_view(), name="cluster-token"),
    path(f"{CLUSTER}/settings", clusters.SettingsView.as_view(), name="cluster-settings"),
    path(f"{CLUSTER}/resolve", clusters.ResolveView.as_view(), name="cluster-resolve"),
    path(f"{CLUSTER}/deregister", clusters.DeregisterView.as_view(), name="cluster-deregister"),
    path(f"{CLUSTER}/rights", clusters.RightsView.as_view(), name="cluster-rights"),
    path("workloads", workloads.WorkloadsView.as_view(), name="workloads"),
    path("workloads/<slug:slug>/<str:uid>", workloads.WorkloadView.as_view(), name="workload"),
    path(f"{WORKSPACE}/now", workloads.NowView.as_view(), name="now"),
    re_path(r"^.*$", NowhereView.as_view(), name="nowhere"),
]
