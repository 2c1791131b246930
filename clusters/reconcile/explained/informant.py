"""The explaining side of a shift with an engine, in one object; silent without a registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from clusters.documents.keys import Document
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.why import Explainer, Explanation
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.explained.desk import Comparison, Desk
from clusters.reconcile.explained.telling import Telling, waiting_keys


class Informant:
    """Answers questions and says why workloads wait, between the other work of a shift.

    A shift in the foreground has no row in the database: then every call does nothing.
    """

    def __init__(self, context: ShiftContext) -> None:
        self._desk = Desk(context.cluster.slug) if context.cluster.pk else None
        self._telling: Telling | None = None

    def start(self) -> None:
        """Read what is stored and begin to listen for questions."""
        if self._desk is not None:
            self._telling = Telling(self._desk)
            self._desk.start()

    def close(self) -> None:
        """Write what is left."""
        if self._desk is not None:
            self._desk.close()

    def mark(self, keys: Iterable[str]) -> None:
        """Something was decided about these: they come first in the next round."""
        if self._telling is not None:
            self._telling.mark(keys)

    @property
    def is_due(self) -> bool:
        """Whether a round of reasons may begin."""
        return self._telling is not None and self._telling.is_due

    def answer_one(self, engine: Engine, *, now: datetime) -> bool:
        """Answer the oldest question; False when there is none."""
        return self._telling is not None and self._telling.answer_one(engine, now=now)

    def tell(
        self,
        waiting: Iterable[str],
        explain: Callable[[str], Explanation | None],
        documents: Mapping[str, Document],
        *,
        now: datetime,
    ) -> None:
        """Begin a round, as ``Telling.tell``."""
        if self._telling is not None:
            self._telling.tell(waiting, explain, documents, now=now)

    def report(self, comparison: Comparison) -> None:
        """Have the result of a comparison counted."""
        if self._desk is not None:
            self._desk.put_comparison(comparison)

    def work(self, engine: Engine, documents: Mapping[str, Document], *, now: datetime) -> None:
        """One step: an answer, or a round of reasons when one is due.

        Args:
            engine: The deciding one; its items carry the messages of their last cycles.
            documents: Workloads by key.
            now: Current time.
        """
        if self.answer_one(engine, now=now) or not self.is_due:
            return
        explainer = Explainer(engine, now=now)
        self.tell(waiting_keys(engine), explainer.explain, documents, now=now)
