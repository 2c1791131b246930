"""The column in memory: the portal's own bodies on embedded clusters, by a clock that is set.

A fleet of a manager and its workers, or one cluster alone.

One thread takes turns: collect garbage, play the Job controller, tell the watches, one round of
every admission shift, one turn of dispatch. Nothing waits: time passes between the turns only. What
runs in threads otherwise (watches, lanes of writes, pulses) is replaced by parts that act at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.controllers import GarbageCollector, JobRunner, is_finished
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.admission import body as admission_module
from clusters.reconcile.admission.body import EngineReader
from clusters.reconcile.context import Clients, Identity, Registered, ShiftContext
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.dispatch import body as dispatch_module
from clusters.reconcile.multikueue import controller as manager_module
from clusters.reconcile.multikueue import links, offers
from clusters.reconcile.runtime import controller as controller_module
from clusters.reconcile.runtime.pool import Pool, Work
from clusters.reconcile.runtime.recorder import Event, Recorder
from tests.reconcile.admission_harness import INSTALLATION, facts
from tests.resources import resource_of
from tests.stories import player as player_module
from tests.stories.fleets.form import CLUSTERS, MANAGER, WORKERS, FleetStory
from tests.stories.fleets.memory_parts import (
    Clock,
    MemoryTransport,
    StepWatches,
    step_pulse,
)
from tests.stories.fleets.objects import fleet_objects, shared_objects
from tests.stories.fleets.observer import KINDS, Entry, History
from tests.stories.fleets.settings import configuration_of
from tests.stories.fleets.stage import Why
from tests.stories.player import Stage
from tests.stories.pods import CountedPods, counted_status
from tests.stories.stages import FEATURE_GATES, make_namespace, portal_configuration
from tests.stories.story import Story

_STEP_S, _LONGEST_STEP_S = 0.05, 0.5
_WITHIN_S = 240.0
_GARBAGE_EVERY_S = 0.2


class Admission(AdmissionBody):
    """An admission shift that is turned by hand."""

    def begin(self) -> None:
        self.recorder = _Mute(self.writer, cluster=self.cluster, now=self.context.now)
        assert self.open()

    def opened(self) -> None:
        self.queue.add_all(self.cache.keys_to_plan())

    def idle_s(self) -> float:
        return 0.0


class Dispatch(DispatchBody):
    """A dispatch shift that is turned by hand."""

    tick_s = 0.0

    def begin(self) -> None:
        assert self.open()

    def die(self) -> None:
        """End without a word: nothing is written any more."""
        self.watches.close()
        for link in self._links.values():
            link.close()


class _Pool(Pool[Any]):
    """Work is done where it is started."""

    def start(self, key: Any, work: Work, *, about: Any = None, lane: str = "") -> None:
        self._run(key, work, about)


class _Recorder(Recorder):
    """Events are written where they are recorded."""

    def record(self, events: Iterable[Event]) -> None:
        for event in events:
            if event not in self._told:
                self._remember(event)
                self.write(event)


class _Mute(Recorder):
    """Events are not written: they would come at their own pace."""

    def record(self, events: Iterable[Event]) -> None:
        pass


class _Context(ShiftContext):
    """A shift's context whose clock is the stage's."""

    clock: Clock

    def now(self) -> datetime:
        return self.clock.now()


class _Clients(Clients):
    def __init__(self, clients: Mapping[str, KubeClient]) -> None:
        super().__init__()
        self._given = clients

    def of(self, slug: str, *, identity: Identity = Identity.PORTAL) -> KubeClient:
        return self._given[slug]


class MemoryStage:
    """Clusters in this process; see the module's text.

    Args:
        configuration: Kueue's, for each of them.
        clusters: Their names; the manager dispatches where there is one.
        reader: Of each cluster's warm engine.
    """

    is_kueue = False
    origin = INSTALLATION

    def __init__(
        self,
        configuration: Mapping[str, Any],
        *,
        clusters: Sequence[str] = CLUSTERS,
        reader: EngineReader | None = None,
    ) -> None:
        self._clock = Clock(datetime(2026, 3, 1, 12, tzinfo=UTC))
        self._configuration, self._reader = configuration, reader
        self._clusters = {
            name: DevCluster(ClusterOptions(name=name, now=self._clock.now)) for name in clusters
        }
        self.clients: dict[str, KubeClient] = {
            name: _client(cluster) for name, cluster in self._clusters.items()
        }
        self._cuttable = {
            name: MemoryTransport(each) for name, each in self._clusters.items() if name in WORKERS
        }
        self.pods = CountedPods(sleep=self.wait)
        self._watches: list[StepWatches] = []
        self._history = History()
        self._subscriptions = [
            (name, resource, cluster.store.subscribe(KINDS[resource], since=None)[1])
            for name, cluster in self._clusters.items()
            for resource in KINDS
        ]
        self._garbage = [GarbageCollector(each) for each in self._clusters.values()]
        self._swept_at = 0.0
        self._stride = _STEP_S
        self._runners = {
            name: JobRunner(each, status_of=lambda job, _: counted_status(job, self._clock.now()))
            for name, each in self._clusters.items()
        }
        self._admission: list[Admission] = []
        self._dispatch: Dispatch | None = None

    # Parts

    def start(self) -> None:
        """Begin all shifts."""
        for name, client in self.clients.items():
            body = Admission(self._context(name, client), reader=self._reader)
            body.begin()
            self._admission.append(body)
        if MANAGER in self.clients:
            self._begin_dispatch()

    def patches(self) -> Iterator[Any]:
        """What replaces threads and clocks in the modules of the shifts."""
        watches = functools.partial(StepWatches, registry=self._watches)
        time = SimpleNamespace(monotonic=self._clock.monotonic)
        swapped: list[tuple[Any, dict[str, Any]]] = [
            (
                controller_module,
                {"Watches": watches, "Pool": _Pool, "Recorder": _Recorder, "time": time},
            ),
            (admission_module, {"time": time}),
            (dispatch_module, {"time": time}),
            (manager_module, {"time": time}),
            (links, {"Watches": watches, "Pulse": step_pulse, "time": time}),
            (offers, {"Watches": watches, "time": time}),
        ]
        for module, names in swapped:
            for name, value in names.items():
                yield patch.object(module, name, value)

    def _context(self, name: str, client: KubeClient) -> ShiftContext:
        linked = {worker: _client_over(each) for worker, each in self._cuttable.items()}
        configured = facts(
            name, is_manager=name == MANAGER, kueue_configuration=self._configuration
        )
        found = _Context(
            Registered(configured, b""),
            client=client,
            clients=_Clients(linked),
            pulse=cast("Any", None),
            stop=cast("Any", SimpleNamespace(is_set=lambda: False)),
            fence=lambda: None,
            holder=f"{name}-in-memory",
        )
        found.clock = self._clock
        return found

    def _begin_dispatch(self) -> None:
        self._dispatch = Dispatch(self._context(MANAGER, self.clients[MANAGER]))
        self._dispatch.begin()

    # Faults

    def cut(self, worker: str) -> None:
        self._cuttable[worker].is_cut = True

    def restore(self, worker: str) -> None:
        self._cuttable[worker].is_cut = False

    def restart(self, cluster: str) -> None:
        assert self._dispatch is not None
        self._dispatch.die()
        self._begin_dispatch()

    # Time

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        return self._clock.now()

    def wait(self, seconds: float) -> None:
        ends = self._clock.monotonic() + seconds
        while (left := ends - self._clock.monotonic()) > 1e-9:
            self._step(min(left, self._stride))

    def until(self, check: Callable[[], Any], *, why: Why) -> Any:
        ends = self._clock.monotonic() + _WITHIN_S
        seen: Any = None
        while True:
            versions = self._versions()
            if versions != seen or self._stride >= _LONGEST_STEP_S:
                seen, found = versions, check()
                if found:
                    return found
            if self._clock.monotonic() > ends:
                raise AssertionError(why() if callable(why) else why)
            self._step(self._stride)

    def history_of(self, namespace: str) -> list[Entry]:
        self._drain()
        return self._history.of(namespace)

    # Turns

    def _step(self, seconds: float) -> None:
        before = self._versions()
        self._clock.advance(seconds)
        self._play_controllers()
        for watches in list(self._watches):
            watches.pump()
        for each in self._admission:
            each.turn()
        if self._dispatch is not None:
            self._dispatch.turn()
        self._drain()
        is_quiet = self._versions() == before
        self._stride = min(_LONGEST_STEP_S, self._stride * 1.5) if is_quiet else _STEP_S

    def _versions(self) -> list[int]:
        return [cluster.store.version for cluster in self._clusters.values()]

    def _play_controllers(self) -> None:
        moment = self._clock.monotonic()
        if moment - self._swept_at >= _GARBAGE_EVERY_S:
            self._swept_at = moment
            for each in self._garbage:
                each.sweep()
        for name, cluster in self._clusters.items():
            for job in cluster.store.all(KINDS[r.JOB])[1]:
                if not is_finished(job):
                    self._runners[name]._advance(job)

    def _drain(self) -> None:
        for cluster, resource, subscription in self._subscriptions:
            while not subscription.queue.empty():
                change = subscription.queue.get_nowait()
                assert change is not None
                self._history.note(cluster, resource, change.type, change.document)


def _client(cluster: DevCluster) -> KubeClient:
    return _client_over(MemoryTransport(cluster))


def _client_over(transport: MemoryTransport) -> KubeClient:
    return KubeClient(cast("Any", transport))


@contextmanager
def memory_stage(story: FleetStory, *, reader: EngineReader | None = None) -> Iterator[MemoryStage]:
    """Fresh clusters in memory with shifts on all of them."""
    configuration = {**configuration_of(story.setting), "featureGates": dict(FEATURE_GATES)}
    stage = MemoryStage(configuration, reader=reader)
    for name, client in stage.clients.items():
        for document in (*shared_objects(), *(fleet_objects() if name == MANAGER else ())):
            client.create(resource_of(document), document)
    with turned(stage):
        yield stage


@contextmanager
def turned(stage: MemoryStage) -> Iterator[None]:
    """Shifts on the clusters of a stage, as long as it lasts."""
    with ExitStack() as stack:
        for each in stage.patches():
            stack.enter_context(each)
        stage.start()
        yield


@contextmanager
def single_stage(story: Story, *, reader: EngineReader | None = None) -> Iterator[Stage]:
    """A fresh cluster in memory for a story of admission."""
    memory = MemoryStage(portal_configuration(story), clusters=story.clusters, reader=reader)
    for client in memory.clients.values():
        make_namespace(client)
    clock = SimpleNamespace(
        monotonic=memory.monotonic,
        sleep=memory.wait,
        gmtime=memory.now,
        strftime=lambda form, at: at.strftime(form),
    )
    with turned(memory), patch.object(player_module, "time", clock):
        yield Stage(memory.clients, memory.pods, shows_events=False)
