"""The external dispatcher: nominates in rounds, withdraws with care, wakes what waits.

It decides in the shift's own thread and writes beside it. Kueue does everything else.
What a dispatcher owes to Kueue, when to nominate and whom never to withdraw, is pure.

Source: spec dispatch 3.3 (the contract) and 3.4 (the withdraw trap), tried on Kueue 0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import DatabaseError, connection

from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, annotations_of, bound, owner_uids, status_of
from clusters.documents.numbers import whole_number
from clusters.documents.times import stamp
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kueue.multikueue.group import GroupView
from clusters.models import NominationWay
from clusters.reconcile.external import ways
from clusters.reconcile.external.defects import CopySeen
from clusters.reconcile.external.probing import probe
from clusters.reconcile.external.watched_workers import WatchedWorkers
from clusters.reconcile.external.ways import Way, WayInForce
from clusters.reconcile.multikueue.controller import ManagerController, Place, read_workload
from clusters.reconcile.multikueue.local import chosen_of
from clusters.reconcile.multikueue.nominating import Nominating
from clusters.reconcile.multikueue.offers import Prices
from clusters.reconcile.multikueue.workers import MANAGER
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.pool import Sender
from clusters.reconcile.runtime.writer import Verb, Write

log = structlog.stdlib.get_logger(__name__)

PROBE_EVERY: Final = timedelta(seconds=60)
PROBE_AGAIN: Final = timedelta(seconds=5)
NOMINATION: Final = "nomination:"
"""Before the key of a workload: the place where its nomination is written."""


class Nominator:
    """Nominates for one manager, by prices per device and hour of each flavor, or rate cards."""

    def __init__(
        self, shift: ManagerController, *, workers: WatchedWorkers, prices: Prices | None
    ) -> None:
        self._shift, self._context, self._workers = shift, shift.context, workers
        self._nominating = Nominating(
            shift.context, settings=shift.settings, manager=shift.manager, prices=prices
        )
        self._in_force: WayInForce | None = None
        self._probe_at: datetime | None = None
        self._to_wake: dict[str, str] = {}

    def load(self) -> Iterable[str]:
        """Take over what an earlier shift left; keys to look at."""
        return self._nominating.load()

    def close(self) -> None:
        """Write the last rounds."""
        self._nominating.close()

    # Which way

    def look(self, now: datetime) -> bool:
        """Probe the way when it is time, write rounds.

        Returns:
            Whether everything has to be looked at, for the way is another.
        """
        self._nominating.follow(self._workers.links)
        self._nominating.flush()
        return self._probe(now)

    def _probe(self, now: datetime) -> bool:
        if self._probe_at is not None and now < self._probe_at:
            return False
        try:
            found = probe(
                self._context.client,
                self._shift.settings,
                self._context.cluster.kueue_configuration,
            )
        except ClusterError as error:
            log.info("way_unknown", reason=error.reason)
            self._probe_at = now + PROBE_AGAIN
            return False
        self._probe_at = now + PROBE_EVERY
        has_changed = found != self._in_force
        if has_changed:
            log.info("nomination_way", way=found.way, why=found.why)
        self._in_force = found
        self._show(found, now)
        return has_changed

    def _show(self, found: WayInForce, now: datetime) -> None:
        if not self._context.cluster.pk:
            return
        shown = {"way": found.way.value, "why": found.why[:500], "checked_at": now}
        try:
            NominationWay.objects.update_or_create(
                cluster_id=self._context.cluster.pk, defaults=shown
            )
        except DatabaseError as error:
            log.warning("nomination_way_not_written", error=type(error).__name__)
            connection.close()

    # One workload

    def copy_gone(self, key: str, worker: str) -> None:
        """A worker's copy is gone: a lost race, where another worker has the workload."""
        local = self._workers.manager.get(r.WORKLOAD, key)
        if local is not None and chosen_of(local) not in ("", worker):
            self._nominating.lost_race(key, worker)

    def wake(self, workers: Iterable[str]) -> Iterable[str]:
        """Kueue has just connected to these: keys of workloads that it would not look at again."""
        for worker in workers:
            for key, local in self._workers.manager.of(r.WORKLOAD).items():
                nominated = status_of(local).get("nominatedClusterNames") or ()
                if worker in nominated:
                    self._to_wake[key] = worker
        return tuple(self._to_wake)

    def consider(self, key: str, now: datetime) -> None:
        """Nominate for a workload, or wake it, where that is due."""
        here = self._workers.local(key)
        local = here.workload
        self._nominating.observe(here)
        if local is None:
            self._to_wake.pop(key, None)
        if local is None or not here.check or not self._may_begin(key):
            return
        group = self._nominating.group(here, self._workers.fleet(here.check, now))
        view = GroupView(group, local)
        if not may_nominate(view, siblings=self._siblings(local)):
            self._to_wake.pop(key, None)
            return
        found = self._nominating.nominate(key, group)
        if found.look_again is not None:
            self._shift.queue.add_at((key, MANAGER), found.look_again)
        seen = {item.worker: item for item in self._workers.copies(key, here.check, now)}
        chosen = view.nominated if found.is_undecided else found.clusters
        names = wanted_names(view.nominated, chosen=chosen, seen=seen)
        if set(names) != set(view.nominated):
            self._to_wake.pop(key, None)
            self._start(key, local, names)
        elif (worker := self._to_wake.pop(key, "")) and waits_for(view, worker, seen):
            self._shift.send(_place_of(key), wake(local, at=stamp(now)))

    def _may_begin(self, key: str) -> bool:
        is_possible = self._in_force is not None and self._in_force.way is not Way.NONE
        return is_possible and self._shift.queue.is_free(_place_of(key))

    def _siblings(self, local: Document) -> list[Document]:
        uids = set(owner_uids(local))
        if component_of(local) is None or not uids:
            return []
        others = self._workers.manager.of(r.WORKLOAD).values()
        return [other for other in others if not uids.isdisjoint(owner_uids(other))]

    # Writing

    def _start(self, key: str, local: Document, names: tuple[str, ...]) -> None:
        way = self._in_force
        assert way is not None
        before = status_of(local).get("nominatedClusterNames") or ()
        gone = [name for name in before if name not in names]

        def work(effects: list[Effect]) -> None:
            kept = [name for name in gone if not self._may_go(key, name)]
            sender = Sender(MANAGER, self._context.client, self._shift.writer, effects)
            self._write(local, way, (*names, *kept), sender)

        self._shift.start(_place_of(key), work, about="nominate")

    def _may_go(self, key: str, worker: str) -> bool:
        """Asks the worker itself: its watch may be a second behind."""
        try:
            copy = read_workload(self._workers.client_of(worker), key)
        except ClusterError:
            return False
        return copy is None or not is_true(copy, "Admitted")

    def _write(
        self, local: Document, way: WayInForce, names: tuple[str, ...], sender: Sender
    ) -> None:
        patch = Write.patch(
            "nominate", r.WORKLOAD, local, ways.nomination(local, names), subresource="status"
        )
        if way.way is Way.POLICY:
            sender.send(replace(patch, verb=Verb.APPLY, body=ways.intent(local, names)))
            return
        done = sender.send(patch)
        # With merge patches on both sides there is nothing to hand over; where the gate is said
        # to be on and is not, Kueue's own entry shows it.
        handing = ways.handed_over(done or {})
        if handing is not None:
            sender.send(Write.patch("hand-over", r.WORKLOAD, local, handing))


