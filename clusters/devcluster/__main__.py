"""Serves embedded clusters: python -m clusters.devcluster --dir DIR [--workers 2] | --config FILE

Writes one kubeconfig per cluster (readable by its owner alone), prints a line that begins with
"ready", and ends on SIGTERM, SIGINT, or when the process that started it is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from clusters.devcluster.fleet import EmbeddedFleet, FleetPlan, PortTaken, default_plan, read_plan
from clusters.signals import end_of

_PARENT_CHECK_S = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Runs until told to end; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clusters.devcluster", description=__doc__)
    parser.add_argument("--dir", type=Path, help="folder for kubeconfigs and state")
    parser.add_argument("--workers", type=int, default=2, help="beside the manager; 0: one cluster")
    parser.add_argument("--config", type=Path, help="JSON file that describes the clusters")
    parser.add_argument(
        "--detached", action="store_true", help="go on when the starting process ends"
    )
    chosen = parser.parse_args(arguments)
    if bool(chosen.dir) == bool(chosen.config):
        parser.error("give either --dir or --config")
    # Read before anything is said: a parent that hears "ready" may end at once.
    parent = 0 if chosen.detached else os.getppid()
    stop = end_of(signal.SIGTERM, signal.SIGINT)
    try:
        with EmbeddedFleet(_plan(chosen)) as fleet:
            listed = " ".join(f"{name}={server.url}" for name, server in fleet.servers.items())
            print(f"ready {listed}", flush=True)
            _wait(stop, parent=parent)
    except (PortTaken, ValueError) as error:
        print(f"embedded clusters: {error}", file=sys.stderr)
        return 1
    return 0


def _plan(chosen: argparse.Namespace) -> FleetPlan:
    if chosen.config:
        document = json.loads(chosen.config.read_text())
        return read_plan(document, folder=chosen.config.resolve().parent)
    return default_plan(chosen.dir.resolve(), workers=chosen.workers)


def _wait(stop: threading.Event, *, parent: int) -> None:
    while not stop.wait(_PARENT_CHECK_S):
        if parent and os.getppid() != parent:
            return


if __name__ == "__main__":
    sys.exit(main())
