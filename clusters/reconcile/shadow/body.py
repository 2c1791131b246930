"""The shadow shift: follows a cluster on which Kueue decides, explains it, and compares.

Its engine sees what Kueue sees. What it says about waiting workloads comes from cycles on a copy,
so that nothing it decides there lasts. It only lists and watches: no client of it ever writes.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.what_if import Bounds, run_until_quiet
from clusters.kueue.explanation.why import CHECKS_PENDING, Explainer, Explanation
from clusters.reconcile.admission.image import ENGINE_KINDS, OPTIONAL_KINDS, look_of, object_key
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.explained.reporter import Reporter, waiting_keys
from clusters.reconcile.explained.store import Comparison, Differing
from clusters.reconcile.runtime.watches import Change, Seen, Watches, taken
from clusters.reconcile.shadow.compare import Difference, Verdict
from clusters.reconcile.shadow.episodes import Episodes, Patience
from clusters.reconcile.shadow.events import waiting_of

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
VIEW_S: Final = 1.0
"""So long cycles may run on a copy before it is explained as far as it came."""
VIEW_LASTS: Final = timedelta(seconds=30)
"""Without news, only back-offs that end can make another view of it."""
_RANK: Final = {resource: rank for rank, resource in enumerate(ENGINE_KINDS)}


class ShadowBody:
    """One shift of the shadow on one cluster.

    Args:
        context: The shift.
        configuration: Kueue's Configuration; None for the one that the cluster is registered with.
        patience: When to compare.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        configuration: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._context = context
        self._registered = context.cluster.kueue_configuration
        in_force = self._registered if configuration is None else configuration
        self._episodes = Episodes(Engine(in_force or None), patience=patience)
        self._inbox: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._looks: dict[str, tuple[object, ...]] = {}
        self._view: View | None = None
        self._reporter = Reporter.of(context)
        self._watches = Watches(
            context.client,
            cluster=context.cluster.slug,
            pulse=context.pulse,
            sink=self._inbox.put,
        )

    def run(self) -> None:
        """Works until the shift ends."""
        context = self._context
        context.report_watch_age(self._watches.age)
        try:
            for resource in ENGINE_KINDS:
                self._watches.add(resource, is_optional=resource in OPTIONAL_KINDS)
            if not self._watches.wait_synced(context.stop):
                return
            self._take_all(first=True)
            self._episodes.begin(context.now())
            self._reporter.start()
            while not context.stop.is_set() and self._is_same_configuration():
                self._take_all()
                self._compare()
                self._explain()
        finally:
            self._watches.close()
            self._reporter.close()

    def _is_same_configuration(self) -> bool:
        """The engine follows one Configuration; with another one the next shift begins anew."""
        return self._context.cluster.kueue_configuration == self._registered

    def _take_all(self, *, first: bool = False) -> None:
        """Takes what has come in; waits a little when nothing has."""
        items = taken(self._inbox, wait_s=TICK_S, everything=first)
        if first:
            # Quota before queues before workloads: much less is worked out twice.
            items.sort(key=lambda item: _RANK[item.resource])
        for item in items:
            if item.change is not Change.SYNCED:
                self._take(item.resource, item.document, is_gone=item.change is Change.DELETED)

    def _take(self, resource: Resource, document: dict[str, Any], *, is_gone: bool) -> None:
        if resource != r.WORKLOAD and not self._looks_new(resource, document, is_gone=is_gone):
            return
        try:
            now = self._context.now()
            if self._episodes.take(resource.kind, document, is_gone=is_gone, now=now):
                self._view = None
        except (KeyError, ValueError) as error:
            # One object that no API server of this version would have let in harms nobody else.
            log.error(
                "object_unreadable cluster=%s kind=%s key=%s error=%s",
                self._context.cluster.slug, resource.kind, object_key(document), error,
            )  # fmt: skip

    def _looks_new(self, resource: Resource, document: dict[str, Any], *, is_gone: bool) -> bool:
        key = f"{resource.kind}:{object_key(document)}"
        look = look_of(resource, document, is_gone=is_gone)
        before = self._looks.get(key)
        self._looks[key] = look
        return before != look

    # Comparing

    def _compare(self) -> None:
        if not self._watches.is_connected:
            # What is not seen cannot be held against anybody.
            return
        now = self._context.now()
        verdicts = self._episodes.settle(now)
        if not verdicts:
            return
        total = Comparison(
            at=now,
            compared=sum(item.compared for item in verdicts),
            passed_over=sum(item.passed_over for item in verdicts),
            differences=[_differing(item) for verdict in verdicts for item in verdict.differences],
        )
        if total.compared or total.passed_over:
            self._note(verdicts)
            self._reporter.report(total)

    def _note(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            for item in verdict.differences:
                log.info(
                    "shadow_differs cluster=%s workload=%s kind=%s portal=%s kueue=%s",
                    self._context.cluster.slug, item.key, item.kind,
                    item.portal_says.decision, item.kueue_did.decision,
                )  # fmt: skip

    # Explaining

    def _explain(self) -> None:
        now, engine = self._context.now(), self._episodes.engine
        if self._reporter.answer_one(engine, now=now) or not self._reporter.is_due:
            return
        view = self._view
        if view is None or now - view.at > VIEW_LASTS:
            view = self._view = View(engine, self._episodes.workloads, now=now)
        self._reporter.tell(waiting_keys(engine), view.explain, self._episodes.workloads, now=now)


class View:
    """What the engine says of the workloads that Kueue lets wait, after cycles on a copy."""

    def __init__(
        self, engine: Engine, workloads: Mapping[str, Mapping[str, Any]], *, now: datetime
    ) -> None:
        self.at = now
        self._workloads = workloads
        self._before = Explainer(engine, now=now)
        copy = engine.fork(now=now)
        ends = time.monotonic() + VIEW_S
        run_until_quiet(copy, now=now, bounds=Bounds(is_over=lambda: time.monotonic() > ends))
        self._after = Explainer(copy, now=now)

    def explain(self, key: str) -> Explanation | None:
        """Why a workload waits; in Kueue's words where the engine would let it start."""
        found = self._after.explain(key)
        if found is not None and found.reason and found.reason != CHECKS_PENDING:
            return found
        found = self._before.explain(key)
        told = waiting_of(self._workloads[key])
        if found is None or found.reason or told is None:
            return found
        return replace(found, reason=told.reason, message=told.message)


def _differing(item: Difference) -> Differing:
    namespace, _, name = item.key.partition("/")
    return Differing(
        uid=item.uid,
        kind=item.kind.value,
        namespace=namespace,
        name=name,
        portal_says=item.portal_says.document(),
        kueue_did=item.kueue_did.document(),
    )
