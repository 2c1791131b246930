"""Threads that carry out what was decided; what came of it is told to the deciding thread.

Threads only send and read. Who may start what is the work queue's business: a key is busy from the
start of its work until its answer was taken. Of what waits for a thread each namespace has its
turn, so that no tenant's work waits for all that another has asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeVar

from clusters.documents.keys import key_of
from clusters.errors import LeaseLost, NotFound
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.queue import Turns, namespace_of
from clusters.reconcile.runtime.threads import Executor
from clusters.reconcile.runtime.writer import Write, Writer, WritingStopped

K = TypeVar("K")
Work = Callable[[list[Effect]], None]
"""Appends each effect as it happens, so that a failure half-way loses none."""
Target = tuple[Resource, str]
"""Kind and key of an object to read."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[K]):
    """What became of one piece of work.

    Attributes:
        key: Whose turn it was.
        about: What the role gave with it, as the write.
        effects: Objects as they are now, in order.
        error: What it raised; None when it went well.
        is_stopped: Writing to the cluster is switched off; nothing more was sent.
        fatal: The shift cannot go on.
    """

    key: K
    about: Any = None
    effects: tuple[Effect, ...] = ()
    error: Exception | None = None
    is_stopped: bool = False
    fatal: BaseException | None = None


class Pool(Generic[K]):
    """Threads by lane; a cluster that hangs keeps only its own lane waiting.

    Args:
        answer: Takes every answer, from any thread.
        threads: For each lane.
        name: Of the threads.
    """

    def __init__(self, answer: Callable[[Answer[K]], None], *, threads: int, name: str) -> None:
        self._answer, self._threads, self._name = answer, threads, name
        self._lanes: dict[str, tuple[Executor, Turns[Callable[[], None]]]] = {}
        self._lock = Lock()

    def start(self, key: K, work: Work, *, about: Any = None, lane: str = "") -> None:
        """Start work.

        Args:
            key: Goes into the answer.
            work: Runs in a thread.
            about: Goes into the answer.
            lane: Which threads: usually the cluster that it goes to.
        """
        found = self._lanes.get(lane)
        if found is None:
            name = f"{self._name}-{lane}" if lane else self._name
            found = Executor(self._threads, name=name), Turns()
            self._lanes[lane] = found
        executor, turns = found
        with self._lock:
            turns.add(namespace_of(key), partial(self._run, key, work, about))
        executor.submit(self._run_next, turns)

    def close(self) -> None:
        """Starts nothing more and waits for what is under way."""
        for executor, _ in self._lanes.values():
            executor.shutdown(wait=True, cancel_futures=True)

    def _run_next(self, turns: Turns[Callable[[], None]]) -> None:
        with self._lock:
            run = turns.next()
        assert run is not None  # as many are asked for as were added
        run()

    def _run(self, key: K, work: Work, about: Any) -> None:
        effects: list[Effect] = []
        error: Exception | None = None
        fatal: BaseException | None = None
        is_stopped = False
        try:
            work(effects)
        except WritingStopped:
            is_stopped = True
        except LeaseLost as lost:
            fatal = lost
        except Exception as raised:
            error = raised
        except BaseException as broken:  # it ends the shift, in the shift's own thread
            fatal = broken
        self._answer(Answer(key, about, tuple(effects), error, is_stopped, fatal))


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends several writes of one piece of work to one cluster.

    Attributes:
        cluster: The name that its watches tell.
        client: For reading.
        writer: For writing.
        effects: Takes what each object is afterwards.
    """

    cluster: str
    client: KubeClient
    writer: Writer
    effects: list[Effect]

    def send(self, write: Write) -> dict[str, Any] | None:
        """Send one write; what it shows is noted, unless it only asked."""
        document = self.writer.send(write)
        if not write.is_dry_run:
            self.effects.append(Effect(self.cluster, write.resource, write.key, document))
        return document

    def note(self, resource: Resource, document: dict[str, Any]) -> None:
        """An object was read."""
        self.effects.append(Effect(self.cluster, resource, key_of(document), document))


def sending(writer: Writer, write: Write, *, cluster: str) -> Work:
    """The work of one write; of a deletion the watch tells, for a finalizer may keep the object.

    Args:
        writer: Of the cluster.
        write: What to send.
        cluster: The name that its watches tell.
    """

    def work(effects: list[Effect]) -> None:
        document = writer.send(write)
        if document is not None and not write.is_dry_run:
            effects.append(Effect(cluster, write.resource, write.key, document))

    return work


def reading(client: KubeClient, targets: Iterable[Target], *, cluster: str) -> Work:
    """The work of reading objects anew; what is not there any more is an effect, too."""

    def work(effects: list[Effect]) -> None:
        for resource, key in targets:
            namespace, _, name = key.rpartition("/")
            document: dict[str, Any] | None = None
            try:
                document = client.get(resource, name, namespace=namespace or None)
                document.setdefault("kind", resource.kind)
            except NotFound:
                pass
            effects.append(Effect(cluster, resource, key, document))

    return work
