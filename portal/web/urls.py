"""Routes of the pages."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.web import (
    audit,
    budgets,
    clusters,
    fleet,
    jobs,
    operations,
    probes,
    registration,
    revisions,
    session,
    setup,
    setup_capacity,
    setup_people,
    usage,
    workspaces,
)

WORKSPACE = "workspaces/<slug:namespace>/"
CLUSTER = "clusters/<slug:slug>/"

urlpatterns: list[URLPattern] = [
    path("", workspaces.home, name="home"),
    path("healthz", probes.alive, name="healthz"),
    path("readyz", probes.ready, name="readyz"),
    path("login/", session.Login.as_view(), name="login"),
    path("logout/", session.Logout.as_view(), name="logout"),
    path("password/", session.password_change, name="password_change"),
    path("profile/", session.profile, name="profile"),
    path("tokens/", session.tokens, name="tokens"),
    path("tokens/<int:token_id>/revoke/", session.token_revoke, name="token_revoke"),
    path(WORKSPACE, workspaces.workspace, name="workspace"),
    path(f"{WORKSPACE}budget/", budgets.budget_form, name="budget"),
    path(f"{WORKSPACE}budget/check/", budgets.budget_check, name="budget_check"),
    path(f"{WORKSPACE}budget/stop/", budgets.stop_policy, name="stop_policy"),
    path(f"{WORKSPACE}budget/reallocate/", budgets.reallocate, name="reallocate"),
    path(f"{WORKSPACE}history/", revisions.history, name="history"),
    path(f"{WORKSPACE}history/<int:number>/", revisions.revision, name="revision"),
    path(f"{WORKSPACE}history/<int:number>/decide/", revisions.decide, name="decide"),
    path("requests/", revisions.requests, name="requests"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/<slug:cluster>/<str:uid>/", jobs.job, name="job"),
    path("usage/", usage.usage, name="usage"),
    path("fleet/", fleet.fleet, name="fleet"),
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/register/", registration.register, name="register"),
    path(CLUSTER, clusters.cluster, name="cluster"),
    path(f"{CLUSTER}rights.yaml", clusters.cluster_rights, name="cluster_rights"),
    path(f"{CLUSTER}preflight/", clusters.cluster_preflight, name="cluster_preflight"),
    path(f"{CLUSTER}<slug:change>/", clusters.cluster_change, name="cluster_change"),
    path("audit/", audit.audit, name="audit"),
    path("operations/<uuid:operation_id>/", operations.operation, name="operation"),
    path("setup/", setup.setup, name="setup"),
    path("setup/accounts/", setup.accounts, name="setup_accounts"),
    path("setup/accounts/<slug:slug>/", setup.account, name="setup_account"),
    path("setup/workspaces/", setup.workspaces, name="setup_workspaces"),
    path("setup/workspaces/<slug:namespace>/", setup.workspace, name="setup_workspace"),
    path("setup/flavors/", setup.flavors, name="setup_flavors"),
    path("setup/flavors/<slug:slug>/", setup.flavor, name="setup_flavor"),
    path("setup/capacity/", setup_capacity.capacity, name="setup_capacity"),
    path("setup/pools/", setup_people.pools, name="setup_pools"),
    path("setup/pools/<slug:slug>/", setup_people.pool, name="setup_pool"),
    path("setup/people/", setup_people.people, name="setup_people"),
    path("setup/people/<int:user_id>/", setup_people.person, name="setup_person"),
]
