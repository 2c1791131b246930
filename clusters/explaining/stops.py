"""What makes a queue stand still, by the portal's records: which, until when, what helps.

A person's hold, an archived workspace, a spend cap and maintenance each keep their own reason; the
strongest stopPolicy is applied (``budgets.plan.strongest_stop``), and so it is the one that is told
first. Source: docs/operations.md; docs/spend-rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from budgets.plan import StopPolicy, strongest_stop
from clusters.explaining.names import Names


class StopSource(StrEnum):
    """Where a reason is kept; of equally strong ones the first is told first."""

    ARCHIVED = "archived"
    PERSON = "person"
    CAP = "cap"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class Stop:
    """One reason why a queue stands still, or gives less than its budget says.

    Attributes:
        source: Where it is kept.
        policy: Kueue's stopPolicy that it asks for; NONE for what only narrows the queue: a cap
            that drops the ceiling to the floor, or maintenance of one ``flavor``.
        what: What holds: a person, ``500 EUR a month``, ``worker gpu-east``.
        since: UTC; None when it is not known.
        until: UTC; when it ends by itself, None when it does not.
        note: The reason that a person gave.
        keeper: Who may end it earlier; empty for nobody.
        flavor: Slug of the only flavor that it touches; empty for the whole queue.
    """

    source: StopSource
    policy: StopPolicy
    what: str = ""
    since: datetime | None = None
    until: datetime | None = None
    note: str = ""
    keeper: str = ""
    flavor: str = ""


def holding(stops: Iterable[Stop]) -> list[Stop]:
    """Those that stop the whole queue, the strongest first."""
    found = [stop for stop in stops if stop.policy is not StopPolicy.NONE]
    strongest = strongest_stop(*(stop.policy for stop in found))
    return sorted(found, key=lambda stop: (stop.policy is not strongest, _ORDER[stop.source]))


def soft_cap(stops: Iterable[Stop]) -> Stop | None:
    """A reached cap that lets nothing be borrowed beyond the floor."""
    narrowing = (stop for stop in stops if stop.policy is StopPolicy.NONE)
    return next((stop for stop in narrowing if stop.source is StopSource.CAP), None)


def closed_flavor(stops: Iterable[Stop], flavor: str) -> Stop | None:
    """Maintenance of a flavor."""
    return next((stop for stop in stops if flavor and stop.flavor == flavor), None)


def hold_clause(stops: Sequence[Stop]) -> str:
    """Who or what holds a queue, since when and until when; of at least one :func:`holding`."""
    text = _clause(stops[0])
    others = [_also(stop) for stop in stops[1:]]
    return f"{text}; it is also held by {' and by '.join(others)}" if others else text


def remedy(stop: Stop, names: Names) -> str:
    """What would end it, as a sentence."""
    match stop.source:
        case StopSource.ARCHIVED:
            return "Submit the job in another workspace: an archived one stays held."
        case StopSource.PERSON:
            return f"{_capital(stop.keeper)} releases the hold."
        case StopSource.CAP:
            by_hand = f"{stop.keeper} raises, removes or suspends the cap of {stop.what}"
            if stop.until is None:
                return f"{_capital(by_hand)}."
            return f"The cap starts over at {moment(stop.until)}, or {by_hand}."
        case StopSource.MAINTENANCE:
            end = f"ends at {moment(stop.until)}" if stop.until is not None else "ends"
            flavor = f"{names.flavor(stop.flavor)} on " if stop.flavor else ""
            return f"Maintenance of {flavor}{stop.what} {end}, or {stop.keeper} ends it earlier."


def cap_words(stop: Stop) -> str:
    """``the spend cap of 500 EUR a month (until 2026-04-01 00:00 UTC)``."""
    until = f" (until {moment(stop.until)})" if stop.until is not None else ""
    return f"the spend cap of {stop.what}{until}"


def moment(at: datetime) -> str:
    """``2026-03-02 10:00 UTC``."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _clause(stop: Stop) -> str:
    match stop.source:
        case StopSource.ARCHIVED:
            return f"its workspace was archived{_since(stop)}: nothing starts in it any more"
        case StopSource.PERSON:
            note = f' ("{stop.note}")' if stop.note else ""
            return (
                f"{stop.what} put its budget on hold{_since(stop)}{note}: nothing starts until "
                f"{stop.keeper} releases it"
            )
        case StopSource.CAP:
            until = f"{moment(stop.until)}, or until " if stop.until is not None else ""
            return (
                f"the spend cap of {stop.what} was reached{_since(stop)}: nothing starts until "
                f"{until}{stop.keeper} raises it"
            )
        case StopSource.MAINTENANCE:
            since = f" since {moment(stop.since)}" if stop.since is not None else ""
            until = f" until {moment(stop.until)}" if stop.until is not None else ""
            return f"{stop.what} is closed for maintenance{since}: nothing starts there{until}"


def _also(stop: Stop) -> str:
    match stop.source:
        case StopSource.ARCHIVED:
            return "the archiving of its workspace"
        case StopSource.PERSON:
            return stop.what
        case StopSource.CAP:
            return cap_words(stop)
        case StopSource.MAINTENANCE:
            until = f" (until {moment(stop.until)})" if stop.until is not None else ""
            return f"maintenance of {stop.what}{until}"


def _since(stop: Stop) -> str:
    return f" at {moment(stop.since)}" if stop.since is not None else ""


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


_ORDER: Final = {source: place for place, source in enumerate(StopSource)}
