"""A shift: one process works on one role of one cluster for a while, then hands over.

It claims the row, takes the Lease on the cluster, and runs the role's body while a thread keeps the
Lease and another one writes the heartbeats of all shifts of the process. It ends when its time is
up, when it is told to, or when row, Lease or registration are not its own any more. A body writes
only behind `fence`. All shifts of a cluster in a process go by one pulse.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone
from django.utils.module_loading import import_string

from clusters.credentials import connection_to
from clusters.errors import ClusterError, LeaseLost, Retryable
from clusters.kube.client import KubeClient
from clusters.kube.lease import ClusterLease, LeaseName, LeaseSettings
from clusters.kube.pulse import Pulse, Pulses
from clusters.kube.shares import MIB, Shares
from clusters.models import ShiftRun
from clusters.reconcile import beginning, claims, past
from clusters.reconcile.claims import Claim, ShiftLease
from clusters.reconcile.context import (
    Clients,
    Registered,
    ShiftContext,
    registered,
    registered_workers,
)
from clusters.reconcile.health import Contact, record_contact
from clusters.reconcile.heartbeats import Heart, Read
from clusters.reconcile.identity import OtherCluster, confirm
from clusters.reconcile.runtime import threads

log = structlog.stdlib.get_logger(__name__)

OF_WORKERS = 0.4
"""Share of the memory of dispatch that workers may have together."""
HEALTH_EVERY_S = 5.0
_RETRY_FIRST_S, _RETRY_CAP_S = 0.5, 3.0
_PULSES = Pulses()
_HEART = Heart()


class Body(Protocol):
    """The work of one role: level-triggered, until ``context.stop`` is set."""

    def run(self) -> None:
        """Works until told to stop; raises what it cannot live with."""


BodyFactory = Callable[[ShiftContext], Body]


ADMISSION = "clusters.reconcile.admission.AdmissionBody"
REPORTER = "clusters.reconcile.explained.reporter.Reporter"
DISPATCH = "clusters.reconcile.dispatch.DispatchBody"
EXTERNAL = "clusters.reconcile.external.ExternalBody"


def _explained_admission(context: ShiftContext) -> Body:
    """Admission, whose warm engine also says why jobs wait."""
    reporter = import_string(REPORTER)
    made: Body = import_string(ADMISSION)(context, reader=reporter.of(context))
    return made


def _dispatch(context: ShiftContext) -> Body:
    """On a manager the portal dispatches, or a Kueue does and the portal nominates."""
    made: Body = import_string(DISPATCH if context.cluster.is_portal_mode else EXTERNAL)(context)
    return made


BODIES: dict[str, str | BodyFactory] = {
    ShiftRun.Role.QUOTA: "clusters.reconcile.quota.QuotaBody",
    ShiftRun.Role.ADMISSION: _explained_admission,
    ShiftRun.Role.DISPATCH: _dispatch,
    ShiftRun.Role.USAGE: "clusters.reconcile.usage.UsageBody",
    ShiftRun.Role.SHADOW: "clusters.reconcile.shadow.body.ShadowBody",
    ShiftRun.Role.SPEND: "clusters.reconcile.budget_check.BudgetCheckBody",
}
"""Role → its body, by dotted name so that a worker of one role need not load the others."""


class Ending(StrEnum):
    """Why a shift ended."""

    HANDED_OVER = "handed over"
    STOPPED = "stopped"
    HELD_ELSEWHERE = "held elsewhere"
    LEASE_LOST = "lease lost"
    ROW_LOST = "taken over by another worker"
    CHANGED = "credentials or mode changed"
    REMOVED = "cluster is not registered"
    UNREACHABLE = "cluster not reachable"
    OTHER_CLUSTER = "another cluster answers"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ShiftOutcome:
    """How a shift ended, in a word and in a sentence."""

    ending: Ending
    message: str = ""

    def __str__(self) -> str:
        return f"{self.ending}: {self.message}" if self.message else str(self.ending)


def lease_name(role: str, installation: str) -> LeaseName:
    """Admission and dispatch: one writer per cluster; all others: one per installation."""
    is_shared = role in (ShiftRun.Role.ADMISSION, ShiftRun.Role.DISPATCH)
    name = f"gpu-budget-{role}" if is_shared else f"gpu-budget-{role}-{installation}"
    return LeaseName(settings.PORTAL_LEASE_NAMESPACE, name)


def run_shift(
    cluster_slug: str, role: str, *, stop: threading.Event, seconds: float, holder: str
) -> ShiftOutcome:
    """Work one shift.

    Args:
        cluster_slug: Which cluster.
        role: One of ``ShiftRun.Role``.
        stop: Set from outside to hand over early.
        seconds: Length of the shift.
        holder: Identity, unique to this process and run.

    Returns:
        How it ended; errors of the cluster and of the body are in it and in the log.
    """
    registration = registered(cluster_slug)
    if registration is None:
        return ShiftOutcome(Ending.REMOVED)
    claim = claims.take(registration.facts.pk, role, holder=holder)
    if claim is None:
        return ShiftOutcome(Ending.HELD_ELSEWHERE)
    outcome = ShiftOutcome(Ending.FAILED, "ended by an unexpected error; see the worker's log")
    try:
        outcome = _work(registration, role, claim, stop=stop, seconds=seconds)
    finally:
        _end_claim(claim, outcome)
        log.info(
            "shift_ended", cluster=cluster_slug, role=role, holder=holder, ending=outcome.ending
        )
    return outcome


def _end_claim(claim: Claim, outcome: ShiftOutcome) -> None:
    try:
        claim.end(str(outcome))
    except DatabaseError as error:
        # Without heartbeats the row goes stale by itself.
        log.warning("claim_not_ended", holder=claim.holder, error=type(error).__name__)
        connection.close()


def make_body(role: str, context: ShiftContext) -> Body:
    """The body of a role."""
    factory = BODIES[role]
    if isinstance(factory, str):
        factory = import_string(factory)
    return factory(context)


def load_bodies() -> None:
    """Load what any role may need."""
    named = (body for body in BODIES.values() if isinstance(body, str))
    for name in (ADMISSION, REPORTER, DISPATCH, EXTERNAL, *named):
        import_string(name)


def give_back(lease: ClusterLease, name: LeaseName) -> None:
    """Release a Lease, so that a successor need not wait."""
    try:
        lease.release()
    except ClusterError as error:
        # It ends by itself; the successor waits for that.
        log.info("lease_not_released", lease=name, reason=error.reason)


def _work(
    registration: Registered, role: str, claim: Claim, *, stop: threading.Event, seconds: float
) -> ShiftOutcome:
    def connect() -> KubeClient:
        return KubeClient.from_connection(connection_to(registration.sealed))

    reached_by = registration.facts.slug, registration.sealed
    with ExitStack() as stack:
        try:
            client = stack.enter_context(connect())
            pulse = stack.enter_context(_PULSES.shared(reached_by, connect))
        except ClusterError as error:
            if role == ShiftRun.Role.QUOTA:
                record_contact(registration.facts.pk, Contact(timezone.now(), error))
            return ShiftOutcome(Ending.FAILED, f"{error.reason}: {error}")
        clients = stack.enter_context(closing(Clients(shares=shares_of(role))))
        return _Shift(
            registration, role, claim, client, clients, pulse, stop=stop, seconds=seconds
        ).work()


def shares_of(role: str) -> Shares | None:
    """What each worker may take of the memory of dispatch, which reads them all.

    The other part is for the manager's own objects, and for what is in hand.
    """
    if role != ShiftRun.Role.DISPATCH or not settings.SHIFT_MEMORY_MB:
        return None
    memory = int(settings.SHIFT_MEMORY_MB * MIB * OF_WORKERS)
    advice = "SHIFT_MEMORY_MB gives all of them more."
    return Shares(memory=memory, among=len(registered_workers()), advice=advice)


class _Shift:
    """The threads around a body, and the one event that ends them all."""

    def __init__(
        self,
        registration: Registered,
        role: str,
        claim: Claim,
        client: KubeClient,
        clients: Clients,
        pulse: Pulse,
        *,
        stop: threading.Event,
        seconds: float,
    ) -> None:
        self._facts, self._claim = registration.facts, claim
        self.slug, self.role = registration.facts.slug, role
        self._stop, self._ends_at = stop, time.monotonic() + seconds
        self._beat_at, self._beat_with = 0.0, ""
        self._told_at = 0.0
        self._over = threading.Event()
        self._ending: Ending | None = None
        self._has_looked_back = False
        self._writes_health = role == ShiftRun.Role.QUOTA
        self._seen: tuple[bool, str] | None = None
        self._place: beginning.Place | None = None
        self._pulse = pulse
        self._name = lease_name(role, registration.facts.installation)
        self._lease = ShiftLease(
            client,
            self._name,
            holder=claim.holder,
            settings=LeaseSettings(duration_s=settings.LEASE_SECONDS),
            evidence=claim.evidence,
        )
        self._context = ShiftContext(
            registration,
            client=client,
            clients=clients,
            pulse=pulse,
            stop=self._over,
            fence=self._lease.check,
            holder=claim.holder,
            role=role,
        )

    def work(self) -> ShiftOutcome:
        with _HEART.beating(self):
            try:
                return self._hold_and_run()
            finally:
                self._over.set()

    def _hold_and_run(self) -> ShiftOutcome:
        try:
            if not self._acquire():
                return ShiftOutcome(self._ending or Ending.STOPPED)
        except OtherCluster as error:
            self._tell(error)
            return ShiftOutcome(Ending.OTHER_CLUSTER, error.message)
        lost = partial(self._end, Ending.LEASE_LOST)
        keeping = self._thread(lambda: self._lease.keep(self._over, lost), "lease")
        log.info("shift_begins", cluster=self.slug, role=self.role, holder=self._claim.holder)
        try:
            self._look_back()
            with beginning.gate().passing(self._over) as self._place:
                self._context.begun = self._place.leave
                make_body(self.role, self._context).run()
        except LeaseLost as error:
            return ShiftOutcome(Ending.LEASE_LOST, error.message)
        except ClusterError as error:
            log.warning(
                "shift_failed",
                cluster=self.slug,
                role=self.role,
                reason=error.reason,
                message=error.message,
            )
            ending = Ending.UNREACHABLE if isinstance(error, Retryable) else Ending.FAILED
            return ShiftOutcome(ending, f"{error.reason}: {error.message}")
        finally:
            self._over.set()
            give_back(self._lease, self._name)
            keeping.join(timeout=10)
        return ShiftOutcome(self._ending or Ending.STOPPED)

    def _look_back(self) -> None:
        """Before anything is written: is this the database that wrote here last?"""
        facts = self._facts
        lease = lease_name(ShiftRun.Role.QUOTA, facts.installation)
        past.look_back(self._context.client, lease, cluster_id=facts.pk, slug=facts.slug)
        self._context.refresh()
        self._has_looked_back = True

    def _acquire(self) -> bool:
        """Tries for the Lease until it is ours or the shift is over.

        Raises:
            OtherCluster: not the cluster that is registered; nothing was written to it.
        """
        wait, is_confirmed = _RETRY_FIRST_S, False
        while not self._over.is_set():
            try:
                if not is_confirmed:
                    confirm(self._facts.slug, self._context.client)
                    self._learn_the_time()
                    is_confirmed = True
                if self._lease.try_acquire():
                    return True
                wait = _RETRY_FIRST_S
            except OtherCluster:
                raise
            except ClusterError as error:
                self._tell(error)
                log.info("shift_waits", cluster=self.slug, role=self.role, reason=error.reason)
                wait = min(_RETRY_CAP_S, wait * 2)
            self._over.wait(wait)
        return False

    def _learn_the_time(self) -> None:
        """What is written and billed goes by the cluster's clock from the first moment on.

        Raises:
            ClusterError: it did not answer.
        """
        if not self._pulse.beat() and self._pulse.last_error is not None:
            raise self._pulse.last_error

    def look(self, now: float) -> bool:
        """See to the reasons to end that come from outside; and to health, where no beat is due.

        Returns:
            Whether a heartbeat is due: a Lease that was renewed since the last one says nothing to
            a successor.
        """
        if self._place is not None:
            self._place.leave_if_late()
        if self._over.is_set():
            return False
        if self._stop.is_set() or now > self._ends_at:
            self._end(Ending.STOPPED if self._stop.is_set() else Ending.HANDED_OVER)
            return False
        is_late = now - self._beat_at >= claims.HEARTBEAT_S
        if is_late or self._lease.version != self._beat_with:
            return True
        self._tell_health(now)
        return False

    def beat(self, now: float, read: Read) -> None:
        """Say that the shift is alive, and go by the registration as it is now."""
        self._beat_at, self._beat_with = now, self._lease.version
        if not self._claim.beat(
            lease_version=self._beat_with,
            watch_age_s=self._context.watch_age_s,
            standing=self._context.faults.standing,
        ):
            self._end(Ending.ROW_LOST)
            return
        found = read(self.slug)
        if found is None:
            self._end(Ending.REMOVED)
        elif not found.is_same_access(self._context.registration):
            self._end(Ending.CHANGED)
        else:
            self._context.learn(found)
            if self.role == ShiftRun.Role.QUOTA and self._has_looked_back:
                self._remember(found)

    def break_off(self) -> None:
        """Its heartbeat broke."""
        self._end(Ending.FAILED)

    def _remember(self, found: Registered) -> None:
        """Let the cluster know the newest entry, unless it waits for a decision about that."""
        if not found.facts.blocked_reason:
            self._lease.notes = {past.NOTE: past.newest_entry()}

    def _tell_health(self, now: float) -> None:
        pulse = self._pulse
        if not self._writes_health:
            return
        error = pulse.last_error
        if error is not None and isinstance(error, Retryable) and not pulse.is_lost:
            return
        if error is None and pulse.last_answer is None:
            return
        contact = Contact(timezone.now(), error, None if error else pulse.last_probe)
        if contact.key == self._seen and now - self._told_at < HEALTH_EVERY_S:
            return
        self._seen = contact.key
        record_contact(self._facts.pk, contact)
        self._told_at = now

    def _tell(self, error: ClusterError) -> None:
        """Health of a cluster that cannot even be asked for its Lease."""
        contact = Contact(timezone.now(), error)
        if self._writes_health and contact.key != self._seen:
            self._seen = contact.key
            record_contact(self._facts.pk, contact)

    def _end(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
        self._over.set()

    def _thread(self, target: Callable[[], None], what: str) -> threading.Thread:
        name = f"{self._facts.slug}-{self.role}-{what}"
        thread = threading.Thread(target=target, name=name, daemon=True)
        threads.start(thread)
        return thread
