"""Which pending workloads are told about when, and the answers to questions.

Owned by the deciding thread of a shift, which also owns the engine. A round takes a bounded slice
of what waits; rows are written only when their evidence changed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from clusters.documents.keys import Document, uid_of
from clusters.explaining.evidence import evidence_document
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.asking import answer_document, read_changes
from clusters.kueue.explanation.changes import Inapplicable
from clusters.kueue.explanation.reports import ShareReport, share_reports
from clusters.kueue.explanation.what_if import Bounds, what_if
from clusters.kueue.explanation.why import SET_ASIDE, CheckState, Explainer, Explanation
from clusters.manifests.names import SPEND_CHECK
from clusters.models import PendingReason, Question, QueueShare
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.explained.store import Batch, Comparison, ReasonStore
from clusters.reconcile.reactivation import was_rejected
from clusters.reconcile.runtime.faults import Doing, Faults

EVERY_S: Final = 2.0
SHARES_EVERY_S: Final = 5.0
STILL_S: Final = 30.0
"""Between two rounds while nothing has changed; time alone changes little of what is said."""
SLICE: Final = 500
SLICE_S: Final = 0.1
"""Of the thread's own time, one round."""
ANSWER_S: Final = 2.0
"""A what-if that takes longer is answered with how far it came."""


@dataclass(frozen=True, slots=True)
class _ToldReason:
    """What stands in the row."""

    reason: str
    since: datetime
    digest: str = ""


