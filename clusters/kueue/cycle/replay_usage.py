"""The ledger of admission fair sharing in a recorded scenario: taken in, shown, compared.

Source: recordings of Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from clusters.kueue.amounts import parse_decimal
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.quota.usage_ledger import Nanos, format_nanos

_TOLERANCE: Final = Decimal("1e-12")


def with_consumed(
    local_queues: Iterable[Mapping[str, Any]], consumed: Mapping[str, Mapping[str, str]]
) -> Iterator[Mapping[str, Any]]:
    """LocalQueue documents whose status tells what was consumed before the scenario."""
    for document in local_queues:
        metadata = document["metadata"]
        status = {"consumedResources": consumed.get(f"{metadata['namespace']}/{metadata['name']}")}
        yield {**document, "status": {"fairSharing": {"admissionFairSharingStatus": status}}}


def usage_view(engine: Engine) -> dict[str, dict[str, Any]]:
    """Every line of the ledger as a recording shows it."""
    view = {}
    for key in engine.state.queues.local_queues:
        entry = engine.state.ledger.entry(key)
        if entry is not None:
            view[key] = {
                "consumed": _quantities(entry.consumed),
                "pending": _quantities(entry.pending),
                "lastUpdate": entry.updated_at.isoformat().replace("+00:00", "Z"),
            }
    return view


def is_same_usage(want: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    """Whether two views agree, amounts within the last digit of a float."""
    return want.keys() == got.keys() and all(
        line["lastUpdate"] == got[key]["lastUpdate"]
        and _is_close(line["consumed"], got[key]["consumed"])
        and _is_close(line["pending"], got[key]["pending"])
        for key, line in want.items()
    )


def _quantities(amounts: Nanos) -> dict[str, str]:
    return {name: format_nanos(amount) for name, amount in amounts.items()}


def _is_close(want: Mapping[str, str], got: Mapping[str, str]) -> bool:
    def amount(quantities: Mapping[str, str], name: str) -> Decimal:
        return parse_decimal(quantities.get(name, "0"))

    return all(
        abs(amount(want, name) - amount(got, name)) <= _TOLERANCE * abs(amount(want, name))
        for name in want.keys() | got.keys()
    )
