"""Recognises the three defects of Kueue 0.19.2 in what the clusters show. Pure.

Source: spec dispatch 2.9 (an evicted workload keeps its quota), 2.10 (a returning worker's old copy
takes over), 6.3 (a rejected workload is not queued again); each was seen on real control planes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document
from clusters.models import GuardIncident
from clusters.reconcile import reactivation
from clusters.reconcile.multikueue.local import chosen_of

Defect = GuardIncident.Defect

# Kueue passes through the same states in an orderly way; only what stays is a defect. An old copy
# is none of them: no orderly way leads there, and Kueue acts on it within seconds.
PATIENCE: Final[Mapping[Defect, timedelta]] = {
    Defect.STALE_COPY: timedelta(0),
    Defect.STUCK_QUOTA: timedelta(seconds=5),
    Defect.NOT_REQUEUED: timedelta(seconds=2),
}


@dataclass(frozen=True, slots=True)
class CopySeen:
    """What one worker shows of one workload.

    Attributes:
        worker: Name of its MultiKueueCluster.
        is_active: The manager's Kueue is connected to it.
        answers: The portal sees it now, so that an absent copy is absent.
        lost_for: How long it has been away; None while it is there.
        copy: The Workload of the same key with this manager's origin.
        has_job: A job with this manager's origin stands for it there.
    """

    worker: str
    is_active: bool = True
    answers: bool = True
    lost_for: timedelta | None = None
    copy: Document | None = None
    has_job: bool = False

    @property
    def is_admitted(self) -> bool:
        """Whether its copy is known to be admitted."""
        return self.answers and self.copy is not None and is_true(self.copy, "Admitted")


@dataclass(frozen=True, slots=True)
class Patient:
    """A workload of the manager, with all that a diagnosis looks at.

    Attributes:
        local: The manager's Workload.
        copies: On the workers of its MultiKueueConfig.
        is_job_active: Its job's status says that pods run; None without a job that says so.
        worker_lost_timeout: After so long a lost worker's copy counts as gone.
    """

    local: Document
    copies: Sequence[CopySeen] = ()
    is_job_active: bool | None = None
    worker_lost_timeout: timedelta = timedelta(minutes=15)

    @property
    def chosen(self) -> str:
        """The worker that has it; empty while none does."""
        return chosen_of(self.local)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One defect of one workload; ``worker`` is where an old copy is, else empty."""

    defect: Defect
    worker: str
    found: str


def diagnose(patient: Patient) -> tuple[Diagnosis, ...]:
    """Everything that is wrong with a workload."""
    local = patient.local
    if local["metadata"].get("deletionTimestamp") or is_true(local, "Finished"):
        return ()
    return (*_stale_copies(patient), *_stuck_quota(patient), *_not_requeued(patient))


def _stale_copies(patient: Patient) -> Iterator[Diagnosis]:
    """Admitted copies beside the chosen one: Kueue takes the oldest and deletes the others.

    In a race, copies that lost have no job yet, and Kueue, which is connected, deletes them by
    itself. So a copy counts only with a job, or while Kueue is not connected there. Clocks of
    different clusters are not compared.
    """
    chosen = patient.chosen
    if not chosen:
        return
    running = next((seen for seen in patient.copies if seen.worker == chosen), None)
    is_taken = running is not None and running.answers and running.copy is None
    for seen in patient.copies:
        is_old = seen.is_admitted and (seen.has_job or not seen.is_active)
        if seen.worker == chosen or not is_old:
            continue
        since = condition(seen.copy or {}, "Admitted").get("lastTransitionTime", "")
        found = (
            f"{seen.worker} still has an old copy of this job, admitted there at {since}, while "
            f"{chosen} has the job now. "
        )
        if is_taken:
            found += f"Kueue took the old copy for the right one and deleted the copy on {chosen}."
        else:
            found += (
                "Kueue takes the oldest admitted copy for the right one, so it would delete the "
                f"running one on {chosen}."
            )
        yield Diagnosis(Defect.STALE_COPY, seen.worker, found)


def _stuck_quota(patient: Patient) -> Iterator[Diagnosis]:
    """Evicted, no copy left anywhere, and a job status that nobody will ever change."""
    local = patient.local
    if not (is_true(local, "Evicted") and is_true(local, "QuotaReserved")):
        return
    if patient.is_job_active is not True or not patient.copies:
        return
    if not all(_is_proved_gone(seen, patient.worker_lost_timeout) for seen in patient.copies):
        return
    evicted = condition(local, "Evicted")
    yield Diagnosis(
        Defect.STUCK_QUOTA,
        "",
        f"The job is stopped ({evicted.get('reason', '')}) and no worker has a copy of it any "
        "more, but its status still says that pods run: Kueue keeps its quota for ever.",
    )


def _is_proved_gone(seen: CopySeen, timeout: timedelta) -> bool:
    if seen.answers:
        return seen.copy is None and not seen.has_job
    return not seen.is_active and seen.lost_for is not None and seen.lost_for >= timeout


def _not_requeued(patient: Patient) -> Iterator[Diagnosis]:
    if reactivation.is_stuck(patient.local):
        yield Diagnosis(
            Defect.NOT_REQUEUED,
            "",
            "The job was rejected by an admission check and is active again, but Kueue leaves it "
            f"out of its queue: Requeued is False with reason {reactivation.REJECTED}.",
        )
