"""Carries decisions out: kinds in order, some objects of a kind side by side, each one fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from clusters.errors import ClusterError, LeaseLost, NotFound, Unreachable
from clusters.kube.client import KubeClient, WriteOptions, delete_exactly
from clusters.manifests.names import Document
from clusters.reconcile.quota.decide import GOING, WRITES, Decision, Step
from clusters.reconcile.quota.image import RESOURCES
from clusters.reconcile.quota.record import Result

WRITERS = 6
DRAIN_PATCH = {"spec": {"stopPolicy": "HoldAndDrain"}}


class Writer:
    """Writes to one cluster through a small pool of threads; close it when done."""

    def __init__(
        self, client: KubeClient, *, fence: Callable[[], None], seen: Callable[[Document], None]
    ) -> None:
        self._client, self._fence, self._seen = client, fence, seen
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="quota-write")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def carry_out(
        self, decisions: Sequence[Decision], *, on_batch: Callable[[list[Result]], None]
    ) -> None:
        """Writes in the order that holds: what others refer to first, deletions last and backwards.

        Args:
            decisions: Those that write; others are left out.
            on_batch: Told the results of each batch, so that they are recorded as they come.

        Raises:
            LeaseLost: nothing was written after it.
            Unreachable: the cluster is gone; the rest was not tried.
        """
        todo = [decision for decision in decisions if decision.step in WRITES]
        for _, batch in groupby(sorted(todo, key=_order), key=_order):
            for part in _parts(list(batch)):
                results = list(self._pool.map(self._one, part))
                on_batch([result for result, _ in results])
                for _, lost in results:
                    if lost is not None:
                        raise lost

    def _one(self, decision: Decision) -> tuple[Result, ClusterError | None]:
        try:
            self._fence()
            live = self._write(decision)
        except (LeaseLost, Unreachable) as error:
            return Result(decision, error=f"{error.reason}: {error.message}"), error
        except ClusterError as error:
            return Result(decision, error=f"{error.reason}: {error.message}"), None
        if live is not None:
            self._seen(live)
        return Result(decision, was_written=True, live=live), None

    def _write(self, decision: Decision) -> Document | None:
        resource = RESOURCES[decision.key.kind]
        if decision.step is Step.DELETE:
            delete_exactly(self._client, decision.document)
            return None
        if decision.step is Step.DRAIN:
            metadata = {"resourceVersion": decision.document["metadata"]["resourceVersion"]}
            try:
                return self._client.patch(
                    resource, decision.key.name, {"metadata": metadata, **DRAIN_PATCH}
                )
            except NotFound:
                return None
        if decision.step is Step.RELEASE:
            # Applying nothing gives up every field that is ours.
            bare = {"metadata": {"name": decision.key.name}}
            return self._client.apply(resource, bare)
        options = WriteOptions(force=decision.step is Step.RESTORE)
        return self._client.apply(resource, decision.document, options=options)


def _order(decision: Decision) -> tuple[bool, int]:
    is_going = decision.step in GOING
    return is_going, -decision.key.rank if is_going else decision.key.rank


def _parts(batch: list[Decision]) -> Iterable[list[Decision]]:
    """Cohorts go one after the other, a parent before its children; others a bite at a time."""
    bite = 1 if batch and batch[0].key.kind == "Cohort" else 60
    for start in range(0, len(batch), bite):
        yield batch[start : start + bite]
