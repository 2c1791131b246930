"""Merge patches (RFC 7386) and JSON patches (RFC 6902)."""

from __future__ import annotations

import copy
from typing import Any

from clusters.devcluster.problems import Failure, bad_request


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
        Failure: 400 for what is not a patch, 422 when a test fails or a path is not there.
    """
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    # The whole document has a place, too, so that every path leads to a container and a key.
    root = {"": copy.deepcopy(target)}
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request("a JSON patch operation needs op and path")
        try:
            _operate(root, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            text = "the server rejected our request due to an error in our request"
            raise Failure(422, "Invalid", f"{text}: {operation['path']}: {error}") from None
    return root[""]


def _operate(root: dict[str, Any], operation: dict[str, Any]) -> None:
    action, value = operation["op"], operation.get("value")
    if action not in ("test", "add", "replace", "remove", "move", "copy"):
        raise bad_request(f"unknown JSON patch operation {action!r}")
    if action in ("move", "copy"):
        source, key = _place(root, operation.get("from", ""))
        value = source[key]
        if action == "move":
            del source[key]
    container, key = _place(root, operation["path"])
    if action == "test" and container[key] != value:
        raise ValueError("testing the path failed")
    if action in ("remove", "replace"):
        del container[key]
    if action in ("test", "remove"):
        return
    if isinstance(container, list):
        container.insert(key, copy.deepcopy(value))
    else:
        container[key] = copy.deepcopy(value)


def _place(root: dict[str, Any], pointer: str) -> tuple[Any, Any]:
    """The container that a pointer leads into, and the key or index there."""
    container: Any = root
    key: Any = ""
    for part in pointer.split("/")[1:]:
        container = container[key]
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(container, list):
            key = len(container) if part == "-" else _index(part)
    return container, key


def _index(part: str) -> int:
    if not part.isdecimal():
        raise ValueError(f"{part!r} is not a list index")
    return int(part)
