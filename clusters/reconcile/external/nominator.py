"""The external dispatcher: nominates in rounds, withdraws with care, wakes what waits.

It decides in the shift's own thread and writes beside it. Kueue does everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.db import DatabaseError, connection

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document
from clusters.documents.times import stamp
from clusters.errors import ClusterError, NotFound
from clusters.kube import resources as r
from clusters.kueue.multikueue.group import View
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import NominationWay
from clusters.reconcile.dispatch.group import group_for
from clusters.reconcile.dispatch.local import Local
from clusters.reconcile.dispatch.nominating import Nominating
from clusters.reconcile.dispatch.offers import Prices
from clusters.reconcile.dispatch.workers import MANAGER
from clusters.reconcile.external import ways
from clusters.reconcile.external.duties import (
    UNSEEN,
    Seen,
    component_of,
    may_nominate,
    waits_for,
    wake,
    wanted_names,
)
from clusters.reconcile.external.probing import probe
from clusters.reconcile.external.watched_workers import WatchedWorkers
from clusters.reconcile.external.ways import Standing, Way
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.controller import Controller
from clusters.reconcile.runtime.pool import Sender
from clusters.reconcile.runtime.writer import Verb, Write
from clusters.vault import SealBroken

log = structlog.stdlib.get_logger(__name__)

PROBE_EVERY: Final = timedelta(seconds=60)
PROBE_AGAIN: Final = timedelta(seconds=5)
NOMINATION: Final = "nomination:"
"""Before the key of a workload: the place where its nomination is written."""


class Nominator:
    """Nominates for one manager.

    Args:
        shift: Where it writes.
        workers: What it sees.
        settings: Of the manager's Kueue.
        prices: Per device and hour by flavor; None for those of the rate cards.
    """

    def __init__(
        self,
        shift: Controller[tuple[str, str]],
        *,
        workers: WatchedWorkers,
        settings: DispatchSettings,
        prices: Prices | None,
    ) -> None:
        context = shift.context
        self._shift, self._context = shift, context
        self._workers, self._settings = workers, settings
        self._nominating = Nominating(context, settings=settings, prices=prices)
        self._standing: Standing | None = None
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
                self._context.client, self._settings, self._context.cluster.kueue_configuration
            )
        except ClusterError as error:
            log.info("way_unknown", reason=error.reason)
            self._probe_at = now + PROBE_AGAIN
            return False
        self._probe_at = now + PROBE_EVERY
        has_changed = found != self._standing
        if has_changed:
            log.info("nomination_way", way=found.way, why=found.why)
        self._standing = found
        self._show(found, now)
        return has_changed

    def _show(self, found: Standing, now: datetime) -> None:
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
        chosen = ((local or {}).get("status") or {}).get("clusterName")
        if chosen and chosen != worker:
            self._nominating.lost_race(key, worker)

    def wake(self, workers: Iterable[str]) -> Iterable[str]:
        """Kueue has just connected to these: keys of workloads that it would not look at again."""
        for worker in workers:
            for key, local in self._workers.manager.of(r.WORKLOAD).items():
                nominated = (local.get("status") or {}).get("nominatedClusterNames") or ()
                if worker in nominated:
                    self._to_wake[key] = worker
        return tuple(self._to_wake)

    def consider(self, key: str, local: Document | None, now: datetime) -> None:
        """Nominate for a workload, or wake it, where that is due.

        Args:
            key: Of the workload.
            local: The manager's Workload; None when it is gone.
            now: Current time.
        """
        check = self._workers.check_of(local) if local is not None else ""
        fleet = self._workers.fleet(check, now)
        here = Local.of(
            key, self._workers.manager, check=check, origin=self._workers.origin,
            kinds=self._workers.kinds,
        )  # fmt: skip
        rounds = self._nominating.rounds(here)
        if local is None:
            self._to_wake.pop(key, None)
        if local is None or not check or not self._may_begin(key):
            return
        manager = self._workers.manager
        group = group_for(
            here,
            manager,
            fleet,
            now=now,
            rounds=rounds,
            offers=self._nominating.offers(here, manager, fleet),
        )
        view = View(group, local)
        if not may_nominate(view, siblings=self._siblings(local)):
            self._to_wake.pop(key, None)
            return
        found = self._nominating.nominate(key, group)
        if found.look_again is not None:
            self._shift.queue.add_at((key, MANAGER), found.look_again)
        seen = self._seen(key, check)
        chosen = view.nominated if found.is_undecided else found.clusters
        names = wanted_names(view.nominated, chosen=chosen, seen=seen)
        if set(names) != set(view.nominated):
            self._to_wake.pop(key, None)
            self._start(key, local, names)
        elif (worker := self._to_wake.pop(key, "")) and waits_for(view, worker, seen):
            self._shift.send(_place_of(key), wake(local, at=stamp(now)))

    def _may_begin(self, key: str) -> bool:
        is_possible = self._standing is not None and self._standing.way is not Way.NONE
        return is_possible and self._shift.queue.is_free(_place_of(key))

    def _siblings(self, local: Document) -> list[Document]:
        uids = {item["uid"] for item in local["metadata"].get("ownerReferences") or ()}
        if component_of(local) is None or not uids:
            return []
        return [
            other
            for other in self._workers.manager.of(r.WORKLOAD).values()
            if uids & {item["uid"] for item in other["metadata"].get("ownerReferences") or ()}
        ]

    def _seen(self, key: str, check: str) -> dict[str, Seen]:
        found = {}
        for worker in self._workers.workers(check):
            if not self._workers.answers(worker):
                found[worker] = UNSEEN
                continue
            cache = self._workers.cache_on(worker)
            found[worker] = _seen_of(cache.get(r.WORKLOAD, key) if cache is not None else None)
        return found

    # Writing

    def _start(self, key: str, local: Document, names: tuple[str, ...]) -> None:
        standing = self._standing
        assert standing is not None
        before = (local.get("status") or {}).get("nominatedClusterNames") or ()
        gone = [name for name in before if name not in names]

        def work(effects: list[Effect]) -> None:
            kept = [name for name in gone if not self._may_go(key, name)]
            sender = Sender(MANAGER, self._context.client, self._shift.writer, effects)
            self._write(local, standing, (*names, *kept), sender)

        self._shift.start(_place_of(key), work, about="nominate")

    def _may_go(self, key: str, worker: str) -> bool:
        """Asks the worker itself: its watch may be a second behind."""
        namespace, _, name = key.partition("/")
        try:
            copy = self._workers.client_of(worker).get(r.WORKLOAD, name, namespace=namespace)
        except NotFound:
            return True
        except (ClusterError, SealBroken):
            return False
        return not _seen_of(copy).is_admitted

    def _write(
        self, local: Document, standing: Standing, names: tuple[str, ...], sender: Sender
    ) -> None:
        metadata = local["metadata"]
        place = metadata["namespace"], metadata["name"]
        if standing.way is Way.POLICY:
            body = ways.intent(local, names)
            sender.send(
                Write("nominate", Verb.APPLY, r.WORKLOAD, *place, body, subresource="status")
            )
            return
        body = ways.nomination(local, names)
        done = sender.send(Write.patch("nominate", r.WORKLOAD, local, body, subresource="status"))
        # With merge patches on both sides there is nothing to hand over; where the gate is said
        # to be on and is not, Kueue's own entry shows it.
        handing = ways.handed_over(done or {})
        if handing is not None:
            sender.send(Write.patch("hand-over", r.WORKLOAD, local, handing))


def _seen_of(copy: Mapping[str, Any] | None) -> Seen:
    return Seen(True, copy is not None, copy is not None and is_true(copy, "Admitted"))


def _place_of(key: str) -> tuple[str, str]:
    return f"{NOMINATION}{key}", MANAGER
