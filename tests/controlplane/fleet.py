"""A manager and its workers, started side by side.

with start_fleet(workers=2, kwok=True) as fleet:
    fleet.manager.rest ..., fleet.workers[0].admin_kubeconfig
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import build
from .control_plane import ControlPlane

KUEUE_PARTS = ("etcd", build.KUBERNETES, "kueue")


@dataclass(frozen=True, slots=True)
class KueueOptions:
    """How Kueue runs on all clusters of a fleet: its Configuration's changes and feature gates.

    Attributes:
        part: Of ``build``: which version runs.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    part: str = "kueue"


@dataclass(slots=True)
class Fleet:
    """A manager cluster, its workers, and the folder of their files."""

    manager: ControlPlane
    workers: list[ControlPlane]
    folder: Path
    is_folder_ours: bool = False

    @property
    def clusters(self) -> list[ControlPlane]:
        return [self.manager, *self.workers]

    def worker(self, name: str) -> ControlPlane:
        """Return a worker by its name."""
        return next(cluster for cluster in self.workers if cluster.name == name)

    def stop(self) -> None:
        """End every program; remove the folder if it was made here."""
        for cluster in self.clusters:
            cluster.stop()
        if self.is_folder_ours:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def parts_for(*, kueue: bool, kwok: bool) -> Sequence[str]:
    """Return the parts that have to be built for a fleet; the CRDs come with the part kueue."""
    return (*KUEUE_PARTS, "kwok") if kwok else KUEUE_PARTS


def start_fleet(
    workers: int = 2,
    *,
    kueue: bool = True,
    kwok: bool = False,
    folder: Path | None = None,
    kueue_options: KueueOptions | None = None,
) -> Fleet:
    """Start a manager and workers ``worker-1`` to ``worker-N`` side by side.

    Args:
        workers: how many besides the manager.
        kueue: run Kueue on all of them; without it they have its CRDs only.
        kwok: run kube-scheduler and kwok on the workers, so that pods run and end. Nodes are the
            caller's to create.
        folder: where files and logs go; a new one, removed by ``stop``, if not given.
        kueue_options: how Kueue is configured.

    Raises:
        PartMissingError: something is not built; nothing was started.
        StartError: a program did not come up; everything was ended.
    """
    options = kueue_options or KueueOptions()
    missing = build.missing_parts(
        tuple(dict.fromkeys((*parts_for(kueue=kueue, kwok=kwok), options.part)))
    )
    if missing:
        raise build.PartMissingError(f"not built: {', '.join(missing)}; {build.BUILD_HINT}")
    home = folder or Path(tempfile.mkdtemp(prefix="controlplane-"))
    names = ["manager", *(f"worker-{number}" for number in range(1, workers + 1))]
    clusters = [ControlPlane(name, home / name) for name in names]
    fleet = Fleet(clusters[0], clusters[1:], home, is_folder_ours=folder is None)

    def start(cluster: ControlPlane) -> None:
        cluster.kueue = options.part
        cluster.start(kueue_to_come=kueue)
        if kwok and cluster is not fleet.manager:
            cluster.start_scheduler()
            cluster.start_kwok()
        if kueue:
            cluster.start_kueue(options.config, feature_gates=options.feature_gates)

    with ThreadPoolExecutor(len(clusters)) as pool:
        pending = [pool.submit(start, cluster) for cluster in clusters]
    errors = [error for error in (task.exception() for task in pending) if error is not None]
    if errors:
        fleet.stop()
        raise errors[0]
    return fleet
