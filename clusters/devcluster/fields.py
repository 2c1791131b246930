"""Sets of fields: who owns which, what changed, and how two intents merge.

A field is a path of elements in Kubernetes' own notation: f:NAME for a key, k:{...} for an item of
a list that is a map, v:VALUE for an item of a set. A set of fields is a frozenset of such paths;
FieldsV1 is the nested form in which metadata.managedFields carries it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from clusters.devcluster.schema import ANYTHING, Schema, item_key

Path = tuple[str, ...]
Fields = frozenset[Path]
_CONTAINER = object()
_ITEM = object()

# Never owned by anybody: identity, and what the server itself keeps.
UNOWNED = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "uid", "creationTimestamp", "selfLink", "generation",
            "resourceVersion", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds",
            "generateName",
        )
    }
)  # fmt: skip


def flattened(value: Any, schema: Schema, path: Path = ()) -> dict[Path, Any]:
    """Every node of a document by its path: leaves with their value, containers with a mark."""
    found: dict[Path, Any] = {}
    _flatten(value, schema, path, found)
    found.pop((), None)
    return found


def _flatten(value: Any, schema: Schema, path: Path, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value and not schema.is_atomic:
        found[path] = _CONTAINER
        for key, entry in value.items():
            _flatten(entry, schema.child(key), (*path, f"f:{key}"), found)
    elif isinstance(value, list) and (schema.keys or schema.is_set):
        found[path] = _CONTAINER
        for entry in value:
            item_path = (*path, item_key(entry, schema))
            if schema.keys:
                _flatten(entry, schema.item or ANYTHING, item_path, found)
            found[item_path] = _ITEM
    else:
        found[path] = value


def owned_by_applying(document: Any, schema: Schema) -> Fields:
    """What an applier of this document owns: leaves and list items, not the containers."""
    nodes = flattened(document, schema)
    return frozenset(path for path, value in nodes.items() if value is not _CONTAINER) - UNOWNED


def changes(old: Any, new: Any, schema: Schema) -> tuple[Fields, Fields]:
    """(added or modified, removed) fields, containers included, between two documents."""
    before, after = flattened(old, schema), flattened(new, schema)
    changed = {
        path
        for path, value in after.items()
        if path not in before or not _is_same(before[path], value)
    }
    removed = before.keys() - after.keys()
    return frozenset(changed) - UNOWNED, frozenset(removed) - UNOWNED


def _is_same(before: Any, after: Any) -> bool:
    """Whether a node kept its value; a structure that fills up or empties is the same structure."""
    is_empty: tuple[Any, ...] = (_CONTAINER, {}, None)
    return bool(before == after or (before in is_empty and after in is_empty))


def merged(live: Any, intent: Any, schema: Schema) -> Any:
    """Live state with the intent laid over it: maps by key, keyed lists by item, the rest whole.

    It shares parts with both.
    """
    if isinstance(intent, dict) and isinstance(live, dict) and not schema.is_atomic:
        result = dict(live)
        for key, value in intent.items():
            result[key] = merged(live[key], value, schema.child(key)) if key in live else value
        return result
    if isinstance(intent, list) and isinstance(live, list) and (schema.keys or schema.is_set):
        return _merged_items(live, intent, schema)
    return intent


def _merged_items(live: list[Any], intent: list[Any], schema: Schema) -> list[Any]:
    """Shared items in the intent's order; what only the live list has keeps its place."""
    old = {item_key(entry, schema): entry for entry in live}
    new = {item_key(entry, schema): entry for entry in intent}
    left, right = list(old), list(new)
    result: dict[str, Any] = {}
    while left or right:
        if left and left[0] not in new:
            key = left.pop(0)
            result[key] = old[key]
            continue
        if left and (not right or left[0] in result):
            left.pop(0)
            continue
        key = right.pop(0)
        known = key in old and schema.keys
        result[key] = merged(old[key], new[key], schema.item or ANYTHING) if known else new[key]
    return list(result.values())


def without(document: Any, dropped: Fields, kept: Fields, schema: Schema) -> Any:
    """The document without the dropped fields, except those that are also in `kept`.

    A list item goes even if somebody owns a part of it; a structure stays as long as it has parts.
    A structure that loses its last field goes as well; where somebody owns the structure itself it
    becomes null, as on a real API server (which then refuses the null, or puts its default there).
    """
    parts = {path[:depth] for path in kept for depth in range(1, len(path))}
    touched = {path[:depth] for path in dropped for depth in range(1, len(path) + 1)}
    gone = dropped - kept

    def pruned(value: Any, schema: Schema, path: Path) -> Any:
        if path and path not in touched:
            return value
        if isinstance(value, dict) and not schema.is_atomic:
            result = {}
            for key, entry in value.items():
                child = (*path, f"f:{key}")
                if child in gone and child not in parts:
                    continue
                left = pruned(entry, schema.child(key), child)
                if left or left == entry:
                    result[key] = left
                elif child in kept:
                    result[key] = None
            return result
        if isinstance(value, list) and (schema.keys or schema.is_set):
            items = [((*path, item_key(entry, schema)), entry) for entry in value]
            item = schema.item or ANYTHING
            return [pruned(entry, item, child) for child, entry in items if child not in gone]
        return value

    return pruned(document, schema, ())


def encoded(fields: Iterable[Path]) -> dict[str, Any]:
    """FieldsV1 of a set of fields."""
    return _tree(sorted(fields), 0)


def _tree(paths: Iterable[Path], depth: int) -> dict[str, Any]:
    tree = {}
    for element, group in groupby(paths, key=itemgetter(depth)):
        members = list(group)
        below = [path for path in members if len(path) > depth + 1]
        is_owned = len(below) < len(members)
        tree[element] = ({".": {}} if below and is_owned else {}) | _tree(below, depth + 1)
    return tree


def decoded(tree: Mapping[str, Any], path: Path = ()) -> Fields:
    """The set of fields that a FieldsV1 stands for."""
    found: set[Path] = set()
    for element, below in tree.items():
        if element == ".":
            found.add(path)
        elif not below:
            found.add((*path, element))
        else:
            found |= decoded(below, (*path, element))
    return frozenset(found)


def shown(path: Path) -> str:
    """A path as conflicts name it: .spec.flavors[name="a"].quota"""
    text = ""
    for element in path:
        prefix, _, rest = element.partition(":")
        if prefix == "f":
            text += f".{rest}"
        elif prefix == "k":
            pairs = (f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            text += f"[{','.join(pairs)}]"
        else:
            text += f"[={rest}]"
    return text
