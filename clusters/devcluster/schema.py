"""A small schema language: as much of OpenAPI as a cluster's answers depend on.

It says types, defaults and bounds, and, for server-side apply, which lists are atomic, sets or
maps by key. Closed structures (custom resources) lose unknown fields; open ones (built-in kinds,
of which only the list structure is written down) keep them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, TypeAlias

from clusters.devcluster import problems
from clusters.devcluster.problems import Cause

MISSING = object()
LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"^{LABEL}(\.{LABEL})*$"
QUANTITY = re.compile(
    r"^[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?(\d+(\.\d*)?|\.\d+))?$"
)


@dataclass(frozen=True, slots=True)
class Schema:
    """One node. `low` and `high` bound a text's length, a list's items or a whole number."""

    type: str
    low: int | None = None
    high: int | None = None
    _: KW_ONLY
    fields: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    item: Schema | None = None
    keys: tuple[str, ...] = ()
    is_atomic: bool = False
    is_set: bool = False
    is_open: bool = False
    default: Any = MISSING
    allowed: tuple[str, ...] = ()
    pattern: str = ""
    omits_empty: tuple[str, ...] = ()

    def child(self, key: str) -> Schema:
        """The schema of a key of a structure or map; anything where nothing is written down."""
        if self.type == "map":
            return self.item or ANYTHING
        return self.fields.get(key, ANYTHING)


Node: TypeAlias = "Schema | Mapping[str, Node]"
"""A schema; or the fields of a structure, written like the document."""
ANYTHING = Schema("any")
text = partial(Schema, "text")
whole = partial(Schema, "whole")
flag = partial(Schema, "flag")
quantity = partial(Schema, "quantity")


def _schema(node: Node) -> Schema:
    return node if isinstance(node, Schema) else struct(node)


def struct(fields: Mapping[str, Node], **traits: Any) -> Schema:
    """A structure; a name that ends in * is required."""
    schemas = {name.rstrip("*"): _schema(node) for name, node in fields.items()}
    required = tuple(name[:-1] for name in fields if name.endswith("*"))
    return Schema("struct", fields=schemas, required=required, **traits)


def one_of(*allowed: str, default: Any = MISSING) -> Schema:
    return Schema("text", allowed=allowed, default=default)


def dictionary(item: Node) -> Schema:
    return Schema("map", item=_schema(item))


def atomic(item: Node = ANYTHING, low: int | None = None, high: int | None = None) -> Schema:
    return Schema("list", low, high, item=_schema(item), is_atomic=True)


def unique(item: Schema, high: int | None = None) -> Schema:
    return Schema("list", high=high, item=item, is_set=True)


def keyed(item: Node, *keys: str, low: int | None = None, high: int | None = None) -> Schema:
    return Schema("list", low, high, item=_schema(item), keys=keys)


def by_name(item: Node, *, low: int | None = None, high: int | None = None) -> Schema:
    """A list of structures that their name tells apart."""
    return keyed(item, "name", low=low, high=high)


def item_key(item: Any, schema: Schema) -> str:
    """How a list item is named in field sets: k:{"name":"a"} or v:"a"."""
    if schema.is_set:
        return "v:" + json.dumps(item, separators=(",", ":"))
    source = item if isinstance(item, dict) else {}
    keys = {}
    for key in schema.keys:
        default = schema.item.child(key).default if schema.item else MISSING
        keys[key] = source.get(key, None if default is MISSING else default)
    return "k:" + json.dumps(keys, separators=(",", ":"), sort_keys=True)


def normalised(value: Any, schema: Schema, *, keeps_null: bool = False) -> Any:
    """A copy with unknown fields and nulls left out and defaults filled in.

    With `keeps_null` a null without a default stays, and is then a fault, as in an apply.
    """
    if isinstance(value, dict):
        if schema.type not in ("struct", "map", "any"):
            return value
        kept = {
            key: normalised(entry, schema.child(key), keeps_null=keeps_null)
            for key, entry in value.items()
            if _is_known(key, schema)
            and (entry is not None or (keeps_null and _minds_null(key, schema)))
        }
        for key in schema.omits_empty:
            if key in kept and not kept[key]:
                del kept[key]
        for key, child in schema.fields.items():
            if key not in kept and child.default is not MISSING:
                kept[key] = normalised(json.loads(json.dumps(child.default)), child)
        return kept
    if isinstance(value, list):
        item = schema.item or ANYTHING
        return [normalised(entry, item, keeps_null=keeps_null) for entry in value]
    return value


def _minds_null(key: str, schema: Schema) -> bool:
    return not schema.is_open and schema.child(key).default is MISSING


def _is_known(key: str, schema: Schema) -> bool:
    return schema.type != "struct" or schema.is_open or schema.is_atomic or key in schema.fields


def unknown_fields(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Paths of fields that a closed structure does not have; server-side apply refuses them."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if not _is_known(key, schema):
                yield f"{path}.{key}"
            else:
                yield from unknown_fields(entry, schema.child(key), f"{path}.{key}")
    elif isinstance(value, list) and not schema.is_atomic:
        for entry in value:
            yield from unknown_fields(entry, schema.item or ANYTHING, f"{path}[]")


def faults(value: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Everything about the value that the schema forbids."""
    if schema.type == "any":
        return
    types, wanted = _TYPES[schema.type]
    if not isinstance(value, types) or (isinstance(value, bool) and schema.type != "flag"):
        is_a = next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "number")
        message = f'Invalid value: "{is_a}": {path} in body must be of type {wanted}: "{is_a}"'
        yield Cause(path, "FieldValueTypeInvalid", message)
    elif isinstance(value, dict):
        yield from _struct_faults(value, schema, path)
    elif isinstance(value, list):
        yield from _list_faults(value, schema, path)
    elif schema.allowed:
        if value not in schema.allowed:
            yield problems.unsupported(path, value, schema.allowed)
    elif isinstance(value, str):
        yield from _text_faults(value, schema, path)
    elif schema.low is not None and value < schema.low:
        message = f"{path} in body should be greater than or equal to {schema.low}"
        yield problems.invalid(path, value, message)


