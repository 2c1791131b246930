"""What the body of a shift works with: its cluster, its client, its fence, the other clusters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.utils import timezone

from budgets.records import record_of
from clusters.credentials import connection_to
from clusters.errors import NotFound, Refusal
from clusters.kube.client import KubeClient
from clusters.kube.pulse import ClusterClock, Pulse
from clusters.kube.shares import Shares
from clusters.models import Cluster
from clusters.reconcile.runtime.faults import Faults
from clusters.vault import is_same

_CREDENTIAL_CHECK_S = 5.0


class Identity(StrEnum):
    """As whom to talk to a cluster."""

    PORTAL = "portal"
    MULTIKUEUE = "multikueue"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A Cluster row as a shift sees it; nothing secret in it."""

    pk: int
    slug: str
    is_manager: bool
    mode: str
    state: str
    generation: int
    installation: str
    writes_enabled: bool = True
    drift_policy: str = Cluster.DriftPolicy.RESTORE
    blocked_reason: str = ""
    guard: str = Cluster.Guard.TELL
    kueue_configuration: Mapping[str, Any] = field(default_factory=dict)
    forgotten_subjects: tuple[str, ...] = ()
    is_single: bool = False
    own_queue: str = ""
    runs_jobs: bool = True

    @property
    def may_write(self) -> bool:
        """Whether quota, admission and dispatch may change objects; Leases are kept anyway."""
        return is_writable(writes_enabled=self.writes_enabled, blocked_reason=self.blocked_reason)

    @property
    def is_portal_mode(self) -> bool:
        return self.mode == Cluster.Mode.PORTAL

    @property
    def shape(self) -> tuple[object, ...]:
        """What the body of a shift is built for: with another one it has to begin anew."""
        return self.mode, self.is_manager, self.is_single, bool(self.own_queue)


def is_writable(*, writes_enabled: bool, blocked_reason: str) -> bool:
    """Whether a cluster's switch is on and no decision is waited for."""
    return writes_enabled and not blocked_reason


@dataclass(frozen=True, slots=True)
class Registered:
    """Facts and the sealed credential that they go with."""

    facts: ClusterFacts
    sealed: bytes = field(repr=False)

    def is_same_access(self, other: Registered) -> bool:
        """Whether a running shift may go on: same credential, by whatever key, mode and role."""
        return self.facts.shape == other.facts.shape and is_same(self.sealed, other.sealed)


def registered(slug: str) -> Registered | None:
    """The cluster of that name; None when it is gone or removed. One query."""
    rows = Cluster.objects.filter(slug=slug).exclude(state=Cluster.State.REMOVED)
    row = rows.defer("preflight", "multikueue_kubeconfig_sealed").first()
    if row is None:
        return None
    facts = record_of(
        ClusterFacts,
        row,
        installation=settings.PORTAL_INSTALLATION,
        forgotten_subjects=tuple(row.forgotten_subjects),
    )
    return Registered(facts, bytes(row.kubeconfig_sealed))


def registered_workers() -> frozenset[str]:
    """Slugs of the workers that a manager's dispatch holds a credential for. One query."""
    found = Cluster.objects.filter(
        role=Cluster.Role.WORKER, multikueue_kubeconfig_sealed__isnull=False
    ).exclude(state=Cluster.State.REMOVED)
    return frozenset(found.values_list("slug", flat=True))


