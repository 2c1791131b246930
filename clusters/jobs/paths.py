"""Reading and writing documents by paths, as ``spec.replicas``; ``*`` stands for every entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

_ANY: Final = "*"


def values(node: Any, path: str) -> Iterator[Any]:
    """What stands at a path; several with ``*``, nothing where a step is missing."""
    for _, value in entries(node, path):
        yield value


def entries(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The same, each with the key that it stands under; that of a list is its place."""
    return _walk(node, _steps(path), "")


def put(node: Any, path: str, value: Any) -> None:
    """Set one field, making what is missing above it."""
    *above, last = _steps(path)
    for step in above:
        node = node.setdefault(step, {})
    node[last] = value


def drop(node: Any, path: str) -> None:
    """Remove what stands at a path."""
    for parent, field in _parents(node, path):
        parent.pop(field, None)


def zero(node: Any, path: str) -> None:
    """Set every count at a path to 0."""
    for parent, field in _parents(node, path):
        if parent.get(field):
            parent[field] = 0


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def _parents(node: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    above, _, field = path.rpartition(".")
    return ((parent, field) for parent in values(node, above) if isinstance(parent, dict))


def _walk(node: Any, steps: tuple[str, ...], key: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield key, node
        return
    for name, child in _children(node, steps[0]):
        yield from _walk(child, steps[1:], name)


def _children(node: Any, step: str) -> list[tuple[str, Any]]:
    if step == _ANY:
        if isinstance(node, Mapping):
            return [(str(name), value) for name, value in node.items()]
        return [(str(i), item) for i, item in enumerate(node)] if isinstance(node, list) else []
    return [(step, node[step])] if isinstance(node, Mapping) and step in node else []