def _struct_faults(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    if schema.high is not None and len(value) > schema.high:
        yield problems.too_many(path, len(value), schema.high)
    for key in schema.required:
        if key not in value:
            yield problems.required(_joined(path, key))
    for key, entry in value.items():
        yield from faults(entry, schema.child(key), _joined(path, key))


def _list_faults(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    if schema.high is not None and len(value) > schema.high:
        yield problems.too_many(path, len(value), schema.high)
    if schema.low is not None and len(value) < schema.low:
        message = f"{path} in body should have at least {schema.low} items"
        yield problems.invalid(path, len(value), message)
    seen: set[str] = set()
    for index, entry in enumerate(value):
        if schema.keys or schema.is_set:
            key = item_key(entry, schema)
            if key in seen:
                yield problems.duplicate(f"{path}[{index}]", json.loads(key[2:]))
            seen.add(key)
        yield from faults(entry, schema.item or ANYTHING, f"{path}[{index}]")


def _text_faults(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    pattern = QUANTITY.pattern if schema.type == "quantity" else schema.pattern
    if schema.high is not None and len(value) > schema.high:
        yield problems.too_long(path, schema.high)
    elif schema.low is not None and len(value) < schema.low:
        message = f"{path} in body should be at least {schema.low} chars long"
        yield problems.invalid(path, value, message)
    elif pattern and not re.search(pattern, value):
        yield problems.invalid(path, value, f"{path} in body should match '{pattern}'")


_TYPES: Mapping[str, tuple[Any, str]] = {
    "struct": (dict, "object"),
    "map": (dict, "object"),
    "list": (list, "array"),
    "text": (str, "string"),
    "whole": (int, "integer"),
    "flag": (bool, "boolean"),
    "quantity": (int | str, "integer,string"),
}
# In this order: a bool is an int, too.
_TYPE_NAMES = (
    (dict, "object"), (list, "array"), (str, "string"), (bool, "boolean"), (int, "integer"),
    (type(None), "null"),
)  # fmt: skip


def _joined(path: str, key: str) -> str:
    if key.replace("_", "").replace("-", "").isalnum():
        return f"{path}.{key}" if path else key
    return f"{path}[{key}]"
