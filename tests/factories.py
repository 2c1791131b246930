"""factory-boy for rows of the database; what has rules goes through the services instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import factory

from budgets.models import (
    Account,
    Budget,
    Flavor,
    Interval,
    Membership,
    MeterState,
    Role,
    UsageRecord,
    User,
    WorkloadUsage,
    Workspace,
)
from budgets.services import rewrite_totals
from budgets.units import Period
from clusters.models import PendingReason
from tests.explained.evidence import waiting

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class UserFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = User
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"user{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.org")
    password = factory.django.Password("correct horse battery")


class MembershipFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Membership

    user = factory.SubFactory(UserFactory)
    role = Role.ADMIN


class FlavorFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Flavor
        django_get_or_create = ("slug",)

    slug = factory.Sequence(lambda n: f"flavor{n}")
    name = factory.LazyAttribute(lambda flavor: flavor.slug.upper())
    node_labels = factory.LazyAttribute(lambda flavor: {"gpu": flavor.slug})


class AccountFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Account
        django_get_or_create = ("slug",)

    slug = factory.Sequence(lambda n: f"account{n}")
    name = factory.LazyAttribute(lambda account: account.slug.title())


class WorkspaceFactory(factory.django.DjangoModelFactory):
    """With its budget, which has no revision."""

    class Meta:
        model = Workspace
        skip_postgeneration_save = True

    account = factory.SubFactory(AccountFactory)
    slug = factory.Sequence(lambda n: f"team{n}")
    namespace = factory.LazyAttribute(lambda row: f"{row.account.slug}-{row.slug}")
    name = factory.LazyAttribute(lambda row: row.slug.title())
    home_flavor = factory.SubFactory(FlavorFactory)
    budget = factory.RelatedFactory("tests.factories.BudgetFactory", "workspace")


class BudgetFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Budget

    workspace = factory.SubFactory(WorkspaceFactory, budget=None)


class IntervalFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Interval

    cluster = "gpu-east"
    uid = factory.Sequence(lambda n: f"uid-{n}")
    epoch = 1
    pod_set = "main"
    flavor = "h100"
    seq = 0
    workspace = factory.SubFactory(WorkspaceFactory)
    namespace = factory.LazyAttribute(lambda row: row.workspace.namespace)
    workload = factory.LazyAttribute(lambda row: f"job-{row.uid}")
    gpus = 8
    admitted_at = factory.LazyAttribute(lambda row: row.start)
    start = NOON
    state = Interval.State.OPEN
    kind = Interval.Kind.BILLABLE


class HourFactFactory(factory.django.DjangoModelFactory):
    """Base of hour facts: the totals are brought up to date with each, as the meter does."""

    class Meta:
        abstract = True

    @classmethod
    def _create(cls, model_class, *args, **kwargs):
        row = super()._create(model_class, *args, **kwargs)
        rewrite_totals(Period(row.hour, row.hour + timedelta(hours=1)))
        return row


class UsageRecordFactory(HourFactFactory):
    class Meta:
        model = UsageRecord

    workspace = factory.SubFactory(WorkspaceFactory)
    flavor = factory.SubFactory(FlavorFactory)
    hour = NOON
    start = factory.LazyAttribute(lambda row: row.hour)
    committed = 57_600
    committed_used = 36_000
    lent = 7_200
    idle = 14_400


class WorkloadUsageFactory(HourFactFactory):
    class Meta:
        model = WorkloadUsage

    workspace = factory.SubFactory(WorkspaceFactory)
    cluster = "gpu-east"
    uid = factory.Sequence(lambda n: f"uid-{n}")
    flavor = "h100"
    hour = NOON
    start = factory.LazyAttribute(lambda row: row.hour)


class MeterStateFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = MeterState
        django_get_or_create = ("cluster",)

    cluster = "gpu-east"
    complete_until = NOON


class PendingReasonFactory(factory.django.DjangoModelFactory):
    """Why a job of acme-vision waits: 8 H100, all of its 16 committed are in use."""

    class Meta:
        model = PendingReason

    cluster = "hub"
    uid = factory.Sequence(lambda n: f"uid-{n}")
    namespace = "acme-vision"
    name = factory.LazyAttribute(lambda row: f"job-{row.uid}")
    evidence = factory.LazyFunction(waiting)
    since = NOON
    updated_at = NOON
