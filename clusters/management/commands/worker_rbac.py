"""Prints the least rights and the admission policies of a cluster, for kubectl apply."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusters.models import Cluster
from clusters.selectors import rights_yaml


class Command(BaseCommand):
    """``manage.py worker_rbac --mode kueue | kubectl apply --server-side -f -``."""

    help = "Print the Roles of each identity and the admission policies of a cluster as YAML."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Either a registered cluster, or role and mode of one to come."""
        parser.add_argument("--cluster", help="slug of a registered cluster")
        parser.add_argument("--role", choices=Cluster.Role.values, default=Cluster.Role.WORKER)
        parser.add_argument("--mode", choices=Cluster.Mode.values, default=Cluster.Mode.KUEUE)
        parser.add_argument("--local-jobs", action="store_true", help="jobs may be submitted here")
        parser.add_argument(
            "--worker", action="append", default=[], help="a worker to come (for a manager)"
        )

        parser.add_argument(
            "--operator",
            action="append",
            default=[],
            help="NAMESPACE/NAME of a controller that makes the parts of queued jobs",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print one YAML file."""
        cluster = Cluster(
            role=options["role"],
            mode=options["mode"],
            allows_local_jobs=options["local_jobs"],
            operators=options["operator"],
        )
        if options["cluster"]:
            found = Cluster.objects.filter(slug=options["cluster"]).first()
            if found is None:
                raise CommandError(f"no cluster {options['cluster']!r} is registered")
            cluster = found
        self.stdout.write(rights_yaml(cluster, workers=options["worker"]))
