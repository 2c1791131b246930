"""The identities of the hour facts at the size of a month, checked by the database.

They are those of :func:`budgets.metering.identity_faults`, which the meter asks of every window
before it writes; here they are asked of what stands in the tables, whoever wrote it. That
committed = used + lent + idle and burst = what covered it is a constraint of each row.

Source: spec money, section 3.5.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from budgets.models import BillingPeriod
from budgets.units import Period

MOST = 20

# Each workspace's hour against its workloads.
WORKLOADS = """
SELECT workspace.namespace, sums.flavor, sums.start, SUM(sums.used), SUM(sums.above)
FROM (
    SELECT workspace_id, flavor.slug AS flavor, hour, start, committed_used AS used, burst AS above
    FROM budgets_usagerecord usage JOIN budgets_flavor flavor ON flavor.id = usage.flavor_id
    WHERE usage.hour >= %s AND usage.hour < %s
    UNION ALL
    SELECT workspace_id, flavor, hour, start, -committed_used, -burst
    FROM budgets_workloadusage WHERE hour >= %s AND hour < %s
) sums JOIN budgets_workspace workspace ON workspace.id = sums.workspace_id
GROUP BY workspace.namespace, sums.flavor, sums.start
HAVING SUM(sums.used) <> 0 OR SUM(sums.above) <> 0
ORDER BY sums.start, workspace.namespace, sums.flavor LIMIT %s
"""

# Each account's hour against its workspaces: burst, lent, borrowed.
ACCOUNTS = """
SELECT account.slug, flavor.slug, sums.start, SUM(sums.above), SUM(sums.lent), SUM(sums.borrowed)
FROM (
    SELECT workspace.account_id, usage.flavor_id, usage.start,
        usage.burst AS above, usage.lent AS lent, usage.borrowed AS borrowed
    FROM budgets_usagerecord usage
    JOIN budgets_workspace workspace ON workspace.id = usage.workspace_id
    WHERE usage.hour >= %s AND usage.hour < %s
    UNION ALL
    SELECT account_id, flavor_id, start, -burst, -lent, -lent
    FROM budgets_accountusage WHERE hour >= %s AND hour < %s
) sums
JOIN budgets_account account ON account.id = sums.account_id
JOIN budgets_flavor flavor ON flavor.id = sums.flavor_id
GROUP BY account.slug, flavor.slug, sums.start
HAVING SUM(sums.above) <> 0 OR SUM(sums.lent) <> 0 OR SUM(sums.borrowed) <> 0
ORDER BY sums.start, account.slug, flavor.slug LIMIT %s
"""


def identity_gaps(period: BillingPeriod | Period) -> Iterator[str]:
    """Say where facts of a period do not add up; nothing when the books are right."""
    bounds = (period.start, period.end, period.start, period.end, MOST)
    with connection.cursor() as cursor:
        cursor.execute(WORKLOADS, bounds)
        for namespace, flavor, start, used, over in cursor.fetchall():
            yield (
                f"{namespace}/{flavor} at {start}: workloads do not add up to the hour, "
                f"by {used} committed and {over} burst GPU-seconds."
            )
        cursor.execute(ACCOUNTS, bounds)
        for account, flavor, start, over, lent, borrowed in cursor.fetchall():
            yield (
                f"account {account}/{flavor} at {start}: burst, lent and borrowed are off by "
                f"{over}, {lent} and {borrowed} GPU-seconds."
            )
