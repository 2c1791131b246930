"""Submit jobs to the demo's clusters until stopped, so that every page shows something."""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from django.core.management.base import BaseCommand

from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient, Selection
from clusters.signals import end_of
from portal.demo_history import NAMES, TEAM, TEAMS
from portal.management.commands.seed_demo import ONE, WORKSPACES, folder_of
from portal.rehearsal.world import gpu_job

log = structlog.stdlib.get_logger(__name__)
SEED = 20260101
MOST_OPEN = 12
TURN_S = 150.0
# In every second turn Research is away and Model training fills the floor that it lends; then
# Research comes back for it. Everybody else goes on evenly.
TURNS = ({"acme-research": 0, "acme-training": 5}, {"acme-research": 5})
KEEP_FINISHED = 12


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--kubeconfigs", type=Path, required=True, help="folder with the demo's kubeconfigs"
        )
        parser.add_argument("--every", type=float, default=4.0, help="mean seconds between jobs")

    def handle(self, *args: Any, **options: Any) -> None:
        one = folder_of(options) / f"{ONE}.kubeconfig"
        stop = end_of(signal.SIGTERM, signal.SIGINT)
        self.is_dispatched = not one.is_file()
        way_in = options["kubeconfigs"] / "manager.kubeconfig" if self.is_dispatched else one
        text = way_in.read_text()
        chance = random.Random(SEED)  # noqa: S311  the demo's load, not a secret
        with KubeClient.from_kubeconfig(text) as client:
            number, begun = 0, time.monotonic()
            while not stop.wait(chance.expovariate(1 / options["every"])):
                turn = TURNS[int((time.monotonic() - begun) / TURN_S) % len(TURNS)]
                try:
                    number = self.tick(client, chance, number, turn)
                except ClusterError as error:
                    # The namespaces appear with the first sync; try again.
                    log.info("demo_job_refused", reason=error.reason)

    def tick(
        self, client: KubeClient, chance: random.Random, number: int, turn: Mapping[str, int]
    ) -> int:
        """Submits one job, unless the workspace has enough, and clears old finished ones."""
        eager = [turn.get(f"{account}-{slug}", 1) for account, slug, *_ in WORKSPACES]
        account, slug, _, _, committed, *_ = chance.choices(WORKSPACES, eager)[0]
        namespace = f"{account}-{slug}"
        jobs = client.list(r.JOB, Selection(namespace=namespace)).items
        finished = [j for j in jobs if (j.get("status") or {}).get("completionTime")]
        finished.sort(key=lambda j: str(j["status"]["completionTime"]))
        for old in finished[:-KEEP_FINISHED]:
            client.delete(
                r.JOB, old["metadata"]["name"], namespace=namespace, options=DeleteOptions()
            )
        if len(jobs) - len(finished) >= MOST_OPEN:
            return number
        gpus = min(chance.choice((1, 1, 2, 4, 8, 8)), max(1, committed))
        stem = chance.choice(NAMES)
        name = f"{stem}-{chance.randrange(16**4):04x}{number % 1000:03d}"
        seconds = int(chance.lognormvariate(5.0, 0.7)) + 20
        job = gpu_job(
            name,
            namespace,
            gpus=gpus,
            seconds=seconds,
            image="registry.example/train:1",
            cpu=4 * gpus,
            memory=f"{32 * gpus}Gi",
            is_dispatched=self.is_dispatched,
        )
        template = job["spec"]["template"]
        template.setdefault("metadata", {}).setdefault("labels", {})[TEAM] = chance.choice(TEAMS)
        client.create(r.JOB, job)
        return number + 1