class Reporter:
    """Says why workloads wait, and answers questions, between the other work of a shift.

    Args:
        store: Where rows and answers go. None for a shift without a row in the database, as in the
            foreground: then nothing is ever due.
        faults: Of the shift: a workload that cannot be explained keeps no other from it.
    """

    def __init__(self, store: ReasonStore | None, faults: Faults) -> None:
        self._store, self._faults = store, faults
        known = store.known() if store is not None else {}
        self._told = {uid: _ToldReason(reason, since) for uid, (reason, since) in known.items()}
        self._first: dict[str, None] = {}
        self._line: deque[str] = deque()
        self._due_at = self._shares_due_at = 0.0
        self._shares: tuple[ShareReport, ...] | None = None
        self._seen: tuple[int, Mapping[str, str]] = (-1, {})
        # Told in a row without a difference, and until when that is enough where it was everybody.
        # None from a change until the next round, for with nobody told yet none is everybody.
        self._same: int | None = None
        self._still_until = 0.0

    @classmethod
    def of(cls, context: ShiftContext) -> Reporter:
        """The reporter of a shift."""
        store = ReasonStore(context.cluster.slug) if context.cluster.pk else None
        return cls(store, context.faults)

    def start(self) -> None:
        """Begin to listen for questions."""
        if self._store is not None:
            self._store.start()

    def close(self) -> None:
        """Write what is left."""
        if self._store is not None:
            self._store.close()

    @property
    def is_due(self) -> bool:
        """Whether a round of reasons may begin."""
        store = self._store
        return store is not None and store.is_free and time.monotonic() >= self._due_at

    def mark(self, keys: Iterable[str]) -> None:
        """Tell about these before others; something was decided about them."""
        if self._store is not None:
            self._first.update(dict.fromkeys(keys))

    def stir(self) -> None:
        """Something of a workload changed, by which what is said of it may have."""
        self._same = None

    def report(self, comparison: Comparison) -> None:
        """Have the result of a comparison counted."""
        if self._store is not None:
            self._store.put_comparison(comparison)

    def work(self, engine: Engine, documents: Mapping[str, Document], *, now: datetime) -> None:
        """One step: an answer, or a round of reasons when one is due.

        Of the deciding engine, as its items carry the messages of their last cycles.
        """
        self.show_shares(engine)
        if self.answer_one(engine, now=now) or not self.is_due:
            return
        aside = self._faults.workloads()
        if self._is_still(engine, aside):
            return
        explain = Explainer(engine, now=now).explain

        def told(key: str) -> Explanation | None:
            why = aside.get(key)
            return Explanation(SET_ASIDE, why) if why else explain(key)

        self.tell({*waiting_keys(engine), *aside}, told, documents, now=now)

    def _is_still(self, engine: Engine, aside: Mapping[str, str]) -> bool:
        """Whether everything that waits was told, and nothing has changed since then."""
        seen = engine.state.revision, aside
        if seen != self._seen or self._first:
            self._seen, self._same = seen, None
        if self._same is None:
            return False
        return self._same >= len(self._told) and time.monotonic() < self._still_until

    def show_shares(self, engine: Engine) -> None:
        """Who borrows how much against which weight, once it is due and has changed.

        All of them at once: what is not there any more goes, and all go where fair sharing is off.
        """
        store = self._store
        if store is None or not store.takes_shares or time.monotonic() < self._shares_due_at:
            return
        begun = time.thread_time()
        is_fair = engine.configuration.has_fair_sharing
        found = tuple(share_reports(engine)) if is_fair else ()
        if found != self._shares:
            self._shares = found
            store.put_shares([_share_row(each) for each in found])
        took = time.thread_time() - begun
        self._shares_due_at = time.monotonic() + max(SHARES_EVERY_S, 50 * took)

    def answer_one(self, engine: Engine, *, now: datetime) -> bool:
        """Answer the oldest question; False when there is none."""
        asked = self._store.take_question() if self._store is not None else None
        if self._store is None or asked is None:
            return False
        document, problem = answer(engine, asked, now=now)
        self._store.answer(asked, document, problem)
        return True

    def tell(
        self,
        waiting: Iterable[str],
        explain: Callable[[str], Explanation | None],
        documents: Mapping[str, Document],
        *,
        now: datetime,
    ) -> None:
        """Begin a round about everything that waits now, by key; only when one is due."""
        assert self._store is not None
        begun, used = time.monotonic(), time.thread_time()
        same = self._same or 0
        for uid in self._store.take_refused():
            # Nobody can read it: it is told again when its turn comes.
            same = 0
            if uid in self._told:
                self._told[uid] = replace(self._told[uid], digest="")
        uids = {key: uid_of(documents[key]) for key in waiting if key in documents}
        known = set(uids.values())
        gone = [uid for uid in self._told if uid not in known]
        for uid in gone:
            del self._told[uid]
        rows, looked_at = [], 0
        for key in self._slice(uids, until=used + SLICE_S):
            subject = f"Reason of Workload {key}"
            try:
                row = self._row(key, explain(key), documents[key], now)
            except Exception as error:
                self._faults.park(subject, error, doing=Doing.DECIDING)
                continue
            self._faults.clear(subject)
            looked_at += 1
            if row is not None:
                rows.append(row)
        if rows or gone:
            self._store.put(Batch(now, rows, gone))
        self._same = 0 if rows or gone else same + looked_at
        self._still_until = begun + STILL_S
        # However long it took, most of the time is left to the shift's own work.
        took = time.thread_time() - used
        self._due_at = begun + max(EVERY_S, 10 * took)

    def _slice(self, uids: Mapping[str, str], *, until: float) -> Iterable[str]:
        """Those that were marked, then the new ones, then the others in turn."""
        marked, self._first = list(self._first), {}
        new = [key for key, uid in uids.items() if uid not in self._told]
        if not self._line:
            self._line.extend(uids)
        done: set[str] = set()
        for key in (*marked, *new, *self._line):
            if len(done) >= SLICE or time.thread_time() > until:
                break
            if key in uids and key not in done:
                done.add(key)
                yield key
        self._first.update(dict.fromkeys(key for key in marked if key in uids and key not in done))
        while self._line and (self._line[0] in done or self._line[0] not in uids):
            self._line.popleft()

    def _row(
        self, key: str, explanation: Explanation | None, document: Document, now: datetime
    ) -> PendingReason | None:
        if explanation is None:
            return None
        evidence = evidence_of(explanation, document)
        text = json.dumps(evidence, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        uid = uid_of(document)
        before = self._told.get(uid)
        if before is not None and before.digest == digest:
            return None
        is_same = before is not None and before.reason == explanation.reason
        since = before.since if before is not None and is_same else now
        self._told[uid] = _ToldReason(explanation.reason, since, digest)
        namespace, _, name = key.partition("/")
        return PendingReason(
            uid=uid, namespace=namespace, name=name, evidence=evidence, since=since
        )


def evidence_of(explanation: Explanation, workload: Document) -> dict[str, Any]:
    """What ``PendingReason.evidence`` stores: the engine's words, what the checks say and did."""
    states = (workload.get("status") or {}).get("admissionChecks") or ()
    checks = tuple(
        CheckState(*(str(item.get(key) or "") for key in ("name", "state", "message")))
        for item in states
    )
    turned_back = was_rejected(workload, SPEND_CHECK)
    return evidence_document(replace(explanation, checks=checks, is_turned_back=turned_back))


def _share_row(share: ShareReport) -> QueueShare:
    return QueueShare(
        name=share.name,
        is_cohort=share.is_cohort,
        parent=share.parent,
        weight=f"{share.weight:g}",
        resource=share.resource,
        borrowed=share.borrowed,
        lendable=share.lendable,
        share=share.published,
    )


def waiting_keys(engine: Engine) -> list[str]:
    """Workloads that hold no quota, or hold it and wait for AdmissionChecks. O(workloads)."""
    return [
        key
        for key, workload in engine.state.workloads.items()
        if workload.reservation is None
        or not (workload.reservation.is_admitted or workload.is_evicted)
    ]


def answer(
    engine: Engine, asked: Question, *, now: datetime, limit_s: float = ANSWER_S
) -> tuple[dict[str, Any] | None, str]:
    """The answer to a question, or one sentence why there is none."""
    begun = time.perf_counter()
    bounds = Bounds(is_over=lambda: time.perf_counter() - begun > limit_s)
    try:
        forecast = what_if(engine, read_changes(asked.asked["changes"]), now=now, bounds=bounds)
    except Inapplicable as error:
        return None, str(error)
    except Exception as error:  # whatever was asked, it ends with this question
        return None, f"What is asked cannot be read: {type(error).__name__}: {error}"
    document = answer_document(engine, forecast)
    document["tookMs"] = round((time.perf_counter() - begun) * 1000)
    return document, ""
