"""Seeds the demo through the same services that the pages use. Run twice, it changes nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection, transaction

from budgets import services
from budgets.models import Account, AlertRule, Flavor, Role, User, Workspace
from budgets.plan import Line, RevisionDraft, Spill, short_form_lines
from budgets.services import alerts, billing
from budgets.services.usage.outlooks import refresh_outlooks
from clusters import services as cluster_services
from clusters.models import Cluster
from portal.demo_history import Tenant, write_history
from portal.demo_plans import write_plans

FLAVORS: tuple[dict[str, Any], ...] = (
    {"slug": "h100", "name": "H100 on demand", "labels": {"gpu": "h100", "market": "on-demand"}},
    {
        "slug": "h100-spot",
        "name": "H100 spot",
        "labels": {"gpu": "h100", "market": "spot"},
        "taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    },
    {"slug": "a100", "name": "A100", "labels": {"gpu": "a100"}},
    {"slug": "l4", "name": "L4", "labels": {"gpu": "l4"}, "gpus_per_node": 4},
)
CAPACITY = {
    "worker-1": {"h100": 64, "h100-spot": 32, "a100": 32, "l4": 16},
    "worker-2": {"h100": 32, "h100-spot": 32, "a100": 64, "l4": 32},
}
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
# Beyond so many GPU-hours of an account in a month, another price.
STEPS = {"h100": (billing.TierDraft("committed", 2_000, "1.95"),)}


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--kubeconfigs", type=Path, required=True)
        parser.add_argument("--days", type=int, default=5, help="days of history")

    def handle(self, *args: Any, **options: Any) -> None:
        if Account.objects.exists():
            self.stdout.write("already seeded")
            return
        with transaction.atomic():
            people = self.people()
            self.fleet(people["admin"])
            self.workspaces(people)
        self.clusters(people["admin"], options["kubeconfigs"])
        with transaction.atomic():
            self.budgets(people, options["days"])
            self.money(people, options["days"])
        write_history(
            tenants=tuple(self.tenants()),
            pools={("acme", "h100"): 8, ("acme", "h100-spot"): 16, ("globex", "h100-spot"): 16},
            days=options["days"],
        )
        if options["days"] > 0:
            write_plans(people)
        refresh_outlooks()
        self.stdout.write(f"seeded {Workspace.objects.count()} workspaces")

    def tenants(self) -> Iterator[Tenant]:
        for workspace in Workspace.objects.select_related("account", "budget__in_force"):
            revision = workspace.budget.in_force
            lines = (
                ()
                if revision is None
                else tuple(line.as_plan() for line in revision.lines.select_related("flavor"))
            )
            yield Tenant(account=workspace.account.slug, namespace=workspace.namespace, lines=lines)

    def people(self) -> dict[str, User]:
        def password(name: str) -> str:
            return os.environ.get(f"DEMO_{name.upper()}_PASSWORD", f"demo-{name}-password")

        admin = services.create_first_admin(
            username="admin", email="admin@example.com", password=password("admin")
        )
        made = {"admin": admin}
        for name, first in (("owner", "Olga"), ("finance", "Fin")):
            made[name] = services.create_user(
                admin,
                username=name,
                email=f"{name}@example.com",
                password=password(name),
                first_name=first,
            )
        services.grant_role(admin, user=made["finance"], role=Role.FINANCE)
        return made

    def fleet(self, admin: User) -> None:
        for position, spec in enumerate(FLAVORS):
            services.create_flavor(
                admin,
                slug=spec["slug"],
                name=spec["name"],
                node_labels={f"gpu-demo.dev/{k}": v for k, v in spec["labels"].items()},
                node_taints=spec.get("taints", []),
                tolerations=spec.get("tolerations", []),
                gpus_per_node=spec.get("gpus_per_node", 8),
                position=position,
            )
        for slug, name in ACCOUNTS.items():
            services.create_account(admin, slug=slug, name=name)

    def workspaces(self, people: dict[str, User]) -> None:
        admin = people["admin"]
        for account, slug, name, home, *_ in WORKSPACES:
            workspace = services.create_workspace(
                admin,
                account=Account.objects.get(slug=account),
                slug=slug,
                name=name,
                home_flavor=Flavor.objects.get(slug=home),
            )
            if workspace.namespace in ("acme-research", "acme-training"):
                services.grant_role(
                    admin, user=people["owner"], role=Role.OWNER, workspace=workspace
                )

    def clusters(self, admin: User, folder: Path) -> None:
        """Side by side: each registration waits some seconds for the proof that no Kueue runs."""

        def register(row: tuple[str, str, str]) -> None:
            slug, role, name = row
            try:
                cluster_services.register_cluster(
                    admin,
                    slug=slug,
                    name=name,
                    role=role,
                    mode=Cluster.Mode.PORTAL,
                    kubeconfig=(folder / f"{slug}.kubeconfig").read_text(),
                )
            finally:
                connection.close()

        rows = (
            ("manager", Cluster.Role.MANAGER, "Manager"),
            ("worker-1", Cluster.Role.WORKER, "Frankfurt"),
            ("worker-2", Cluster.Role.WORKER, "Dublin"),
        )
        with ThreadPoolExecutor(len(rows)) as pool:
            list(pool.map(register, rows))

    def budgets(self, people: dict[str, User], days: int) -> None:
        """Promises that began some days ago, so that the history has something to be under."""
        admin = people["admin"]
        begin = services.utc_now() - timedelta(days=days)
        services.grant_role(admin, user=admin, role=Role.FINANCE)
        for cluster, flavors in CAPACITY.items():
            for slug, gpus in flavors.items():
                services.set_capacity(
                    None,  # the portal itself: these nodes were there before it was
                    cluster=cluster,
                    flavor=Flavor.objects.get(slug=slug),
                    gpus=gpus,
                    valid_from=begin,
                    reason="Nodes of the demo",
                )
        for account, rows in ENVELOPES.items():
            for flavor, (committed, ceiling, pool) in rows.items():
                services.set_envelope(
                    admin,
                    account=Account.objects.get(slug=account),
                    flavor=Flavor.objects.get(slug=flavor),
                    committed=committed,
                    ceiling=ceiling,
                    pool=pool,
                )
        acme = Account.objects.get(slug="acme")
        services.create_pool(admin, slug="acme-pool", name="Acme's pool", account=acme)
        services.create_pool(admin, slug="spot-pool", name="Spot for everybody")
        self.pools(admin, begin)
        for row in WORKSPACES:
            self.promise(admin, begin, *row)

    def money(self, people: dict[str, User], days: int) -> None:
        """List prices since the first day of the history, and two things to be told about."""
        finance = people["finance"]
        begin = services.utc_now() - timedelta(days=days)
        card = billing.propose_rate_card(
            finance,
            name="List prices",
            currency="EUR",
            prices=[billing.PriceDraft(*row, tiers=STEPS.get(row[0], ())) for row in PRICES],
            reason="Agreed with the accounts",
        )
        billing.activate_rate_card(
            finance, card=card, valid_from=begin.replace(minute=0, second=0, microsecond=0)
        )
        research = Workspace.objects.get(namespace="acme-research")
        alerts.create_rule(
            people["owner"],
            measure=AlertRule.Measure.SPEND_FORECAST,
            limit=Decimal(40_000),
            workspace=research,
        )
        alerts.create_rule(
            finance,
            measure=AlertRule.Measure.IDLE_SHARE,
            limit=Decimal(60),
            window=AlertRule.Window.WEEK,
            account=research.account,
        )

    def pools(self, admin: User, begin: Any) -> None:
        from budgets.models import Pool

        pool = Pool.objects.get(slug="acme-pool")
        h100, spot = Flavor.objects.get(slug="h100"), Flavor.objects.get(slug="h100-spot")
        services.set_pool_amount(None, pool=pool, flavor=h100, gpus=8, valid_from=begin)
        shared = Pool.objects.get(slug="spot-pool")
        services.set_pool_amount(None, pool=shared, flavor=spot, gpus=32, valid_from=begin)
        for account, most in (("acme", 24), ("globex", 16)):
            services.set_pool_share(
                admin,
                pool=shared,
                account=Account.objects.get(slug=account),
                limits={"h100-spot": most},
            )

    def promise(
        self,
        admin: User,
        begin: Any,
        account: str,
        slug: str,
        name: str,
        home: str,
        committed: int,
        ceiling: int,
        preferred: str | None,
    ) -> None:
        lines: tuple[Line, ...] = short_form_lines(
            home_flavor=home, committed=committed, ceiling=ceiling, preferred=preferred
        )
        workspace = Workspace.objects.get(namespace=f"{account}-{slug}")
        services.revise_budget(
            admin,
            workspace=workspace,
            draft=RevisionDraft(
                lines=lines,
                preference=(preferred, home) if preferred else (),
                spill=Spill.NEXT_FLAVOR_FIRST,
                valid_from=begin,
                reason="Agreed for this quarter",
            ),
            expected_version=workspace.budget.version,
        )
