"""Who decides in Kueue's scheduler benchmark: Kueue in three shapes, the portal, and nobody.

=================  =====================================================================
minimalkueue       The decider of Kueue's benchmark as it is: at most 50 requests a second.
minimalkueue-300   The same source with the limits of the product, 300 with a burst of 500.
kueue              The released manager with its webhooks, 300 with a burst of 500.
run_shift          The portal.
free               Admits whatever comes at once and decides nothing: what the API server,
                   etcd and the runner take by themselves.
=================  =====================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane import build
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import Program

ROOT: Final = Path(__file__).resolve().parents[2]
LEASES: Final = "gpu-budget-portal"
"""Namespace of the portal's Leases."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who decides.

    Attributes:
        start: Starts it on a control plane, for a configuration of the load, with this log.
        is_portal: Whether it is this tree's own code, and not a pinned Kueue.
        bounds: What bounds it, in a few words.
    """

    name: str
    start: Callable[[ControlPlane, str, Path], Program]
    is_portal: bool
    bounds: str


def _minimal(binary: str) -> Callable[[ControlPlane, str, Path], Program]:
    def start(cluster: ControlPlane, config: str, log: Path) -> Program:
        more = ["--enableTAS"] if config == "tas" else []
        command = [build.binary(binary), "--kubeconfig", cluster.admin_kubeconfig, *more]
        return Program(command, name=binary, log=log)

    return start


def _kueue(cluster: ControlPlane, config: str, log: Path) -> Program:
    cluster.start_kueue()
    return cluster.programs()["kueue"]


def _python(
    name: str, *command: str, environment: Mapping[str, str]
) -> Callable[[ControlPlane, str, Path], Program]:
    def start(cluster: ControlPlane, config: str, log: Path) -> Program:
        cluster.ensure_namespace(LEASES)
        given = ["--kubeconfig", str(cluster.admin_kubeconfig)]
        # A program starts in the folder of its log.
        found = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment}
        return Program([sys.executable, *command, *given], name=name, log=log, environment=found)

    return start


_SHIFT = (str(ROOT / "manage.py"), "run_shift", "--role", "admission")
CONTENDERS: Final[Mapping[str, Contender]] = {
    each.name: each
    for each in (
        Contender(
            "minimalkueue",
            _minimal("minimalkueue"),
            is_portal=False,
            bounds="its limit of 50 requests a second, in its source",
        ),
        Contender(
            build.UNBRAKED,
            _minimal(build.UNBRAKED),
            is_portal=False,
            bounds="its limit of 300 requests a second, and the processors",
        ),
        Contender(
            "kueue",
            _kueue,
            is_portal=False,
            bounds="the same, and the webhooks that each write of a Workload passes",
        ),
        Contender(
            "run_shift",
            _python("run_shift", *_SHIFT, environment={"PORTAL_LEASE_NAMESPACE": LEASES}),
            is_portal=True,
            bounds="the processors; it has no limit of its own below the API server's",
        ),
        Contender(
            "free",
            _python("free", "-m", "tests.perf.free_decider", environment={}),
            is_portal=True,
            bounds="the API server, etcd and the runner on the same processors",
        ),
    )
}
