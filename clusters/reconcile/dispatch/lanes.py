"""Lanes of work: one for each workload on the manager, one for each workload on each worker.

A lane does one thing at a time. Each cluster has threads of its own, so a cluster that hangs keeps
only its own lanes waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from clusters.errors import ClusterError, LeaseLost
from clusters.reconcile.runtime.cache import Effect as Effect
from clusters.reconcile.runtime.pool import Sender as Sender
from clusters.reconcile.runtime.writer import WritingStopped

MANAGER = ""


class Foreign(Exception):
    """An object of the name is there that does not carry our origin."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a lane's work.

    Attributes:
        place: (key, cluster); the manager is the empty name.
        effects: Objects as they are now.
        error: Why it failed; None when it did not.
        foreign: What stands in the way; empty when nothing does.
        is_creation: It was a creation on a worker.
        fatal: The shift cannot go on.
    """

    place: tuple[str, str]
    effects: tuple[Effect, ...] = ()
    error: ClusterError | None = None
    foreign: str = ""
    is_creation: bool = False
    fatal: BaseException | None = None


class Lanes:
    """Threads by cluster.

    Args:
        report: Takes every report, from any thread.
        threads: For each cluster.
    """

    def __init__(self, report: Callable[[Report], None], *, threads: int) -> None:
        self._report = report
        self._threads = threads
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._busy: set[tuple[str, str]] = set()

    def is_busy(self, place: tuple[str, str]) -> bool:
        """Whether work is under way whose report was not taken yet."""
        return place in self._busy

    def is_busy_on(self, cluster: str) -> bool:
        """Whether anything is under way on a cluster. O(lanes that are busy)."""
        return any(name == cluster for _, name in self._busy)

    def start(
        self,
        place: tuple[str, str],
        work: Callable[[list[Effect]], None],
        *,
        is_creation: bool = False,
    ) -> None:
        """Start work in a lane that is not busy.

        Args:
            place: The lane.
            work: Appends each effect as it happens, so that a failure half-way loses none.
            is_creation: Goes into the report.
        """
        self._busy.add(place)
        pool = self._pools.get(place[1])
        if pool is None:
            name = f"dispatch-{place[1] or 'manager'}"
            pool = ThreadPoolExecutor(self._threads, thread_name_prefix=name)
            self._pools[place[1]] = pool
        pool.submit(self._run, place, work, is_creation)

    def done(self, place: tuple[str, str]) -> None:
        """A lane's report was taken."""
        self._busy.discard(place)

    def close(self) -> None:
        """Starts nothing more and waits for what is under way."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, place: tuple[str, str], work: Callable[[list[Effect]], None], is_creation: bool
    ) -> None:
        effects: list[Effect] = []
        error: ClusterError | None = None
        fatal: BaseException | None = None
        foreign = ""
        try:
            work(effects)
        except Foreign as obstacle:
            foreign = str(obstacle)
        except WritingStopped:
            pass  # nothing was sent; the lane is looked at again when writing is on
        except LeaseLost as lost:
            fatal = lost
        except ClusterError as refused:
            error = refused
        except BaseException as broken:  # it ends the shift, in the shift's own thread
            fatal = broken
        self._report(Report(place, tuple(effects), error, foreign, is_creation, fatal))