def _place_of(key: str) -> Place:
    return f"{NOMINATION}{key}", MANAGER


MOST_NAMES: Final = 20


def may_nominate(view: GroupView, *, siblings: Iterable[Document] = ()) -> bool:
    """Whether Kueue waits for a nomination of this workload.

    Of several Workloads of one owner only for the primary: Kueue pins the siblings to its worker.
    """
    others = [state for name, state in view.checks.items() if name != view.group.check]
    return (
        view.state == "Pending"
        and view.has_quota
        and not view.is_evicted
        and not view.chosen
        and not is_true(view.local, "Finished")
        and not view.local["metadata"].get("deletionTimestamp")
        and (view.local.get("spec") or {}).get("active") is not False
        and all(state == "Ready" for state in others)
        and _is_primary(view.local, siblings)
    )


def _is_primary(local: Document, siblings: Iterable[Document]) -> bool:
    index = component_of(local)
    return index is None or all(index <= (component_of(item) or 0) for item in siblings)


def component_of(workload: Document) -> int | None:
    """Which part of a job with several Workloads this one is; None where there is one only."""
    return whole_number(annotations_of(workload).get(labels.COMPONENT_INDEX))


def wanted_names(
    nominated: Sequence[str], *, chosen: Sequence[str], seen: Mapping[str, CopySeen]
) -> tuple[str, ...]:
    """The nominations to write.

    A worker that is nominated stays unless its copy is known and not admitted: withdrawn just as
    it admits, its job would run there while Kueue may never record it. A worker whose copy is
    admitted without a nomination gets one, which is the way out of that trap.

    Args:
        nominated: As they stand.
        chosen: By the dispatcher, in order.
        seen: Copies by worker; a worker that is missing is not known.
    """
    kept = [name for name in nominated if name not in chosen and not _may_withdraw(seen.get(name))]
    admitted = [name for name, found in seen.items() if found.is_admitted]
    return tuple(dict.fromkeys((*chosen, *kept, *sorted(admitted))))[:MOST_NAMES]


def _may_withdraw(found: CopySeen | None) -> bool:
    return found is not None and found.answers and not found.is_admitted


def waits_for(view: GroupView, worker: str, seen: Mapping[str, CopySeen]) -> bool:
    """Whether a workload is nominated for a worker that has not got its copy yet."""
    found = seen.get(worker)
    has_copy = found is not None and found.answers and found.copy is not None
    return worker in view.nominated and not has_copy


def wake(local: Document, *, at: str) -> Write:
    """The write that makes Kueue look at a workload again.

    Nothing in Kueue 0.19.2 does so when a worker's connection comes back (spec dispatch 2.2). The
    time stamp is one that is not there yet, or nothing would change.
    """
    body = bound(local)
    body["metadata"]["annotations"] = {labels.WOKEN: at}
    return Write.patch("wake", r.WORKLOAD, local, body)
