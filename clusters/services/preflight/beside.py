"""Preflight of a manager under a live Kueue: how nominations are written, how soon losses count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from clusters.errors import ClusterError
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import Cluster, NominationWay
from clusters.reconcile.external.probing import probe
from clusters.reconcile.external.ways import Way
from clusters.services.preflight.rows import FAULT, OK, WARN, PreflightRow

LOST_MIN: Final = timedelta(seconds=75)
"""Kueue's first waits between two tries to reconnect: 5, 10, 20 and 40 s (spec dispatch 2.7)."""


def beside_rows(
    client: KubeClient, cluster: Cluster, configuration: Mapping[str, Any]
) -> Iterator[PreflightRow]:
    """Nothing for workers, for portal mode, and for a Configuration that cannot be read.

    Args:
        client: Reads there.
        cluster: As it is, or is to be, registered.
        configuration: Kueue's, as it is in force.
    """
    if not cluster.is_manager or cluster.mode != Cluster.Mode.KUEUE:
        return
    try:
        settings = DispatchSettings.from_document(configuration)
    except ValueError:
        return
    yield from _lost_row(settings)
    if settings.in_force.is_ours:
        yield _nomination_row(client, settings, configuration)


def _lost_row(settings: DispatchSettings) -> Iterator[PreflightRow]:
    if settings.worker_lost_timeout >= LOST_MIN:
        return
    yield PreflightRow(
        "Lost workers",
        WARN,
        f"multiKueue.workerLostTimeout is {settings.worker_lost_s} s",
        "Kueue counts a worker as lost until its next try to reconnect succeeds, after 5, 10, 20 "
        "and 40 s: a short outage would restart its jobs elsewhere. Set it to 15m.",
    )


def _nomination_row(
    client: KubeClient, settings: DispatchSettings, configuration: Mapping[str, Any]
) -> PreflightRow:
    try:
        found = probe(client, settings, configuration)
    except ClusterError as error:
        return PreflightRow(
            "Nominations", WARN, f"not known: {error.reason}: {error.message}", "Try again."
        )
    words = f"{NominationWay.Way(found.way.value).label}. {found.why}"
    if found.way is Way.NONE:
        return PreflightRow("Nominations", FAULT, words, "Until then no job is dispatched.")
    return PreflightRow("Nominations", OK, words)
