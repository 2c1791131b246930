"""Reading and writing documents by paths of field names; ``*`` stands for every entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Path = tuple[str, ...]
ANY: Final = "*"


def values(node: Any, path: Path) -> Iterator[Any]:
    """What stands at a path; several with ``*``, nothing where a step is missing."""
    for _, value in entries(node, path):
        yield value


def entries(node: Any, path: Path, key: str = "") -> Iterator[tuple[str, Any]]:
    """The same, each with the key that it stands under; that of a list is its place."""
    if not path:
        yield key, node
        return
    for name, child in _children(node, path[0]):
        yield from entries(child, path[1:], name)


def put(node: Any, path: Path, value: Any) -> None:
    """Set one field, making what is missing above it."""
    for step in path[:-1]:
        node = node.setdefault(step, {})
    node[path[-1]] = value


def drop(node: Any, path: Path) -> None:
    """Remove what stands at a path."""
    for parent in values(node, path[:-1]):
        if isinstance(parent, dict):
            parent.pop(path[-1], None)


def zero(node: Any, path: Path) -> None:
    """Set every count at a path to 0."""
    for parent in values(node, path[:-1]):
        if isinstance(parent, dict) and parent.get(path[-1]):
            parent[path[-1]] = 0


def _children(node: Any, step: str) -> list[tuple[str, Any]]:
    if step == ANY:
        if isinstance(node, Mapping):
            return [(str(name), value) for name, value in node.items()]
        return [(str(i), item) for i, item in enumerate(node)] if isinstance(node, list) else []
    return [(step, node[step])] if isinstance(node, Mapping) and step in node else []
