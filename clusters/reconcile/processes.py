"""A process for the shifts of each cluster, with a limit of memory that the operating system keeps.

What takes shifts from the broker talks to no cluster: it has a child for each cluster, and one more
for dispatch, which reads other clusters, too. A child that needs more than its limit, hangs or
crashes ends alone: its shifts are told as failed, and it is started again after a pause that grows.

The children are forked from a process that has loaded the product and done nothing else, so that
they share what it holds. Source: Python ``multiprocessing`` forkserver; Linux ``setrlimit(2)``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

import structlog
from django.db import connections

from clusters.models import ShiftRun
from clusters.reconcile import beginning, claims
from clusters.reconcile.runtime.threads import COMING
from clusters.reconcile.shift import Ending, ShiftOutcome, run_shift
from clusters.signals import end_of

log = structlog.stdlib.get_logger(__name__)

PRELOADED: Final = "clusters.reconcile.preloaded"
TICK_S: Final = 0.5
HUNG_S: Final = 60.0
"""A child that has said nothing for so long is killed: it says something with every tick."""
GRACE_S: Final = 60.0
"""So much longer than its time may a shift take to hand over."""
FIRST_REST_S, LONGEST_REST_S = 5.0, 300.0
LIVED_S: Final = 900.0
"""Who lived for so long rests as if it had died for the first time."""
OUT_OF_MEMORY: Final = 77
"""Exit code of a child that could not have the memory that it asked for."""
STACK: Final = 4 * 1024**2
"""Bytes of address space for a thread's stack. They count as data, though hardly any is used: the
limit is higher by that of the threads there are. A recursion that Python ends takes 1.8 MiB."""
BEGINS_S: Final = 5.0
THREADS: Final = 16
"""So many threads has a shift that begins room for at once, for so long."""
_limiting = threading.Lock()


def place_of(slug: str, role: str) -> str:
    """Which process works the shift; dispatch has one of its own."""
    return f"{slug}/{role}" if role == ShiftRun.Role.DISPATCH else slug


@dataclass(frozen=True, slots=True)
class Order:
    """One shift to be worked, as :func:`run_shift` takes it."""

    slug: str
    role: str
    seconds: float
    holder: str


Deed = Callable[[Order, threading.Event], ShiftOutcome]


@dataclass(slots=True)
class _Rest:
    """Why a place has no process now, and until when (monotonic seconds)."""

    deaths: int = 0
    until: float = 0.0


@dataclass(slots=True)
class _Child:
    """A process as its parent knows it."""

    process: Any
    orders: Connection
    began: float
    waiting: dict[str, Future[ShiftOutcome]] = field(default_factory=dict)
    words: str = ""


class Processes:
    """The children of this worker, by place; safe to use from all of its threads.

    Args:
        memory: Bytes of data that each of them may have.
        does: What a child does with an order; works the shift when not given.
        idle_s: A child that has no shift for so long ends.
    """

    def __init__(self, *, memory: int, does: Deed | None = None, idle_s: float = 30.0) -> None:
        self._given = memory, does or work, idle_s
        self._lock = threading.Lock()
        self._children: dict[str, _Child] = {}
        self._rests: dict[str, _Rest] = {}
        self._is_over = False
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED])

    def work(self, order: Order) -> ShiftOutcome:
        """Have a shift worked, and wait for its end.

        Returns:
            How it ended; FAILED with a sentence where its process did not live to say so.
        """
        place = place_of(order.slug, order.role)
        with self._lock:
            if self._is_over or self._rest_s(place) > 0:
                return ShiftOutcome(Ending.STOPPED, "its process rests")
            child = self._children.get(place) or self._start(place)
            ended = child.waiting[order.holder] = Future[ShiftOutcome]()
            with contextlib.suppress(OSError):  # it is dead: whoever listens to it tells
                child.orders.send(order)
        try:
            outcome = ended.result(order.seconds + GRACE_S)
        except TimeoutError:
            self._kill(child, f"The {order.role} shift did not end in time.")
            outcome = ended.result(GRACE_S)
        if child.words:
            claims.end_lost(order.holder, str(outcome))
        return outcome

    def stop(self) -> None:
        """Have every shift handed over; no new one is worked."""
        with self._lock:
            self._is_over = True
            for child in self._children.values():
                with contextlib.suppress(OSError):
                    child.orders.send(None)

    def pids(self) -> dict[str, int]:
        """The processes there are, by place."""
        with self._lock:
            return {place: child.process.pid for place, child in self._children.items()}

    def _rest_s(self, place: str) -> float:
        return self._rests[place].until - time.monotonic() if place in self._rests else 0.0

    def _start(self, place: str) -> _Child:
        mine, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve,
            args=(theirs, *self._given, beginning.folder()),
            name=place,
            daemon=True,
        )
        process.start()
        theirs.close()
        child = self._children[place] = _Child(process, mine, time.monotonic())
        log.info("shift_process_begins", place=place, pid=process.pid)
        threading.Thread(target=self._listen, args=(place, child), daemon=True).start()
        return child

    def _listen(self, place: str, child: _Child) -> None:
        """Takes what a child says, until it says nothing more."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                # Asked twice: one that was stopped itself finds its time over before it looks.
                if not (child.orders.poll(HUNG_S) or child.orders.poll(TICK_S)):
                    self._kill(child, f"It said nothing for {HUNG_S:.0f} s.")
                    break
                told = child.orders.recv()
                if told is not None:
                    holder, outcome = told
                    with self._lock:
                        ended = child.waiting.pop(holder, None)
                    if ended is not None:
                        ended.set_result(outcome)
        child.process.join()
        self._buried(place, child)

    def _kill(self, child: _Child, why: str) -> None:
        child.words = child.words or why
        child.process.kill()

    def _buried(self, place: str, child: _Child) -> None:
        """A child is gone: what waits for it hears why, and its place rests where it died."""
        code = child.process.exitcode
        with self._lock:
            self._children.pop(place, None)
            waiting, child.waiting = child.waiting, {}
            rest_s = 0.0
            if code != 0 and not self._is_over:
                rest_s = self._lay_to_rest(place, lived_s=time.monotonic() - child.began)
                child.words = child.words or _cause(code, self._given[0])
        child.orders.close()
        words = (
            f"The process of {place} ended. {child.words} Other clusters are not concerned; it is"
            f" started again in {rest_s:.0f} s."
        )
        if child.words:
            log.error("shift_process_died", place=place, code=code, words=words)
        outcome = (
            ShiftOutcome(Ending.FAILED, words) if child.words else ShiftOutcome(Ending.STOPPED)
        )
        for ended in waiting.values():
            ended.set_result(outcome)

    def _lay_to_rest(self, place: str, *, lived_s: float) -> float:
        rest = self._rests.setdefault(place, _Rest())
        rest.deaths = 1 if lived_s > LIVED_S else rest.deaths + 1
        seconds: float = min(LONGEST_REST_S, FIRST_REST_S * 2 ** min(rest.deaths - 1, 16))
        rest.until = time.monotonic() + seconds
        return seconds


