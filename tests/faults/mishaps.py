"""Puts the accidents of a plan on a house and its clusters, and takes them off again."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, Propagation
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import LOOPBACK
from tests.faults.accidents import WITH_CHILDREN, Accident, Plan
from tests.faults.furnish import MONTHS
from tests.faults.ground import Ground, job_of
from tests.faults.house import FAKETIME, House
from tests.faults.observer import JOBS, Observer
from tests.faults.schedule import Arrival
from tests.faults.timeline import MANAGER, outcome
from tests.reconcile.admission_harness import NS

WRITES_AGO = 1_000
MOST_OPEN = 12
"""Who sees so many jobs that have not ended submits no more: a rest is of what was broken, and not
of what had gathered meanwhile."""
CLOSE = """
from pathlib import Path
from budgets.models import User
from budgets.services import billing
Path({mark!r}).touch()
billing.close_period(User.objects.get(username='fin'), month={month!r})
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An etcd's folder as it was at a time and a revision."""

    folder: Path
    at: float
    revision: int


class Mishaps:
    """One run's accidents and its people's deeds.

    Args:
        plan: What happens, and when.
        house: The portal.
        ground: Its clusters.
        observer: Told when a cluster's history is another one.
        folder: For snapshots.
        writes_ago: So old at least is what an etcd comes back with.
    """

    def __init__(
        self,
        plan: Plan,
        house: House,
        ground: Ground,
        observer: Observer,
        folder: Path,
        *,
        writes_ago: int = WRITES_AGO,
    ) -> None:
        self._writes_ago = writes_ago
        self._plan, self._house, self._ground = plan, house, ground
        self._observer, self._folder = observer, folder
        self._pool = ThreadPoolExecutor(24, thread_name_prefix="mishap")
        self._busy: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._snapshots: dict[str, list[Snapshot]] = defaultdict(list)
        self._under_way: list[Future[None]] = []
        self.months = [f"{month:%Y-%m}" for month in months_over()]
        self.to_close: list[str] = []
        self.done: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.thrown_back: list[int] = []
        self.broken_at: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.away: list[tuple[str, float, float]] = []

    def play(self) -> None:
        """Everything in its time; returns when the last accident is over.

        Raises:
            Exception: what an accident's own machinery raised.
        """
        begun = time.monotonic()
        deeds: list[tuple[float, Any, Any]] = [
            *((one.at_s, self._befall, one) for one in self._plan.accidents),
            *((one.at_s, self._submit, one) for one in self._plan.arrivals),
            *(
                (one.deleted_at_s, self._delete, one)
                for one in self._plan.arrivals
                if one.deleted_at_s is not None
            ),
        ]
        for at, deed, about in sorted(deeds, key=lambda row: row[0]):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            self._under_way.append(self._pool.submit(deed, about))
        for future in self._under_way:
            future.result(timeout=240)

    # People

    def _submit(self, arrival: Arrival) -> None:
        if sum(not outcome(job) for job in self._observer.now(MANAGER, JOBS)) >= MOST_OPEN:
            self.left_out["arrival"] += 1
            return
        document = job_of(arrival)
        for _ in range(120):
            try:
                self._ground.clients[MANAGER].create(r.JOB, document)
            except ClusterError as error:
                if "AlreadyExists" in error.reason:
                    break
                time.sleep(0.5)
                continue
            self.done["arrival"] += 1
            return

    def _delete(self, arrival: Arrival) -> None:
        options = DeleteOptions(propagation=Propagation.BACKGROUND)
        with contextlib.suppress(ClusterError):
            self._ground.clients[MANAGER].delete(r.JOB, arrival.name, namespace=NS, options=options)
            self.done["deletion"] += 1

    # Accidents

    def _befall(self, one: Accident) -> None:
        with self._busy[one.whom or one.kind]:
            happened = getattr(self, f"_{one.kind}")(one)
        counts = self.left_out if happened is False else self.done
        counts[one.kind] += 1

    def _kill(self, one: Accident) -> None:
        self._house.kill(one.whom)

    def _child(self, one: Accident) -> bool:
        # One of them may work all shifts, or have just begun.
        others = (name for name in WITH_CHILDREN if name != one.whom)
        return any(self._house.kill_child(name, one.nth) for name in (one.whom, *others))

    def _pause(self, one: Accident) -> None:
        self._house.pause(one.whom)
        time.sleep(one.seconds)
        self._house.resume(one.whom)

    def _clock(self, one: Accident) -> bool:
        if FAKETIME is None:
            return False
        self._house.set_clock(one.whom, one.jump_s)
        time.sleep(one.seconds)
        self._house.set_clock(one.whom, 0)
        return True

    def _disk(self, one: Accident) -> bool:
        if not self._house.can_be_full:
            return False
        self._house.fill_disk()
        time.sleep(one.seconds)
        self._house.free_disk()
        return True

    def _flush(self, one: Accident) -> None:
        self._house.flush_redis()

    def _failover(self, one: Accident) -> None:
        self._house.fail_over()

    def _close(self, one: Accident) -> bool:
        """A month is closed, and PostgreSQL goes down in the middle of it."""
        if len(self.to_close) == len(self.months):
            return False
        month = self.months[len(self.to_close)]
        self.to_close.append(month)
        mark = self._folder / f"closing-{month}"
        deed = self._house.run(CLOSE.format(mark=str(mark), month=month))
        ends = time.monotonic() + 60
        while not mark.exists() and deed.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        time.sleep(one.seconds / 10)
        self._house.fail_over()
        deed.wait(120)
        return True

    def _api(self, one: Accident) -> None:
        """The API server restarts, and nobody may go on from what was before."""
        place = self._ground.places[one.whom]
        began = time.monotonic()
        if isinstance(place, ControlPlane):
            compact(place)
            place.kill_api_server()
            time.sleep(one.seconds)
            place.start_api_server()
        else:
            place.server.cluster.faults.is_refusing = True
            place.server.cluster.store.end_subscriptions()
            place.server.drop_connections()
            time.sleep(one.seconds)
            place.server.cluster.store.compact()
            place.server.cluster.faults.is_refusing = False
        self.away.append((one.whom, began, time.monotonic()))

    def _etcd(self, one: Accident) -> bool:
        """A cluster comes back with what it held some writes ago."""
        place = self._ground.places[one.whom]
        if not isinstance(place, ControlPlane) or not self._snapshots[one.whom]:
            return False
        now = revision(place)
        old = [row for row in self._snapshots[one.whom] if now - row.revision >= self._writes_ago]
        if not old:
            return False
        snapshot, began = old[-1], time.monotonic()
        restore(place, snapshot)
        self._observer.look_anew(one.whom)
        ended = time.monotonic()
        self._snapshots[one.whom].clear()
        offset = self._observer.wall_offset_s
        span = int(snapshot.at + offset) - 1, int(ended + offset) + 2
        self.broken_at[one.whom].append(span)
        self.thrown_back.append(now - snapshot.revision)
        self.away.append((one.whom, began, ended))
        return True

    def keep_snapshots(self, stop: threading.Event) -> None:
        """Take one of each real cluster now and then; a thread of its own runs it."""
        real = {n: p for n, p in self._ground.places.items() if isinstance(p, ControlPlane)}
        while real and not stop.wait(5.0):
            for name, place in real.items():
                taken = self._snapshots[name]
                with self._busy[name], contextlib.suppress(OSError, ValueError):
                    now = revision(place)
                    if not taken or now - taken[-1].revision >= self._writes_ago // 2:
                        folder = self._folder / f"{name}-{now}"
                        taken.append(snapshot_of(place, folder, now))
                        for row in taken[:-4]:
                            shutil.rmtree(row.folder, ignore_errors=True)
                        del taken[:-4]


