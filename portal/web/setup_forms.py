"""Forms of the set-up pages."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.conf import settings

from budgets.models import Account, Flavor, GroupRule, Membership, Role, Workspace
from budgets.plan import MOST_GPUS
from portal.bounds import NAME, OVERSUBSCRIPTION, PERSON_NAME
from portal.web.forms import (
    ChoosingForm,
    GpuField,
    NameForm,
    OfferedField,
    PairsField,
    PasswordField,
    PortalForm,
    ReasonForm,
    TaintsField,
    TimeField,
    choice_of,
)

# Whole GPUs, of which the service says how many are too many.
_WHOLE: Final = re.compile(r"[0-9]{1,9}")


def slug_field(more: str = "", *, longest: int = 40) -> forms.CharField:
    """What something is called in addresses and on clusters, for good."""
    hint = "It never changes; it is part of names on the clusters."
    return forms.CharField(label="Slug", max_length=longest, help_text=f"{hint} {more}".strip())


class AccountForm(NameForm):
    """A new customer."""

    slug = slug_field("No hyphen.", longest=30)
    field_order = ["slug", "name"]


class EnvelopeForm(ChoosingForm):
    """What an account may promise itself of one flavor."""

    flavor = choice_of(Flavor, "Flavor")
    committed = GpuField(
        label="Committed, all workspaces together",
        help_text="The most GPUs that all its workspaces may have committed.",
    )
    ceiling = GpuField(label="Burst limit of each workspace", help_text="In GPUs.")
    pool = GpuField(label="Account pool", help_text="In GPUs.", initial=0)


class WorkspaceEditForm(ChoosingForm, NameForm):
    """Name and home flavor of a workspace."""

    home_flavor = choice_of(Flavor, "Home flavor")


class LabelForm(ReasonForm):
    """A label of jobs to group by."""

    key = forms.CharField(
        label="Label",
        max_length=317,
        help_text="The key as on jobs, such as team or example.org/cost-centre.",
    )
    field_order = ["key", "reason"]


class OwnerForm(PortalForm):
    """Who is to own a workspace."""

    user = OfferedField(
        label="Person", is_typed_of_many=True, empty_label="choose a person", required=True
    )


class WorkspaceForm(WorkspaceEditForm):
    """A new workspace."""

    account = choice_of(Account, "Account")
    slug = slug_field("The namespace is ACCOUNT-SLUG.")
    fault_fields = {"namespace": "slug"}
    field_order = ["account", "slug", "name", "home_flavor"]


class FlavorEditForm(NameForm):
    """What may change of a kind of GPU node."""

    resource_name = forms.CharField(label="Resource name", initial="nvidia.com/gpu", **NAME)
    gpus_per_node = forms.IntegerField(label="GPUs on one node", min_value=1, initial=8)
    node_labels = PairsField(
        label="Node labels", help_text="key=value, one on each line; they choose the nodes."
    )
    node_taints = TaintsField(label="Node taints", help_text="key=value:Effect on each line.")
    tolerations = TaintsField(
        as_tolerations=True, label="Tolerations", help_text="key=value:Effect on each line."
    )
    clock_start = forms.ChoiceField(
        label="Use counts from", choices=Flavor.ClockStart.choices, initial="Admitted"
    )
    oversubscription_factor = forms.DecimalField(
        label="Promises up to capacity times",
        initial=Decimal("1.00"),
        help_text="Above 1, more GPUs can be promised than there are.",
        **OVERSUBSCRIPTION,
    )
    position = forms.IntegerField(label="Place in lists", min_value=0, initial=0)


class FlavorForm(FlavorEditForm):
    """A new kind of GPU node."""

    slug = slug_field("The ResourceFlavor's name.")
    field_order = ["slug", "name"]


class TopologyForm(NameForm):
    """How nodes stand together: labels that nodes have, the largest domain first."""

    slug = slug_field("The Topology's name.")
    first = OfferedField(label="Largest domain, such as a block", is_typed_of_many=True)
    second = OfferedField(
        label="Within it, such as a rack", empty_label="nothing", is_typed_of_many=True
    )
    third = OfferedField(label="Within that", empty_label="nothing", is_typed_of_many=True)
    by_host = forms.BooleanField(
        label="Nodes as the smallest domain",
        required=False,
        initial=True,
        help_text="kubernetes.io/hostname. Jobs are then told their nodes, and a lost node is "
        "replaced.",
    )
    fault_fields = {"levels": "first"}
    field_order = ["slug", "name"]


class FlavorTopologyForm(PortalForm):
    """Which flavor gets a topology."""

    flavor = OfferedField(label="Flavor")


class PoolAmountForm(ChoosingForm):
    """GPUs of a flavor in a pool."""

    flavor = choice_of(Flavor, "Flavor")
    gpus = GpuField(label="GPUs")
    valid_from = TimeField(label="From", help_text="Leave it empty to start now.")
    valid_until = TimeField(label="Until", help_text="Leave it empty for no end.")


class CapacityForm(PoolAmountForm):
    """GPUs of a flavor on a cluster, as an admin states them."""

    cluster = OfferedField(label="Cluster")
    reason = forms.CharField(label="Reason", max_length=200, required=False)
    field_order = ["cluster"]


class PoolForm(ChoosingForm):
    """A new pool: an account's own, or a platform pool."""

    slug = slug_field()
    name = forms.CharField(label="Name", **NAME)
    account = choice_of(
        Account,
        "Belongs to",
        required=False,
        empty_label="the platform: several accounts draw on it",
    )


