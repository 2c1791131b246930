"""Work one shift in the foreground, on kubeconfigs that are named; until Ctrl-C or SIGTERM."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import threading
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusters.errors import ClusterError, LeaseLost
from clusters.management.files import read_configuration, read_text
from clusters.models import Cluster, ShiftRun
from clusters.reconcile.context import ClusterFacts
from clusters.reconcile.foreground import ForegroundShift, work_in_foreground
from clusters.signals import end_of


class Command(BaseCommand):
    """The same function as the Celery task, without its database row."""

    help = "Run one reconcile loop (admission or dispatch) on one cluster until it is stopped."
    # They read every page's code, and a shift that takes over from a dead one is waited for.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--kubeconfig", required=True, metavar="FILE", type=Path, help="the cluster to work on"
        )
        parser.add_argument(
            "--role",
            required=True,
            choices=[ShiftRun.Role.ADMISSION.value, ShiftRun.Role.DISPATCH.value],
            help="what the loop does: admit jobs, or dispatch them to workers",
        )
        parser.add_argument(
            "--mode",
            default=Cluster.Mode.PORTAL.value,
            choices=Cluster.Mode.values,
            help="who decides on this cluster; portal by default",
        )
        parser.add_argument(
            "--config", metavar="FILE", type=Path, help="the Kueue Configuration to follow"
        )
        parser.add_argument(
            "--worker",
            action="append",
            default=[],
            metavar="NAME=KUBECONFIG",
            help="a worker, by the name of its MultiKueueCluster; for dispatch; may be repeated",
        )
        parser.add_argument("--name", default="cluster", help="name of the cluster in logs")
        parser.add_argument(
            "--origin",
            default="",
            help="mark on this manager's copies; otherwise PORTAL_INSTALLATION",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until a signal comes."""
        configuration = read_configuration(options["config"]) if options["config"] else {}
        shift = ForegroundShift(
            kubeconfig=read_text(options["kubeconfig"]),
            role=options["role"],
            facts=ClusterFacts(
                pk=0,
                slug=options["name"],
                is_manager=options["role"] == ShiftRun.Role.DISPATCH,
                mode=options["mode"],
                state=Cluster.State.ACTIVE,
                generation=1,
                installation=options["origin"] or settings.PORTAL_INSTALLATION,
                kueue_configuration=configuration,
            ),
            holder=f"{socket.gethostname()}-{os.getpid()}",
            workers=dict(_worker(text) for text in options["worker"]),
            lease_s=settings.LEASE_SECONDS,
        )
        if options["verbosity"] > 1:
            logging.getLogger("clusters").setLevel(logging.DEBUG)
        stop = end_of(signal.SIGINT, signal.SIGTERM)
        self.stdout.write(f"{shift.role} on {options['kubeconfig']}, as {shift.holder}")
        try:
            self._work(shift, stop)
        except ClusterError as error:
            raise CommandError(f"{error.reason}: {error}") from error
        self.stdout.write("stopped")

    def _work(self, shift: ForegroundShift, stop: threading.Event) -> None:
        """One shift after the other: a lost Lease ends one, and the next reads all anew."""
        for number in itertools.count(2):
            try:
                return work_in_foreground(shift, stop=stop)
            except LeaseLost as lost:
                self.stdout.write(f"{lost}; this process takes it again as soon as it is free")
            shift = replace(shift, holder=f"{socket.gethostname()}-{os.getpid()}-{number}")


def _worker(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise CommandError(f"--worker {text} cannot be read; write it as NAME=KUBECONFIG.")
    return name, read_text(Path(path))
