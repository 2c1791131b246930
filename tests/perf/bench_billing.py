"""Closing a month of 1,000 workspaces and a million intervals on PostgreSQL, and its pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from budgets.models import BillingPeriod, MeterState, Statement, UsageRecord, WorkloadUsage
from budgets.selectors import billing as read
from budgets.services import billing
from budgets.services.billing import PriceDraft
from tests.builders import agreed
from tests.perf import fleet_rows
from tests.perf.bench import Figure

WORKSPACES, ACCOUNTS = 1_000, 50
MONTH, START, END = "2026-03", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"
AFTER = datetime(2026, 4, 2, tzinfo=UTC)
ROUNDS = 40
LIMIT_MS = 100


def facts() -> None:
    """Every workspace and hour: five GPUs of eight used, one lent, one borrowed; two jobs."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO budgets_usagerecord
              (workspace_id, flavor_id, hour, start, committed, committed_used, burst, borrowed,
               lent, idle, pending)
            SELECT w.id, w.home_flavor_id, h, h, 28800, 18000, 3600, 3600, 3600, 7200, 0
              FROM budgets_workspace w, generate_series(%s::timestamptz,
                   %s::timestamptz - interval '1 hour', interval '1 hour') h
            """,
            [START, END],
        )
        cursor.execute(
            """
            INSERT INTO budgets_accountusage
              (account_id, flavor_id, hour, start, burst, from_pool, lent, from_platform, uncovered)
            SELECT w.account_id, u.flavor_id, u.hour, u.start, sum(u.burst), 0, sum(u.lent), 0, 0
              FROM budgets_usagerecord u JOIN budgets_workspace w ON w.id = u.workspace_id
             GROUP BY 1, 2, 3, 4
            """
        )
        cursor.execute(
            """
            INSERT INTO budgets_workloadusage
              (workspace_id, cluster, uid, flavor, hour, start, committed_used, burst)
            SELECT u.workspace_id, 'worker-1', 'uid-' || u.id || '-' || part, f.slug, u.hour,
                   u.start, CASE part WHEN 0 THEN 18000 ELSE 0 END,
                   CASE part WHEN 1 THEN 3600 ELSE 0 END
              FROM budgets_usagerecord u JOIN budgets_flavor f ON f.id = u.flavor_id,
                   generate_series(0, 1) part
            """
        )
        cursor.execute(
            """
            INSERT INTO budgets_interval
              (cluster, uid, epoch, pod_set, flavor, seq, workspace_id, namespace, workload,
               cluster_queue, job_kind, job_name, gpus, admitted_at, start, "end", state, kind,
               note, updated_at)
            SELECT cluster, uid, 1, 'main', flavor, 1, workspace_id, 'x', uid, 'x', 'Job', uid,
                   1, hour, hour, hour + interval '1 hour', 'closed', 'billable', '', now()
              FROM budgets_workloadusage
            """
        )
        cursor.execute("ANALYZE")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def count_rows(finance: Any) -> int:
    period = BillingPeriod.objects.get(name=MONTH)
    return sum(1 for _ in read.charge_lines(finance, period=period))


def measure() -> list[Figure]:
    """Seconds of each step of a close, milliseconds of the pages of statements."""
    users = fleet_rows.people()
    finance = users["finance"]
    fleet_rows.promises(accounts=ACCOUNTS, workspaces=WORKSPACES)
    facts()
    MeterState.objects.create(cluster="worker-1", complete_until=AFTER, metered_until=AFTER)
    prices = [PriceDraft(slug, "2.13", "3.17", "0.5") for slug in ("h100", "a100")]
    card = billing.propose_rate_card(finance, name="P", currency="EUR", prices=prices)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    agreed(billing.propose_activation(finance, card=card, valid_from=start))
    size = {
        "workspaces": WORKSPACES,
        "hour_facts": UsageRecord.objects.count(),
        "workload_facts": WorkloadUsage.objects.count(),
    }
    drawn, _ = timed(lambda: billing.draw_up_statements(finance, month=MONTH))
    closed, _ = timed(lambda: billing.close_period(finance, month=MONTH))
    verified, found = timed(billing.verify_chain)
    assert found.broken is None, found.broken
    billing.review_statements(finance, month=MONTH)
    issued, _ = timed(lambda: billing.issue_statements(finance, month=MONTH))
    streamed, rows = timed(lambda: count_rows(finance))
    figures = [
        Figure("draw_up", [drawn], limit=60),
        Figure("close", [closed], limit=60, notes=size),
        Figure("verify", [verified], notes={"rows": found.rows}),
        Figure("issue", [issued]),
        Figure("charge_rows", [streamed], notes={"rows": rows}),
    ]
    return [*figures, *pages(users["finance"])]


def pages(finance: Any) -> list[Figure]:
    paper = Statement.objects.filter(account__isnull=False).order_by("pk").first()
    assert paper is not None
    burst = paper.lines.filter(kind="burst").first()
    assert burst is not None
    line = reverse("statement_line", args=[paper.pk, burst.position])
    addresses = {
        "statement": reverse("statement", args=[paper.pk]),
        "line": line,
        "line_day": f"{line}?day=2026-03-05",
        "billing": reverse("billing"),
        "month_closed": reverse("billing_period", args=[MONTH]),
    }
    client = Client()
    client.force_login(finance)
    figures = []
    for name, address in addresses.items():
        values = []
        for number in range(ROUNDS + 2):
            seconds, answer = timed(lambda address=address: client.get(address))
            assert answer.status_code == 200, (name, answer.status_code)
            if number >= 2:
                values.append(1000 * seconds)
        notes = {"bytes": len(answer.content)}
        figures.append(Figure(name, values, limit=LIMIT_MS, unit="ms", notes=notes))
    return figures
