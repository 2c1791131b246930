"""The stored evidence of one pending workload, as values.

Reads JSON that another process, perhaps of another version, wrote: what is missing or malformed
becomes empty, never an error, because a page that explains must not fall over its explanation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from clusters.explaining.stops import Stop


class Pair(NamedTuple):
    """A flavor and one of its resources."""

    flavor: str
    resource: str


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
class Borrower:
    """A ClusterQueue that holds more than its own nominal quota, and by how much."""

    cluster_queue: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class OwnQuota:
    """One pair of the workload's own ClusterQueue.

    Attributes:
        nominal: Committed.
        used: Held by its own workloads.
        available: Free now, borrowing included; negative when over-admitted.
        potential: The most that it can ever have.
        lent: Of its unused nominal, what others hold now.
    """

    nominal: int = 0
    used: int = 0
    available: int = 0
    potential: int = 0
    lent: int = 0


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


def read_evidence(document: Any) -> Evidence:
    """Read stored evidence; total: any JSON value gives an Evidence."""
    found = _mapping(document)
    holders = tuple(_holder(item) for item in _list(found.get("holders")))
    return Evidence(
        reason=_text(found.get("reason")),
        message=_text(found.get("message")),
        cluster_queue=_text(found.get("clusterQueue")),
        position=_whole(found.get("position")),
        waiting=_whole(found.get("waiting")),
        is_parked=found.get("isParked") is True,
        hold=_text(found.get("hold")),
        hold_kind=_text(found.get("holdKind")),
        requests=_counts(found.get("requests")),
        attempts=tuple(_attempt(item) for item in _list(found.get("attempts"))),
        holders=holders,
        holder_count=max(_whole(found.get("holderCount")), len(holders)),
        borrowers=tuple(
            Borrower(_text(item.get("clusterQueue")), amounts_of(item.get("amounts")))
            for item in _list(found.get("borrowers"))
        ),
        lacking=amounts_of(found.get("lacking")),
        quota={
            pair: _own(value)
            for text, value in _mapping(found.get("quota")).items()
            if (pair := pair_of(text)) is not None
        },
        checks=tuple(
            CheckEvidence(*(_text(item.get(name)) for name in ("name", "state", "message")))
            for item in _list(found.get("checks"))
        ),
        requeue_at=_time(found.get("requeueAt")),
        is_turned_back=found.get("isTurnedBack") is True,
    )


def pair_of(text: object) -> Pair | None:
    """``h100/nvidia.com/gpu`` → its pair; a flavor has no slash. None for anything else."""
    flavor, slash, resource = text.partition("/") if isinstance(text, str) else ("", "", "")
    return Pair(flavor, resource) if flavor and slash and resource else None


def amounts_of(document: Any) -> dict[Pair, int]:
    """``{"flavor/resource": amount}`` as values; pairs that are none are left out."""
    return {
        pair: amount
        for text, amount in _counts(document).items()
        if (pair := pair_of(text)) is not None
    }


def _attempt(item: Mapping[str, Any]) -> Attempt:
    reasons = item.get("reasons")
    return Attempt(
        pod_set=_text(item.get("podSet")),
        flavor=_text(item.get("flavor")),
        mode=_text(item.get("mode")),
        missing=_counts(item.get("missing")),
        reasons=tuple(map(_text, reasons)) if isinstance(reasons, list) else (),
    )


def _holder(item: Mapping[str, Any]) -> HolderEvidence:
    return HolderEvidence(
        key=_text(item.get("key")),
        cluster_queue=_text(item.get("clusterQueue")),
        amounts=amounts_of(item.get("amounts")),
        protection=_text(item.get("protection")),
        since=_time(item.get("since")),
    )


def _own(value: Any) -> OwnQuota:
    counts = _counts(value)
    names = ("nominal", "used", "available", "potential", "lent")
    return OwnQuota(**{name: counts.get(name, 0) for name in names})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _counts(value: Any) -> dict[str, int]:
    return {
        str(name): amount
        for name, amount in _mapping(value).items()
        if isinstance(amount, int) and not isinstance(amount, bool)
    }


def _time(value: Any) -> datetime | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
