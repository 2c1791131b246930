"""What a process of a cluster is made to do in tests; it is asked by the role of the order."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

from clusters.reconcile import beginning
from clusters.reconcile.processes import BEGINS_S, STACK, TICK_S, Order, Processes
from clusters.reconcile.runtime.faults import Doing, Faults
from clusters.reconcile.runtime.threads import Executor, start
from clusters.reconcile.shift import Ending, ShiftOutcome

MIB = 1024**2


def do(order: Order, stop: threading.Event) -> ShiftOutcome:
    """The deed that the order's role names; the outcome's message is what it found."""
    match order.role:
        case "eats":
            eat()
        case "eats beside":
            threading.Thread(target=eat).start()
            stop.wait(30)
        case "eats and sets aside":
            try:
                eat()
            except MemoryError as error:
                Faults(order.slug).park("Job a/b", error, doing=Doing.READING)
            stop.wait(30)
        case "crashes":
            os.abort()
        case "leaves":
            os._exit(3)
        case "says its gate":
            return ShiftOutcome(Ending.STOPPED, beginning.folder())
        case "raises":
            raise RuntimeError("nobody thought of this")
        case "reads its limit":
            return ShiftOutcome(Ending.STOPPED, str(resource.getrlimit(resource.RLIMIT_DATA)[0]))
        case "has threads" | "has threads at once":
            ready = [threading.Thread(target=stop.wait, args=(2.0,)) for _ in range(60)]
            for each in ready:
                each.start()
                if order.role == "has threads":
                    time.sleep(0.02)
            return ShiftOutcome(Ending.STOPPED, str(len(ready)))
        case "has threads when it is full" | "has a pool when it is full":
            return ShiftOutcome(Ending.STOPPED, str(when_full(order.role, stop)))
        case _:
            stop.wait(order.seconds)
    return ShiftOutcome(Ending.HANDED_OVER, str(os.getpid()))


def eat() -> None:
    """Ever more, up to what a machine can spare where nothing limits it."""
    kept = []
    for _ in range(1_000):
        kept.append(bytearray(MIB))
        time.sleep(0.001)


def when_full(role: str, stop: threading.Event) -> int:
    """How many threads it can start at once, long after its beginning, with its memory in use."""
    count, kept = 60, []
    pool = Executor(count, name="full") if "pool" in role else None
    stop.wait(BEGINS_S + 2 * TICK_S)
    while unused() > (0 if pool is None else STACK * count) + 4 * MIB:
        kept.append(bytearray(MIB))
    if pool is None:
        for _ in range(count):
            start(threading.Thread(target=stop.wait, args=(2.0,)))
        return count
    together = threading.Barrier(count)
    return len([done.result() for done in [pool.submit(together.wait, 30) for _ in range(count)]])


def unused() -> int:
    """Bytes of data that this process may still ask for."""
    told = Path("/proc/self/status").read_text()
    used = next(line for line in told.splitlines() if line.startswith("VmData:"))
    return resource.getrlimit(resource.RLIMIT_DATA)[0] - 1024 * int(used.split()[1])


def main(marks: str) -> None:
    """Works one long shift, and says who does."""
    processes = Processes(memory=300 * MIB, does=do)
    order = Order("east", "works", 60, "h")
    threading.Thread(target=processes.work, args=(order,), daemon=True).start()
    while not processes.pids():
        time.sleep(0.01)
    time.sleep(0.5)
    Path(marks).write_text(str(processes.pids()["east"]))
    time.sleep(60)
