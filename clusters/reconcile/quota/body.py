"""The loop of quota sync on one cluster.

It wakes when an object changed on the cluster, when a generation rose in the database (one small
query, so that nothing depends on the broker), when a retry is due, and for a sweep of everything.
Objects that are as they should be cost no request: they are compared in memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from django.db import DatabaseError, connection
from django.db.models import Count

from budgets import services as promises
from clusters.errors import ClusterError, LeaseLost
from clusters.manifests.names import Key
from clusters.models import Cluster, WorkloadState
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.quota.decide import (
    WRITES,
    Decision,
    Policy,
    Step,
    decide_unwanted,
    decide_wanted,
    newer_than_known,
)
from clusters.reconcile.quota.image import MULTIKUEUE_RESOURCES, QUOTA_RESOURCES, Image, is_of
from clusters.reconcile.quota.record import Recorder, Result
from clusters.reconcile.quota.secrets import SecretSync, secret_keys
from clusters.reconcile.quota.wanted import Fingerprint, Wanted, fingerprint, wanted_on
from clusters.reconcile.quota.write import Writer

log = logging.getLogger(__name__)

POLL_S = 0.25
LISTING_S = 0.05
SWEEP_S = 30.0
RETRY_FIRST_S, RETRY_CAP_S = 1.0, 30.0
WAIT_S = 2.0
_HOLDING = (
    WorkloadState.Phase.RESERVED,
    WorkloadState.Phase.RUNNING,
    WorkloadState.Phase.EVICTED,
)


class QuotaBody:
    """One shift of quota sync."""

    def __init__(self, context: ShiftContext) -> None:
        self._context = context
        is_manager = context.cluster.is_manager
        resources = QUOTA_RESOURCES + (MULTIKUEUE_RESOURCES if is_manager else ())
        self.image = Image(context, resources)
        self._writer = Writer(context.client, fence=context.fence, seen=self.image.put)
        self._recorder = Recorder(context.cluster.pk)
        self._secrets = SecretSync(context) if context.cluster.is_manager else None
        self._fingerprint: Fingerprint = ()
        self._wanted = Wanted({}, {}, ())
        self._retry: set[Key] = set()
        self._retry_at, self._retry_s = 0.0, RETRY_FIRST_S
        self._swept_at = 0.0
        self._seen_at = ""

    def run(self) -> None:
        """Works until the shift ends."""
        self.image.start()
        try:
            while not self._context.stop.is_set():
                try:
                    self.turn()
                except DatabaseError as error:
                    log.warning(
                        "sync_waits cluster=%s error=%s",
                        self._context.cluster.slug, type(error).__name__,
                    )  # fmt: skip
                    connection.close()
                    self._fingerprint = ()
                    self._context.stop.wait(1.0)
                if self.image.is_synced:
                    self.image.changed.wait(POLL_S)
                else:
                    self._context.stop.wait(LISTING_S)
        finally:
            self._context.stop.set()
            self.image.close()
            self._writer.close()

    def turn(self) -> None:
        """Looks once at both sides, and does what is due.

        Raises:
            LeaseLost: nothing was written after it.
        """
        if not self.image.is_synced:
            return
        keys = self._due()
        if not keys and self._wanted.documents:
            return
        begun = time.monotonic()
        try:
            results = self.sync(keys)
        except LeaseLost:
            raise
        except ClusterError as error:
            log.warning(
                "sync_interrupted cluster=%s reason=%s", self._context.cluster.slug, error.reason
            )
            self._retry |= keys
            self._plan_retry(failed=True)
            return
        written = sum(result.was_written for result in results)
        failed = sum(bool(result.error) for result in results)
        if written or failed:
            log.info(
                "synced cluster=%s looked_at=%d written=%d failed=%d duration_ms=%d",
                self._context.cluster.slug, len(keys), written, failed,
                (time.monotonic() - begun) * 1000,
            )  # fmt: skip

    def sync(self, keys: Collection[Key]) -> list[Result]:
        """Decides on these keys, writes what may be written, records all of it.

        Raises:
            LeaseLost: nothing was written after it.
            Unreachable: the cluster is gone; what was done is recorded.
        """
        facts = self._context.cluster
        if self._is_blocked():
            return []
        decisions = self._decisions(keys)
        now, image = self._context.now(), self.image.documents()
        settled = [
            Result(decision, live=image.get(decision.key))
            for decision in decisions
            if decision.step not in WRITES or not facts.writes_enabled
        ]
        results = list(settled)
        self._recorder.record(settled, now)
        if facts.writes_enabled:
            self._writer.carry_out(decisions, on_batch=lambda batch: self._took(batch, results))
            if self._secrets is not None:
                secrets = self._secrets.sync(self._recorder.recorded())
                self._recorder.record(secrets, self._context.now())
                results += secrets
        self._finish(results)
        return results

    def _due(self) -> set[Key]:
        """Keys to look at now."""
        keys = self.image.take_changed()
        now = time.monotonic()
        mark = fingerprint(self._context.cluster.pk)
        if mark != self._fingerprint:
            keys |= self._reload(mark)
        if self._retry and now >= self._retry_at:
            keys |= self._retry
            self._retry = set()
        if now - self._swept_at > SWEEP_S:
            self._swept_at = now
            keys |= set(self._wanted.documents) | set(self.image.documents())
            keys |= set(self._recorder.recorded())
        return keys

    def _reload(self, mark: Fingerprint) -> set[Key]:
        """Reads the promises anew; returns what they say differently from before."""
        before = self._wanted
        had_facts = self._context.cluster
        facts = self._context.refresh()
        self._wanted = wanted_on(facts)
        self._fingerprint = mark
        if facts != had_facts or not before.generations:
            self._swept_at = 0.0
        now, old = self._wanted.documents, before.documents
        return {key for key in now.keys() | old.keys() if now.get(key) != old.get(key)}

    def _decisions(self, keys: Collection[Key]) -> list[Decision]:
        facts, wanted = self._context.cluster, self._wanted.documents
        image = self.image.documents()
        policy = Policy(
            installation=facts.installation,
            restores_drift=facts.drift_policy == Cluster.DriftPolicy.RESTORE,
            known=self._recorder.known(),
        )
        unwanted = [key for key in keys if key not in wanted and key in image]
        ours = [key for key in unwanted if is_of(image[key], facts.installation)]
        held = self._held([key.name for key in ours if key.kind == "ClusterQueue"])
        is_leaving = facts.state == Cluster.State.DRAINING
        found = [
            decide_unwanted(key, image[key], image, held, is_leaving=is_leaving) for key in ours
        ]
        # In the order of the plan, which puts parents first.
        chosen = keys & wanted.keys() if isinstance(keys, set) else set(keys) & wanted.keys()
        in_order = wanted if len(chosen) > len(wanted) // 2 else sorted(chosen)
        found += [
            decide_wanted(key, wanted[key], image.get(key), policy)
            for key in in_order
            if key in chosen
        ]
        return found

    def _held(self, namespaces: Sequence[str]) -> dict[str, int]:
        """Workloads that hold quota in these namespaces here, as usage has seen them."""
        if not namespaces:
            return {}
        rows = WorkloadState.objects.filter(
            cluster_id=self._context.cluster.pk, namespace__in=namespaces, phase__in=_HOLDING
        ).values_list("namespace")
        return dict(rows.annotate(count=Count("pk")).values_list("namespace", "count"))

    def _took(self, batch: list[Result], results: list[Result]) -> None:
        self._recorder.record(batch, self._context.now())
        results += batch
        done = sum(1 for result in results if result.was_written)
        if len(self._wanted.documents) > len(batch) and done:
            self._recorder.progress(
                self._context.cluster.slug, done=done, total=len(self._wanted.documents) + 1
            )

    def _finish(self, results: Sequence[Result]) -> None:
        """Observed generations, rows of what is gone, retries, the end of a removal."""
        facts, image = self._context.cluster, self.image.documents()
        wanted = self._wanted.documents
        kept = wanted.keys() | image.keys() | secret_keys(self._wanted.workers)
        kept |= {result.decision.key for result in results if result.error}
        self._recorder.forget([key for key in self._recorder.recorded() if key not in kept])
        if facts.writes_enabled:
            in_place = self._recorder.observe(wanted, self._context.now())
            self._recorder.progress(facts.slug, done=in_place, total=len(wanted))
        connections = {
            result.decision.key.name: image[result.decision.key]
            for result in results
            if result.decision.key.kind == "MultiKueueCluster" and result.decision.key in image
        }
        self._recorder.connections(connections)
        failed = {result.decision.key for result in results if result.error}
        waiting = {
            result.decision.key
            for result in results
            if result.decision.step in (Step.WAIT, Step.DRAIN)
            and result.decision.key.kind != "Namespace"
        }
        self._retry |= failed | waiting
        self._plan_retry(failed=bool(failed))
        if facts.state == Cluster.State.DRAINING and facts.writes_enabled:
            self._end_registration()

    def _plan_retry(self, *, failed: bool) -> None:
        if not self._retry:
            self._retry_s = RETRY_FIRST_S
            return
        if not failed and self._retry_at > time.monotonic():
            return  # planned already; a look that comes in between must not put it off
        wait = self._retry_s if failed else WAIT_S
        self._retry_s = min(RETRY_CAP_S, self._retry_s * 2) if failed else RETRY_FIRST_S
        self._retry_at = time.monotonic() + wait

    def _is_blocked(self) -> bool:
        """Stops when the cluster knows of promises that this database does not.

        That happens when a backup was restored: going on would roll the cluster back silently.
        """
        facts = self._context.cluster
        if facts.blocked_reason:
            return True
        for is_fresh in (False, True):
            newer = newer_than_known(
                self.image.documents().values(),
                self._wanted.generations,
                facts.installation,
                forgotten=facts.forgotten_subjects,
            )
            if not newer:
                return False
            if not is_fresh:
                # What we wrote ourselves a moment ago may be newer than what was read before.
                self._reload(fingerprint(facts.pk))
        first = newer[0]
        known = "does not know it" if first.in_database is None else f"knows {first.in_database}"
        self._block(
            f"{first.key} carries generation {first.on_cluster} of {first.subject}; this database "
            f"{known} ({len(newer)} objects are newer). Was a backup restored? Nothing is written "
            "to this cluster until an admin decides which side is right."
        )
        return True

    def _block(self, reason: str) -> None:
        facts = self._context.cluster
        blocked = Cluster.objects.filter(pk=facts.pk, blocked_reason="").update(
            blocked_reason=reason[:500]
        )
        if blocked:
            promises.audit(
                None,
                action="cluster.blocked",
                subject=f"cluster:{facts.slug}",
                cluster=facts.slug,
                reason=reason,
            )
            log.warning("sync_blocked cluster=%s", facts.slug)
        self._context.refresh()

    def _end_registration(self) -> None:
        """Forgets the credentials of a cluster that carries nothing of ours any more."""
        facts = self._context.cluster
        documents = self.image.documents().values()
        if any(is_of(document, facts.installation) for document in documents):
            return
        stays = [str(key) for key in self._recorder.recorded() if key.kind == "Namespace"]
        is_first = Cluster.objects.filter(pk=facts.pk, state=Cluster.State.DRAINING).update(
            state=Cluster.State.REMOVED,
            kubeconfig_sealed=b"",
            multikueue_kubeconfig_sealed=None,
            multikueue_token_expires_at=None,
        )
        if not is_first:
            return
        promises.audit(
            None,
            action="cluster.removed",
            subject=f"cluster:{facts.slug}",
            cluster=facts.slug,
            after={"stays": sorted(stays)},
        )
        log.info("cluster_removed cluster=%s", facts.slug)
