"""Registers the cluster that the portal runs in, by the portal's own service account."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.errors import Rejected
from clusters.models import Cluster
from clusters.services import ensure_own_cluster


class Command(BaseCommand):
    """``manage.py register_own_cluster --slug main --role single --mode kueue``."""

    help = (
        "Register the cluster that the portal runs in, by the service account that "
        "PORTAL_OWN_CLUSTER_FOLDER has the token of. If it is registered already, or an admin "
        "de-registered it, this changes nothing."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What an admin would type on the page."""
        parser.add_argument("--slug", required=True, help="its slug, which never changes")
        parser.add_argument("--name", help="its name for people; the slug by default")
        parser.add_argument(
            "--role",
            choices=Cluster.Role.values,
            default=Cluster.Role.SINGLE,
            help="what the cluster is there for; single by default",
        )
        parser.add_argument(
            "--mode",
            choices=Cluster.Mode.values,
            default=Cluster.Mode.KUEUE,
            help="who decides there: its own Kueue (default), or the portal",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Say what was done, or all that is in the way."""
        slug = options["slug"]
        try:
            done = ensure_own_cluster(
                None,
                slug=slug,
                name=options["name"] or slug,
                role=options["role"],
                mode=options["mode"],
            )
        except Rejected as rejected:
            faults = [f"{fault.field}: {fault.message}" for fault in rejected.faults]
            lines = ["The cluster that the portal runs in is not registered:", *faults]
            raise CommandError("\n  ".join(lines)) from rejected
        if done.cluster is None:
            self.stdout.write(f"Nothing to do. {done.why_not}")
            return
        self.stdout.write(
            f"The cluster that the portal runs in is registered as {slug}. Its page shows the "
            "preflight."
        )
