"""Why one pending workload waits, as it is stored: to JSON and back.

Both ways follow the fields of :class:`Explanation`; a field's key is its name in camel case. The
JSON that is read was written by another process, perhaps of another version: what is missing or
malformed becomes empty, never an error, because a page that explains must not fall over its
explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args, get_origin, get_type_hints

from clusters.documents.times import stamp
from clusters.explaining.stops import Stop
from clusters.kueue.amounts import FlavorResource
from clusters.kueue.explanation.why import Explanation

Pair: TypeAlias = FlavorResource


class Room(NamedTuple):
    """Free GPUs of a flavor's nodes: in the one domain with most of them, and in all together."""

    most: int
    free: int


@dataclass(frozen=True, slots=True)
class Evidence(Explanation):
    """A stored explanation, completed by what the portal's records say.

    Attributes:
        stops: Why the queue stands still. None when nobody has asked them.
        room: On the nodes of the flavor that a place is missing on, in domains of the level
            ``within``. None when nobody has asked, or nodes are not known.
    """

    stops: tuple[Stop, ...] | None = None
    room: Room | None = None

    @property
    def current(self) -> Evidence:
        """The same with reason and message of now, the moment of its amounts, where they are."""
        if not self.reason_now:
            return self
        return replace(self, reason=self.reason_now, message=self.message_now)


def evidence_document(explanation: Explanation) -> dict[str, Any]:
    """The JSON that is stored: ``amounts`` as ``{"flavor/resource": int}``, times as RFC 3339."""
    return cast(dict[str, Any], _written(explanation))


def _written(value: Any) -> Any:
    if isinstance(value, Enum):
        return _word(value)
    if isinstance(value, str | int):
        return value
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    if isinstance(value, Mapping):
        if any(type(key) is FlavorResource for key in value):
            return {"/".join(pair): _written(value[pair]) for pair in sorted(value)}
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return stamp(value)
    if value is None:
        return ""
    kind: Any = type(value)
    return {key: _written(getattr(value, name)) for name, key in _keys(kind)}


def _word(value: Enum) -> str:
    """What an enumeration's member is stored as: its own word, or its name where it is a number."""
    return value.value if isinstance(value.value, str) else value.name


def read_evidence(document: Any) -> Evidence:
    """Read stored evidence; total: any JSON value gives an Evidence."""
    found: Evidence = _record(Evidence, _parts(Explanation), document)
    return replace(found, holder_count=max(found.holder_count, len(found.holders)))


@cache
def _keys(kind: Any) -> tuple[tuple[str, str], ...]:
    """Fields, each with its key."""
    return tuple((item.name, _camel(item.name)) for item in fields(kind))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


_Parts: TypeAlias = Iterable[tuple[str, str, Callable[[Any], Any]]]


@cache
def _parts(kind: Any) -> _Parts:
    """Fields, each with its key and with what reads it."""
    hints = get_type_hints(kind)
    return [(name, key, _reader(hints[name])) for name, key in _keys(kind)]


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What reads a JSON value as one of a type; anything else becomes an empty one."""
    if is_dataclass(kind):
        return partial(_record, kind, _parts(cast(Any, kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_member, {_word(item): item for item in kind}, next(iter(kind)))
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return partial(_rows, arguments[0], _reader(arguments[0]))
    if arguments and issubclass(get_origin(kind) or object, Mapping):
        return partial(_mapped, *arguments)
    return _SCALARS[kind]


def _record(kind: Any, parts: _Parts, value: Any) -> Any:
    found = value if isinstance(value, Mapping) else {}
    return kind(**{name: read(found.get(key)) for name, key, read in parts})


def _member(words: Mapping[str, Enum], empty: Enum, value: Any) -> Enum:
    return words.get(_text(value), empty)


def _rows(kind: Any, read: Callable[[Any], Any], value: Any) -> tuple[Any, ...]:
    """Items of a list; records that are none are left out."""
    items = value if isinstance(value, list) else ()
    return tuple(read(item) for item in items if kind is str or isinstance(item, Mapping))


def _mapped(key_kind: Any, kind: Any, value: Any) -> dict[Any, Any]:
    """Entries of an object; keys that are none, and amounts that are none, are left out."""
    read = _reader(kind)
    return {
        key: read(item)
        for text, item in (value.items() if isinstance(value, Mapping) else ())
        if (key := _pair(text) if key_kind is FlavorResource else str(text)) is not None
        and (kind is not int or _is_whole(item))
    }


def _pair(text: object) -> Pair | None:
    """``h100/nvidia.com/gpu`` → its pair; a flavor has no slash. None for anything else."""
    flavor, slash, resource = text.partition("/") if isinstance(text, str) else ("", "", "")
    return Pair(flavor, resource) if flavor and slash and resource else None


def amounts_of(document: Any) -> dict[Pair, int]:
    """``{"flavor/resource": amount}`` as values; pairs that are none are left out."""
    return _mapped(Pair, int, document)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: Any) -> int:
    return value if _is_whole(value) else 0


def _is_true(value: Any) -> bool:
    return value is True


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


_SCALARS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    int: _whole,
    bool: _is_true,
    datetime | None: _time,
}
