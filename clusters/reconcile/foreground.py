"""A shift without a database row: on kubeconfigs that somebody names, until told to stop.

The Lease on the cluster, the fence, the pulse and the body are those of the registered shifts; only
registration, heartbeats and the stored credentials are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import structlog

from clusters.errors import ClusterError, NotFound, Refusal
from clusters.kube.client import KubeClient
from clusters.kube.lease import ClusterLease, LeaseSettings
from clusters.kube.pulse import Pulse
from clusters.reconcile.context import Clients, ClusterFacts, Identity, Registered, ShiftContext
from clusters.reconcile.shift import BodyFactory, give_back, lease_name, make_body

log = structlog.stdlib.get_logger(__name__)

ACQUIRE_EVERY_S = 0.5
FOLLOW_S = 0.1


class NamedClients(Clients):
    """Clients of the kubeconfigs that were named.

    Args:
        kubeconfigs: By cluster, for either identity.
        portal: Those of the portal's own identity, where they are others.
    """

    def __init__(
        self, kubeconfigs: Mapping[str, str], portal: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._named = {slug: KubeClient.from_kubeconfig(text) for slug, text in kubeconfigs.items()}
        self._portal = {
            slug: KubeClient.from_kubeconfig(text) for slug, text in (portal or {}).items()
        }

    def of(self, slug: str, *, identity: Identity = Identity.PORTAL) -> KubeClient:
        """The client of a named cluster; raises NotFound for any other."""
        if identity is Identity.PORTAL and slug in self._portal:
            return self._portal[slug]
        try:
            return self._named[slug]
        except KeyError:
            raise NotFound(Refusal(f"no kubeconfig was named for cluster {slug}")) from None

    def close(self) -> None:
        super().close()
        for client in (*self._named.values(), *self._portal.values()):
            client.close()


@dataclass(frozen=True, slots=True)
class ForegroundShift:
    """What to work on.

    Attributes:
        kubeconfig: Text, of the cluster.
        role: One of ``ShiftRun.Role``.
        facts: What a registration would say of the cluster.
        workers: Kubeconfig texts by worker name.
        portal_workers: Those of the portal's own identity, where they are others.
        holder: Identity for the Lease, unique to this run.
        lease_s: Duration of the Lease, whole seconds.
        body: Makes the body; None for the role's own.
    """

    kubeconfig: str = field(repr=False)
    role: str
    facts: ClusterFacts
    holder: str
    workers: Mapping[str, str] = field(default_factory=dict, repr=False)
    portal_workers: Mapping[str, str] = field(default_factory=dict, repr=False)
    lease_s: int = 15
    body: BodyFactory | None = None


def work_in_foreground(shift: ForegroundShift, *, stop: threading.Event) -> None:
    """Work until ``stop`` is set.

    Raises:
        LeaseLost: the Lease was lost; nothing was written after that.
        ClusterError: what the body cannot live with.
        KubeconfigRejected: a kubeconfig holds something that is not allowed.
    """
    over = threading.Event()
    with ExitStack() as stack:
        client = stack.enter_context(KubeClient.from_kubeconfig(shift.kubeconfig))
        clients = NamedClients(shift.workers, shift.portal_workers)
        stack.callback(clients.close)
        pulse = Pulse(client)
        name = lease_name(shift.role, shift.facts.installation)
        lease = ClusterLease(
            client,
            name,
            holder=shift.holder,
            settings=LeaseSettings(duration_s=shift.lease_s),
        )
        if not _acquire(lease, stop):
            return
        threads = [
            threading.Thread(target=target, name=f"{shift.facts.slug}-{what}", daemon=True)
            for what, target in (
                ("stop", lambda: _follow(stop, over)),
                ("pulse", lambda: pulse.run(over)),
                ("lease", lambda: lease.keep(over, over.set)),
            )
        ]
        for thread in threads:
            thread.start()
        context = ShiftContext(
            Registered(shift.facts, b""),
            client=client,
            clients=clients,
            pulse=pulse,
            stop=over,
            fence=lease.check,
            holder=shift.holder,
            role=shift.role,
        )
        try:
            body = shift.body(context) if shift.body else make_body(shift.role, context)
            body.run()
            if not stop.is_set():
                lease.check()
        finally:
            over.set()
            for thread in threads:
                thread.join(timeout=10)
            give_back(lease, name)


def _acquire(lease: ClusterLease, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            if lease.try_acquire():
                return True
            log.info("lease_waits", holder=lease.other_holder)
        except ClusterError as error:
            log.warning("lease_waits", reason=error.reason, message=error.message)
        stop.wait(ACQUIRE_EVERY_S)
    return False


def _follow(stop: threading.Event, over: threading.Event) -> None:
    while not over.is_set():
        if stop.wait(FOLLOW_S):
            over.set()
