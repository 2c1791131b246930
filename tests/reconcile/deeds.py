"""What a process of a cluster is made to do in tests; it is asked by the role of the order."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

from clusters.reconcile import beginning
from clusters.reconcile.processes import Order, Processes
from clusters.reconcile.runtime.faults import Doing, Faults
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
        case _:
            stop.wait(order.seconds)
    return ShiftOutcome(Ending.HANDED_OVER, str(os.getpid()))


def eat() -> None:
    """Ever more, up to what a machine can spare where nothing limits it."""
    kept = []
    for _ in range(1_000):
        kept.append(bytearray(MIB))
        time.sleep(0.001)


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
