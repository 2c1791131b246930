"""Fills in usage from before the portal watched, from CSV or from objects still on a cluster."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import io
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets import services as promises
from budgets.errors import PortalError, Rejected
from clusters.errors import ClusterError
from clusters.models import Cluster
from clusters.reconcile.context import Clients
from clusters.services.back_fill import (
    COLUMNS,
    BackFill,
    Brought,
    import_objects,
    import_runs,
    read_runs,
)

SHOWN = 50


class Command(BaseCommand):
    """``manage.py import_usage FILE [--dry-run]`` or ``--cluster SLUG``."""

    help = (
        "Add finished runs to the ledger, from a CSV file with the columns "
        + ", ".join(COLUMNS)
        + " (the last three may be left out), or from the Workloads that a registered cluster "
        "still has. Running the same import again changes nothing. Exit status 1: something "
        "could not be placed."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Where from, and whether to write."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("file", nargs="?", help="the CSV file; - reads standard input")
        source.add_argument(
            "--cluster", help="slug of a registered cluster whose Workloads are read"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="report what would be added, and write nothing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import, meter, report."""
        try:
            made = self._from_cluster(options) if options["cluster"] else self._from_file(options)
            if made.new and not options["dry_run"]:
                promises.meter_usage()
        except Rejected as rejected:
            lines = [f"{fault.field}: {fault.message}" for fault in rejected.faults]
            raise CommandError("\n".join(["Nothing was imported:", *lines])) from None
        except (PortalError, ClusterError) as error:
            raise CommandError(str(error)) from error
        self._tell(made, dry_run=options["dry_run"])

    def _from_file(self, options: dict[str, Any]) -> BackFill:
        name = options["file"]
        try:
            content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            lines = io.StringIO(content.decode("utf-8-sig"), newline="")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{name} cannot be read: {error}") from error
        runs = read_runs(lines, now=promises.utc_now())
        brought = Brought(_who(), name, sha256(content).hexdigest())
        return import_runs(None, runs, dry_run=options["dry_run"], brought=brought)

    def _from_cluster(self, options: dict[str, Any]) -> BackFill:
        cluster = Cluster.objects.filter(slug=options["cluster"]).first()
        if cluster is None:
            known = ", ".join(Cluster.objects.values_list("slug", flat=True)) or "none"
            raise CommandError(
                f"No cluster {options['cluster']!r} is registered. Registered clusters: {known}."
            )
        with contextlib.closing(Clients()) as clients:
            client = clients.of(cluster.slug)
            dry_run: bool = options["dry_run"]
            return import_objects(None, cluster, client, dry_run=dry_run, who=_who())

    def _tell(self, made: BackFill, *, dry_run: bool) -> None:
        for row in made.unplaced[:SHOWN]:
            self.stdout.write(f"not placed: {row.where}: {row.why}")
        if len(made.unplaced) > SHOWN:
            self.stdout.write(f"not placed: {len(made.unplaced) - SHOWN} more")
        if made.outside:
            self.stdout.write(
                f"{made.outside} intervals belong to no workspace; they are billed to nobody"
            )
        verb = "would be new" if dry_run else "new"
        self.stdout.write(f"{made.new} {verb}, {made.gpu_seconds} GPU-seconds")
        self.stdout.write(f"{made.placed} of {made.given} placed")
        if made.unplaced:
            sys.exit(1)


def _who() -> str:
    return f"{getpass.getuser()} on the server"
