"""Pages at 1,000 workspaces and a million intervals on PostgreSQL, through the whole stack."""

from __future__ import annotations

import time

from django.test import Client
from django.urls import reverse

from budgets.models import Membership, Role
from tests.perf import fleet_rows
from tests.perf.bench import Figure

WORKSPACES, ACCOUNTS, INTERVALS = 1_000, 50, 1_000_000
ROUNDS = 40
LIMIT_MS = 100


def measure() -> list[Figure]:
    """Milliseconds per page; the first two requests of each warm templates and plans."""
    users = fleet_rows.people()
    made = fleet_rows.promises(accounts=ACCOUNTS, workspaces=WORKSPACES)
    fleet_rows.intervals(INTERVALS)
    fleet_rows.hour_facts()
    Membership.objects.create(user=users["owner"], role=Role.OWNER, workspace=made[0])
    namespace = made[0].namespace
    pages = {
        "home_owner": ("owner", reverse("home")),
        "home_admin": ("admin", reverse("home")),
        "workspace": ("owner", reverse("workspace", args=[namespace])),
        "budget_form": ("owner", reverse("budget", args=[namespace])),
        "usage_owner": ("owner", reverse("usage")),
        "usage_finance_day": ("finance", f"{reverse('usage')}?step=day"),
        "usage_finance_hour": ("finance", f"{reverse('usage')}?days=7"),
        "usage_finance_workspaces": ("finance", f"{reverse('usage')}?days=7&split=workspace"),
        "usage_finance_clusters": ("finance", f"{reverse('usage')}?days=7&split=cluster"),
        "usage_finance_month": ("finance", f"{reverse('usage')}?days=30&split=account"),
        "usage_lending": ("finance", reverse("usage_lending")),
        "usage_lending_owner": ("owner", reverse("usage_lending")),
        "usage_idle": ("finance", f"{reverse('usage_idle')}?days=30"),
        "usage_capacity": ("finance", f"{reverse('usage_capacity')}?days=30"),
        "fleet": ("admin", reverse("fleet")),
        "jobs": ("admin", reverse("jobs")),
        "clusters": ("admin", reverse("clusters")),
        "requests": ("admin", reverse("requests")),
        "audit": ("admin", reverse("audit")),
    }
    figures = []
    for name, (username, address) in pages.items():
        client = Client()
        client.force_login(users[username])
        values = []
        for number in range(ROUNDS + 2):
            begun = time.perf_counter()
            answer = client.get(address)
            seconds = time.perf_counter() - begun
            assert answer.status_code == 200, (name, answer.status_code)
            if number >= 2:
                values.append(1000 * seconds)
        notes = {"bytes": len(answer.content)}
        figures.append(Figure(name, values, limit=LIMIT_MS, unit="ms", notes=notes))
    return figures
