"""The shadow shift: follows a cluster on which Kueue decides, explains it, and compares.

Its engine sees what Kueue sees. What it says about waiting workloads comes from cycles on a copy,
so that nothing it decides there lasts. It only lists and watches: no client of it ever writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from clusters.documents.keys import key_of
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.cycle.engine import CycleFailed, Engine, culprits
from clusters.kueue.cycle.intake import UnreadableDocument
from clusters.kueue.explanation.what_if import Bounds, run_until_quiet
from clusters.kueue.explanation.why import CHECKS_PENDING, Explainer, Explanation
from clusters.models import ShadowDifference
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.explained.reporter import Reporter, waiting_keys
from clusters.reconcile.explained.store import Comparison
from clusters.reconcile.runtime.controller import Controller, Watched
from clusters.reconcile.runtime.faults import Doing
from clusters.reconcile.runtime.watches import Change, Seen
from clusters.reconcile.shadow.compare import Disagreement, EpisodeVerdict
from clusters.reconcile.shadow.episodes import Episodes, Patience
from clusters.reconcile.shadow.events import waiting_of
from clusters.reconcile.warm_engine import (
    OPTIONAL_KINDS,
    Looks,
    by_quota_alone,
    engine_kinds,
    kept_of,
)

log = structlog.stdlib.get_logger(__name__)

VIEW_S: Final = 1.0
"""So long cycles may run on a copy before it is explained as far as it came."""
VIEW_LASTS: Final = timedelta(seconds=30)
"""Without news, only back-offs that end can make another view of it."""


class ShadowBody(Controller[str]):
    """One shift of the shadow on one cluster.

    Args:
        context: The shift.
        configuration: Kueue's Configuration; None for the one that the cluster is registered with.
        patience: When to compare.
    """

    tick_s = 0.25
    follows_configuration = True

    def __init__(
        self,
        context: ShiftContext,
        *,
        configuration: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(context)
        registered = context.cluster.kueue_configuration
        in_force = registered if configuration is None else configuration
        self._patience = patience
        # Which pod runs on which node is not followed: what waits for domains alone seems to fit.
        self._episodes = Episodes(Engine(by_quota_alone(in_force or None)), patience=patience)
        self._outside: set[tuple[Resource, str]] = set()
        self._looks = Looks()
        self._view: Preview | None = None
        self._reporter = Reporter.of(context)

    def watched(self) -> Iterable[Watched]:
        """What the engine reads."""
        for resource in engine_kinds(self._episodes.engine.configuration):
            is_optional = resource in OPTIONAL_KINDS
            yield Watched(resource, is_optional=is_optional, keep=kept_of(resource))

    def opened(self) -> None:
        """From now on, what happens is kept and compared."""
        self._episodes.begin(self.context.now())
        self._reporter.start()

    def closing(self) -> None:
        """Writes what is left to tell."""
        self._reporter.close()

    def look(self) -> None:
        """Compares and explains; nothing is ever written."""
        self._compare()
        self._explain()

    def take(self, seen: Seen) -> None:
        """Into the engine, which is all that a shadow knows."""
        resource, document, is_gone = seen.resource, seen.document, seen.change is Change.DELETED
        is_workload = resource == r.WORKLOAD
        if not is_workload and not self._looks.is_new(resource, document, is_gone=is_gone):
            return
        place = resource, key_of(document)
        try:
            now = self.context.now()
            if self._episodes.take(resource.kind, document, is_gone=is_gone, now=now):
                self._view = None
        except Exception as error:
            self._looks.forget(resource, document)
            self._outside.add(place)
            if not isinstance(error, UnreadableDocument):
                self._begin_anew()
            raise
        self._outside.discard(place)

    def _begin_anew(self) -> None:
        """After an error half-way, what the engine believes is not sound: another one is fed."""
        now = self.context.now()
        self._episodes = Episodes(
            Engine(self._episodes.engine.configuration), patience=self._patience
        )
        self._view = None
        for resource in engine_kinds(self._episodes.engine.configuration):
            for document in self.watches.snapshot(resource):
                place = resource, key_of(document)
                if place in self._outside:
                    continue
                try:
                    self._episodes.take(resource.kind, document, is_gone=False, now=now)
                except Exception as error:
                    self._outside.add(place)  # its own event tells of it
                    if not isinstance(error, UnreadableDocument):
                        self._begin_anew()
                        return
        self._episodes.begin(now)

    # Comparing

    def _compare(self) -> None:
        if not self.watches.is_connected:
            # What is not seen cannot be held against anybody.
            return
        now = self.context.now()
        verdicts = self._episodes.settle(now, failed=self._incomparable)
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

    def _note(self, verdicts: list[EpisodeVerdict]) -> None:
        for verdict in verdicts:
            for tree in verdict.trees:
                self.faults.clear(_of_tree(tree))
            for item in verdict.differences:
                log.info(
                    "shadow_differs",
                    cluster=self.context.cluster.slug,
                    workload=item.key,
                    kind=item.kind,
                    portal=item.portal_says.decision,
                    kueue=item.kueue_did.decision,
                )

    def _incomparable(self, trees: Iterable[str], error: Exception) -> None:
        for tree in trees:
            self.faults.park(_of_tree(tree), error, doing=Doing.DECIDING)

    # Explaining

    def _explain(self) -> None:
        now, engine = self.context.now(), self._episodes.engine
        self._reporter.show_shares(engine)
        if self._reporter.answer_one(engine, now=now) or not self._reporter.is_due:
            return
        view = self._view
        if view is None or now - view.at > VIEW_LASTS:
            view = self._view = Preview(engine, self._episodes.workloads, now=now)
            for key, error in view.failed.items():
                self.faults.park(self.says(key), error, doing=Doing.DECIDING)
        self._reporter.tell(
            waiting_keys(engine), self._explainer(view), self._episodes.workloads, now=now
        )

    def _explainer(self, view: Preview) -> Callable[[str], Explanation | None]:
        """Of one that cannot be explained nothing is known yet."""

        def explain(key: str) -> Explanation | None:
            subject = self.says(key)
            try:
                found = view.explain(key)
            except Exception as error:
                self.faults.park(subject, error, doing=Doing.DECIDING)
                return None
            if key not in view.failed:
                self.faults.clear(subject)
            return found

        return explain

    def says(self, key: str) -> str:
        """A Workload."""
        return f"Workload {key}"


class Preview:
    """What the engine says of the workloads that Kueue lets wait, after cycles on a copy."""

    def __init__(
        self, engine: Engine, workloads: Mapping[str, Mapping[str, Any]], *, now: datetime
    ) -> None:
        self.at = now
        self._workloads = workloads
        self._before = Explainer(engine, now=now)
        self.failed: dict[str, Exception] = {}
        self._after = Explainer(self._run(engine, now), now=now)

    def _run(self, engine: Engine, now: datetime) -> Engine:
        """A copy after its cycles, without the workloads that make them fail."""
        ends = time.monotonic() + VIEW_S
        while True:
            copy = self._sound(engine, now)
            try:
                bounds = Bounds(is_over=lambda: time.monotonic() > ends)
                run_until_quiet(copy, now=now, bounds=bounds)
            except CycleFailed as failed:
                cause = failed.__cause__
                error = cause if isinstance(cause, Exception) else failed
                found = culprits(self._sound(engine, now), failed.heads, now=now)
                self.failed.update(dict.fromkeys(found or failed.heads, error))
            else:
                return copy

    def _sound(self, engine: Engine, now: datetime) -> Engine:
        copy = engine.fork(now=now)
        for key in self.failed:
            copy.delete("Workload", key=key, now=now)
        return copy

    def explain(self, key: str) -> Explanation | None:
        """Why a workload waits; in Kueue's words where the engine would let it start."""
        found = self._after.explain(key)
        if found is not None and found.reason and found.reason != CHECKS_PENDING:
            return found
        found = self._before.explain(key)
        told = waiting_of(self._workloads[key])
        if found is None or found.reason or told is None:
            return found
        return self._before.told(key, reason=told.reason, message=told.message)


def _of_tree(tree: str) -> str:
    return f"What Kueue decided in {tree or 'any tree of queues'}"


def _differing(item: Disagreement) -> ShadowDifference:
    namespace, _, name = item.key.partition("/")
    return ShadowDifference(
        uid=item.uid,
        kind=item.kind.value,
        namespace=namespace,
        name=name,
        portal_says=item.portal_says.document(),
        kueue_did=item.kueue_did.document(),
    )
