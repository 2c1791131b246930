"""Fill the demo through the services that the pages use. A second run changes nothing."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from budgets import services
from budgets.models import (
    Account,
    AlertRule,
    ExportPlan,
    Flavor,
    Role,
    SpendRule,
    User,
    Workspace,
)
from budgets.plan import RevisionDraft, Spill, short_form_lines
from budgets.selectors import draft_of
from budgets.selectors.billing import card_in_force, month_at, prices_of
from budgets.selectors.spending import cap_states
from budgets.services import alerts, billing
from budgets.services.exports.plans import save_export_plan
from budgets.services.spending import RuleDraft, create_spend_rule, settle_spending
from budgets.services.usage.outlooks import refresh_outlooks
from clusters import services as cluster_services
from clusters.models import Cluster
from portal.demo_history import TEAM, Tenant, history_begins, record_jobs, write_history


def _labels(**labels: str) -> dict[str, str]:
    return {f"gpu-demo.dev/{key}": value for key, value in labels.items()}


FLAVORS: tuple[dict[str, Any], ...] = (
    {
        "slug": "h100",
        "name": "H100 on demand",
        "node_labels": _labels(gpu="h100", market="on-demand"),
    },
    {
        "slug": "h100-spot",
        "name": "H100 spot",
        "node_labels": _labels(gpu="h100", market="spot"),
        "node_taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    },
    {"slug": "a100", "name": "A100", "node_labels": _labels(gpu="a100")},
    {"slug": "l4", "name": "L4", "node_labels": _labels(gpu="l4"), "gpus_per_node": 4},
)
CAPACITY = {
    "worker-1": {"h100": 64, "h100-spot": 32, "a100": 32, "l4": 16},
    "worker-2": {"h100": 32, "h100-spot": 32, "a100": 64, "l4": 32},
}
ONE = "cluster"
FLEET = (
    ("manager", Cluster.Role.MANAGER, "Manager"),
    ("worker-1", Cluster.Role.WORKER, "Frankfurt"),
    ("worker-2", Cluster.Role.WORKER, "Dublin"),
)
ACCOUNTS = {"acme": "Acme Robotics", "globex": "Globex Life Sciences"}
WORKSPACES = (
    # account, slug, name, home flavor, committed, burst up to, preferred
    ("acme", "research", "Research", "h100", 16, 32, "h100-spot"),
    ("acme", "training", "Model training", "h100", 24, 40, None),
    ("acme", "inference", "Inference", "l4", 16, 24, None),
    ("globex", "vision", "Microscopy vision", "a100", 24, 48, None),
    ("globex", "folding", "Protein folding", "h100", 16, 24, "h100-spot"),
    ("globex", "sandbox", "Sandbox", "l4", 4, 12, None),
)
ENVELOPES = {
    "acme": {"h100": (56, 72, 8), "h100-spot": (0, 32, 8), "a100": (16, 32, 0), "l4": (24, 32, 8)},
    "globex": {"h100": (24, 40, 0), "h100-spot": (0, 24, 0), "a100": (40, 64, 8), "l4": (8, 16, 0)},
}
PRICES = (
    # flavor, committed, burst, lender's share of the committed price
    ("h100", "2.10", "3.40", "0.5"),
    ("h100-spot", "1.20", "1.60", "0"),
    ("a100", "1.10", "1.75", "0.5"),
    ("l4", "0.45", "0.70", "0.5"),
)
STEP = 50
DEARER = Decimal("1.1")
# Beyond so many GPU-hours of an account in a month, another price.
STEPS = {"h100": (billing.TierDraft("committed", 2_000, "1.95"),)}


def merged(capacity: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The nodes of all workers on the one cluster."""
    total = sum((Counter(flavors) for flavors in capacity.values()), Counter[str]())
    return {ONE: dict(total)}


def folder_of(options: Mapping[str, Any]) -> Path:
    """The folder with the demo's kubeconfigs, as a command was given it."""
    folder: Path = options["kubeconfigs"]
    if not any(folder.glob("*.kubeconfig")):
        raise CommandError(f"{folder} holds no kubeconfigs. 'make demo' makes them.")
    return folder


