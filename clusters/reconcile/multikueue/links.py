"""The dispatch shift's connection to one worker: client, pulse, watches, cache.

Only objects with this manager's origin are watched, so nothing else can be touched by mistake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from clusters.documents import labels
from clusters.documents.conditions import Condition, condition
from clusters.documents.keys import Document
from clusters.errors import ClusterError
from clusters.jobs.table import JOBS_ONLY, JobKinds
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.pulse import Pulse
from clusters.kube.resources import Resource
from clusters.kueue.workload.parser import parse_time
from clusters.reconcile.multikueue.profiles import REASON as BAD_PROFILE
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.threads import start
from clusters.reconcile.runtime.watches import Sink, Watches

CREDENTIAL_EVERY_S = 5.0
SETTLE_S = 5.0


class Link:
    """One worker.

    Args:
        name: Of the MultiKueueCluster, which is the worker's slug.
        origin: Value of the origin label.
        client_for: Gives the client for the stored credential; another one when it was rotated.
        sink: Takes what the watches tell.
        may_write: Asked now and then whether the worker may be written to.
        kinds: Kinds of jobs to follow there.
        shown: The manager's object of the worker: what an earlier shift said there, and since when
            it is lost, if it says so.

    Attributes:
        state: The condition Active of the manager's object, as it should be.
    """

    def __init__(
        self,
        name: str,
        *,
        origin: str,
        client_for: Callable[[str], KubeClient],
        sink: Sink,
        may_write: Callable[[str], bool],
        kinds: JobKinds = JOBS_ONLY,
        shown: Document | None = None,
    ) -> None:
        self.name = name
        self._kinds = kinds
        self.cache = JobCache(kinds.resources)
        self.unserved: tuple[Resource, ...] = ()
        self.client: KubeClient | None = None
        self.lost_since: datetime | None = None
        self._away_since: datetime | None = None
        self.state = _failed("connecting")
        self._shown, self._shown_lost_since = _shown_by(shown)
        # One refused request right after a start proves nothing.
        self._is_settled = False
        self._born_at = time.monotonic()
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
        return self.state.status

    @property
    def is_opening(self) -> bool:
        """Whether the first try to connect is under way, to a worker that nobody found lost."""
        if self.is_connected or self._is_settled:
            return False
        return self._shown_lost_since is None and time.monotonic() - self._born_at < SETTLE_S

    def look(self, now: datetime) -> bool:
        """Follow credential and connection; whether the state changed.

        The time of loss is that of the first look that found the worker away, by this shift or by
        an earlier one. An earlier one's counts only once this one has failed to connect as well:
        the worker may have returned in between. It ends with the first answer, though what was
        missed has still to be read; and it grows only by requests that were not answered, so that
        a worker that is back before its time is up is found before anybody gives it up.
        """
        before = self.state, self.may_write, self._is_settled
        self._follow_credential()
        self.state = self._judge()
        if self.is_connected:
            self.lost_since = self._away_since = self._shown = self._shown_lost_since = None
        else:
            before_us = self._shown_lost_since if self._is_settled else None
            self._away_since = min(self._away_since or now, before_us or now)
            self.lost_since = self._proved(self._away_since, now)
        return before != (self.state, self.may_write, self._is_settled)

    def _proved(self, since: datetime, now: datetime) -> datetime:
        """The time of loss by which the worker is away only as long as it is known to be."""
        pulse = self._pulse
        if pulse is None or self._watches is None:
            return since
        if pulse.is_lost:
            return min(now, since + timedelta(seconds=pulse.failed_s_ago()))
        returned = pulse.returned_s_ago()
        return since if returned is None else max(since, now - timedelta(seconds=returned))

    @property
    def told(self) -> Condition:
        """What people are told: until the first attempt is over, what an earlier shift told."""
        return self.state if self._is_settled or self._shown is None else self._shown

    def close(self) -> None:
        """End watches and pulse."""
        self._pulse_stop.set()
        if self._watches is not None:
            self._watches.close()
        self._watches = None

    def _judge(self) -> Condition:
        if self._watches is None or self._pulse is None:
            self._is_settled = True
            return self.state if not self.is_connected else _failed("no connection")
        error = self._watches.last_error()
        has_failed = error is not None and time.monotonic() - self._born_at > SETTLE_S
        self._is_settled |= self._pulse.is_lost or has_failed or self._watches.is_synced
        if self._pulse.is_lost:
            told = self._pulse.last_error
            return _failed(told.message if told else "the API server does not answer")
        if error is not None:
            return _failed(str(error))
        if not self._watches.is_synced:
            return _failed("listing its objects")
        self.unserved = self._watches.missing()
        return _connected(self.unserved)

    def _follow_credential(self) -> None:
        if time.monotonic() - self._looked_at < CREDENTIAL_EVERY_S and self._looked_at:
            return
        self._looked_at = time.monotonic()
        self.may_write = self._ask_may_write(self.name)
        try:
            client = self._client_for(self.name)
        except ClusterError as error:
            self.close()
            self.client = None
            is_profile = getattr(error, "reason", "") == BAD_PROFILE
            text = str(error) if is_profile else f"load client config failed: {error}"
            reason = BAD_PROFILE if is_profile else "BadKubeConfig"
            self.state = Condition("Active", False, reason, text)
            return
        if client is not self.client:
            self.close()
            self._connect(client)

    def _connect(self, client: KubeClient) -> None:
        self.cache = JobCache(self._kinds.resources)
        self.state = _failed("connecting")
        self._pulse_stop = threading.Event()
        self._pulse = Pulse(client)
        beats, name = self._pulse.run, f"{self.name}-pulse"
        start(threading.Thread(target=beats, args=(self._pulse_stop,), name=name, daemon=True))
        self._watches = Watches(client, cluster=self.name, pulse=self._pulse, sink=self._sink)
        selection = Selection(labels=f"{labels.ORIGIN}={self._origin}")
        self._watches.add(r.WORKLOAD, selection=selection)
        for kind in self._kinds:
            may_be_missing = not kind.is_required
            self._watches.add(kind.resource, selection=selection, is_optional=may_be_missing)
        self.client = client  # at last: what began in part is begun anew


def _connected(unserved: Collection[Resource]) -> Condition:
    """Connected; what it does not serve costs only these kinds."""
    kinds = ", ".join(kind.full_name for kind in unserved)
    but = f"; takes no {kinds}: not served, or forbidden" if kinds else ""
    return Condition("Active", True, "Active", f"Connected{but}")


def _failed(message: str) -> Condition:
    return Condition("Active", False, "ClientConnectionFailed", message)


def _shown_by(cluster: Document | None) -> tuple[Condition | None, datetime | None]:
    """What a MultiKueueCluster shows of its worker, and since when as lost."""
    found = condition(cluster, "Active") if cluster is not None else {}
    if not found:
        return None, None
    is_active = found.get("status") == "True"
    since = None if is_active else parse_time(found.get("lastTransitionTime"))
    reason, message = str(found.get("reason", "")), str(found.get("message", ""))
    return Condition("Active", is_active, reason, message), since
