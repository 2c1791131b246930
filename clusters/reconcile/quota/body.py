"""The controller of quota sync on one cluster.

It wakes when an object changed on the cluster, when a generation rose in the database (one small
query, so that nothing depends on the broker), when a retry is due, and for a sweep of everything.
Objects that are as they should be cost no request: they are compared in memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby

import structlog
from django.db import DatabaseError
from django.db.models import Count

from budgets import services as promises
from clusters.documents.keys import whole
from clusters.errors import AdmissionDenied, Unreachable
from clusters.kube import resources as r
from clusters.manifests.names import Document, Key
from clusters.models import Cluster, WorkloadState
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.past import block
from clusters.reconcile.quota.decide import (
    REFERRING,
    RESOURCES,
    WRITES,
    Decision,
    Policy,
    Step,
    decide_unwanted,
    decide_wanted,
    is_of,
    look_of,
    newer_than_known,
    of_strangers,
    order_of,
    resources_of,
    write_of,
)
from clusters.reconcile.quota.record import Result, SyncRecords
from clusters.reconcile.quota.secrets import SecretSync, secret_keys
from clusters.reconcile.quota.wanted import (
    Fingerprint,
    Promised,
    Wanted,
    fingerprint,
    wanted_on,
)
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.controller import Controller, Watched
from clusters.reconcile.runtime.faults import Doing, words_of
from clusters.reconcile.runtime.pool import Answer, sending
from clusters.reconcile.runtime.queue import WorkQueue
from clusters.reconcile.runtime.watches import Change, Seen
from clusters.reconcile.runtime.writer import Hook, no_fault
from clusters.selectors.bars import HOLDING

log = structlog.stdlib.get_logger(__name__)

RETRY_FIRST_S, RETRY_CAP_S = 0.5, 30.0
SHORT_TURN_S, LONGEST_PAUSE_S = 0.1, 1.0
RESYNC_S, SWEEP_REST = 30.0, 400.0
"""All objects are looked at again after so many seconds; where that takes long, after so many times
as long, for watches have told of every change."""
WAIT = timedelta(seconds=2)
BITE = 60
"""So many objects of a kind are written side by side and recorded together."""


class QuotaBody(Controller[Key]):
    """One shift of quota sync."""

    tick_s = 0.5
    threads = 6
    resync_s = RESYNC_S
    handles_always = True  # what would be written is decided and shown while writing is off, too

    def __init__(self, context: ShiftContext, *, hook: Hook = no_fault) -> None:
        super().__init__(context, hook=hook, cache=Cache((REFERRING,), has_writers=True))
        self.queue = WorkQueue(first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)
        self._records = SyncRecords(context.cluster.pk, refused=self._refused)
        self._secrets = SecretSync(context) if context.cluster.is_manager else None
        self._fingerprint: Fingerprint = ()
        self._promised = Promised()
        self._wanted = Wanted({}, {}, ())
        self._looks: dict[Key, tuple[object, ...]] = {}
        self._written: list[Result] = []
        self._is_cut_off = False
        # Looked at once no decision is waited for any more.
        self._asked: set[Key] = set()

    def watched(self) -> Iterable[Watched]:
        """Objects of other owners, too: a taken name must be known before it is written."""
        facts = self.context.cluster
        kinds = resources_of(
            is_manager=facts.is_manager, is_single=facts.is_single, own_queue=facts.own_queue
        )
        # Rights that were given before there were topologies do not have them; those of a single
        # cluster need nothing of what connects workers.
        lacking = {r.TOPOLOGY}
        if facts.is_single:
            lacking |= {r.MULTIKUEUE_CLUSTER, r.MULTIKUEUE_CONFIG}
        return [Watched(kind, is_optional=kind in lacking, keep=whole) for kind in kinds]

    def keys_of(self, seen: Seen) -> Iterable[Key]:
        """The object's own key, if what quota sync looks at changed."""
        metadata = seen.document["metadata"]
        key = Key(seen.resource.kind, metadata.get("namespace") or "", metadata["name"])
        look = () if seen.change is Change.DELETED else look_of(seen.document)
        if self._looks.get(key) == look:
            return ()
        if look:
            self._looks[key] = look
        else:
            self._looks.pop(key, None)
        return (key,)

    def all_keys(self) -> set[Key]:
        """Everything that is wanted, there, or recorded."""
        return {*self._wanted.documents, *self._looks, *self._records.recorded()}

    def opened(self) -> None:
        """What is recorded and neither wanted nor there has to be looked at, too."""
        self.queue.add_all(self.all_keys())

    def look(self) -> None:
        """Find out whether the promises may have changed."""
        mark = fingerprint(self.context.cluster.pk)
        if mark != self._fingerprint:
            self.queue.add_all(self._reload(mark))

    def handle_all(self) -> None:
        """Look at all keys that are ready, together.

        Raises:
            LeaseLost: nothing was written after it.
        """
        keys = self._asked = {*self._asked, *self.queue.take()}
        self.pause_s, used = 0.0, time.thread_time()
        if not keys and self._wanted.documents:
            return
        try:
            if not self._is_blocked():
                self._sync_all(keys)
        finally:
            # A turn goes through all objects, however few are asked about: what comes while a
            # large cluster rests is looked at together.
            took = time.thread_time() - used
            self.pause_s = min(LONGEST_PAUSE_S, max(0.0, 2 * (took - SHORT_TURN_S)))
            if len(keys) >= len(self._wanted.documents):
                self.resync_s = max(RESYNC_S, SWEEP_REST * took)

    def _sync_all(self, keys: Collection[Key]) -> None:
        self._asked, begun = set(), time.monotonic()
        try:
            results = self._sync(keys)
        except DatabaseError:
            self.queue.add_all(keys)
            raise
        written = sum(result.was_written for result in results)
        failed = sum(bool(result.error) for result in results)
        if written or failed:
            log.info(
                "synced",
                cluster=self.cluster,
                looked_at=len(keys),
                written=written,
                failed=failed,
                duration_ms=round((time.monotonic() - begun) * 1000),
            )

    def answered(self, answer: Answer[Key]) -> None:
        """A write went well."""
        live = answer.effects[-1].document if answer.effects else None
        self._written.append(Result(answer.about, was_written=True, live=live))

    def failed(self, answer: Answer[Key]) -> None:
        """A write failed; its key is looked at again later."""
        assert answer.error is not None
        self._is_cut_off |= isinstance(answer.error, Unreachable)
        key, says = answer.about.key, ""
        if key.kind == r.NAMESPACE.kind and isinstance(answer.error, AdmissionDenied):
            says = of_strangers(key.name, self.live(key), self.context.cluster.installation)
        self._written.append(Result(answer.about, error=says or words_of(answer.error)))

    def _sync(self, keys: Collection[Key]) -> list[Result]:
        """Decides on these keys, writes what may be written, records all of it."""
        may_write = self.context.cluster.writes_enabled
        decisions = list(self._decisions(keys))
        settled = [
            Result(decision, live=self.live(decision.key))
            for decision in decisions
            if decision.step not in WRITES or not may_write
        ]
        results = self._records.record(settled, self.context.now())
        if may_write:
            for batch in self._carry_out(decisions):
                results += batch
                self._tell_progress(len(batch), results)
            if self._is_cut_off:
                self._is_cut_off = False
                return results
            if self._secrets is not None:
                results += self._sync_secrets(self._secrets)
        self._finish(results)
        return results

    def _reload(self, mark: Fingerprint) -> set[Key]:
        """Reads the promises anew; returns what has to be looked at for it."""
        before, had_facts = self._wanted, self.context.cluster
        facts = self.context.refresh()
        self._wanted = wanted_on(facts, promised=self._promised, there=self._queues())
        self._fingerprint = mark
        if facts != had_facts or not before.generations:
            return self.all_keys()
        now, old = self._wanted.documents, before.documents
        return {key for key in now.keys() | old.keys() if now.get(key) != old.get(key)}

    def live(self, key: Key) -> Document | None:
        """An object as the cluster has it; None when it is not there."""
        return self.cache.get(RESOURCES[key.kind], key.path)

    def _queues(self) -> set[str]:
        """Namespaces that have a queue of ours here, one that is not on its way out."""
        return {
            name
            for name, live in self.cache.of(r.CLUSTER_QUEUE).items()
            if is_of(live, self.context.cluster.installation)
            and "deletionTimestamp" not in live["metadata"]
        }

    def _on_cluster(self) -> Iterator[Document]:
        for resource in RESOURCES.values():
            yield from self.cache.of(resource).values()

    def _decisions(self, keys: Collection[Key]) -> Iterator[Decision]:
        """What to do with each, in the order of the plan, which puts parents first."""
        facts, wanted = self.context.cluster, self._wanted.documents
        policy = Policy(
            installation=facts.installation,
            restores_drift=facts.drift_policy == Cluster.DriftPolicy.RESTORE,
            known=self._records.known(),
        )
        is_leaving = facts.state == Cluster.State.DRAINING
        readable = {key for key in keys if self.unread(str(key)) is None}
        ours = {
            key: live
            for key in readable - wanted.keys()
            if (live := self.live(key)) is not None and is_of(live, facts.installation)
        }
        for key in readable - ours.keys() - wanted.keys():
            self.went_well(key)
        held = self._held([key.name for key in ours if key.kind == "ClusterQueue"])
        chosen = readable & wanted.keys()
        in_order = wanted if len(chosen) > len(wanted) // 2 else sorted(chosen)
        for key in (*ours, *(key for key in in_order if key in chosen)):
            try:
                yield (
                    decide_unwanted(key, ours[key], self.cache, held, is_leaving=is_leaving)
                    if key in ours
                    else decide_wanted(key, wanted[key], self.live(key), policy)
                )
            except Exception as error:
                self.park(key, error, doing=Doing.DECIDING)

    def _held(self, namespaces: Sequence[str]) -> dict[str, int]:
        """Workloads that hold quota in these namespaces here, as usage has seen them."""
        if not namespaces:
            return {}
        rows = WorkloadState.objects.filter(
            cluster_id=self.context.cluster.pk, namespace__in=namespaces, phase__in=HOLDING
        ).values_list("namespace")
        return dict(rows.annotate(count=Count("pk")).values_list("namespace", "count"))

    def _carry_out(self, decisions: Sequence[Decision]) -> Iterator[list[Result]]:
        """Writes in the order that holds, each batch recorded; ends when the cluster is gone.

        What others refer to comes first, deletions last and backwards; Cohorts go one after the
        other, a parent before its children.
        """
        todo = sorted((each for each in decisions if each.step in WRITES), key=order_of)
        for _, group in groupby(todo, key=order_of):
            batch = list(group)
            bite = 1 if batch[0].key.kind == "Cohort" else BITE
            for start in range(0, len(batch), bite):
                if self._is_cut_off:
                    for decision in batch[start:]:
                        self.queue.retry(decision.key, time.monotonic())
                    break
                yield self._written_together(batch[start : start + bite])

    def _written_together(self, batch: Sequence[Decision]) -> list[Result]:
        self._written = []
        try:
            for decision in batch:
                work = sending(self.writer, write_of(decision), cluster=self.cluster)
                self.start(decision.key, work, about=decision)
            self.settle()
        finally:
            taken = self._records.record(self._written, self.context.now())
        return taken

    def _refused(self, result: Result, error: Exception) -> None:
        """The database does not take a row."""
        self.park(result.decision.key, error, doing=Doing.WRITING)

    def _tell_progress(self, newest: int, results: Sequence[Result]) -> None:
        done = sum(result.was_written for result in results)
        if len(self._wanted.documents) > newest and done:
            self._records.progress(self.cluster, done=done, total=len(self._wanted.documents) + 1)

    def _sync_secrets(self, secrets: SecretSync) -> list[Result]:
        results = secrets.sync(self._records.recorded())
        found = self._records.record(results, self.context.now())
        for result in found:
            if result.error:
                self.queue.retry(result.decision.key, time.monotonic())
            else:
                self.went_well(result.decision.key)
        return found

    def _finish(self, results: Sequence[Result]) -> None:
        """Observed generations, rows of what is gone, later looks, the end of a removal."""
        facts, wanted, now = self.context.cluster, self._wanted.documents, self.context.now()
        kept = wanted.keys() | self._looks.keys() | secret_keys(self._wanted.workers)
        kept |= {result.decision.key for result in results if result.error}
        self._records.forget([key for key in self._records.recorded() if key not in kept])
        if facts.writes_enabled:
            in_place = self._records.observe(wanted, now)
            self._records.progress(facts.slug, done=in_place, total=len(wanted))
        connections = {}
        for result in results:
            key, step = result.decision.key, result.decision.step
            live = self.live(key)
            if key.kind == "MultiKueueCluster" and live is not None:
                connections[key.name] = live
            is_leaving = facts.state == Cluster.State.DRAINING
            if step in (Step.WAIT, Step.DRAIN) and (is_leaving or key.kind != "Namespace"):
                self.queue.add_at(key, now + WAIT)
            elif step not in WRITES:
                self.went_well(key)
        self._records.connections(connections)
        if facts.state == Cluster.State.DRAINING and facts.writes_enabled:
            self._end_registration()

    def _is_blocked(self) -> bool:
        """Stops when the cluster knows of promises that this database does not.

        That happens when a backup was restored: going on would roll the cluster back silently.
        """
        facts = self.context.cluster
        if facts.blocked_reason:
            return True
        for is_fresh in (False, True):
            newer = newer_than_known(
                self._on_cluster(),
                self._wanted.generations,
                facts.installation,
                forgotten=facts.forgotten_subjects,
            )
            if not newer:
                return False
            if not is_fresh:
                # What we wrote ourselves a moment ago may be newer than what was read before.
                self.queue.add_all(self._reload(fingerprint(facts.pk)))
        first = newer[0]
        known = "does not know it" if first.in_database is None else f"knows {first.in_database}"
        block(
            facts.pk,
            facts.slug,
            f"{first.key} carries generation {first.on_cluster} of {first.subject}; this database "
            f"{known}. {len(newer)} objects on this cluster are newer than this database: the "
            "database was restored from a backup, or another portal writes here under the same "
            "name. Nothing is written to this cluster until an admin decides which side is right.",
        )
        self.context.refresh()
        return True

    def _end_registration(self) -> None:
        """Forgets the credentials of a cluster that carries nothing of ours any more."""
        facts = self.context.cluster
        if any(is_of(document, facts.installation) for document in self._on_cluster()):
            return
        stays = [str(key) for key in self._records.recorded() if key.kind == "Namespace"]
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
        log.info("cluster_removed", cluster=facts.slug)
