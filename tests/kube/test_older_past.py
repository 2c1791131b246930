"""An etcd that comes back with what it held 1,000 writes ago, under a watch that knew better."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.pulse import Pulse
from clusters.kube.watch import Reflector
from clusters.reconcile.usage.unwatched import replay
from tests.controlplane.control_plane import ControlPlane
from tests.faults.mishaps import restore, revision, snapshot_of
from tests.kube.documents import config_map
from tests.kube.test_reflector import Image, running
from tests.waiting import eventually

WRITES = 1_000
SEEN_WITHIN_S = 60.0


def test_what_is_there_after_an_older_past_came_back_is_seen(
    own_cluster: ControlPlane, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Watches go by versions, and for the next thousand writes the cluster's are too small."""
    namespace, image = unique("older"), Image()
    with KubeClient.from_kubeconfig(own_cluster.admin_kubeconfig.read_text()) as client:
        client.create(r.NAMESPACE, {"metadata": {"name": namespace}})
        client.create(r.CONFIG_MAP, config_map(namespace, "early"))
        pulse = Pulse(client)
        reflector = Reflector(
            client, r.CONFIG_MAP, image, selection=Selection(namespace), pulse=pulse
        )
        with running(reflector, pulse):
            assert eventually(lambda: "early" in image.names and reflector.is_watching)
            snapshot = snapshot_of(own_cluster, tmp_path / "older", revision(own_cluster))
            client.delete(r.CONFIG_MAP, "early", namespace=namespace)
            for number in range(WRITES):
                client.create(r.CONFIG_MAP, config_map(namespace, f"late-{number}"))
            assert eventually(lambda: f"late-{WRITES - 1}" in image.names)
            restore(own_cluster, snapshot)
            began = time.monotonic()
            client.create(r.CONFIG_MAP, config_map(namespace, "after"))
            assert revision(own_cluster) < snapshot.revision + WRITES
            undone = str(snapshot.revision + WRITES)
            now = datetime.now(UTC).replace(microsecond=0)

            def told() -> list[object]:
                with suppress(ClusterError):  # the API server has not read everything yet
                    return [replay(client, since=undone, floor=now, now=lambda: now)]
                return []

            assert eventually(told, seconds=SEEN_WITHIN_S) == [None], "it tells nothing of then"
            assert eventually(
                lambda: {"early", "after"} <= set(image.names), seconds=SEEN_WITHIN_S
            ), f"after {time.monotonic() - began:.0f} s: {sorted(image.names)[:5]} …"
            assert not [name for name in image.names if name.startswith("late-")]
