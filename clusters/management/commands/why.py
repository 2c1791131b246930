"""Say why a job waits: from what the portal stored, or straight from a cluster."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from clusters import selectors
from clusters.errors import ClusterError
from clusters.explaining.evidence import read_evidence
from clusters.explaining.findings import explained
from clusters.explaining.names import Names
from clusters.explaining.report import explanation_lines, forecast_line
from clusters.kube.client import KubeClient
from clusters.management.files import read_configuration, read_text
from clusters.reconcile.one_off import OneOff, explain_once


class Command(BaseCommand):
    """Nothing is written anywhere; every name is shown, so it is for operators."""

    help = "Say why a waiting Workload or Job does not start, and show the evidence."
    # With --kubeconfig it works without a database.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("job", metavar="NAMESPACE/NAME", help="a Workload or its Job")
        parser.add_argument(
            "--kubeconfig",
            metavar="FILE",
            type=Path,
            help="read this cluster's objects instead of the portal's database",
        )
        parser.add_argument(
            "--config", metavar="FILE", type=Path, help="the Kueue Configuration of that cluster"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the sentence and the evidence."""
        namespace, slash, name = options["job"].partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise CommandError(f"{options['job']!r} is not a job; write it as NAMESPACE/NAME.")
        if options["kubeconfig"] is not None:
            self._from_cluster(options["job"], options["kubeconfig"], options["config"])
        elif options["config"] is not None:
            raise CommandError(
                "--config goes with --kubeconfig alone: the portal knows the Configuration of its "
                "own clusters."
            )
        else:
            self._from_portal(namespace, name)

    def _from_portal(self, namespace: str, name: str) -> None:
        found = selectors.stored_why(namespace, name)
        if not found:
            raise CommandError(
                f"Nothing is stored of {namespace}/{name}: the job does not wait, does not exist, "
                "or no shift works on its cluster. Give --kubeconfig to ask the cluster itself."
            )
        for row in found:
            self.stdout.write(f"{row.key} on {row.cluster}, since {row.since:%Y-%m-%d %H:%M} UTC")
            for line in explanation_lines(row.detail):
                self.stdout.write(line)
            if row.forecast is not None:
                self.stdout.write(forecast_line(row.forecast))

    def _from_cluster(self, key: str, kubeconfig: Path, config: Path | None) -> None:
        try:
            with KubeClient.from_kubeconfig(read_text(kubeconfig)) as client:
                given = read_configuration(config) if config is not None else None
                found = explain_once(client, key, configuration=given, now=timezone.now())
        except ClusterError as error:
            raise CommandError(f"{error.reason}: {error}") from error
        except (KeyError, ValueError) as error:
            raise CommandError(f"An object of the cluster cannot be read: {error}") from error
        for line in _lines(found):
            self.stdout.write(line)


def _lines(found: OneOff) -> list[str]:
    if found.would_start:
        return [found.key, "The job fits and starts as soon as the scheduler considers it."]
    if found.evidence is None:
        return [found.key, "The job does not wait for quota."]
    return [found.key, *explanation_lines(explained(read_evidence(found.evidence), Names(None)))]
