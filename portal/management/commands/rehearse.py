"""Follow one budget through every step, and print each step with its time.

Without arguments the command uses embedded clusters. With kubeconfigs it uses yours; run it after
an upgrade. It works with a temporary database and an installation id of its own, so it does not
disturb a running portal. It removes everything that it created, except the namespace, which it
names. Exit status 1: a step failed, and the last line names it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from django.core.management.base import BaseCommand, CommandError

from clusters.management.files import read_text
from clusters.manifests.names import REHEARSAL
from portal.rehearsal.report import EMBEDDED, Options


class Command(BaseCommand):
    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--cluster",
            nargs="?",
            const=EMBEDDED,
            metavar="KUBECONFIG",
            help="one cluster, where jobs are submitted and run; without a file, an embedded one",
        )
        parser.add_argument("--manager", type=Path, help="kubeconfig of the manager")
        parser.add_argument(
            "--worker", type=Path, action="append", help="kubeconfig of a worker; may be repeated"
        )
        parser.add_argument("--user", type=Path, help="kubeconfig of the user who submits the Job")
        parser.add_argument(
            "--mode", choices=("kueue", "portal"), help="who decides on every cluster"
        )
        parser.add_argument(
            "--worker-mode", choices=("kueue", "portal"), help="who decides on the workers"
        )
        parser.add_argument("--gpus", type=int, default=1, help="GPUs of the Job; 1 by default")
        parser.add_argument(
            "--resource", default="nvidia.com/gpu", help="resource name of the GPUs"
        )
        parser.add_argument(
            "--node-label",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="label of the GPU nodes to use; may be repeated",
        )
        parser.add_argument(
            "--image", default="registry.k8s.io/pause:3.10", help="image of the Job"
        )
        parser.add_argument(
            "--command", nargs="+", dest="run", help="command in the Job's container"
        )
        parser.add_argument(
            "--run-seconds", type=int, default=3, help="seconds that the Job runs; 3 by default"
        )
        parser.add_argument(
            "--timeout", type=float, default=120.0, help="seconds for each step; 120 by default"
        )
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["cluster"] and (options["manager"] or options["worker"]):
            raise CommandError(
                "Give --cluster for one cluster, or --manager and --worker for a fleet; not both."
            )
        if bool(options["manager"]) != bool(options["worker"]):
            raise CommandError("--manager and --worker go together; give both, or neither.")
        given = (options["manager"], options["user"], *(options["worker"] or ()))
        if options["cluster"] and options["cluster"] != EMBEDDED:
            given = (*given, Path(options["cluster"]))
        for path in given:
            if path is not None:
                read_text(path)
        chosen = {field.name: options[field.name] for field in fields(Options)}
        with tempfile.TemporaryDirectory(prefix="portal-rehearsal-") as folder:
            environment = {
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "portal.settings",
                "DATABASE_URL": f"sqlite:///{folder}/rehearsal.sqlite3",
                "CELERY_BROKER_URL": "memory://",
                "PORTAL_SECRET_KEY": secrets.token_urlsafe(48),
                "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
                "PORTAL_INSTALLATION": REHEARSAL,
                "PORTAL_ALLOWED_HOSTS": "testserver",
                # A rehearsal is on this machine alone, and so may its clusters be.
                "PORTAL_HTTPS": "false",
                "PORTAL_CLUSTER_LOOPBACK": "true",
                "PORTAL_STATIC_ROOT": folder,
                "PORTAL_LOG_LEVEL": os.environ.get("PORTAL_LOG_LEVEL", "ERROR"),
            }
            done = subprocess.run(
                [sys.executable, "-m", "portal.rehearsal", json.dumps(chosen, default=str)],
                env=environment,
                check=False,
            )
        if done.returncode:
            sys.exit(done.returncode)
