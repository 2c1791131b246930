"""``make bench``: measures on real API servers and a real PostgreSQL, and writes the figures down.

``python -m tests.perf.bench [NAME …]``, with ``--config large`` for another size of ``admission``
and ``--scale 0.05`` for fewer jobs in ``admission`` and ``dispatch``. Figures, limits, machine and
versions go to ``tests/perf/figures.json``; exit status 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from tests.servers import postgres_server

FIGURES = Path(__file__).with_name("figures.json")
# As PostgreSQL's manual sizes a server of its own with 16 GiB or more.
POSTGRES = {
    "shared_buffers": "4GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "max_connections": "800",
}
NAMES = (
    "engine",
    "pages",
    "sync",
    "reaction",
    "processes",
    "metering",
    "billing",
    "exports",
    "admission",
    "dispatch",
    "crowd",
    "size",
)
PACKAGES = ("Django", "kubernetes", "celery", "psycopg", "plotly")


@dataclass
class Figure:
    """One measured thing: seconds unless the unit says otherwise."""

    name: str
    values: Sequence[float]
    limit: float | None = None
    unit: str = "s"
    notes: dict[str, Any] = field(default_factory=dict)
    of: str = "p95"

    @property
    def decisive(self) -> float:
        """The number that the limit is about."""
        return percentile(self.values, 95) if self.of == "p95" else max(self.values)

    @property
    def is_fine(self) -> bool:
        return self.limit is None or self.decisive <= self.limit

    def document(self) -> dict[str, Any]:
        values = sorted(self.values)
        return {
            "unit": self.unit,
            "n": len(values),
            "p50": round(statistics.median(values), 4),
            "p95": round(percentile(values, 95), 4),
            "max": round(values[-1], 4),
            "limit": self.limit,
            "limit_is_on": self.of,
            "within_limit": self.is_fine,
            **({"notes": self.notes} if self.notes else {}),
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """Nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def load_as_web() -> None:
    """Load what a process of the web loads before its first request, and set it aside as it does.

    Otherwise some request would wait 0.15 s until Python's collector has looked at all of it.
    """
    importlib.import_module("portal.wsgi")


def machine() -> dict[str, Any]:
    return {
        "cpu_count": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        **{name.lower(): importlib.metadata.version(name) for name in PACKAGES},
    }


def sections(options: argparse.Namespace) -> dict[str, Callable[[], list[Figure]]]:
    """Name → what it measures; imported late, when Django is set up."""
    from tests.perf import (
        bench_admission,
        bench_billing,
        bench_crowd,
        bench_dispatch,
        bench_engine,
        bench_exports,
        bench_metering,
        bench_pages,
        bench_processes,
        bench_reaction,
        bench_size,
        bench_sync,
    )

    return {
        "admission": partial(bench_admission.measure, config=options.config, scale=options.scale),
        "billing": bench_billing.measure,
        "crowd": bench_crowd.measure,
        "dispatch": partial(bench_dispatch.measure, scale=options.scale),
        "engine": bench_engine.measure,
        "exports": bench_exports.measure,
        "metering": bench_metering.measure,
        "pages": bench_pages.measure,
        "processes": bench_processes.measure,
        "reaction": bench_reaction.measure,
        "size": partial(bench_size.measure, scale=options.scale),
        "sync": bench_sync.measure,
    }


def store(name: str, figures: Sequence[Figure]) -> None:
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    known["machine"] = machine()
    known.setdefault("sections", {})[name] = {f.name: f.document() for f in figures}
    FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def run_section(name: str, options: argparse.Namespace) -> int:
    """In a process whose settings name a fresh database."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    figures = sections(options)[name]()
    label = f"{name}_{options.config}" if name == "admission" else name
    store(label, figures)
    for figure in figures:
        verdict = "ok  " if figure.is_fine else "OVER"
        limit = "" if figure.limit is None else f"  limit {figure.limit:g} ({figure.of})"
        shown = figure.document()
        print(
            f"{verdict} {label}.{figure.name}: p50 {shown['p50']:g} p95 {shown['p95']:g} "
            f"max {shown['max']:g} {figure.unit}{limit}",
            flush=True,
        )
    return 0 if all(figure.is_fine for figure in figures) else 1


def settings_of(database: str) -> dict[str, str]:
    """Environment of a portal on a database that is measured."""
    return {
        "DATABASE_URL": database,
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PORTAL_HTTPS": "false",
        "PORTAL_CLUSTER_LOOPBACK": "true",
        "PORTAL_SECRET_KEY": "bench",
        "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
        "PORTAL_INSTALLATION": "bench",
        "PORTAL_ALLOWED_HOSTS": "testserver",
        "PORTAL_LOG_LEVEL": "WARNING",
        "CELERY_BROKER_URL": "memory://",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--only", action="append", default=[], choices=NAMES, help="the same")
    parser.add_argument("--config", default="baseline", choices=["baseline", "large", "tas"])
    parser.add_argument("--scale", default=1.0, type=float, help="share of its workloads")
    parser.add_argument("--section", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.section:
        return run_section(given.section, given)
    unknown = sorted(set(given.names) - set(NAMES))
    if unknown:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    worst = 0
    for name in [*given.names, *given.only] or NAMES:
        with postgres_server(**POSTGRES) as url:
            environment = {**os.environ, **settings_of(url)}
            command = [sys.executable, "-m", "tests.perf.bench", "--section", name]
            command += ["--config", given.config, "--scale", str(given.scale)]
            worst = max(worst, subprocess.run(command, env=environment, check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
