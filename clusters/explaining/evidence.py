"""Why one pending workload waits: its type, the JSON that it is stored as, and reading that again.

Both ways follow the fields of the types; a field's key is its name in camel case. The JSON that is
read was written by another process, perhaps of another version: what is missing or malformed
becomes empty, never an error, because a page that explains must not fall over its explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, TypeAlias, cast, get_args, get_origin, get_type_hints

from clusters.documents.times import stamp
from clusters.explaining.stops import Stop
from clusters.kueue.amounts import FlavorResource
from clusters.kueue.explanation.why import Borrower, OwnQuota

Pair: TypeAlias = FlavorResource
Amounts: TypeAlias = Mapping[Pair, int]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One flavor that was looked at.

    Attributes:
        mode: Name of a ``clusters.kueue.assignment.outcome.Mode``.
        missing: Resource → what was not free, in the resource's own unit.
        reasons: Texts as in the condition's message.
    """

    pod_set: str
    flavor: str
    mode: str = ""
    missing: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HolderEvidence:
    """A workload that holds what is lacking; ``protection`` names a ``Protection``."""

    key: str
    cluster_queue: str
    amounts: Amounts
    protection: str = ""
    since: datetime | None = None

    @property
    def namespace(self) -> str:
        """Namespace of its key."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Name of its key."""
        return self.key.partition("/")[2]


@dataclass(frozen=True, slots=True)
class CheckEvidence:
    """State of one AdmissionCheck."""

    name: str
    state: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known about why one workload waits; raw names.

    Attributes:
        reason, message: Of its condition.
        position: 1 for the next of its ClusterQueue; 0 when it waits in none.
        waiting: Workloads that wait in the same ClusterQueue, this one included.
        is_parked: Not tried again before something in its tree changes.
        hold: ``Hold`` or ``HoldAndDrain`` where something is stopped; ``hold_kind`` says what.
        requests: Resource → amount of the whole workload.
        lacking: What is missing in the flavors that were tried.
        holder_count: Holders before the list was cut.
        requeue_at: It is not tried before.
        is_turned_back: A spend check of the portal deactivated it, and will activate it again.
        stops: What the portal's records say about why the queue stands still; not stored with the
            rest. None when nobody has asked them.
    """

    reason: str
    message: str = ""
    cluster_queue: str = ""
    position: int = 0
    waiting: int = 0
    is_parked: bool = False
    hold: str = ""
    hold_kind: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    holders: tuple[HolderEvidence, ...] = ()
    holder_count: int = 0
    borrowers: tuple[Borrower, ...] = ()
    lacking: Amounts = field(default_factory=dict)
    quota: Mapping[Pair, OwnQuota] = field(default_factory=dict)
    checks: tuple[CheckEvidence, ...] = ()
    requeue_at: datetime | None = None
    is_turned_back: bool = False
    stops: tuple[Stop, ...] | None = None


_NOT_STORED: Final = frozenset({"stops"})


def evidence_document(evidence: Evidence) -> dict[str, Any]:
    """The JSON that is stored: ``amounts`` as ``{"flavor/resource": int}``, times as RFC 3339."""
    return cast(dict[str, Any], _written(evidence))


def _written(value: Any) -> Any:
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


def read_evidence(document: Any) -> Evidence:
    """Read stored evidence; total: any JSON value gives an Evidence."""
    found: Evidence = _reader(Evidence)(document)
    return replace(found, holder_count=max(found.holder_count, len(found.holders)))


@cache
def _keys(kind: Any) -> tuple[tuple[str, str], ...]:
    """Fields that are stored, each with its key."""
    names = [item.name for item in fields(kind) if item.name not in _NOT_STORED]
    return tuple((name, _camel(name)) for name in names)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What reads a JSON value as one of a type; anything else becomes an empty one."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        stored = _keys(cast(Any, kind))
        parts = [(name, key, _reader(hints[name])) for name, key in stored]
        return partial(_record, kind, parts)
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return partial(_rows, arguments[0], _reader(arguments[0]))
    if arguments and issubclass(get_origin(kind) or object, Mapping):
        return partial(_mapped, *arguments)
    return _SCALARS[kind]


def _record(kind: Any, parts: Iterable[tuple[str, str, Callable[[Any], Any]]], value: Any) -> Any:
    found = value if isinstance(value, Mapping) else {}
    return kind(**{name: read(found.get(key)) for name, key, read in parts})


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
        if (key := pair_of(text) if key_kind is FlavorResource else str(text)) is not None
        and (kind is not int or _is_whole(item))
    }


def pair_of(text: object) -> Pair | None:
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
    if not isinstance(value, str) or not value:
        return None
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


_SCALARS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    int: _whole,
    bool: _is_true,
    datetime | None: _time,
}
