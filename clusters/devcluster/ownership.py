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
from clusters.devcluster.problems import Cause, Document, Problem
from clusters.devcluster.registry import Kind

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, how, through which subresource ("" is the main resource), and when."""

    manager: str
    operation: str
    subresource: str
    time: str
    force: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.manager, self.operation, self.subresource


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager's fields, as an entry of metadata.managedFields."""

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    fields: Fields

    @property
    def key(self) -> tuple[str, str, str]:
        return self.manager, self.operation, self.subresource

    @property
    def document(self) -> Document:
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


def entries_of(document: Mapping[str, Any]) -> list[Entry]:
    """The managers of an object."""
    return [
        Entry(
            str(raw.get("manager", "")),
            str(raw.get("operation", "")),
            str(raw.get("subresource", "")),
            str(raw.get("apiVersion", "")),
            str(raw.get("time", "")),
            fields.decoded(raw.get("fieldsV1") or {}),
        )
        for raw in document.get("metadata", {}).get("managedFields") or []
        if isinstance(raw, dict) and raw
    ]


def after_update(
    old: Document, new: Document, kind: Kind, writer: Writer, *, base: Sequence[Entry]
) -> list[Entry]:
    """Managers after a create, update or patch: what changed is the writer's, others lose it."""
    changed, removed = fields.changes(old, new, kind.schema)
    changed = _within_reach(changed, kind, writer.subresource)
    return _settled(base, changed, removed, kind, writer, grows=True)


def applied(
    live: Document, intent: Document, kind: Kind, writer: Writer
) -> tuple[Document, list[Entry]]:
    """The object and its managers after a server-side apply.

    Raises:
        Problem: 409 with every conflict, unless the writer forces.
    """
    entries = entries_of(live)
    mine = next((entry for entry in entries if entry.key == writer.key), None)
    others = [entry for entry in entries if entry.key != writer.key]
    wanted = fields.owned_by_applying(intent, kind.schema)
    wanted = _within_reach(wanted, kind, writer.subresource)
    result = fields.merged(live, intent, kind.schema)
    dropped = (mine.fields if mine else frozenset()) - wanted
    kept = wanted.union(*(entry.fields for entry in others))
    result = fields.without(result, dropped, kept, kind.schema)
    changed, removed = fields.changes(live, result, kind.schema)
    changed = _within_reach(changed, kind, writer.subresource)
    if not writer.force:
        _refuse_conflicts(others, changed)
    base = [*others, _entry(writer, kind, wanted, mine)]
    return result, _settled(base, changed, removed, kind, writer, grows=False)


def _settled(
    base: Sequence[Entry],
    changed: Fields,
    removed: Fields,
    kind: Kind,
    writer: Writer,
    *,
    grows: bool,
) -> list[Entry]:
    settled, is_known = [], False
    for entry in base:
        if entry.key == writer.key:
            is_known = True
            if grows:
                owned = (entry.fields - removed) | changed
                time = writer.time if owned != entry.fields or changed else entry.time
                entry = replace(entry, fields=owned, time=time)
        else:
            entry = replace(entry, fields=entry.fields - changed - removed)
        if entry.fields:
            settled.append(entry)
    if grows and not is_known and changed:
        settled.append(_entry(writer, kind, changed, None))
    return settled


def _entry(writer: Writer, kind: Kind, owned: Fields, previous: Entry | None) -> Entry:
    time = previous.time if previous and previous.fields == owned else writer.time
    return Entry(
        writer.manager, writer.operation, writer.subresource, kind.api_version, time, owned
    )


def _within_reach(paths: Fields, kind: Kind, subresource: str) -> Fields:
    """Without the fields that the address written to cannot change."""
    if not kind.has_status:
        return paths
    if subresource == "status":
        return frozenset(path for path in paths if path[0] == "f:status")
    return frozenset(path for path in paths if path[0] != "f:status")


def _refuse_conflicts(others: Sequence[Entry], changed: Fields) -> None:
    found = [(entry, path) for entry in others for path in sorted(entry.fields & changed)]
    if not found:
        return
    causes = [
        Cause(fields.shown(path), "FieldManagerConflict", f"conflict with {_named(entry)}")
        for entry, path in found
    ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines = "\n".join(f"- {cause.message}: {cause.field}" for cause in causes)
        text = f"Apply failed with {len(causes)} conflicts:\n{lines}"
    raise Problem(409, "Conflict", text, causes=causes)


def _named(entry: Entry) -> str:
    text = f'"{entry.manager}"'
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    if entry.operation == UPDATE:
        text += f" using {entry.api_version}"
    return text
