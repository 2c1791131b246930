"""The actions that ``multikueue`` asks for, as values; the dispatch shift carries them out.

Actions of one verdict on the manager go one after the other, and the first that fails ends them;
those on a worker concern only that worker, and nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from clusters.kueue.multikueue.group import Round

ADMITTED_ON: Final = 'The workload was admitted on "{cluster}"'


@dataclass(frozen=True, slots=True)
class Nominate:
    """Store ``status.nominatedClusterNames``; a request of its own, before any ``Choose``."""

    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateCopy:
    """Make the Workload on a worker; its Job comes only after the race is won."""

    cluster: str


@dataclass(frozen=True, slots=True)
class Choose:
    """One write: check Ready, ``clusterName``, no more nominations."""

    cluster: str

    @property
    def message(self) -> str:
        """Of the admission check."""
        return ADMITTED_ON.format(cluster=self.cluster)


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Make the Job on the chosen worker."""

    cluster: str


@dataclass(frozen=True, slots=True)
class FollowJob:
    """Change a worker's Job as the manager's was changed, as far as it may; its size for one.

    Members of a group that the manager no longer has are deleted.
    """

    cluster: str


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Ask a worker how the Job of a finished copy is now, where the Job does not tell its end."""

    cluster: str


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """Bring the status of a worker's Job to the manager's."""

    cluster: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Set Finished on the manager's Workload, once the final Job status is there."""

    cluster: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Put the admission check to Retry or Rejected."""

    state: str
    message: str


@dataclass(frozen=True, slots=True)
class StopCopy:
    """Deactivate a worker's Workload, so that its Job stops in an orderly way."""

    cluster: str


@dataclass(frozen=True, slots=True)
class UpdatePriority:
    """Give a copy the priority that the manager's Workload has now."""

    cluster: str
    priority: int
    reference: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class RemoveCopy:
    """Delete Job, then Workload, on a worker; only what carries our origin.

    Attributes:
        why: One word for the log and the trail.
        blocks: Why this worker is not nominated again for a while; empty when nothing speaks
            against it.
        only_unchanged: Delete only the very state that was looked at.
    """

    cluster: str
    why: str
    blocks: str = ""
    only_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class MarkJobInactive:
    """Write into the manager's Job that no pod of it runs: its copy is proved to be gone."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Let people know; an Event on the manager's Workload, once per text."""

    reason: str
    message: str


OnWorker: TypeAlias = (
    CreateCopy | CreateJob | FollowJob | ReadJob | StopCopy | UpdatePriority | RemoveCopy
)
"""Carried out on the worker that they name; all others on the manager."""
Action: TypeAlias = (
    Nominate
    | CreateCopy
    | Choose
    | CreateJob
    | FollowJob
    | ReadJob
    | CopyStatus
    | Finish
    | SetCheck
    | StopCopy
    | UpdatePriority
    | RemoveCopy
    | MarkJobInactive
    | Tell
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now, in this order, and when time alone asks for another look.

    Attributes:
        actions: To be carried out.
        look_again: When time alone changes the answer.
        opened: The round of nominations that begins with it; to be remembered.
    """

    actions: tuple[Action, ...] = ()
    look_again: datetime | None = None
    opened: Round | None = None
