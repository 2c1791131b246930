"""What is to be written next about one key, by everything that is known of it.

A key is a Workload's, or that of a queue or Cohort whose status is told. Decisions of the engine
that are not written yet go before what the objects themselves ask for. Reads only, but that it
sets the alarm for a look that time alone asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from clusters.jobs.table import job_of, kind_of
from clusters.kube import resources as r
from clusters.kueue.cycle.engine import Engine
from clusters.reconcile.admission.decided import Decided
from clusters.reconcile.admission.image import Image
from clusters.reconcile.admission.outbox import Target
from clusters.reconcile.admission.plan import Surroundings, plan
from clusters.reconcile.admission.queue_status import queue_write
from clusters.reconcile.jobs.alarms import Alarms
from clusters.reconcile.runtime.writer import Write


class NextWrites:
    """The next write of every key.

    Args:
        engine: Settled by :meth:`around`.
        image: The cluster as it is known.
        decided: What the engine decided and nobody has written yet.
        alarms: Set for keys that time alone changes.
        now: The clock, UTC.
    """

    def __init__(
        self,
        engine: Engine,
        image: Image,
        decided: Decided,
        alarms: Alarms,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._engine, self._image, self._decided = engine, image, decided
        self._alarms, self._now = alarms, now

    def around(self) -> Surroundings:
        """What all keys of one round share."""
        now = self._now()
        # Which queues are active is only known once the engine has settled.
        self._engine.state.settle(now)
        return Surroundings(
            engine=self._engine,
            flavors=self._image.of(r.RESOURCE_FLAVOR),
            priority_classes=self._image.of(r.PRIORITY_CLASS),
            now=now,
            workloads=self._image.of(r.WORKLOAD),
            successors=self._image.successors,
        )

    def of(self, key: str, around: Surroundings) -> Write | None:
        """The next write about a Workload and its job; None when nothing is to be done."""
        workload = self._image.get(r.WORKLOAD, key)
        write = self._decided.write_for(key, workload, now=around.now)
        if write is not None:
            return write
        job = job_of(workload, self._image.jobs_for(key))
        if job is None and workload is not None:
            # Of several Workloads one that its owner no longer counts.
            owner = self._image.owner_of(workload)
            job = owner if owner is not None and kind_of(owner).has_several(owner) else None
        step = plan(workload, job, around)
        if step.look_again is not None:
            self._alarms.set(key, step.look_again)
        return step.write

    def told(self, key: str, around: Surroundings) -> Write | None:
        """The same of any key: of a queue or Cohort what its status is to say."""
        if ":" in key:
            return queue_write(self._engine, self._image, key, now=around.now)
        return self.of(key, around)

    def targets(self, key: str) -> list[Target]:
        """The objects of a key, to be read anew when a write of it failed."""
        kind, _, rest = key.partition(":")
        for resource in (r.CLUSTER_QUEUE, r.LOCAL_QUEUE, r.COHORT):
            if rest and resource.kind == kind:
                namespace, _, name = rest.rpartition("/")
                return [(resource, namespace, name)]
        namespace, _, name = key.partition("/")
        targets: list[Target] = [(r.WORKLOAD, namespace, name)]
        for job in self._image.jobs_for(key):
            targets.append((kind_of(job).resource, namespace, job["metadata"]["name"]))
        return targets
