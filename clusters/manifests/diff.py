"""Compares a wanted document with a live one: declared fields only, quantities by their value.

What the portal did not write is none of its business: defaults, status, other people's labels and
finalizers never show up. What it wrote once and does not declare any more does: applying takes it
away. A field is named as a person would point at it:
``spec.resourceGroups[0].flavors[h100].resources[nvidia.com/gpu].nominalQuota``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.kueue.amounts import parse_decimal

_QUANTITIES: Final = frozenset({"nominalQuota", "borrowingLimit", "lendingLimit", "weight"})
_IDENTITY: Final = frozenset({"apiVersion", "kind"})
OWN_MANAGERS: Final = frozenset({"gpu-budget-portal"})


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs.

    Attributes:
        path: For people, as in the module's docstring; empty when the whole object is meant.
        wanted: JSON value that the portal wants; None when an item should not be there.
        found: JSON value on the cluster; None when it is absent.
        steps: The same path as map keys and list items, for a look into managedFields.
    """

    path: str
    wanted: object
    found: object
    steps: tuple[str, ...] = ()


def changes(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Fields of `wanted` that the live object has differently, in document order.

    Args:
        wanted: A rendered document.
        live: The object as the API server gave it.

    Returns:
        Empty when a server-side apply of `wanted` would change nothing. O(fields of wanted).
    """
    found: list[FieldChange] = []
    for key, value in wanted.items():
        if key in _IDENTITY:
            continue
        if key == "metadata":
            live_metadata = live.get("metadata") or {}
            for part in ("labels", "annotations"):
                below = _compare(value.get(part) or {}, live_metadata.get(part) or {}, (key, part))
                found.extend(below)
        else:
            found.extend(_compare(value, live.get(key), (key,)))
    found.extend(_given_up(wanted.get("spec"), live))
    return tuple(found)


def manager_of(change: FieldChange, live: Mapping[str, Any]) -> str:
    """Who manages a field now, by metadata.managedFields.

    Args:
        change: A difference, with its steps.
        live: The object with managedFields.

    Returns:
        The owner of the deepest part of the path that has one; for a field that is gone, the
        last one who wrote the object otherwise than we do; empty when nobody can be named.
    """
    entries = [
        entry
        for entry in live["metadata"].get("managedFields") or []
        if not entry.get("subresource")
    ]
    owners = [
        (_owned_depth(entry.get("fieldsV1") or {}, change.steps), entry.get("time") or "", entry)
        for entry in entries
    ]
    deepest = max((depth for depth, _, _ in owners), default=0)
    if deepest > 0 and change.found is not None:
        at_depth = [(when, entry) for depth, when, entry in owners if depth == deepest]
        return str(max(at_depth, key=lambda pair: pair[0])[1].get("manager") or "")
    last = max(entries, key=lambda entry: entry.get("time") or "", default=None)
    return "" if last is None else str(last.get("manager") or "")


def is_ours(manager: str) -> bool:
    """Whether a field manager is a portal's own."""
    return manager in OWN_MANAGERS


def _given_up(wanted: object, live: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Fields of the spec that stand there by an apply of ours and are not declared any more."""
    for entry in live.get("metadata", {}).get("managedFields") or []:
        if entry.get("operation") == "Apply" and is_ours(str(entry.get("manager") or "")):
            owned = (entry.get("fieldsV1") or {}).get("f:spec") or {}
            yield from _undeclared(wanted or {}, live.get("spec"), owned, ("spec",))


def _undeclared(
    wanted: object, live: object, owned: Mapping[str, Any], steps: tuple[str, ...]
) -> Iterator[FieldChange]:
    if not isinstance(wanted, Mapping) or not isinstance(live, Mapping):
        return
    for name, below in owned.items():
        key = name.removeprefix("f:")
        if not name.startswith("f:") or key not in live:
            continue
        if key not in wanted:
            yield _change((*steps, key), None, live[key])
        else:
            yield from _undeclared(wanted[key], live[key], below, (*steps, key))


def _compare(wanted: object, live: object, steps: tuple[str, ...]) -> Iterator[FieldChange]:
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            if wanted:
                yield _change(steps, wanted, live)
            return
        for key, value in wanted.items():
            yield from _compare(value, live.get(key), (*steps, key))
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        yield from _compare_lists(wanted, live, steps)
    elif not _is_equal(wanted, live, steps):
        yield _change(steps, wanted, live)


def _compare_lists(
    wanted: Sequence[Any], live: object, steps: tuple[str, ...]
) -> Iterator[FieldChange]:
    """Lists are wanted as a whole: their order and length count as much as their items."""
    if not isinstance(live, Sequence) or isinstance(live, str):
        yield _change(steps, wanted, live)
        return
    names = [_name_of(item) for item in wanted]
    live_names = [_name_of(item) for item in live]
    if all(names) and all(live_names) and names != live_names:
        yield _change(steps, names, live_names)
        by_name = dict(zip(live_names, live, strict=True))
        for name, item in zip(names, wanted, strict=True):
            if name in by_name:
                yield from _compare(item, by_name[name], (*steps, f"[{name}]"))
        return
    if len(wanted) != len(live):
        yield _change(steps, wanted, live)
        return
    for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
        yield from _compare(item, other, (*steps, f"[{names[index] or index}]"))
        if isinstance(item, Mapping) and isinstance(other, Mapping):
            # An atomic list: a key that somebody added inside an item is a change of ours, too.
            for key in other.keys() - item.keys():
                yield _change((*steps, f"[{names[index] or index}]", key), None, other[key])


def _name_of(item: object) -> str:
    return str(item.get("name") or "") if isinstance(item, Mapping) else ""


def _is_equal(wanted: object, live: object, steps: tuple[str, ...]) -> bool:
    if wanted == live:
        return True
    if steps[-1] in _QUANTITIES and isinstance(live, str | int) and isinstance(wanted, str):
        try:
            return parse_decimal(wanted) == parse_decimal(str(live))
        except ValueError:
            return False
    return False


def _change(steps: tuple[str, ...], wanted: object, found: object) -> FieldChange:
    path = ""
    for step in steps:
        path += step if step.startswith("[") or not path else f".{step}"
    return FieldChange(path, _plain(wanted), _plain(found), steps)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _owned_depth(fields: Mapping[str, Any], steps: tuple[str, ...]) -> int:
    """How many steps of a path an entry of managedFields covers; list items end the walk."""
    depth = 0
    below: Any = fields
    for step in steps:
        if step.startswith("[") or not isinstance(below, Mapping) or f"f:{step}" not in below:
            break
        below = below[f"f:{step}"]
        depth += 1
    return depth
