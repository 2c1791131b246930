"""Roles at work on embedded clusters, where one object can be made to raise; one file a role."""

from __future__ import annotations

from typing import Any, Protocol

from clusters.reconcile.runtime.faults import Doing, Parked
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.runtime.writer import Moment, Write

BAD = "poisoned"


class Poison:
    """Raises for objects that are called :data:`BAD`, wherever ``doing`` says."""

    def __init__(self) -> None:
        self.doing: Doing | None = None

    def tried(self, doing: Doing, name: object) -> None:
        if self.doing is doing and BAD in str(name):
            raise ValueError(f"the poison of {BAD}")

    def hook(self, moment: Moment, cluster: str, write: Write) -> None:
        """Of a writer."""
        if moment is Moment.BEFORE:
            self.tried(Doing.WRITING, write.name)

    def into(self, body: Any) -> None:
        """Into a controller's reading and deciding."""
        take, handle = body.take, body.handle

        def poisoned_take(seen: Seen) -> None:
            self.tried(Doing.READING, seen.document["metadata"]["name"])
            take(seen)

        def poisoned_handle(key: object) -> None:
            self.tried(Doing.DECIDING, key)
            handle(key)

        body.take, body.handle = poisoned_take, poisoned_handle


class Stage(Protocol):
    """One role at work on an embedded cluster."""

    role: str
    poison: Poison

    def submit(self, name: str) -> None:
        """Something of that name is to be done."""

    def is_done(self, name: str) -> bool:
        """Whether it was."""

    def turn(self) -> None:
        """Let the role work for a moment."""

    def standing(self) -> Parked:
        """What it has set aside."""
