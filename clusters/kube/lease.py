"""A coordination.k8s.io Lease: one writer per role on a cluster, and a fence before each write.

Nobody's clock is trusted: a lease is expired when this process has seen it unchanged for its whole
duration, by its own monotonic clock. A holder stops writing after half the duration without a
renewal, so it has stopped long before anybody may take over. It goes on with the next renewal, even
when the lease has ended meanwhile: who renews it writes to the very version that it wrote before,
so nobody had it in between. On a machine or a cluster that is too busy for a while, nothing has to
begin anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from clusters.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    LeaseLost,
    NotFound,
    Refusal,
    Retryable,
)
from clusters.kube.client import KubeClient
from clusters.kube.resources import LEASE, Document

_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Which Lease object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How long a lease lasts (whole seconds), and the two clocks: one to show, one to judge by."""

    duration_s: int = 15
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic

    @property
    def fence_s(self) -> float:
        """Age of the last renewal beyond which nothing may be written."""
        return self.duration_s / 2

    @property
    def renew_every_s(self) -> float:
        return self.duration_s / 6

    @property
    def given_up_s(self) -> float:
        """Age of the last renewal at which it is given up: another worker may reach the cluster."""
        return self.duration_s * 3


class ClusterLease:
    """One process's hold, or wish for a hold, on one Lease; any thread may call its methods.

    Args:
        client: the cluster.
        name: the Lease object.
        holder: identity, unique to this process and run.
        settings: duration and clocks.
    """

    def __init__(
        self,
        client: KubeClient,
        name: LeaseName,
        *,
        holder: str,
        settings: LeaseSettings | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._holder = holder
        self._settings = settings or LeaseSettings()
        self._lock = threading.Lock()
        self._held: Document | None = None
        self._renewed_at: float | None = None
        # Set when nobody renews it any more; None before somebody does.
        self._kept: threading.Event | None = None
        # The version of a foreign holder's lease, and since when it has been the same.
        self._sighting: tuple[str, float] | None = None
        self.other_holder = ""
        # Annotations that go along with every write.
        self.notes: dict[str, str] = {}

    @property
    def is_held(self) -> bool:
        """Whether the lease was ours at the last look; `check` is what writes go by."""
        return self._held is not None

    def check(self) -> None:
        """The fence: waits for the next renewal, once the last is older than half the duration.

        Raises:
            LeaseLost: the lease is not held, or was given up; or nobody keeps it any more who could
                renew it.
        """
        while True:
            renewed_at = self._renewed_at
            if self._held is None or renewed_at is None:
                raise self._lost("is not held")
            age, kept = self._settings.monotonic() - renewed_at, self._kept
            if age <= self._settings.fence_s:
                return
            if kept is None or age > self._settings.given_up_s or kept.wait(_POLL_S):
                raise self._lost(f"was last renewed {age:.1f} s ago")

    def try_acquire(self) -> bool:
        """Takes the lease if it is free, ours, or seen unchanged for its whole duration.

        Raises:
            ClusterError: the cluster could not be asked (a lost race is no error).
        """
        with self._lock:
            started = self._settings.monotonic()
            lease = self._read()
            if lease is None:
                return self._create(started)
            return self._may_take(lease) and self._write(lease, started)

    def renew(self) -> None:
        """Renews a held lease.

        Raises:
            LeaseLost: it is not held, or somebody else holds it now.
            ClusterError: the cluster could not be asked, or another write got between twice; the
                hold ages meanwhile.
        """
        with self._lock:
            if self._held is None:
                raise self._lost("is not held")
            started = self._settings.monotonic()
            if self._write(self._held, started):
                return
            # Somebody wrote to it: a new holder, or only a label by an administrator.
            lease = self._read()
            if lease is None or self._holder_of(lease) != self._holder:
                self._forget()
                raise self._lost("was taken over")
            if not self._write(lease, started):
                text = f"the lease {self._name} is being written to by somebody else"
                raise Conflict(Refusal(text))

    def release(self) -> None:
        """Gives a held lease back, so that the next holder need not wait for its end.

        Raises:
            ClusterError: the cluster could not be told; the lease then ends by itself.
        """
        with self._lock:
            held = self._held
            self._forget()
            if held is None:
                return
            spec = held["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
            try:
                self._client.replace(LEASE, held | {"spec": spec})
            except (Conflict, NotFound):
                return  # somebody else's by now

    def keep(self, stop: threading.Event, on_lost: Callable[[], None]) -> None:
        """Renews until `stop` is set; calls `on_lost` once, and returns, when the lease is lost."""
        self._kept = stop
        while not stop.wait(self._settings.renew_every_s):
            try:
                self.renew()
                continue
            except LeaseLost:
                pass
            except Retryable:
                if not self._is_given_up():
                    continue
            except ClusterError:
                pass
            self._forget()
            on_lost()
            return

    def _is_given_up(self) -> bool:
        renewed_at = self._renewed_at
        age = self._settings.monotonic() - (renewed_at or 0.0)
        return renewed_at is None or age > self._settings.given_up_s

    def _may_take(self, lease: Document) -> bool:
        holder = self._holder_of(lease)
        if holder in ("", self._holder):
            return True
        self.other_holder = holder
        version = lease["metadata"]["resourceVersion"]
        now = self._settings.monotonic()
        if self._sighting is None or self._sighting[0] != version:
            self._sighting = version, now
            return False
        duration = (lease.get("spec") or {}).get("leaseDurationSeconds") or 0
        return now - self._sighting[1] > max(duration, self._settings.duration_s)

    def _create(self, started: float) -> bool:
        document: Document = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self._name.name,
                "namespace": self._name.namespace,
                **({"annotations": self.notes} if self.notes else {}),
            },
            "spec": self._spec({}, is_taken=True),
        }
        try:
            self._adopt(self._client.create(LEASE, document), started)
        except AlreadyExists:
            return False
        return True

    def _write(self, lease: Document, started: float) -> bool:
        """Writes ourselves as holder, bound to the state that was read; False when it changed."""
        is_taken = self._holder_of(lease) != self._holder
        metadata = lease["metadata"]
        notes = (metadata.get("annotations") or {}) | self.notes
        document = lease | {
            "metadata": metadata | ({"annotations": notes} if notes else {}),
            "spec": self._spec(lease.get("spec") or {}, is_taken=is_taken),
        }
        try:
            self._adopt(self._client.replace(LEASE, document), started)
        except (Conflict, NotFound):
            return False
        return True

    def _spec(self, before: Document, *, is_taken: bool) -> Document:
        now = self._settings.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = before | {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._settings.duration_s,
            "renewTime": now,
        }
        if is_taken:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + bool(before)
        return spec

    def _adopt(self, lease: Document, started: float) -> None:
        # The hold counts from before the request was sent: the server may have seen it just then.
        self._held, self._renewed_at, self._sighting = lease, started, None
        self.other_holder = ""

    def _forget(self) -> None:
        self._held = self._renewed_at = None

    def _read(self) -> Document | None:
        try:
            return self._client.get(LEASE, self._name.name, namespace=self._name.namespace)
        except NotFound:
            return None

    @staticmethod
    def _holder_of(lease: Document) -> str:
        return str((lease.get("spec") or {}).get("holderIdentity") or "")

    def _lost(self, what: str) -> LeaseLost:
        return LeaseLost(Refusal(f"the lease {self._name} {what}", reason="LeaseLost"))
