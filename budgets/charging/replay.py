"""Works a ledger out with the functions that the portal bills with, and compares.

Source: spec money, section 3.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from budgets.charging.charge import charge
from budgets.charging.ledger_format import Ledger
from budgets.charging.model import Charges
from budgets.metering import Usage, identity_faults, meter
from budgets.units import time_text

# What tells the rows of a list apart; order carries no meaning.
ROW_KEYS: Mapping[str, tuple[str, ...]] = {
    "hours": ("hour", "workspace", "flavor"),
    "accounts": ("hour", "account", "flavor"),
    "workloads": ("uid",),
    "lines": ("workspace", "flavor", "kind"),
    "totals": ("workspace",),
}


class IdentityError(AssertionError):
    """The result contradicts itself: a defect of the portal, not of the record."""


def work_out(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger comes to, in the shape of ``expect``; all lists sorted.

    Raises:
        IdentityError: An identity of the specification does not hold.
    """
    usage = meter(ledger.held, ledger.revisions, ledger.pools, ledger.window)
    faults = identity_faults(usage, pools=ledger.pools)
    if faults:
        raise IdentityError("; ".join(faults))
    charges = charge(usage, ledger.rate_card, workspaces=ledger.pools.accounts)
    return {**_usage(usage), **_charges(charges)}


def _usage(usage: Usage) -> dict[str, Any]:
    workloads: dict[str, list[int]] = {}
    for row in usage.workloads:
        total = workloads.setdefault(row.uid, [0, 0])
        total[0] += row.committed_used
        total[1] += row.burst
    cover = "hour account flavor burst from_pool borrowed from_platform uncovered"
    return {
        "hours": _rows(
            "hour workspace flavor committed committed_used lent idle burst", usage.hours
        ),
        "accounts": _rows(cover, usage.accounts, borrowed="lent"),
        "workloads": [
            {"uid": uid, "committed": committed, "burst": burst}
            for uid, (committed, burst) in sorted(workloads.items())
        ],
    }


def _charges(charges: Charges) -> dict[str, Any]:
    return {
        "lines": _rows("workspace flavor kind gpu_seconds amount", charges.lines),
        "totals": _rows("workspace rounding payable", charges.totals),
        "platform_funding": str(charges.platform_funding),
    }


def _rows(names: str, rows: Iterable[object], **called: str) -> list[dict[str, Any]]:
    """Rows as objects of the format; ``called``: what the core calls a field differently."""
    return [
        {name: _plain(getattr(row, called.get(name, name))) for name in names.split()}
        for row in rows
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return time_text(value)
    return value if isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """One place where the result is not what was expected; None: there is no such row or value."""

    place: str
    wanted: Any
    got: Any


def differences(got: Mapping[str, Any], want: object) -> list[LedgerDifference]:
    """Compare a result with a record's ``expect``.

    Args:
        got: From :func:`work_out`.
        want: Parsed JSON; keys that it does not have are not compared.

    Returns:
        In the order of the format; empty when they match.
    """
    if not isinstance(want, Mapping):
        return [LedgerDifference("expect", want, "a JSON object was expected here")]
    found: list[LedgerDifference] = []
    for name in (*ROW_KEYS, "platform_funding"):
        if name not in want:
            continue
        if name in ROW_KEYS:
            found += _row_differences(name, got[name], want[name])
        elif want[name] != got[name]:
            found.append(LedgerDifference(name, want[name], got[name]))
    return found


def _row_differences(
    name: str, got: Sequence[Mapping[str, Any]], want: object
) -> Iterable[LedgerDifference]:
    if not isinstance(want, list) or not all(isinstance(row, Mapping) for row in want):
        return [LedgerDifference(name, want, "a list of objects was expected here")]
    mine, theirs = _keyed(name, got), _keyed(name, want)
    found: list[LedgerDifference] = []
    if len(theirs) != len(want):
        found.append(
            LedgerDifference(name, f"{len(want)} rows", f"{len(theirs)} that differ in key")
        )
    for key in sorted({*mine, *theirs}):
        place = f"{name} {' '.join(key)}"
        if key not in mine or key not in theirs:
            found.append(LedgerDifference(place, theirs.get(key), mine.get(key)))
            continue
        found += [
            LedgerDifference(f"{place}: {field}", value, mine[key].get(field))
            for field, value in theirs[key].items()
            if value != mine[key].get(field)
        ]
    return found


def _keyed(
    name: str, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, ...], Mapping[str, Any]]:
    return {tuple(str(row.get(part)) for part in ROW_KEYS[name]): row for row in rows}
