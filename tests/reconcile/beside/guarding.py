"""What tests of the guard do and ask, besides what every road offers."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusters.kube import resources as r
from clusters.models import GuardIncident
from tests.reconcile.admission_harness import is_true
from tests.reconcile.beside.roads import Beside, configuration
from tests.waiting import eventually

# Longer than the guard's patience and Kueue's own ways of getting on; a defect stays for ever.
STAYS_S = 12.0


def guarded(found: Beside, guard: str, *, external: bool = True) -> Beside:
    """A shift beside Kueue with the guard on a setting, and rows for what it tells."""
    found.register()
    found.start(configuration(external=external), guard=guard)
    return found


def incident(defect: str, **fields: object) -> GuardIncident | None:
    return GuardIncident.objects.filter(defect=defect, **fields).first()


def stays(check: Callable[[], object], *, seconds: float = STAYS_S) -> None:
    """It holds the whole time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert check()
        time.sleep(0.2)


def lose_and_move(found: Beside) -> tuple[str, str]:
    """A job runs, its worker is lost, it runs on the other one: (lost, other)."""
    found.submit("train", gpus=2)
    lost = found.wait_running("train")
    other = next(worker for worker in found.workers if worker != lost)
    found.plane(lost).kill_api_server()
    eventually(lambda: found.runs_on("train") == other, seconds=120, why=found.story)
    return lost, other


def returns_in_peace(found: Beside, *, external: bool) -> None:
    """With the guard: the worker comes back, its old copy goes, the job runs on where it is."""
    guarded(found, "cure", external=external)
    lost, other = lose_and_move(found)
    before = found.copy(other, "train")["metadata"]["uid"]
    found.plane(lost).start_api_server()
    eventually(lambda: found.copy(lost, "train") is None, why=found.story)
    eventually(
        lambda: is_true(found.manager.get(r.MULTIKUEUE_CLUSTER, lost), "Active"), seconds=120
    )
    stays(lambda: found.runs_on("train") == other)
    assert found.copy(other, "train")["metadata"]["uid"] == before
    row = eventually(lambda: incident("stale-copy", state="cured"))
    assert row.worker == lost and f"Deleted the old copy on {lost}" in row.done
