"""The loop that every role shares: open, take in, decide, carry out, close.

One thread knows and decides; others listen and write. Everything that happens, watch events as
well as answers to own writes, comes through one inbox to the deciding thread. What reading,
deciding or writing one key raises parks that key alone, see ``faults``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import structlog
from django.db import DatabaseError, connection

from clusters.documents.keys import Document, key_of, without_writers
from clusters.errors import ClusterError, Conflict, Invalid, NotFound, Retryable
from clusters.kube.client import EVERYTHING, Selection
from clusters.kube.resources import Resource
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.cache import Cache, Effect, Index
from clusters.reconcile.runtime.faults import PARKED_CAP_S, Doing
from clusters.reconcile.runtime.pool import Answer, Pool, Work, reading, sending
from clusters.reconcile.runtime.queue import WorkQueue
from clusters.reconcile.runtime.recorder import Recorder
from clusters.reconcile.runtime.rows import is_away
from clusters.reconcile.runtime.watches import Change, Inbox, Keep, Seen, Watches
from clusters.reconcile.runtime.writer import Hook, Write, Writer, no_fault

log = structlog.stdlib.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
DATABASE_PAUSE_S: Final = 1.0
INBOX_LIMIT: Final = 5_000
"""So much lies in the inbox before watches wait: a cluster that tells more than is taken in is
slowed by its own connection."""
INBOX_WAIT_S: Final = 1.0
"""No longer with each of them, so that a watch that is to end does."""
HANDLING_S: Final = 0.1
"""So long a turn handles keys: thousands of one tenant keep nobody's news waiting."""
REREAD: Final = "reread"
"""What an answer is about that read objects again after a failure."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One kind that a role watches.

    Attributes:
        selection: Which of it.
        is_optional: A cluster that does not serve it, or forbids it, is worked on without it.
        keep: What of a document is kept and told.
    """

    resource: Resource
    selection: Selection = EVERYTHING
    is_optional: bool = False
    keep: Keep = without_writers


