"""Real control planes from the command line, for developers and for CI.

python -m tests.controlplane build [--check] [part ...]
python -m tests.controlplane up --dir DIR [--workers 2] [--no-kueue] [--kwok] [--for SECONDS]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from clusters.signals import end_of

from . import build
from .fleet import Fleet, parts_for, start_fleet
from .kwok_nodes import NodeShape
from .processes import StartError


def main() -> int:
    """Run one command; return the exit status."""
    if sys.argv[1:2] == ["build"]:
        return build.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the parts into the cache")
    up = commands.add_parser("up", help="start a fleet and stay until Ctrl-C")
    up.add_argument("--dir", type=Path, required=True, help="folder for kubeconfigs and logs")
    up.add_argument("--workers", type=int, default=2)
    up.add_argument("--no-kueue", action="store_true", help="Kueue's CRDs only")
    up.add_argument("--kwok", action="store_true", help="pods on workers run; makes nodes too")
    up.add_argument("--nodes", type=int, default=4, help="nodes per worker with --kwok")
    up.add_argument("--for", type=float, dest="for_s", metavar="SECONDS", help="stop after")
    options = parser.parse_args()
    try:
        return _up(options)
    except (build.PartMissingError, StartError) as error:
        print(error, file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    stopped = end_of(signal.SIGINT, signal.SIGTERM)
    build.ensure(parts_for(kueue=not options.no_kueue, kwok=options.kwok))
    begun = time.monotonic()
    folder = options.dir.resolve()
    with start_fleet(
        options.workers, kueue=not options.no_kueue, kwok=options.kwok, folder=folder
    ) as fleet:
        if options.kwok:
            for cluster in fleet.workers:
                cluster.create_nodes(options.nodes, shape=NodeShape(), prefix=cluster.name)
        (folder / "fleet.json").write_text(json.dumps(_summary(fleet), indent=2))
        for cluster in fleet.clusters:
            print(f"{cluster.name}: {cluster.server} {cluster.admin_kubeconfig}")
        print(f"up in {time.monotonic() - begun:.1f} s; Ctrl-C ends it", flush=True)
        stopped.wait(options.for_s)
    return 0


def _summary(fleet: Fleet) -> dict[str, dict[str, str]]:
    return {
        cluster.name: {
            "server": cluster.server,
            "kubeconfig": str(cluster.admin_kubeconfig),
            "logs": str(cluster.folder),
        }
        for cluster in fleet.clusters
    }


if __name__ == "__main__":
    raise SystemExit(main())
