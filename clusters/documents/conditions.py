"""Reading and replacing ``status.conditions``; nothing is changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.documents.keys import Document
from clusters.documents.times import stamp

MESSAGE_LIMIT = 32768


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition to be set; ``is_observed`` notes the generation with it."""

    type: str
    status: bool
    reason: str
    message: str = ""
    is_observed: bool = True


def conditions_of(document: Document) -> Sequence[dict[str, Any]]:
    """All of them, as the document has them."""
    return (document.get("status") or {}).get("conditions") or []


def condition(document: Document, kind: str) -> Mapping[str, Any]:
    """The condition of a type; empty when it is not there."""
    for entry in conditions_of(document):
        if entry.get("type") == kind:
            return entry
    return {}


def is_true(document: Document, kind: str) -> bool:
    """Whether it has the condition of a type, and that is True."""
    return condition(document, kind).get("status") == "True"


def with_conditions(
    document: Document, changes: Iterable[Condition], *, now: datetime
) -> list[dict[str, Any]]:
    """The conditions of a document after some were set; order kept, new ones at the end.

    A transition time moves only when the status does, as with everybody who writes conditions.
    """
    found = list(conditions_of(document))
    generation = document["metadata"].get("generation")
    for change in changes:
        status = "True" if change.status else "False"
        at = next((i for i, entry in enumerate(found) if entry.get("type") == change.type), None)
        before = found[at] if at is not None else {}
        entry = {
            "type": change.type,
            "status": status,
            "reason": change.reason,
            "message": _cut(change.message),
            "lastTransitionTime": before["lastTransitionTime"]
            if before.get("status") == status
            else stamp(now),
        }
        if generation is not None and change.is_observed:
            entry["observedGeneration"] = generation
        if at is None:
            found.append(entry)
        else:
            found[at] = entry
    return found


def _cut(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MESSAGE_LIMIT:
        return message
    return encoded[: MESSAGE_LIMIT - 4].decode(errors="ignore") + " ..."