class Clients:
    """Clients of several clusters, made when first asked for; safe to share between threads.

    A credential that was rotated gives a new client; what was handed out before stays open until
    `close`, since somebody may be using it.

    Args:
        monotonic: Clock.
        shares: What each cluster may take of this process's memory; None for no limit.

    Attributes:
        shares: The same.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, shares: Shares | None = None
    ) -> None:
        self._monotonic, self.shares = monotonic, shares
        self._lock = threading.Lock()
        self._known: dict[tuple[str, Identity], tuple[float, bytes, KubeClient]] = {}
        self._open: list[KubeClient] = []

    def of(self, slug: str, *, identity: Identity = Identity.PORTAL) -> KubeClient:
        """The client of a cluster.

        Raises:
            NotFound: no such cluster, or it has no credential of that identity yet.
            CredentialUnusable: the stored credential cannot be opened, or the portal's own service
                account cannot be read.
            KubeconfigRejected: what is stored is not usable (any more).
        """
        key = slug, identity
        now = self._monotonic()
        with self._lock:
            known = self._known.get(key)
            if known is not None and now - known[0] < _CREDENTIAL_CHECK_S:
                return known[2]
            sealed = _sealed(slug, identity)
            if known is not None and is_same(known[1], sealed):
                client = known[2]
            else:
                share = self.shares.of(slug) if self.shares is not None else None
                client = KubeClient.from_connection(connection_to(sealed), share=share)
                self._open.append(client)
            self._known[key] = now, sealed, client
            return client

    def close(self) -> None:
        """Closes every client that was handed out."""
        with self._lock:
            for client in self._open:
                client.close()
            self._open.clear()
            self._known.clear()


def _sealed(slug: str, identity: Identity) -> bytes:
    column = "kubeconfig_sealed" if identity is Identity.PORTAL else "multikueue_kubeconfig_sealed"
    sealed = (
        Cluster.objects.filter(slug=slug)
        .exclude(state=Cluster.State.REMOVED)
        .values_list(column, flat=True)
        .first()
    )
    if not sealed:
        raise NotFound(
            Refusal(f"no {identity} credential of cluster {slug} is stored", reason="NoCredential")
        )
    return bytes(sealed)


class ShiftContext:
    """Handed to the body of a shift; every member may be used from any of its threads.

    Attributes:
        begun: The body calls it once it has what it works with: the next shift may begin.
    """

    def __init__(
        self,
        registration: Registered,
        *,
        client: KubeClient,
        clients: Clients,
        pulse: Pulse,
        stop: threading.Event,
        fence: Callable[[], None],
        holder: str,
        role: str = "",
    ) -> None:
        self._registration = registration
        self._watch_age: Callable[[], float | None] = lambda: None
        self._clock = ClusterClock(timezone.now, pulse=pulse)
        self.client = client
        self.clients = clients
        self.pulse = pulse
        self.stop = stop
        self.fence = fence
        self.holder = holder
        self.role = role
        self.faults = Faults(registration.facts.slug, role)
        self.begun: Callable[[], None] = lambda: None

    @property
    def cluster(self) -> ClusterFacts:
        """Newest known facts; refreshed with every heartbeat."""
        return self._registration.facts

    @property
    def registration(self) -> Registered:
        return self._registration

    def learn(self, registration: Registered) -> None:
        """Take newer facts; the framework does it with every heartbeat."""
        self._registration = registration

    def refresh(self) -> ClusterFacts:
        """Read the facts now, before a decision that hangs on them."""
        found = registered(self.cluster.slug)
        if found is not None:
            self._registration = found
        return self.cluster

    def client_for(self, slug: str, *, identity: Identity = Identity.PORTAL) -> KubeClient:
        """A client of any registered cluster; see :meth:`Clients.of`."""
        if slug == self.cluster.slug and identity is Identity.PORTAL:
            return self.client
        return self.clients.of(slug, identity=identity)

    def now(self) -> datetime:
        """UTC, aware, with microseconds: the one clock of a body, which is the cluster's."""
        return self._clock.now()

    @property
    def skew(self) -> timedelta:
        """How far the cluster's clock is ahead of this machine's."""
        return self._clock.skew

    def report_watch_age(self, age: Callable[[], float | None]) -> None:
        """Tell where the age of the oldest watch can be read (seconds), for health and pages."""
        self._watch_age = age

    @property
    def watch_age_s(self) -> float | None:
        return self._watch_age()
