"""Which recorded events of a cluster nothing was built from yet."""

from __future__ import annotations

from collections.abc import Collection

from clusters.models import WorkloadEvent

AT_ONCE = 10_000


class Backlog:
    """A cluster's events that nothing was built from yet, some at a time, oldest first.

    A Workload is built from everything that is known of it. What lies beyond the mark of that is
    kept in mind until the mark has passed it, so that a backlog is built once and not once for
    every part of it in which a Workload turns up.

    Args:
        cluster: Slug.
        mark: Key of the newest event up to which everything is built.
    """

    def __init__(self, cluster: str, mark: int) -> None:
        self.mark = mark
        self._cluster = cluster
        self._ahead = mark
        self._built: set[int] = set()

    def take(self) -> frozenset[str] | None:
        """Workloads with something new among the next events; None when there are no events.

        The more events lie there the more are taken at once: a job whose states lie near each
        other is built once for all of them.
        """
        rows = list(
            WorkloadEvent.objects.filter(cluster=self._cluster, pk__gt=self.mark)
            .order_by("pk")
            .values_list("pk", "uid")[:AT_ONCE]
        )
        if not rows:
            return None
        self._ahead = rows[-1][0]
        return frozenset(uid for key, uid in rows if key not in self._built)

    def note(self, events: Collection[int]) -> None:
        """Something was built from these events, and that is committed."""
        self._built.update(events)

    def advance(self) -> None:
        """What was taken last is built, or was refused for good."""
        self.mark = self._ahead
        self._built = {key for key in self._built if key > self.mark}
