"""Merge patches (RFC 7386) and JSON patches (RFC 6902)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from clusters.devcluster.problems import Problem, bad_request


def merge_patch(target: Any, patch: Any) -> Any:
    """The target changed by a merge patch; null deletes, lists are replaced whole."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """The target changed by a JSON patch, all operations or none.

    Raises:
        Problem: 400 for what is not a patch, 422 when a test fails or a path is not there.
    """
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    result = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request("a JSON patch operation needs op and path")
        result = _operate(result, operation)
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    action, path = operation["op"], _pointer(operation["path"])
    if action == "test":
        if _read(document, path) != operation.get("value"):
            raise _unprocessable(f"testing path {operation['path']} failed")
        return document
    if action == "add":
        return _insert(document, path, copy.deepcopy(operation.get("value")))
    if action == "replace":
        return _insert(_drop(document, path), path, copy.deepcopy(operation.get("value")))
    if action == "remove":
        return _drop(document, path)
    if action in ("move", "copy"):
        source = _pointer(operation.get("from", ""))
        value = copy.deepcopy(_read(document, source))
        if action == "move":
            document = _drop(document, source)
        return _insert(document, path, value)
    raise bad_request(f"unknown JSON patch operation {action!r}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        document = _step(document, part)
    return document


def _step(container: Any, part: str) -> Any:
    try:
        return container[int(part)] if isinstance(container, list) else container[part]
    except (KeyError, IndexError, ValueError, TypeError):
        raise _unprocessable(f"the path has no {part!r}") from None


def _insert(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    container = _read(document, path[:-1])
    if isinstance(container, list):
        container.insert(len(container) if path[-1] == "-" else _index(path[-1]), value)
    elif isinstance(container, dict):
        container[path[-1]] = value
    else:
        raise _unprocessable(f"the path has no {path[-1]!r}")
    return document


def _drop(document: Any, path: Sequence[str]) -> Any:
    if not path:
        return None
    container = _read(document, path[:-1])
    _step(container, path[-1])
    del container[_index(path[-1]) if isinstance(container, list) else path[-1]]
    return document


def _index(part: str) -> int:
    if not part.isdecimal():
        raise _unprocessable(f"{part!r} is not a list index")
    return int(part)


def _unprocessable(message: str) -> Problem:
    text = f"the server rejected our request due to an error in our request: {message}"
    return Problem(422, "Invalid", text)
