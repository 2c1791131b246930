"""Set-up for real: the steps of an empty portal, accounts, workspaces, flavors, capacity."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import (
    Account,
    Capacity,
    Envelope,
    MeasuredCapacity,
    Membership,
    Role,
    User,
    Workspace,
)
from clusters import selectors as seen
from clusters import services as enforcement
from portal.web import setup_forms
from portal.web.forms import NameForm
from portal.web.htmx import render
from portal.web.setup_pages import (
    Row,
    Section,
    crumbs,
    dated_gpus,
    item_page,
    item_row,
    list_page,
    sections_page,
    setup_page,
)
from portal.web.tags import gpus, named, when

# Step of the set-up → page where it is done.
STEP_PAGES = {
    "flavors": "setup_flavors",
    "capacity": "setup_capacity",
    "accounts": "setup_accounts",
    "envelopes": "setup_accounts",
    "workspaces": "setup_workspaces",
    "members": "setup_people",
    "budgets": "workspaces",
    "finance": "setup_people",
}
PARTS = (
    ("setup_flavors", "GPU flavors", "Kinds of GPU nodes: labels, taints, resource name."),
    (
        "clusters",
        "Clusters",
        "One cluster, or a manager and its workers, registered with a kubeconfig.",
    ),
    ("setup_topologies", "Topologies", "Blocks and racks, by labels that nodes have."),
    ("setup_capacity", "Capacity", "GPUs of each flavor on each cluster, stated or measured."),
    ("setup_accounts", "Accounts and envelopes", "Customers, and what they may promise."),
    ("setup_workspaces", "Workspaces", "Each has a namespace, a queue and a budget."),
    ("setup_pools", "Pools", "Extra quota of an account or of the platform."),
    ("setup_people", "People and roles", "Who sees and who changes what."),
    ("setup_groups", "Groups of the company", "Which roles the groups of your company give."),
    ("setup_installation", "Installation", "Whether two people have to agree on what moves money."),
)


@setup_page
def setup(request: HttpRequest, user: User) -> HttpResponseBase:
    """Where an empty portal leads its admin, and the way to every part later."""
    steps: list[dict[str, Any]] = [
        {"step": step, "url": reverse(STEP_PAGES[step.key])} for step in selectors.setup_steps(user)
    ]
    context = {
        "steps": steps,
        "now": next((row["step"].key for row in steps if not row["step"].done), ""),
        "done": sum(row["step"].done for row in steps),
        "parts": [{"url": reverse(name), "title": t, "text": x} for name, t, x in PARTS],
    }
    return render(request, "setup/setup.html", context)


@setup_page
def accounts(request: HttpRequest, user: User) -> HttpResponseBase:
    """Customers: list, and a new one."""
    return list_page(
        request,
        what="account",
        title="Accounts",
        headline="An account is a customer. Its envelope says what its owners may promise without "
        "asking an admin.",
        columns=("Name", "Slug"),
        rows=[
            item_row("setup_account", row, row.slug)
            for row in selectors.visible_accounts(user, include_archived=True)
        ],
        empty="There is no account yet. An account is a customer; accounts never lend to others.",
        form=setup_forms.AccountForm,
        do=lambda typed: promises.create_account(user, **typed),
        said="Account {name} is added. Next, say how many GPUs its owners may promise without "
        "asking an admin.",
        to="/setup/accounts/{slug}/",
    )


@setup_page
def account(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """One customer: name, envelopes, the way out."""
    found = selectors.account_for(user, slug)
    envelopes = Envelope.objects.filter(account=found).select_related("flavor")
    is_new = found.archived_at is None and not found.workspaces.exists()
    sections = [
        Section(
            key="name",
            title="Name",
            form=NameForm,
            arguments={"initial": {"name": found.name}},
            do=lambda typed: promises.edit_account(user, account=found, **typed),
        ),
        Section(
            key="envelope",
            title="Envelope",
            text="A budget inside the envelope starts at once. A budget beyond it waits until you "
            "accept it.",
            columns=("Flavor", "Committed", "Burst limit of each workspace", "Account pool"),
            numbers=("Committed", "Burst limit of each workspace", "Account pool"),
            rows=[
                Row(row.flavor.name, gpus(row.committed), gpus(row.ceiling), gpus(row.pool))
                for row in envelopes
            ],
            empty="There is no envelope yet, so every budget of this account waits for an admin.",
            form=setup_forms.EnvelopeForm,
            do=lambda typed: promises.set_envelope(user, account=found, **typed),
            button="Set envelope",
            said="The envelope is set. Next, add the first workspace." if is_new else "Saved.",
            to=f"{reverse('setup_workspaces')}?account={slug}" if is_new else "",
        ),
    ]
    sections.append(_weight(found, "weigh_account", slug, "the same platform pool"))
    return item_page(
        request,
        found,
        what="account",
        headline=f"Account {found.slug}",
        sections=sections,
        above=("Accounts", "setup_accounts"),
        guide="Envelope" if is_new else "",
        farewell="Archive its workspaces first. Their use stays in the books.",
        archive=lambda reason: promises.archive_account(user, account=found, reason=reason),
    )


@setup_page
def workspaces(request: HttpRequest, user: User) -> HttpResponseBase:
    """Workspaces: list, and a new one."""
    chosen = request.GET.get("account", "")
    return list_page(
        request,
        what="workspace",
        title="Workspaces",
        headline="Each workspace has one namespace, one queue and one budget.",
        columns=("Name", "Namespace", "Account", "Home flavor"),
        rows=[
            item_row(
                "setup_workspace",
                row,
                row.namespace,
                row.account.name,
                row.home_flavor.name,
            )
            for row in selectors.visible_workspaces(user, include_archived=True)
        ],
        empty="There is no workspace yet. A workspace needs an account and a flavor first.",
        form=setup_forms.WorkspaceForm,
        arguments={"initial": {"account": chosen}},
        do=lambda typed: promises.create_workspace(user, **typed),
        said="Workspace {name} is added. Next, name its owner.",
        to="/setup/workspaces/{account.slug}-{slug}/",
        is_open=bool(chosen),
        guide="Workspace" if chosen else "",
    )


@setup_page
def workspace(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """One workspace: name, home flavor, the way out."""
    found = selectors.workspace_for(user, namespace)
    edit = Section(
        key="edit",
        title="Name and home flavor",
        text="The budget form puts the committed GPUs on the home flavor.",
        form=setup_forms.WorkspaceEditForm,
        arguments={"initial": {"name": found.name, "home_flavor": found.home_flavor}},
        do=lambda typed: promises.edit_workspace(user, workspace=found, **typed),
    )
    is_new = found.archived_at is None and found.budget.in_force_id is None
    return item_page(
        request,
        found,
        what="workspace",
        headline=f"Workspace {namespace}",
        sections=[
            _owners(user, found, is_new=is_new),
            edit,
            _weight(found, "weigh_workspace", namespace, "its account"),
        ],
        guide="Owner" if is_new else "",
        above=("Workspaces", "setup_workspaces"),
        farewell="Its queue is held and its promise ends. The namespace, its jobs and its use "
        "stay.",
        archive=lambda reason: promises.archive_workspace(user, workspace=found, reason=reason),
    )


def _weight(found: Account | Workspace, route: str, key: str, among: str) -> Section:
    """What its weight is, and the way to the page that gives another one."""
    shown = f"{found.fair_weight.normalize():f}"
    return Section(
        key="weight",
        title="Fair sharing",
        text="Where fair sharing is on, jobs of those who borrow least by weight go first in "
        f"{among}.",
        columns=("Weight", "To change"),
        rows=[Row(shown, "See what another weight would do", url=reverse(route, args=[key]))],
    )


def _owners(user: User, found: Workspace, *, is_new: bool) -> Section:
    """Who changes the budget of a workspace; after the first owner comes the first budget."""
    rows = Membership.objects.filter(role=Role.OWNER, workspace=found).select_related("user")
    people = User.objects.filter(is_active=True).order_by("username")
    offered = {row.username: (row.get_full_name() or row.username, row) for row in people}
    return Section(
        key="owners",
        title="Owners",
        text="An owner changes this budget. People who own the whole account own it as well.",
        columns=("Person", "E-mail"),
        rows=[Row(row.user.get_full_name() or row.user.username, row.user.email) for row in rows],
        empty="This workspace has no owner of its own. Add a person under People and roles first.",
        form=setup_forms.OwnerForm,
        arguments={"offered": {"user": offered}},
        do=lambda typed: promises.grant_role(user, role=Role.OWNER, workspace=found, **typed),
        button="Make owner",
        said="{user} owns this workspace. Next, give it its first budget."
        if is_new
        else "{user} owns this workspace.",
        to=reverse("budget", args=[found.namespace]) if is_new else "",
        is_open=is_new,
    )


@setup_page
def flavors(request: HttpRequest, user: User) -> HttpResponseBase:
    """GPU flavors: list, and a new one."""
    return list_page(
        request,
        what="flavor",
        title="GPU flavors",
        heading="Flavors",
        headline="A flavor is a kind of GPU node: a ResourceFlavor on clusters, a line in budgets.",
        columns=("Name", "Slug", "Resource", "GPUs on a node", "Factor"),
        rows=[
            item_row(
                "setup_flavor",
                row,
                row.slug,
                row.resource_name,
                row.gpus_per_node,
                row.oversubscription_factor,
            )
            for row in selectors.visible_flavors(user, include_archived=True)
        ],
        empty="There is no flavor yet. Describe the first kind of GPU node below.",
        form=setup_forms.FlavorForm,
        do=lambda typed: promises.create_flavor(user, **typed),
        said="Flavor {name} is added.",
    )


@setup_page
def flavor(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """One flavor: its nodes, its factor, the way out."""
    found = selectors.visible_flavors(user, include_archived=True).get(slug=slug)
    names = setup_forms.FlavorEditForm.base_fields
    edit = Section(
        key="edit",
        title="Nodes and rules",
        form=setup_forms.FlavorEditForm,
        arguments={"initial": {name: getattr(found, name) for name in names}},
        do=lambda typed: promises.edit_flavor(user, flavor=found, **typed),
    )
    return item_page(
        request,
        found,
        what="flavor",
        headline=f"Flavor {slug}",
        sections=[edit],
        above=("GPU flavors", "setup_flavors"),
        farewell="It can no longer be promised. No budget in force may use it.",
        archive=lambda reason: promises.archive_flavor(user, flavor=found, reason=reason),
    )


@setup_page
def capacity(request: HttpRequest, user: User) -> HttpResponseBase:
    """GPUs by cluster and flavor: what an admin states wins over what is measured."""
    clusters = {row.slug: (row.name, row.slug) for row in seen.cluster_rows(user) if row.runs_jobs}
    names = seen.cluster_names()
    stated = Capacity.objects.select_related("flavor").order_by("cluster", "flavor", "-valid_from")
    measured = MeasuredCapacity.objects.select_related("flavor").order_by("cluster", "flavor")
    sections = [
        Section(
            key="stated",
            title="Stated",
            text="A stated capacity replaces the measured one from its start to its end.",
            columns=("Cluster", "Flavor", "GPUs", "From", "Until", "Reason"),
            numbers=("GPUs",),
            rows=[Row(named(row.cluster, names), *dated_gpus(row), row.reason) for row in stated],
            empty="No capacity is stated, so the measured one counts.",
            form=setup_forms.CapacityForm,
            arguments={"offered": {"cluster": clusters}},
            do=lambda typed: enforcement.state_capacity(user, **typed),
            button="Set capacity",
        ),
        Section(
            key="measured",
            title="Measured",
            text="The GPUs of ready nodes that carry the flavor's labels.",
            columns=("Cluster", "Flavor", "Ready", "Broken", "In use", "Measured"),
            numbers=("Ready", "Broken", "In use"),
            rows=[
                Row(
                    named(row.cluster, names),
                    row.flavor.name,
                    gpus(row.ready_gpus),
                    gpus(row.broken_gpus),
                    gpus(row.used_gpus),
                    when(row.measured_at),
                )
                for row in measured
            ],
            empty="Nothing is measured yet. Register a cluster; it is measured within seconds.",
        ),
    ]
    headline = (
        "Promises are checked against these GPUs at every moment from a budget's start to its end."
    )
    return sections_page(
        request, title="Capacity", headline=headline, sections=sections, crumbs=crumbs()
    )
