"""Prints the least rights and the admission policies of a cluster, for kubectl apply."""

from __future__ import annotations

import argparse
import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusters.models import Cluster
from clusters.selectors import rights_yaml


class Command(BaseCommand):
    """``manage.py worker_rbac --mode kueue | kubectl apply --server-side -f -``."""

    help = (
        "Print the rights of each identity and the admission policies of a cluster as YAML, for "
        "kubectl apply --server-side -f -. The portal never applies them itself."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Either a registered cluster, or role and mode of one to come."""
        parser.add_argument("--cluster", help="slug of a registered cluster")
        parser.add_argument(
            "--role",
            choices=Cluster.Role.values,
            default=Cluster.Role.WORKER,
            help="role of a cluster that is not registered yet; worker by default",
        )
        parser.add_argument(
            "--mode",
            choices=Cluster.Mode.values,
            default=Cluster.Mode.KUEUE,
            help="who decides there: its own Kueue (default), or the portal",
        )
        parser.add_argument(
            "--local-jobs", action="store_true", help="allow jobs to be submitted there"
        )
        parser.add_argument(
            "--worker",
            action="append",
            default=[],
            help="slug of a worker that is not registered yet, for a manager; may be repeated",
        )
        parser.add_argument(
            "--operator",
            action="append",
            type=_operator,
            default=[],
            help="NAMESPACE/NAME of a controller that makes parts of queued jobs; may be repeated",
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
                raise CommandError(
                    f"No cluster {options['cluster']!r} is registered. "
                    "For a cluster that is not registered yet, give --role and --mode."
                )
            cluster = found
        self.stdout.write(rights_yaml(cluster, workers=options["worker"]))


def _operator(text: str) -> str:
    if not re.fullmatch(r"[^/]+/[^/]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an account; write NAMESPACE/NAME")
    return text
