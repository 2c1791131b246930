"""What can be wrong with a request, as values that a form and the API show alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        field: Dotted path of the input, such as ``lines.0.committed``; empty for the whole.
        code: Stable machine-readable reason, such as ``exceeds_capacity``.
        message: One sentence that names the value and the way out.
    """

    field: str
    code: str
    message: str


class PortalError(Exception):
    """Base of every error that the portal raises on purpose."""


class Rejected(PortalError):
    """The user can fix it: everything that is wrong, at once. A 422 in the API."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{f.field or 'request'}: {f.message}" for f in self.faults))

    @classmethod
    def because(cls, field: str, code: str, message: str) -> Rejected:
        """For one fault alone."""
        return cls([Fault(field, code, message)])


def reject_any(faults: Iterable[Fault]) -> None:
    """Go on only when nothing is wrong.

    Raises:
        Rejected: Something is.
    """
    if found := tuple(faults):
        raise Rejected(found)


class StaleVersion(PortalError):
    """Somebody else saved in between; nothing was written. A 412 in the API.

    Attributes:
        current_version: The version that is stored now.
        changed_by: Who wrote it.
        changed_at: When, UTC.
        summary: What changed, in words.
    """

    def __init__(
        self, *, current_version: int, changed_by: str, changed_at: datetime, summary: str
    ) -> None:
        self.current_version = current_version
        self.changed_by = changed_by
        self.changed_at = changed_at
        self.summary = summary
        super().__init__(f"{changed_by} changed this in the meantime: {summary}")


class NotAllowed(PortalError):
    """The role does not allow it. A 403; what may not even be seen is a 404 instead."""