def months_over() -> list[datetime]:
    """The first days of the months that are over since ``furnish`` began the books."""
    now = datetime.now(UTC)
    begin = (now - timedelta(days=31 * MONTHS)).replace(day=1)
    found = []
    while (begin.year, begin.month) < (now.year, now.month):
        found.append(begin)
        begin = (begin + timedelta(days=32)).replace(day=1)
    return found


def is_real(place: Any) -> bool:
    """Whether it is an etcd and an API server."""
    return isinstance(place, ControlPlane)


def revision(place: ControlPlane) -> int:
    """How many writes an etcd has taken."""
    key = base64.b64encode(b"x").decode()
    return int(_etcd(place, "/v3/kv/range", {"key": key})["header"]["revision"])


def compact(place: ControlPlane) -> None:
    """Forget all history of an etcd."""
    _etcd(place, "/v3/kv/compaction", {"revision": str(revision(place))})


def _etcd(place: ControlPlane, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(LOOPBACK, place.etcd_port, timeout=20)
    try:
        connection.request("POST", path, body=json.dumps(body))
        return dict(json.loads(connection.getresponse().read()))
    finally:
        connection.close()


def snapshot_of(place: ControlPlane, folder: Path, now: int) -> Snapshot:
    """Copy an etcd's folder while it stands still."""
    etcd = place.programs()["etcd"]
    at = time.monotonic()
    etcd.pause()
    try:
        shutil.copytree(place.folder / "etcd", folder)
    finally:
        etcd.resume()
    return Snapshot(folder, at, now)


def restore(place: ControlPlane, snapshot: Snapshot) -> None:
    """Everything of a cluster ends; it starts again over an older etcd."""
    for program in place.programs().values():
        program.kill()
    shutil.rmtree(place.folder / "etcd")
    shutil.copytree(snapshot.folder, place.folder / "etcd")
    place.mend()
