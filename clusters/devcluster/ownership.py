"""metadata.managedFields: who owns what, and what that means for updates and server-side apply.

Source: KEP-555 and the documented behaviour of server-side apply; a manager is identified by its
name, operation and subresource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusters.devcluster import fields
from clusters.devcluster.fields import Fields
from clusters.devcluster.problems import Cause, Document, Failure
from clusters.devcluster.registry import ServedKind

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True)
class FieldManager:
    """Who wrote, how, through which subresource ("" is the main resource), when, and what."""

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    fields: Fields = frozenset()

    @property
    def key(self) -> tuple[str, str, str]:
        return self.manager, self.operation, self.subresource

    @property
    def document(self) -> Document:
        """An entry of metadata.managedFields."""
        subresource = {"subresource": self.subresource} if self.subresource else {}
        return {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields.encoded(self.fields),
            **subresource,
        }


def entries_of(document: Mapping[str, Any]) -> list[FieldManager]:
    """The managers of an object."""
    return [
        FieldManager(
            manager=str(raw.get("manager", "")),
            operation=str(raw.get("operation", "")),
            subresource=str(raw.get("subresource", "")),
            api_version=str(raw.get("apiVersion", "")),
            time=str(raw.get("time", "")),
            fields=fields.decoded(raw.get("fieldsV1") or {}),
        )
        for raw in document.get("metadata", {}).get("managedFields") or []
        if isinstance(raw, dict) and raw
    ]


def after_update(
    old: Document,
    new: Document,
    kind: ServedKind,
    writer: FieldManager,
    *,
    base: Sequence[FieldManager],
) -> list[FieldManager]:
    """Managers after a create, update or patch: what changed is the writer's, others lose it."""
    changed, removed = fields.changes(old, new, kind.schema)
    changed = _within_reach(changed, kind, writer.subresource)
    settled = _without(base, changed | removed, writer)
    for place, entry in enumerate(settled):
        if entry.key == writer.key:
            owned = (entry.fields - removed) | changed
            time = writer.time if owned != entry.fields or changed else entry.time
            settled[place] = replace(entry, fields=owned, time=time)
            break
    else:
        settled.append(replace(writer, fields=changed))
    return [entry for entry in settled if entry.fields]


def applied(
    live: Document, intent: Document, kind: ServedKind, writer: FieldManager, *, force: bool
) -> tuple[Document, list[FieldManager]]:
    """The object and its managers after a server-side apply.

    Raises:
        Failure: 409 with every conflict, unless the writer forces.
    """
    entries = entries_of(live)
    mine = next((entry for entry in entries if entry.key == writer.key), writer)
    others = [entry for entry in entries if entry.key != writer.key]
    wanted = fields.owned_by_applying(intent, kind.schema)
    wanted = _within_reach(wanted, kind, writer.subresource)
    result = fields.merged(live, intent, kind.schema)
    kept = wanted.union(*(entry.fields for entry in others))
    result = fields.without(result, mine.fields - wanted, kept, kind.schema)
    changed, removed = fields.changes(live, result, kind.schema)
    changed = _within_reach(changed, kind, writer.subresource)
    if not force:
        _refuse_conflicts(others, changed)
    time = mine.time if mine.fields == wanted else writer.time
    settled = [
        *_without(others, changed | removed, writer),
        replace(writer, fields=wanted, time=time),
    ]
    return result, [entry for entry in settled if entry.fields]


def _without(
    entries: Sequence[FieldManager], lost: Fields, writer: FieldManager
) -> list[FieldManager]:
    """The managers, all but the writer without the fields that they lost."""
    return [
        entry if entry.key == writer.key else replace(entry, fields=entry.fields - lost)
        for entry in entries
    ]


def _within_reach(paths: Fields, kind: ServedKind, subresource: str) -> Fields:
    """Without the fields that the address written to cannot change."""
    if not kind.has_status:
        return paths
    if subresource == "status":
        return frozenset(path for path in paths if path[0] == "f:status")
    return frozenset(path for path in paths if path[0] != "f:status")


def _refuse_conflicts(others: Sequence[FieldManager], changed: Fields) -> None:
    causes = [
        Cause(fields.shown(path), "FieldManagerConflict", f"conflict with {_named(entry)}")
        for entry in others
        for path in sorted(entry.fields & changed)
    ]
    if not causes:
        return
    lines = [f"{cause.message}: {cause.field}" for cause in causes]
    text = f"Apply failed with 1 conflict: {lines[0]}"
    if len(lines) > 1:
        text = "\n- ".join((f"Apply failed with {len(lines)} conflicts:", *lines))
    raise Failure(409, "Conflict", text, causes=causes)


def _named(entry: FieldManager) -> str:
    text = f'"{entry.manager}"'
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    if entry.operation == UPDATE:
        text += f" using {entry.api_version}"
    return text