def _cause(code: int, memory: int) -> str:
    """Why a process ended, for people, from its exit code."""
    if code == OUT_OF_MEMORY:
        return f"It needed more memory than SHIFT_MEMORY_MB allows ({memory // 1024**2:,} MiB)."
    if code == -signal.SIGKILL:
        return "It was killed, as the operating system does where memory runs out."
    return f"It crashed ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})."


# In the child


def work(order: Order, stop: threading.Event) -> ShiftOutcome:
    """Works a shift in this process, until it is told to stop."""
    return run_shift(order.slug, order.role, stop=stop, seconds=order.seconds, holder=order.holder)


def _serve(orders: Connection, memory: int, does: Deed, idle_s: float, gate: str) -> None:
    """Works the shifts that it is told of; ends when told to, or when its parent is gone."""
    beginning.share(gate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
    threading.stack_size(STACK)
    stop = end_of(signal.SIGTERM)
    threading.excepthook = _on_thread_error
    saying = threading.Lock()
    working: set[threading.Thread] = set()
    begun: list[float] = []
    COMING.on_more = lambda: _limit(memory, beginning=len(begun))

    def say(told: object) -> None:
        with saying, contextlib.suppress(OSError):
            orders.send(told)

    def begin(order: Order) -> None:
        outcome = ShiftOutcome(Ending.FAILED, "ended by an unexpected error")
        try:
            outcome = does(order, stop)
        except MemoryError:
            _die_of_memory()
        except Exception as error:
            log.exception("shift_broke", cluster=order.slug, role=order.role)
            outcome = ShiftOutcome(Ending.FAILED, f"{type(error).__name__}: {error}")
        finally:
            connections.close_all()
        say((order.holder, outcome))

    worked_at = time.monotonic()
    while not stop.is_set():
        begun = [at for at in begun if time.monotonic() - at < BEGINS_S]
        _limit(memory, beginning=len(begun))
        say(None)
        try:
            if orders.poll(TICK_S):
                order = orders.recv()
                if order is None:
                    break
                thread = threading.Thread(target=begin, args=(order,), name=order.role)
                working.add(thread)
                begun.append(time.monotonic())
                _limit(memory, beginning=len(begun))
                thread.start()
        except (EOFError, OSError):
            break
        working = {thread for thread in working if thread.is_alive()}
        if working:
            worked_at = time.monotonic()
        elif time.monotonic() - worked_at > idle_s:
            break
    stop.set()
    while working := {thread for thread in working if thread.is_alive()}:
        say(None)
        time.sleep(TICK_S)


def _limit(memory: int, *, beginning: int) -> None:
    """Ask the operating system to keep to a limit; what stacks may take comes on top.

    Those of the threads there are, and of those that may start before the next look: those that are
    told of, two, and more for each shift that is beginning.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    with _limiting:  # who counted fewer threads does not have the last word
        threads = threading.active_count() + COMING.count + 2 + THREADS * beginning
        allowed = memory + STACK * threads
        if hard != resource.RLIM_INFINITY:
            allowed = min(allowed, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def _on_thread_error(told: threading.ExceptHookArgs) -> None:
    if issubclass(told.exc_type, MemoryError):
        _die_of_memory()
    thread = told.thread.name if told.thread is not None else ""
    log.error("thread_broke", thread=thread, exc_info=told.exc_value)


def _die_of_memory() -> None:
    """At once: whatever is still done here may be done in part."""
    os._exit(OUT_OF_MEMORY)