def close_last_month(finance: User) -> None:
    """Close, review and issue last month; what is told of it later is corrected in this one."""
    month = month_at(month_at(services.utc_now()).start - timedelta(days=1)).name
    billing.draw_up_statements(finance, month=month)
    billing.close_period(finance, month=month)
    billing.review_statements(finance, month=month)
    billing.issue_statements(finance, month=month)


def write_plans(people: dict[str, User]) -> None:
    """What people of the demo planned: a request, caps, prices, maintenance.

    Caps are set from what the history cost, so that one is nearly reached whatever the day of the
    month is.

    Args:
        people: ``owner``, ``finance`` and ``admin``.
    """
    research = Workspace.objects.get(namespace="acme-research")
    create_spend_rule(
        people["owner"],
        workspace=research,
        draft=RuleDraft(
            unit=SpendRule.Unit.MONEY,
            amount=_cap(research, SpendRule.Unit.MONEY, filled=Fraction(82, 100)),
            action=SpendRule.Action.DROP_TO_FLOOR,
        ),
        reason="The grant pays for the committed GPUs and this much beyond them",
    )
    training = Workspace.objects.get(namespace="acme-training")
    create_spend_rule(
        people["finance"],
        workspace=training,
        draft=RuleDraft(
            unit=SpendRule.Unit.GPU_HOURS,
            amount=_cap(training, SpendRule.Unit.GPU_HOURS, filled=Fraction(110, 100)),
        ),
        reason="Tell us when training bursts more than was agreed",
    )
    folding = Workspace.objects.get(namespace="globex-folding")
    create_spend_rule(
        people["finance"],
        workspace=folding,
        draft=RuleDraft(
            unit=SpendRule.Unit.MONEY,
            amount=_cap(folding, SpendRule.Unit.MONEY, filled=Fraction(134, 100), step=1),
            action=SpendRule.Action.DROP_TO_FLOOR,
        ),
        reason="Globex pays no more burst than this a month",
    )
    settle_spending()
    _request(people["owner"], research)
    billing.draw_up_statements(people["finance"], month=month_at(services.utc_now()).name)
    _next_prices(people["finance"])
    _maintenance(people["admin"])
    save_export_plan(
        people["finance"],
        name="FOCUS file of the day",
        every=ExportPlan.Every.DAY,
        dataset="focus-1.4",
        format="csv",
    )


def _request(owner: User, research: Workspace) -> None:
    """More committed GPUs than the account's envelope has room for: an admin decides."""
    research.budget.refresh_from_db()
    current = research.budget.in_force
    assert current is not None, "the seed promised something"
    draft = draft_of(current)
    lines = tuple(
        replace(line, committed=line.committed + 24, ceiling=line.ceiling + 32)
        if line.flavor == research.home_flavor.slug
        else line
        for line in draft.lines
    )
    services.revise_budget(
        owner,
        workspace=research,
        draft=replace(
            draft, lines=lines, valid_from=None, reason="The foundation model trains until spring"
        ),
        expected_version=research.budget.version,
    )


def _next_prices(finance: User) -> None:
    """A dearer list for the month after this one, which waits for a second person."""
    current = card_in_force(None, services.utc_now())
    assert current is not None
    card = billing.propose_rate_card(
        finance,
        name="List prices, next quarter",
        currency=current.currency,
        prices=[
            billing.PriceDraft(
                flavor, price.committed * DEARER, price.burst * DEARER, price.lending_credit
            )
            for flavor, price in prices_of(current).items()
        ],
        reason="Power costs more",
    )
    billing.propose_activation(
        finance, card=card, valid_from=month_at(services.utc_now()).end, reason="Power costs more"
    )


def _cap(workspace: Workspace, unit: str, *, filled: Fraction, step: int = STEP) -> Decimal:
    """A cap on this month's use beyond the floor that is filled so far, in round steps."""
    asked = SpendRule(budget=workspace.budget, unit=unit, amount=Decimal(1))
    spent = cap_states([asked])[0].spent
    return Decimal(max(step, round(spent / filled / step) * step))


