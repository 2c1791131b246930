"""The ledger format of ``replay_ledger``: plain JSON → what the meter and the charges take.

Source: spec money, section 3.1; docs/ledger-format.md and docs/ledger.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from budgets.charging.model import Rate, Rates
from budgets.charging.reading import Reader
from budgets.errors import Fault
from budgets.metering import AccountPool, Floor, Held, PoolChange, Pools, Revision, SharedPool
from budgets.units import (
    AccountName,
    FlavorName,
    Period,
    UnitsError,
    WorkloadUid,
    WorkspaceName,
    currency_digits,
    time_text,
    utc_hour,
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """One record, read: everything that its usage and charges follow from."""

    name: str
    window: Period
    held: tuple[Held, ...]
    revisions: tuple[Revision, ...]
    pools: Pools
    rate_card: Rates


class LedgerFaults(ValueError):
    """A record that cannot be read; ``faults`` has everything that is wrong with it."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.message}" for fault in faults))


def read_ledger(record: object) -> Ledger:
    """Read one record of the format.

    Args:
        record: Parsed JSON. Keys that the format does not have are ignored.

    Raises:
        LedgerFaults: With every fault of the record at once.
    """
    faults: list[Fault] = []
    reader = Reader(record, path="", faults=faults)
    currency = _currency(reader)
    window = _window(reader)
    pools = _pools(reader)
    revisions = _revisions(reader, pools)
    rates = _rates(reader)
    held = _held(reader, pools)
    if faults or window is None:
        raise LedgerFaults(faults)
    return Ledger(
        name=reader.text("name", default="ledger"),
        window=window,
        held=held,
        revisions=revisions,
        pools=pools,
        rate_card=Rates(rates, currency=currency),
    )


def _currency(reader: Reader) -> str:
    code = reader.text("currency")
    if code:
        try:
            currency_digits(code)
        except UnitsError as error:
            reader.fault("currency", "unknown", str(error))
    return code


def _window(reader: Reader) -> Period | None:
    inner = reader.object("period")
    start, end = inner.moment("start"), inner.moment("end")
    if start is None or end is None:
        return None
    if end <= start:
        inner.fault("end", "not_after_start", "the period ends before it starts; swap them")
        return None
    return Period(start, end)


def _pools(reader: Reader) -> Pools:
    own: dict[AccountName, AccountPool] = {}
    for row in reader.rows("accounts"):
        name = AccountName(row.text("name"))
        if name in own:
            row.fault("name", "repeated", f"the account {name} is there twice; keep one")
        own[name] = AccountPool(name, (PoolChange(None, _gpus(row, "shared_pool")),))
    accounts: dict[WorkspaceName, AccountName] = {}
    for row in reader.rows("workspaces"):
        workspace = WorkspaceName(row.text("name"))
        if workspace in accounts:
            row.fault("name", "repeated", f"the workspace {workspace} is there twice; keep one")
        accounts[workspace] = AccountName(row.known("account", own, what="account"))
    shared: list[SharedPool] = []
    taken: set[str] = set()
    for row in reader.rows("platform_pools", required=False):
        members = row.texts("accounts", own, what="account")
        for twice in sorted(taken & set(members)):
            row.fault("accounts", "in_two_pools", f"{twice} is in another platform pool; keep one")
        taken.update(members)
        change = PoolChange(None, _gpus(row, "gpus"))
        shared.append(SharedPool(frozenset(AccountName(name) for name in members), (change,)))
    return Pools(accounts, tuple(own.values()), tuple(shared))


def _gpus(row: Reader, key: str) -> Mapping[FlavorName, int]:
    return {FlavorName(flavor): gpus for flavor, gpus in row.counts(key).items()}


def _revisions(reader: Reader, pools: Pools) -> tuple[Revision, ...]:
    found: list[Revision] = []
    for row in reader.rows("revisions"):
        workspace = WorkspaceName(row.known("workspace", pools.accounts, what="workspace"))
        start = row.moment("from")
        floors: dict[FlavorName, Floor] = {}
        for line in row.rows("lines"):
            flavor = FlavorName(line.text("flavor"))
            if flavor in floors:
                line.fault("flavor", "repeated", f"{flavor} has two lines; keep one")
            floors[flavor] = Floor(line.count("committed"), line.count_or_none("lendable"))
            line.count_or_none("burst")
        if start is not None:
            found.append(Revision(workspace, start, floors))
    return tuple(found)


def _rates(reader: Reader) -> tuple[Rate, ...]:
    found: dict[tuple[FlavorName, datetime], Rate] = {}
    for row in reader.rows("rates"):
        flavor, start = FlavorName(row.text("flavor")), row.moment("from")
        committed, burst = row.amount("committed"), row.amount("burst")
        credit = row.amount("lending_credit", most=Decimal(1))
        if start is None:
            continue
        if utc_hour(start) != start:
            row.fault(
                "from",
                "not_a_whole_hour",
                f"{time_text(start)} is not a whole UTC hour; a rate begins on one",
            )
            continue
        if (flavor, start) in found:
            row.fault("from", "repeated", f"{flavor} has another rate from then on; keep one")
        found[flavor, start] = Rate(flavor, start, committed, burst, credit)
    return tuple(found.values())


def _held(reader: Reader, pools: Pools) -> tuple[Held, ...]:
    found: list[Held] = []
    for row in reader.rows("intervals"):
        uid = WorkloadUid(row.text("uid"))
        workspace = WorkspaceName(row.known("workspace", pools.accounts, what="workspace"))
        flavor, gpus = FlavorName(row.text("flavor")), row.count("gpus")
        admitted, start = row.moment("admitted"), row.moment("start")
        end = row.moment("end") if row.has("end") else None
        if start is not None and end is not None and end < start:
            row.fault("end", "before_start", f"{uid} ends before it starts; correct the times")
        if admitted is not None and start is not None:
            found.append(Held(uid, workspace, flavor, gpus, admitted, start, end))
    return tuple(found)
