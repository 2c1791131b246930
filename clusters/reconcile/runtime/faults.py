"""Where one object's fault ends: what could not be read, decided or written is set aside.

Whoever works on keys one by one catches what one of them raises and parks it here. It is told in
the log once, counted, and shown on the cluster's page until it went well; all others go on. A
database that does not answer is nobody's fault in particular: it is caught before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

from clusters.errors import ClusterError, LeaseLost

log = structlog.stdlib.get_logger(__name__)

PARKED_CAP_S: Final = 60.0
"""A parked key is tried again after so many seconds at the latest."""
TRIES_PER_S: Final = 10.0
"""All parked keys together are tried so often at most: ten thousand of them hold up nobody."""
SENTENCE_LIMIT: Final = 500
_ERROR_LIMIT: Final = 300


class Doing(StrEnum):
    """What raised, as people are told."""

    READING = "read"
    DECIDING = "decided on"
    WRITING = "written"


@dataclass(frozen=True, slots=True)
class Parked:
    """What is parked now: how many, and the newest of them in a sentence."""

    parked: int = 0
    says: str = ""


ALL_WELL: Final = Parked()


class Faults:
    """The parked keys of one shift. One thread parks and clears; any thread reads ``standing``.

    Args:
        cluster: For logs.
        role: The same.

    Attributes:
        listener: Told of each subject that is parked anew, and why, a sentence about it.
    """

    def __init__(self, cluster: str, role: str = "") -> None:
        self._cluster, self._role = cluster, role
        self._parked: dict[str, str] = {}
        self.standing = ALL_WELL
        self.listener: Callable[[str, str], None] = _nobody

    def __contains__(self, subject: str) -> bool:
        return subject in self._parked

    @property
    def pause_s(self) -> float:
        """A parked key rests so long at least, for others are parked, too."""
        return self.standing.parked / TRIES_PER_S

    def workloads(self) -> dict[str, str]:
        """What is said of the Workloads that are parked, by key; of each the newest."""
        found = ((subject.split(" "), says) for subject, says in self._parked.items())
        return {words[1]: says for words, says in found if words[0] == "Workload"}

    def park(self, subject: str, error: Exception, *, doing: Doing) -> None:
        """Note what one key raised.

        Args:
            subject: What people call it, as ``Job team-a/train``.
            error: What was raised.
            doing: What was being done.

        Raises:
            LeaseLost, MemoryError: the same error: it ends the shift.
        """
        if isinstance(error, LeaseLost | MemoryError):
            raise error
        told = words_of(error)
        sentence = f"{subject} could not be {doing}: {told}"[:SENTENCE_LIMIT]
        if self._parked.get(subject) == sentence:
            return
        self._parked.pop(subject, None)
        self._parked[subject] = sentence
        self._stand()
        log.warning(
            "key_parked",
            cluster=self._cluster,
            role=self._role,
            key=subject,
            doing=doing.name.lower(),
            error=told,
            exc_info=None if isinstance(error, ClusterError) else error,
        )
        self.listener(subject, f"It could not be {doing}: {told}")

    def clear(self, subject: str) -> None:
        """It went well, or is gone. O(1) where nothing is parked."""
        if self._parked and self._parked.pop(subject, None) is not None:
            self._stand()
            log.info(
                "key_unparked",
                cluster=self._cluster,
                role=self._role,
                key=subject,
            )

    def _stand(self) -> None:
        newest = next(reversed(self._parked.values()), "")
        self.standing = Parked(len(self._parked), newest)


def _nobody(subject: str, why: str) -> None:
    """Nobody listens."""


def words_of(error: BaseException) -> str:
    """An error in a short sentence."""
    if isinstance(error, ClusterError):
        return f"{error.reason}: {error.message}"[:_ERROR_LIMIT]
    return f"{type(error).__name__}: {error}"[:_ERROR_LIMIT]
