"""Starts the actions of a verdict in their lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusters.documents.keys import Document
from clusters.errors import ClusterError, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import steps as step
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.courier import (
    Effect,
    ManagerCourier,
    Matter,
    Station,
)
from clusters.reconcile.dispatch.lanes import MANAGER, Lanes
from clusters.reconcile.dispatch.links import Link
from clusters.reconcile.dispatch.parts import jobs_there, jobs_to_remove
from clusters.reconcile.dispatch.timing import Blocks, Holds, Told
from clusters.reconcile.dispatch.worker_courier import WorkerCourier
from clusters.reconcile.jobs.adapters import Adapters
from clusters.reconcile.runtime.writer import Hook, Write, Writer

BLOCKED_S = 20.0

_ON_WORKERS = (
    step.CreateCopy,
    step.CreateJob,
    step.FollowJob,
    step.StopCopy,
    step.UpdatePriority,
    step.RemoveCopy,
)
_CREATIONS = (step.CreateCopy, step.CreateJob)
Work = Callable[[list[Effect]], None]


class Crew:
    """Carries verdicts out.

    Args:
        context: The shift.
        links: The workers by name; followed as it changes.
        lanes: Where work runs.
        holds: Lanes that wait after a failure.
        blocks: Places that are passed over for a while.
        adapters: Kinds of jobs.
        hook: Called around every write.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        links: Mapping[str, Link],
        lanes: Lanes,
        holds: Holds,
        blocks: Blocks,
        adapters: Adapters,
        hook: Hook,
    ) -> None:
        self._context, self._links, self._lanes = context, links, lanes
        self._holds, self._blocks, self._hook = holds, blocks, hook
        self._adapters = adapters
        self._told = Told()
        client, name = context.client, context.cluster.slug
        self._station = self._station_of(name, client, lambda: context.cluster.may_write)
        self._courier = ManagerCourier(self._station, self._told.note)

    def carry_out(self, key: str, matter: Matter | None, actions: tuple[step.Action, ...]) -> None:
        """Start everything that has something to write and whose lane is free.

        Args:
            key: Of the workload.
            matter: The workload; None when it is gone from the manager.
            actions: Of one verdict.
        """
        here: list[tuple[step.Action, list[Document]]] = []
        for action in actions:
            if isinstance(action, _ON_WORKERS):
                self._on_worker(key, matter, action)
            elif matter is not None and self._is_worth_it(matter, action):
                here.append((action, self._remote_jobs(matter, action)))
        if here and matter is not None:
            self._on_manager(matter, here)

    def write_on_manager(self, name: str, write: Write) -> None:
        """Start one write of no workload, under a name of its own."""
        place = name, MANAGER
        if self._lanes.is_busy(place) or self._holds.is_held(place):
            return

        def work(effects: list[Effect]) -> None:
            document = self._station.writer.send(write)
            effects.append(Effect(MANAGER, write.resource, write.name, document))

        self._lanes.start(place, work)

    def _on_manager(
        self, matter: Matter, actions: list[tuple[step.Action, list[Document]]]
    ) -> None:
        def work(effects: list[Effect]) -> None:
            try:
                for action, remote_jobs in actions:
                    effects.extend(self._courier.carry_out(matter, action, remote_jobs))
            except ClusterError:
                effects.extend(self._read_again(matter))
                raise

        self._lanes.start((matter.key, MANAGER), work)

    def _read_again(self, matter: Matter) -> list[Effect]:
        """The workload and its Job as they are now, after a write failed."""
        effects: list[Effect] = []
        objects: list[tuple[Resource, Document]] = [(r.WORKLOAD, matter.local)]
        if matter.job is not None and matter.adapter is not None:
            kind = matter.adapter.resource
            objects += [(kind, member) for member in matter.adapter.members(matter.job)]
        for resource, known in objects:
            metadata = known["metadata"]
            name, namespace = metadata["name"], metadata["namespace"]
            try:
                found = self._station.client.get(resource, name, namespace=namespace)
            except NotFound:
                continue  # its watch tells so
            except ClusterError:
                return effects  # the failure that led here is reported; the watches go on
            effects.append(Effect(MANAGER, resource, name, found))
        return effects

    def _on_worker(self, key: str, matter: Matter | None, action: step.Action) -> None:
        worker: str = getattr(action, "cluster", "")
        place, link = (key, worker), self._links.get(worker)
        if link is None or self._lanes.is_busy(place) or self._holds.is_held(place):
            return
        if isinstance(action, step.RemoveCopy) and action.blocks:
            self._blocks.add(place, action.blocks, seconds=BLOCKED_S)
        work = self._work(key, matter, action, link)
        if work is not None:
            self._lanes.start(place, work, is_creation=isinstance(action, _CREATIONS))

    def _work(
        self, key: str, matter: Matter | None, action: step.Action, link: Link
    ) -> Work | None:
        if link.client is None:
            return None
        station = self._station_of(link.name, link.client, lambda: link.may_write)
        courier = WorkerCourier(station, self._is_gone)
        workload = link.image.get(r.WORKLOAD, key)
        if isinstance(action, step.RemoveCopy):
            there = jobs_to_remove(key, link.image, self._adapters)
        else:
            local = matter.job if matter is not None else None
            there = jobs_there(key, link.image, self._adapters, elastic=local)
        jobs = [
            (adapter.resource, job)
            for job in there
            if (adapter := self._adapters.of(job)) is not None
        ]
        origin = self._context.cluster.installation
        match action:
            case step.RemoveCopy():
                return lambda effects: courier.remove(
                    action, key, workload=workload, jobs=jobs, origin=origin, effects=effects
                )
            case step.CreateCopy() if matter is not None:
                return lambda effects: effects.extend(courier.create_copy(matter))
            case step.CreateJob() if matter is not None:
                return lambda effects: courier.create_job(matter, workload, effects)
            case step.FollowJob() if matter is not None:
                return lambda effects: courier.follow_job(matter, workload, there, effects)
            case step.StopCopy() if workload is not None:
                return lambda effects: effects.extend(courier.stop_copy(workload))
            case step.UpdatePriority() if workload is not None:
                return lambda effects: effects.extend(courier.update_priority(workload, action))
        return None

    def _is_gone(self, key: str) -> bool:
        """Whether the manager itself says that a Workload is gone; its image may lag behind."""
        namespace, _, name = key.partition("/")
        try:
            found = self._context.client.get(r.WORKLOAD, name, namespace=namespace)
        except NotFound:
            return True
        return bool(found["metadata"].get("deletionTimestamp"))

    def _is_worth_it(self, matter: Matter, action: step.Action) -> bool:
        """Whether an action on the manager has anything to write."""
        if isinstance(action, step.Tell):
            return self._told.is_new(matter.key, action.message)
        if not isinstance(action, step.CopyStatus):
            return True
        found = self._remote_jobs(matter, action)
        return next(matter.status_patches(found), None) is not None

    def _remote_jobs(self, matter: Matter, action: step.Action) -> list[Document]:
        link = self._links.get(getattr(action, "cluster", ""))
        if link is None:
            return []
        return list(jobs_there(matter.key, link.image, self._adapters, elastic=matter.job))

    def _station_of(self, name: str, client: KubeClient, may_write: Callable[[], bool]) -> Station:
        writer = Writer(
            client, cluster=name, fence=self._context.fence, may_write=may_write, hook=self._hook
        )
        return Station(name, client, writer)
