"""Recognises the three defects of Kueue 0.19.2 in what the clusters show. Pure.

Source: spec dispatch 2.9 (an evicted workload keeps its quota), 2.10 (a returning worker's old copy
takes over), 6.3 (a rejected workload is not queued again); each was seen on real control planes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document
from clusters.reconcile import reactivation


class Defect(StrEnum):
    """What went, or is about to go, wrong."""

    STALE_COPY = "stale-copy"
    STUCK_QUOTA = "stuck-quota"
    NOT_REQUEUED = "not-requeued"


# Kueue passes through the same states in an orderly way; only what stays is a defect. An old copy
# is none of them: no orderly way leads there, and Kueue acts on it within seconds.
PATIENCE: Final[Mapping[Defect, timedelta]] = {
    Defect.STALE_COPY: timedelta(0),
    Defect.STUCK_QUOTA: timedelta(seconds=5),
    Defect.NOT_REQUEUED: timedelta(seconds=2),
}


@dataclass(frozen=True, slots=True)
class Site:
    """One worker, as far as it matters to one workload.

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
        """Whether its copy is admitted."""
        return self.copy is not None and is_true(self.copy, "Admitted")


@dataclass(frozen=True, slots=True)
class Patient:
    """A workload of the manager, with all that a diagnosis looks at.

    Attributes:
        local: The manager's Workload.
        sites: Workers of its MultiKueueConfig.
        is_job_active: Its job's status says that pods run; None without a job that says so.
        worker_lost_timeout: After so long a lost worker's copy counts as gone.
    """

    local: Document
    sites: Sequence[Site] = field(default=())
    is_job_active: bool | None = None
    worker_lost_timeout: timedelta = timedelta(minutes=15)

    @property
    def chosen(self) -> str:
        """The worker that has it; empty while none does."""
        return str((self.local.get("status") or {}).get("clusterName") or "")


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect of one workload; ``worker`` is where an old copy is, else empty."""

    defect: Defect
    worker: str
    found: str


def diagnose(patient: Patient) -> tuple[Finding, ...]:
    """Everything that is wrong with a workload."""
    local = patient.local
    if local["metadata"].get("deletionTimestamp") or is_true(local, "Finished"):
        return ()
    return (*_stale_copies(patient), *_stuck_quota(patient), *_not_requeued(patient))


def _stale_copies(patient: Patient) -> Iterator[Finding]:
    """Admitted copies beside the chosen one: Kueue takes the oldest and deletes the others.

    In a race, copies that lost have no job yet, and Kueue, which is connected, deletes them by
    itself. So a copy counts only with a job, or while Kueue is not connected there. Clocks of
    different clusters are not compared.
    """
    chosen = patient.chosen
    if not chosen:
        return
    running = next((site for site in patient.sites if site.worker == chosen), None)
    is_taken = running is not None and running.answers and running.copy is None
    for site in patient.sites:
        is_old = site.is_admitted and (site.has_job or not site.is_active)
        if site.worker == chosen or not site.answers or not is_old:
            continue
        since = condition(site.copy or {}, "Admitted").get("lastTransitionTime", "")
        found = (
            f"{site.worker} still has an old copy of this job, admitted there at {since}, while "
            f"{chosen} has the job now. "
        )
        if is_taken:
            found += f"Kueue has taken the old copy for the right one and deleted that on {chosen}."
        else:
            found += (
                "Kueue takes the oldest admitted copy for the right one: it would delete the "
                f"running one on {chosen}."
            )
        yield Finding(Defect.STALE_COPY, site.worker, found)


def _stuck_quota(patient: Patient) -> Iterator[Finding]:
    """Evicted, no copy left anywhere, and a job status that nobody will ever change."""
    local = patient.local
    if not (is_true(local, "Evicted") and is_true(local, "QuotaReserved")):
        return
    if patient.is_job_active is not True or not patient.sites:
        return
    if not all(_is_proved_gone(site, patient.worker_lost_timeout) for site in patient.sites):
        return
    evicted = condition(local, "Evicted")
    yield Finding(
        Defect.STUCK_QUOTA,
        "",
        f"The job is stopped ({evicted.get('reason', '')}) and no worker has a copy of it any "
        "more, but its status still says that pods run: Kueue keeps its quota for ever.",
    )


def _is_proved_gone(site: Site, timeout: timedelta) -> bool:
    if site.answers:
        return site.copy is None and not site.has_job
    return not site.is_active and site.lost_for is not None and site.lost_for >= timeout


def _not_requeued(patient: Patient) -> Iterator[Finding]:
    if reactivation.is_stuck(patient.local):
        yield Finding(
            Defect.NOT_REQUEUED,
            "",
            "The job was rejected by an admission check and is active again, but Kueue leaves it "
            f"out of its queue: Requeued is False with reason {reactivation.REJECTED}.",
        )
