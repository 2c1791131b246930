"""The dispatch shift's connection to one worker: client, pulse, watches, image.

Only objects with this manager's origin are watched, so nothing else can be touched by mistake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.pulse import Pulse
from clusters.reconcile.admission.image import Image
from clusters.reconcile.jobs import keys
from clusters.reconcile.jobs.watches import Sink, Watches
from clusters.vault import SealBroken

CREDENTIAL_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class LinkState:
    """What the manager's MultiKueueCluster says of a worker."""

    is_connected: bool
    reason: str
    message: str


CONNECTED = LinkState(True, "Active", "Connected")


class Link:
    """One worker.

    Args:
        name: Of the MultiKueueCluster, which is the worker's slug.
        origin: Value of the origin label.
        client_for: Gives the client for the stored credential; another one when it was rotated.
        sink: Takes what the watches tell.
        may_write: Asked now and then whether the worker may be written to.
    """

    def __init__(
        self,
        name: str,
        *,
        origin: str,
        client_for: Callable[[str], KubeClient],
        sink: Sink,
        may_write: Callable[[str], bool],
    ) -> None:
        self.name = name
        self.image = Image()
        self.client: KubeClient | None = None
        self.lost_since: datetime | None = None
        self.state = LinkState(False, "ClientConnectionFailed", "connecting")
        self._origin = origin
        self._client_for = client_for
        self._sink = sink
        self._ask_may_write = may_write
        self.may_write = True
        self._watches: Watches | None = None
        self._pulse: Pulse | None = None
        self._pulse_stop = threading.Event()
        self._looked_at = 0.0

    @property
    def is_connected(self) -> bool:
        return self.state.is_connected

    def look(self, now: datetime) -> bool:
        """Follow credential and connection; whether the state changed.

        The time of loss is that of the first look that found the worker away, and stays until it
        is wholly back.
        """
        before = self.state, self.may_write
        self._follow_credential()
        self.state = self._judge()
        if self.state.is_connected:
            self.lost_since = None
        elif self.lost_since is None:
            self.lost_since = now
        return before != (self.state, self.may_write)

    def close(self) -> None:
        """End watches and pulse."""
        self._pulse_stop.set()
        if self._watches is not None:
            self._watches.close()
        self._watches = None

    def _judge(self) -> LinkState:
        if self._watches is None or self._pulse is None:
            return self.state if not self.state.is_connected else _failed("no connection")
        error = self._watches.last_error()
        if self._pulse.is_lost:
            told = self._pulse.last_error
            return _failed(told.message if told else "the API server does not answer")
        if error is not None:
            return _failed(str(error))
        return CONNECTED if self._watches.is_synced else _failed("listing its objects")

    def _follow_credential(self) -> None:
        if time.monotonic() - self._looked_at < CREDENTIAL_EVERY_S and self._looked_at:
            return
        self._looked_at = time.monotonic()
        self.may_write = self._ask_may_write(self.name)
        try:
            client = self._client_for(self.name)
        except (ClusterError, SealBroken) as error:
            self.close()
            self.client = None
            text = f"load client config failed: {error}"
            self.state = LinkState(False, "BadKubeConfig", text)
            return
        if client is not self.client:
            self.close()
            self._connect(client)

    def _connect(self, client: KubeClient) -> None:
        self.client = client
        self.image = Image()
        self.state = _failed("connecting")
        self._pulse_stop = threading.Event()
        self._pulse = Pulse(client)
        threading.Thread(
            target=self._pulse.run,
            args=(self._pulse_stop,),
            name=f"{self.name}-pulse",
            daemon=True,
        ).start()
        self._watches = Watches(client, cluster=self.name, pulse=self._pulse, sink=self._sink)
        selection = Selection(labels=f"{keys.ORIGIN}={self._origin}")
        for resource in (r.WORKLOAD, r.JOB):
            self._watches.add(resource, selection=selection)


def _failed(message: str) -> LinkState:
    return LinkState(False, "ClientConnectionFailed", message)
