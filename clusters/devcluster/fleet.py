"""Several embedded clusters in one process, from a description: the demo's manager and workers.

Objects, ports and token secrets lie in a folder, so that a second start finds everything as it was
and kubeconfigs that somebody registered keep working.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from clusters.devcluster.access import Denial
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.controllers import JobRunner, NodeShape, make_nodes
from clusters.devcluster.server import DevServer

PORTS = "ports.json"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster to serve; port 0 takes a free one and keeps to it from then on."""

    name: str
    port: int = 0
    runs_jobs: bool = True
    nodes: Sequence[NodeShape] = ()
    deny: Sequence[Denial] = ()
    webhooks: bool = True


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All clusters, the folder for kubeconfigs, and the folder for state (None keeps nothing)."""

    clusters: Sequence[ClusterPlan]
    kubeconfigs: Path
    state: Path | None = field(default=None)


def read_plan(document: Mapping[str, Any], *, folder: Path) -> FleetPlan:
    """The plan that a configuration file describes; relative paths start at `folder`.

    Raises:
        ValueError: a key that means nothing here, a value that makes no sense, or two clusters of
            one name.
    """
    unknown = set(document) - {"clusters", "kubeconfigs", "state"}
    if unknown:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    clusters = msgspec.convert(document.get("clusters") or [], list[ClusterPlan])
    if len({cluster.name for cluster in clusters}) != len(clusters):
        raise ValueError("two clusters have the same name")
    state = document.get("state")
    return FleetPlan(
        clusters,
        folder / str(document.get("kubeconfigs", "kubeconfigs")),
        folder / str(state) if state else None,
    )


def default_plan(folder: Path, *, workers: int) -> FleetPlan:
    """A manager whose Jobs nobody runs, and workers with two kinds of GPU nodes.

    Without workers: one cluster where Jobs are submitted and run.
    """
    shapes = [
        NodeShape(
            f"{kind}-node",
            2,
            labels={"gpu.example.com/model": kind},
            resources={"nvidia.com/gpu": "8"},
        )
        for kind in ("h100", "a100")
    ]
    if not workers:
        return FleetPlan([ClusterPlan("cluster", nodes=shapes)], folder, folder / "state")
    plans = [ClusterPlan("manager")]
    plans += [ClusterPlan(f"worker-{number + 1}", nodes=shapes) for number in range(workers)]
    return FleetPlan(plans, folder, folder / "state")


class EmbeddedFleet:
    """The clusters of a plan, served until closed; a context manager."""

    def __init__(self, plan: FleetPlan) -> None:
        self._plan = plan
        self._opened = ExitStack()
        self.servers: dict[str, DevServer] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for cluster in self._plan.clusters:
                self._start(cluster, opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything; the state folder keeps the objects."""
        self._opened.close()

    def _start(self, plan: ClusterPlan, opened: ExitStack) -> None:
        state = self._plan.state
        cluster = DevCluster(
            ClusterOptions(
                name=plan.name,
                file=state / f"{plan.name}.sqlite3" if state else None,
                secret=_secret(state, plan.name),
                webhooks=plan.webhooks,
                denials=plan.deny,
            )
        )
        opened.callback(cluster.close)
        ports = _known_ports(state)
        port = plan.port or ports.get(plan.name, 0)
        try:
            server = DevServer(cluster, port=port)
        except OSError as error:
            raise PortTaken(f"port {port} of cluster {plan.name} is taken") from error
        self.servers[plan.name] = opened.enter_context(server)
        if state and ports.get(plan.name) != server.port:
            (state / PORTS).write_text(json.dumps(ports | {plan.name: server.port}))
        for shape in plan.nodes:
            make_nodes(cluster, shape)
        if plan.runs_jobs:
            runner = JobRunner(cluster)
            runner.start()
            opened.callback(runner.stop)
        self._plan.kubeconfigs.mkdir(parents=True, exist_ok=True)
        _write_private(self._plan.kubeconfigs / f"{plan.name}.kubeconfig", server.kubeconfig)


class PortTaken(Exception):
    """Another program listens on a cluster's port."""


def _known_ports(state: Path | None) -> dict[str, int]:
    """Which port each cluster had last time."""
    known: dict[str, int] = {}
    if state and (state / PORTS).exists():
        known = json.loads((state / PORTS).read_text())
    return known


def _secret(state: Path | None, name: str) -> str:
    """The key under which a cluster's tokens are signed; the same after a restart."""
    if state is None:
        return secrets.token_hex(32)
    state.mkdir(parents=True, exist_ok=True)
    file = state / f"{name}.secret"
    if not file.exists():
        _write_private(file, secrets.token_hex(32))
    return file.read_text()


def _write_private(file: Path, text: str) -> None:
    """Writes a file that only its owner may read, in one step."""
    partial = file.with_name(f".{file.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    partial.replace(file)
