"""A month of more than a million FOCUS rows, asked for and written as people do it.

On PostgreSQL, through the service: facts and workloads of 290 workspaces, priced, mapped and
written to a file. The peak memory is that of a fresh process per format; the limits are those of
issue 6 for FOCUS. Our checker reads the file afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import django
from django.db import connection

from tests.perf.bench import Figure

WORKSPACES, ACCOUNTS = 290, 20
LEAST_ROWS = 1_000_000
LIMIT_S, LIMIT_MB = 60, 500
FORMATS = ("csv", "parquet")
STEP = "tests.perf.bench_exports"


def measure() -> list[Figure]:
    """Seconds and megabytes of each format, and of the checker on the CSV file."""
    from tests.perf import fleet_rows

    fleet_rows.people()
    fleet_rows.promises(accounts=ACCOUNTS, workspaces=WORKSPACES)
    period = month_before()
    make_facts(period)
    make_prices()
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in FORMATS:
            figures += figures_of(f"focus_{shape}", folder, "write", shape, period)
        (file,) = Path(folder).glob("*.csv")
        figures += figures_of("focus_check", folder, "check", str(file))
    return figures


def figures_of(name: str, folder: str, *step: str) -> list[Figure]:
    """Run one step in a process of its own and take its measurements."""
    environment = {**os.environ, "PORTAL_SPOOL_FOLDER": folder}
    done = subprocess.run(
        [sys.executable, "-m", STEP, *step],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rows"] >= LEAST_ROWS, seen
    is_export = step[0] == "write"
    notes = {"rows": seen["rows"], "bytes": seen["bytes"], "cpu_s": round(seen["cpu_s"], 1)}
    return [
        Figure(name, [seen["wall_s"]], limit=LIMIT_S if is_export else None, of="max", notes=notes),
        Figure(f"{name}_peak", [seen["peak_mb"]], limit=LIMIT_MB, unit="MB", of="max"),
    ]


def month_before() -> str:
    now = datetime.now(UTC)
    return f"{now.year - (now.month == 1)}-{(now.month - 2) % 12 + 1:02}"


def make_facts(period: str) -> None:
    """An hour fact and a workload for every workspace and hour of the month."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO budgets_usagerecord
              (workspace_id, flavor_id, hour, start, committed, committed_used, burst, borrowed,
               lent, idle, pending)
            SELECT w.id, w.home_flavor_id, h, h, 28800, u.used, u.burst, 0, 900,
                   28800 - 900 - u.used, 0
              FROM budgets_workspace AS w,
                   generate_series(%s::timestamptz, %s::timestamptz + interval '1 month'
                                   - interval '1 hour', interval '1 hour') AS h,
                   LATERAL (SELECT 10000 + (w.id * 37 + extract(epoch FROM h)::bigint / 3600)
                                   %% 17000 AS used,
                                   1 + (w.id * 7919 + extract(epoch FROM h)::bigint / 3600)
                                   %% 7200 AS burst) AS u
            """,
            [f"{period}-01T00:00:00Z"] * 2,
        )
        cursor.execute(
            """
            INSERT INTO budgets_workloadusage
              (workspace_id, cluster, uid, flavor, hour, start, committed_used, burst)
            SELECT r.workspace_id, 'worker-1',
                   'uid-' || r.workspace_id || '-' || (extract(epoch FROM r.hour)::bigint / 86400),
                   f.slug, r.hour, r.start, r.committed_used, r.burst
              FROM budgets_usagerecord AS r JOIN budgets_flavor AS f ON f.id = r.flavor_id
            """
        )
        cursor.execute("ANALYZE")


def make_prices() -> None:
    from budgets.models import Flavor, RateCard, RatePrice
    from tests.builders import an_approval

    card = RateCard.objects.create(name="bench", currency="EUR")
    for flavor in Flavor.objects.all():
        RatePrice.objects.create(
            card=card,
            flavor=flavor,
            committed=Decimal("2.12345678"),
            burst=Decimal("3.33333333"),
            lending_credit=Decimal("0.5"),
        )
    card.approval = an_approval()
    card.state, card.valid_from = RateCard.State.ACTIVE, datetime(2020, 1, 1, tzinfo=UTC)
    card.save()


def peak_mb() -> float:
    """Peak resident memory of this process alone; a parent's would count in ``ru_maxrss``."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def run_step(step: str, *arguments: str) -> dict[str, float]:
    """One measured step, in a process that has only just begun."""
    begun, cpu = time.monotonic(), time.process_time()
    rows, size = write(*arguments) if step == "write" else check(*arguments)
    return {
        "rows": rows,
        "bytes": size,
        "wall_s": time.monotonic() - begun,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": round(peak_mb(), 1),
    }


def write(shape: str, period: str) -> tuple[int, int]:
    from budgets.models import Export, User
    from budgets.services.exports import runs as exports
    from budgets.services.exports.plans import request_export

    made = request_export(
        User.objects.get(username="finance"), dataset="focus-1.4", format=shape, period=period
    )
    exports.run_exports()
    export = Export.objects.select_related("operation").get(pk=made.pk)
    assert export.is_ready, export.operation.message
    return export.rows, export.size


def check(name: str) -> tuple[int, int]:
    from budgets.exports.focus import Version
    from budgets.exports.focus.check import check_file
    from budgets.exports.focus.reading import FocusFile, open_focus

    count = 0
    with open_focus(Path(name)) as opened:

        def counted():
            nonlocal count
            for row in opened.rows:
                count += 1
                yield row

        found = list(check_file(FocusFile(opened.columns, counted()), Version.V1_4))
    assert found == [], found[:3]
    return count, Path(name).stat().st_size


if __name__ == "__main__":
    django.setup()
    print(json.dumps(run_step(*sys.argv[1:])))