class Controller(Generic[K]):
    """One shift of one role; a role is a subclass.

    A role gives :meth:`watched` and :meth:`decide`, its indexes, and where keys are not those of
    the objects :meth:`keys_of`. All else has a default.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        indexes: Over the cache.
        cluster: What watches call the cluster; its slug when not given.
        cache: A cache with indexes of its own, in place of ``indexes``.

    Attributes:
        cache: What is known of the cluster.
        queue: Which keys are to be looked at.
        pool: Threads that write.
        writer: For the cluster.
        recorder: Tells Events to it.
        faults: Where a key's fault ends.
    """

    tick_s: ClassVar[float] = 0.1
    """So long a turn waits for news where nothing is to be done."""
    threads: ClassVar[int] = 8
    """Writers of each lane."""
    most_under_way: ClassVar[int] = sys.maxsize
    """So many keys are written at once, and one more of each namespace that has none among them;
    the next are those of each in turn: for a role whose writes go to one cluster, so that one that
    hangs holds up no other."""
    pause_s: float = 0.0
    """So long it rests after each turn, so that more is done together; a role may change it."""
    waits_for_lists: ClassVar[bool] = True
    """The first turn comes after the first whole lists."""
    resync_s: float = 0.0
    """All keys are looked at again after so many seconds, 0 for never; a role may change it."""
    handles_always: ClassVar[bool] = False
    """Keys are handled also while the cluster may not be written to."""
    follows_configuration: ClassVar[bool] = False
    """The shift ends when the cluster's Kueue Configuration changed; the next one begins anew."""

    def __init__(
        self,
        context: ShiftContext,
        *,
        hook: Hook = no_fault,
        indexes: Iterable[Index] = (),
        cluster: str | None = None,
        cache: Cache | None = None,
    ) -> None:
        slug = context.cluster.slug
        self.context, self.faults = context, context.faults
        self.cluster = slug if cluster is None else cluster
        self.cache = Cache(indexes) if cache is None else cache
        self.queue: WorkQueue[K] = WorkQueue()
        self.inbox: Inbox[Any] = Inbox()
        self.pool: Pool[K] = Pool(
            self.inbox.put, threads=self.threads, name=f"{slug}-{context.role or 'role'}"
        )
        writer = partial(
            Writer,
            context.client,
            cluster=slug,
            fence=context.fence,
            may_write=lambda: self.may_write,
        )
        self.writer = writer(hook=hook)
        self.recorder = Recorder(writer(), cluster=slug, now=context.now)
        self.watches = Watches(
            context.client, cluster=self.cluster, pulse=context.pulse, sink=self.tell
        )
        self._configuration = context.cluster.kueue_configuration
        self._unread: dict[str, Seen] = {}
        self._reading: WorkQueue[str] = WorkQueue(cap_s=PARKED_CAP_S)
        self._unsure: dict[K, Work] = {}
        self._resynced_at = time.monotonic()
        # From the first whole lists on, which come in before anything is taken, to the end.
        self._is_taking = False

    # What a role gives

    def watched(self) -> Iterable[Watched]:
        """The kinds that it watches; the first lists are taken in in this order."""
        raise NotImplementedError

    def keys_of(self, seen: Seen) -> Iterable[K]:
        """The keys that an event concerns, asked once the cache has it; the object's by default."""
        return [key_of(seen.document)]  # type: ignore[list-item]

    def decide(self, key: K) -> Write | None:
        """The next write about a key, by what the cache has; None when nothing is to be done.

        It is asked again once the answer to the write was taken.
        """
        raise NotImplementedError

    # What a role may do in its own way

    def cache_of(self, cluster: str) -> Cache | None:
        """The cache of a cluster that watches tell of; None where none is kept any more."""
        return self.cache

    def take(self, seen: Seen) -> None:
        """Take in what a watch, an answer or a reading told of one object."""
        cache = self.cache_of(seen.cluster)
        if cache is None:
            return
        put = cache.drop if seen.change is Change.DELETED else cache.put
        if put(seen.resource, seen.document):
            self.queue.add_all(self.keys_of(seen))

    def tell(self, seen: Seen) -> None:
        """Put what a watch tells into the inbox, once there is room; called by watches' threads."""
        ends = time.monotonic() + INBOX_WAIT_S
        while len(self.inbox) >= INBOX_LIMIT and self._is_taking and time.monotonic() < ends:
            time.sleep(self.tick_s / 10)
        self.inbox.put(seen)

    def take_other(self, item: Any) -> None:
        """Take in what else the role puts into the inbox."""

    def listed(self, seen: Seen) -> None:
        """A whole list was told, and taken in."""

    def opened(self) -> None:
        """The first lists were taken in, if it waits for them; before the first turn."""

    def look(self) -> None:
        """Once a turn, before keys are handled: time, connections, what the database says."""

    def handle(self, key: K) -> None:
        """Do what is to be done about a key that is neither busy nor held."""
        write = self.decide(key)
        if write is not None:
            self.send(key, write)

    def answered(self, answer: Answer[K]) -> None:
        """Work went well; its effects are in the cache, and its key will be looked at again."""

    def failed(self, answer: Answer[K]) -> None:
        """Work went wrong; its key is held, and read again before it is looked at."""

    def reread(self, answer: Answer[K]) -> Work | None:
        """What to read before a key whose work failed is looked at; None for nothing."""
        write = answer.about
        if not isinstance(write, Write):
            return None
        targets = [(write.resource, write.key)]
        return reading(self.context.client, targets, cluster=self.cluster)

    def concerned(self, key: K) -> Iterable[K]:
        """What is looked at once the work of a key, or its hold, is over; itself by default."""
        return (key,)

    def all_keys(self) -> Iterable[K]:
        """Everything that is looked at in a sweep."""
        return ()

    def says(self, key: K) -> str:
        """What people call a key."""
        return str(key)

    def closing(self) -> None:
        """The shift ends; nothing is written any more."""

    # What a role calls

    @property
    def may_write(self) -> bool:
        """Whether the cluster may be written to now."""
        return self.context.cluster.may_write

    def send(self, key: K, write: Write, *, lane: str = "") -> None:
        """Send one write; the key is busy until its answer was taken."""
        work = sending(self.writer, write, cluster=self.cluster)
        self.start(key, work, about=write, lane=lane)

    def start(self, key: K, work: Work, *, about: Any = None, lane: str = "") -> None:
        """Start work in a thread; the key is busy until its answer was taken."""
        self.queue.begin(key)
        self.pool.start(key, work, about=about, lane=lane)

    def park(self, key: K, error: Exception, *, doing: Doing) -> None:
        """Set a key aside for what it raised, longer each time, and tell of it.

        Raises:
            LeaseLost: the same error: it ends the shift.
        """
        self.faults.park(self.says(key), error, doing=doing)
        self._set_back(key)

    def _set_back(self, key: K) -> None:
        least_s = self.faults.pause_s
        self.queue.retry(key, time.monotonic(), cap_s=PARKED_CAP_S, least_s=least_s)

    @property
    def _is_full(self) -> bool:
        return self.queue.load >= self.most_under_way

    @property
    def _may_handle(self) -> bool:
        return self.handles_always or self.may_write

    # The loop

    def run(self) -> None:
        """Works until the shift ends.

        Raises:
            LeaseLost: nothing was written after it.
        """
        try:
            if self.open():
                self.context.begun()
                self._is_taking = True
                while not self.context.stop.is_set() and self.is_same_configuration():
                    self.turn_with_database()
                    if self.pause_s:
                        self.context.stop.wait(self.pause_s)
        finally:
            self.close()

    def open(self) -> bool:
        """Begin to watch and take the first whole lists in; False when told to stop before."""
        self.context.report_watch_age(self.watches.age)
        rank: dict[Resource, int] = {}
        for item in self.watched():
            rank[item.resource] = len(rank)
            self.watches.add(
                item.resource,
                selection=item.selection,
                is_optional=item.is_optional,
                keep=item.keep,
            )
        if not self.waits_for_lists:
            self.opened()
            return True
        if not self.watches.wait_synced(self.context.stop):
            return False
        listed = self.inbox.take(everything=True)
        listed.sort(key=lambda item: rank[item.resource] if isinstance(item, Seen) else len(rank))
        for item in listed:
            self._take_item(item)
        self.opened()
        return True

    def turn(self) -> None:
        """Take in what came, and handle every key that is ready.

        Raises:
            LeaseLost: nothing was written after it.
        """
        self.take_in()
        self.pass_time()
        self.look()
        if self._may_handle:
            self.handle_all()

    def close(self) -> None:
        """End what :meth:`open` began."""
        self._is_taking = False
        self.watches.close()
        self.pool.close()
        self.recorder.close()
        self.closing()

    def is_same_configuration(self) -> bool:
        """Whether the shift may go on with what it read of Kueue's Configuration."""
        if not self.follows_configuration:
            return True
        return self.context.cluster.kueue_configuration == self._configuration

    def turn_with_database(self) -> None:
        """A turn; where the database fails, it is tried again and no key is blamed for it."""
        try:
            self.turn()
        except DatabaseError as error:
            log.warning(
                "turn_interrupted",
                cluster=self.context.cluster.slug,
                role=self.context.role,
                error=type(error).__name__,
            )
            connection.close()
            self.context.stop.wait(DATABASE_PAUSE_S)

    # What comes in

    def settle(self) -> None:
        """Take in what comes until the answers to all work that was started are there."""
        while self.queue.load:
            for item in self.inbox.take(wait_s=self.tick_s):
                self._take_item(item)

    def take_in(self, *, everything: bool = False) -> None:
        """Take in what has come; wait for something where nothing is to be done.

        Args:
            everything: All of it, without waiting.
        """
        wait_s = 0.0 if everything else self.idle_s()
        for item in self.inbox.take(wait_s=wait_s, everything=everything):
            self._take_item(item)

    def idle_s(self) -> float:
        """How long nothing is to be done unless something comes in."""
        if self.queue.ready and self._may_handle and not self._is_full:
            return 0.0
        wait_s = self.queue.wait_s(time.monotonic())
        return self.tick_s if wait_s is None else min(self.tick_s, wait_s)

    def _take_item(self, item: Any) -> None:
        if isinstance(item, Seen):
            if item.change is Change.SYNCED:
                self.listed(item)
            else:
                self.take_safely(item)
        elif isinstance(item, Answer):
            self._take_answer(item)
        else:
            self.take_other(item)

    def take_safely(self, seen: Seen) -> bool:
        """Take one object in; what reading it raises sets it aside and nobody else.

        Returns:
            Whether it could be read.
        """
        try:
            self.take(seen)
        except Exception as error:
            subject = _subject(seen, self.cluster)
            self._unread[subject] = seen
            self.faults.park(subject, error, doing=Doing.READING)
            self._reading.retry(subject, time.monotonic())
            return False
        if self._unread:
            self._was_read(_subject(seen, self.cluster))
        return True

    def unread(self, subject: str) -> Document | None:
        """What was told last of an object, as ``Job team-a/train``, if it could not be read."""
        seen = self._unread.get(subject)
        return seen.document if seen is not None else None

    def _was_read(self, subject: str) -> None:
        if self._unread.pop(subject, None) is not None:
            self._reading.drop(subject)
            self.faults.clear(subject)

    def _take_answer(self, answer: Answer[K]) -> None:
        key = answer.key
        self.queue.done(key)
        if answer.fatal is not None:
            raise answer.fatal
        is_read = True
        for effect in answer.effects:
            is_read &= self.take_effect(effect)
        if answer.error is not None:
            self._take_failure(answer, answer.error)
            return
        if not is_read:
            # What was written cannot be seen: written again at once, it would be so for ever.
            self._set_back(key)
        elif answer.about is REREAD:
            self._unsure.pop(key, None)
        elif not answer.is_stopped:
            self.went_well(key)
            try:
                self.answered(answer)
            except Exception as error:
                self.park(key, error, doing=Doing.READING)
        self.queue.add_all(self.concerned(key))

    def take_effect(self, effect: Effect) -> bool:
        """Take in at once what a watch would tell later; whether it could be read."""
        document, change = effect.document, Change.UPSERT
        cache = self.cache_of(effect.cluster)
        if document is None:
            document = cache.get(effect.resource, effect.key) if cache is not None else None
            change = Change.DELETED
        elif cache is not None and not self._unread and cache.has(effect.resource, document):
            return True  # its watch was quicker
        if document is None:
            return True
        return self.take_safely(Seen(change, effect.cluster, effect.resource, document))

    def _take_failure(self, answer: Answer[K], error: Exception) -> None:
        key, now = answer.key, time.monotonic()
        if not isinstance(error, ClusterError) or isinstance(error, Invalid):
            self.park(key, error, doing=Doing.WRITING)
        else:
            least_s = 0.0 if isinstance(error, Retryable) else self.faults.pause_s
            is_race = isinstance(error, Conflict)
            wait_s = self.queue.retry(key, now, is_race=is_race, least_s=least_s)
            if wait_s and not isinstance(error, NotFound):
                self._tell_failure(answer, error)
        again = self._unsure.get(key) if answer.about is REREAD else self.reread(answer)
        if again is not None:
            self._unsure[key] = again
        if answer.about is not REREAD:
            self.failed(answer)

    def _tell_failure(self, answer: Answer[K], error: ClusterError) -> None:
        about = answer.about
        log.warning(
            "write_failed",
            cluster=self.context.cluster.slug,
            role=self.context.role,
            key=self.says(answer.key),
            step=getattr(about, "step", about),
            reason=error.reason,
            message=error.message,
        )
        if not isinstance(error, Retryable):
            self.faults.park(self.says(answer.key), error, doing=Doing.WRITING)

    def went_well(self, key: K) -> None:
        """Failures in a row are over, and nothing is parked."""
        self.queue.forget(key)
        self._unsure.pop(key, None)
        if self.faults.standing.parked:
            self.faults.clear(self.says(key))

    # Time

    def pass_time(self) -> None:
        """Wake what waited for this time; read again what failed, before it is looked at."""
        moment = time.monotonic()
        for key in self.queue.wake(self.context.now(), moment):
            again = self._unsure.get(key)
            if again is not None:
                self.start(key, again, about=REREAD)
            else:
                self.queue.add_all(self.concerned(key))
        if self._unread:
            for subject in self._reading.wake(self.context.now(), moment):
                self.take_safely(self._unread[subject])
        if self.resync_s and moment - self._resynced_at > self.resync_s:
            self._resynced_at = moment
            self.queue.add_all(self.all_keys())

    # Deciding

    def handle_all(self) -> None:
        """Handle every key that is ready; what one of them raises is its own.

        Namespaces take turns. Where more is to be written than is sent at once, one that has
        nothing under way does not wait for those that have; where handling takes long, what came
        meanwhile is taken in before the rest of it.
        """
        ends = time.monotonic() + HANDLING_S
        for _ in range(self.queue.ready):
            key = self.queue.next(self.most_under_way)
            if key is None:
                return
            try:
                self.handle(key)
            except Exception as error:
                if is_away(error):
                    self.queue.add(key)
                    raise
                self.park(key, error, doing=Doing.DECIDING)
            else:
                if self.queue.is_free(key):
                    self.went_well(key)
            if time.monotonic() > ends:
                return


def _subject(seen: Seen, cluster: str) -> str:
    where = f" on {seen.cluster}" if seen.cluster != cluster else ""
    return f"{seen.resource.kind} {_name_of(seen.document)}{where}"


def _name_of(document: Document) -> str:
    try:
        return key_of(document)
    except (KeyError, TypeError, AttributeError):
        return "without a name"