class PoolShareForm(ChoosingForm):
    """An account that may draw on a platform pool."""

    account = choice_of(Account, "Account")
    limits = PairsField(
        label="At most", help_text="flavor=GPUs on each line; a flavor left out has no limit."
    )

    def clean_limits(self) -> dict[str, int]:
        limits: dict[str, int] = {}
        for flavor, text in self.cleaned_data["limits"].items():
            if not _WHOLE.fullmatch(text):
                raise forms.ValidationError(
                    f"{text[:40]!r} is not a number of whole GPUs from 0 to {MOST_GPUS:,}. Write a "
                    "line such as h100=16."
                )
            limits[flavor] = int(text)
        return limits


class NewPasswordForm(PortalForm):
    """A password that an admin sets."""

    password = PasswordField(label="New password")


class PersonForm(PortalForm):
    """A new person."""

    username = forms.CharField(label="User name", **PERSON_NAME)
    email = forms.EmailField(label="E-mail")
    first_name = forms.CharField(label="First name", required=False, **PERSON_NAME)
    last_name = forms.CharField(label="Last name", required=False, **PERSON_NAME)
    password = PasswordField(
        label="First password",
        help_text="At least 12 characters. They can change it in their profile.",
    )


class RoleForm(ChoosingForm):
    """A role and where it holds."""

    role = forms.ChoiceField(label="Role", choices=Role.choices)
    account = choice_of(
        Account, "Of the whole account", required=False, help_text="For owner and viewer."
    )
    workspace = choice_of(
        Workspace, "Or of one workspace", required=False, help_text="For owner and viewer."
    )

    def clean(self) -> dict[str, Any]:
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        scopes = [name for name in ("account", "workspace") if typed.get(name)]
        if typed.get("role") in (Role.OWNER, Role.VIEWER) and len(scopes) != 1:
            self.add_error("account", "Choose one account or one workspace for this role.")
        if typed.get("role") not in (Role.OWNER, Role.VIEWER) and scopes:
            self.add_error(scopes[0], "This role holds for the whole platform; leave it empty.")
        return typed


class GroupRuleForm(RoleForm):
    """A group at a provider, and the role that it gives."""

    field_order = ("provider", "group", "role", "account", "workspace")
    provider = forms.ChoiceField(
        label="Provider",
        choices=lambda: [(row.name, row.label) for row in settings.PORTAL_PROVIDERS.values()],
    )
    group = forms.CharField(
        label="Group", max_length=200, help_text="Exactly as the provider names it in its claim."
    )


def scope_of(membership: Membership | GroupRule) -> str:
    """Where a role holds, in words."""
    if membership.workspace is not None:
        return f"workspace {membership.workspace.name}"
    return f"account {membership.account.name}" if membership.account else "the platform"