def _maintenance(admin: User) -> None:
    """A night at the end of the week, told to the owners whose floors stand there."""
    begin = (services.utc_now() + timedelta(days=3)).replace(
        hour=20, minute=0, second=0, microsecond=0
    )
    cluster_services.plan_maintenance(
        admin,
        cluster=Cluster.objects.running_jobs().order_by("position").last(),
        flavor=Flavor.objects.get(slug="h100"),
        starts_at=begin,
        ends_at=begin + timedelta(hours=8),
        drains=False,
        reason="New firmware for the switches of Dublin's H100 racks",
    )


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--kubeconfigs", type=Path, required=True, help="folder with the demo's kubeconfigs"
        )
        parser.add_argument("--days", type=int, default=5, help="days of history before now")

    def handle(self, *args: Any, **options: Any) -> None:
        if Account.objects.exists():
            self.stdout.write("The demo has its data already.")
            return
        folder = folder_of(options)
        days = options["days"]
        now = services.utc_now()
        begin = history_begins(now, days) if days else now
        with transaction.atomic():
            self.people()
            self.fleet()
        is_one = (folder / f"{ONE}.kubeconfig").is_file()
        self.clusters(folder, ((ONE, Cluster.Role.SINGLE, "Frankfurt"),) if is_one else FLEET)
        with transaction.atomic():
            self.quota(begin, merged(CAPACITY) if is_one else CAPACITY)
            for row in WORKSPACES:
                self.promise(begin, row)
            self.money(begin)
        late = write_history(
            tenants=tuple(self.tenants()),
            pools={("acme", "h100"): 8, ("acme", "h100-spot"): 16, ("globex", "h100-spot"): 16},
            days=days,
        )
        if days > 0:
            close_last_month(self.finance)
            record_jobs(late)
            write_plans({"admin": self.admin, "owner": self.owner, "finance": self.finance})
        refresh_outlooks()
        self.stdout.write(f"The demo has {len(self.workspaces)} workspaces now.")

    def tenants(self) -> Iterator[Tenant]:
        for workspace in Workspace.objects.select_related("account", "budget__in_force"):
            revision = workspace.budget.in_force
            rows = revision.lines.select_related("flavor") if revision else ()
            lines = tuple(line.as_plan() for line in rows)
            yield Tenant(account=workspace.account.slug, namespace=workspace.namespace, lines=lines)

    def people(self) -> None:
        def named(name: str) -> dict[str, str]:
            password = os.environ.get(f"DEMO_{name.upper()}_PASSWORD", f"demo-{name}-password")
            return {"username": name, "email": f"{name}@example.com", "password": password}

        self.admin = services.create_first_admin(**named("admin"))
        self.owner = services.create_user(self.admin, **named("owner"), first_name="Olga")
        self.finance = services.create_user(self.admin, **named("finance"), first_name="Fin")
        self.controller = services.create_user(self.admin, **named("controller"), first_name="Cora")
        for person in (self.finance, self.controller):
            # By the portal itself: what an admin gives is told to all, and waits a day.
            services.grant_role(None, user=person, role=Role.FINANCE)

    def fleet(self) -> None:
        self.flavors = {
            spec["slug"]: services.create_flavor(self.admin, **spec, position=position)
            for position, spec in enumerate(FLAVORS)
        }
        self.accounts = {
            slug: services.create_account(self.admin, slug=slug, name=name)
            for slug, name in ACCOUNTS.items()
        }
        self.workspaces = {}
        for account, slug, name, home, *_ in WORKSPACES:
            self.workspaces[f"{account}-{slug}"] = services.create_workspace(
                self.admin,
                account=self.accounts[account],
                slug=slug,
                name=name,
                home_flavor=self.flavors[home],
            )
        for namespace in ("acme-research", "acme-training"):
            workspace = self.workspaces[namespace]
            services.grant_role(self.admin, user=self.owner, role=Role.OWNER, workspace=workspace)

    def clusters(self, folder: Path, rows: Sequence[tuple[str, str, str]]) -> None:
        """Side by side: each registration waits some seconds for the proof that no Kueue runs."""

        def register(row: tuple[str, str, str]) -> None:
            slug, role, name = row
            try:
                cluster_services.register_cluster(
                    self.admin,
                    slug=slug,
                    name=name,
                    role=role,
                    mode=Cluster.Mode.PORTAL,
                    kubeconfig=(folder / f"{slug}.kubeconfig").read_text(),
                )
            finally:
                connection.close()

        with ThreadPoolExecutor(len(rows)) as pool:
            list(pool.map(register, rows))

    def quota(self, begin: datetime, capacity: Mapping[str, Mapping[str, int]]) -> None:
        """Nodes, envelopes and pools since some days ago, for the history to be under."""
        for cluster, flavors in capacity.items():
            for flavor, gpus in flavors.items():
                services.set_capacity(
                    None,  # the portal itself: these nodes were there before it was
                    cluster=cluster,
                    flavor=self.flavors[flavor],
                    gpus=gpus,
                    valid_from=begin,
                    reason="Nodes of the demo",
                )
        services.name_label(self.admin, key=TEAM, reason="Costs are looked at by team")
        for account, rows in ENVELOPES.items():
            for flavor, (committed, ceiling, pool) in rows.items():
                services.set_envelope(
                    self.admin,
                    account=self.accounts[account],
                    flavor=self.flavors[flavor],
                    committed=committed,
                    ceiling=ceiling,
                    pool=pool,
                )
        own = services.create_pool(
            self.admin, slug="acme-pool", name="Acme's pool", account=self.accounts["acme"]
        )
        shared = services.create_pool(self.admin, slug="spot-pool", name="Spot for everybody")
        for of, flavor, gpus in ((own, "h100", 8), (shared, "h100-spot", 32)):
            services.set_pool_amount(
                None, pool=of, flavor=self.flavors[flavor], gpus=gpus, valid_from=begin
            )
        for account, most in (("acme", 24), ("globex", 16)):
            services.set_pool_share(
                self.admin, pool=shared, account=self.accounts[account], limits={"h100-spot": most}
            )

    def promise(
        self, begin: datetime, row: tuple[str, str, str, str, int, int, str | None]
    ) -> None:
        """What a workspace was promised when the history began."""
        account, slug, _, home, committed, ceiling, preferred = row
        workspace = Workspace.objects.get(namespace=f"{account}-{slug}")
        services.revise_budget(
            None,  # the portal itself: the history was before it was
            workspace=workspace,
            draft=RevisionDraft(
                lines=short_form_lines(
                    home_flavor=home, committed=committed, ceiling=ceiling, preferred=preferred
                ),
                preference=(preferred, home) if preferred else (),
                spill=Spill.NEXT_FLAVOR_FIRST,
                valid_from=begin,
                reason="Agreed for this quarter",
            ),
            expected_version=workspace.budget.version,
        )

    def money(self, begin: datetime) -> None:
        """List prices since the first day of the history, and two things to be told about."""
        card = billing.propose_rate_card(
            self.finance,
            name="List prices",
            currency="EUR",
            prices=[billing.PriceDraft(*row, tiers=STEPS.get(row[0], ())) for row in PRICES],
            reason="Agreed with the accounts",
        )
        proposal = billing.propose_activation(
            self.finance,
            card=card,
            valid_from=begin.replace(minute=0, second=0, microsecond=0),
            reason="Agreed with the accounts",
        )
        billing.decide_proposal(self.controller, proposal=proposal, is_approved=True)
        alerts.create_rule(
            self.owner,
            measure=AlertRule.Measure.SPEND_FORECAST,
            limit=Decimal(40_000),
            workspace=self.workspaces["acme-research"],
        )
        alerts.create_rule(
            self.finance,
            measure=AlertRule.Measure.IDLE_SHARE,
            limit=Decimal(60),
            window=AlertRule.Window.WEEK,
            account=self.accounts["acme"],
        )
