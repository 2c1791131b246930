"""The ledger format of ``replay_ledger``: plain JSON → what the meter and the charges take.

Plain values are read with their place, and everything that is wrong with them is gathered.

Source: spec money, section 3.1; docs/ledger-format.md and docs/ledger.schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from budgets.charging.model import Rate, Rates
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

_MISSING = object()
_PRICE_DIGITS = 8
_LARGEST_COUNT = 10**9
_FIRST_YEAR, _LAST_YEAR = 1970, 9000


class Reader:
    """Reads one JSON object; what is wrong goes to ``faults`` and a stand-in is returned.

    Args:
        value: What should be an object.
        path: Where it stands, such as ``revisions.0``; empty for the whole.
        faults: Shared by all readers of one record.
    """

    def __init__(self, value: Any, *, path: str, faults: list[Fault]) -> None:
        self.path = path
        self.faults = faults
        self._object: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        # What is missing in something that is no object anyway was told with that.
        self._tells_missing = isinstance(value, Mapping)
        if value is not _MISSING and not self._tells_missing:
            self.fault("", "not_an_object", f"{_shown(value)} is not a JSON object; write {{…}}")

    def fault(self, key: str, code: str, message: str) -> None:
        """Record that something is wrong with ``key``."""
        self.faults.append(Fault(self.place(key), code, message))

    def place(self, key: str) -> str:
        """Return the dotted path of ``key``."""
        return ".".join(part for part in (self.path, key) if part)

    def has(self, key: str) -> bool:
        """Whether the key is there with something in it."""
        return self._object.get(key) is not None

    def text(self, key: str, *, default: str | None = None) -> str:
        """Return a text that is not empty."""
        value = self._get(key, default)
        if isinstance(value, str) and value.strip():
            return value
        if value is not _MISSING:
            self.fault(key, "not_a_text", f"{_shown(value)} is not a text; write a name in quotes")
        return ""

    def known(self, key: str, names: Collection[str], *, what: str) -> str:
        """Return a text that is one of ``names``."""
        name = self.text(key)
        if name and name not in names:
            self.fault(key, "unknown", f"{_shown(name)} is not a known {what}; {_choices(names)}")
        return name

    def count(self, key: str) -> int:
        """Return a whole number, 0 or more."""
        return self.whole(self._get(key), key)

    def count_or_none(self, key: str) -> int | None:
        """Return a whole number, 0 or more; null or no key means None."""
        return self.count(key) if self.has(key) else None

    def whole(self, value: Any, key: str) -> int:
        """Return ``value`` as a whole number, 0 or more."""
        if value is _MISSING:
            return 0
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and 0 <= value <= _LARGEST_COUNT:
            return int(value)
        self.fault(key, "not_a_count", f"{_shown(value)} is not a whole number from 0 to a billion")
        return 0

    def counts(self, key: str) -> dict[str, int]:
        """Return an object of whole numbers; no key means empty."""
        if not self.has(key):
            return {}
        inner = Reader(self._object[key], path=self.place(key), faults=self.faults)
        return {name: inner.whole(value, name) for name, value in inner._object.items()}

    def amount(self, key: str, *, most: Decimal | None = None) -> Decimal:
        """Return a decimal that is written as a text, 0 or more, at most 8 decimals."""
        value = self._get(key)
        if value is _MISSING:
            return Decimal(0)
        try:
            found = Decimal(value) if isinstance(value, str) else None
        except InvalidOperation:
            found = None
        if found is None or not found.is_finite():
            words = f'{_shown(value)} is not an amount; write it like "2.50"'
            self.fault(key, "not_an_amount", words)
            return Decimal(0)
        if found < 0 or found > (most if most is not None else _LARGEST_COUNT):
            limit = f" to {most}" if most is not None else " up to a billion"
            self.fault(key, "out_of_range", f"{value[:60]} is not within 0{limit}")
            return Decimal(0)
        exponent = found.normalize().as_tuple().exponent
        if isinstance(exponent, int) and exponent < -_PRICE_DIGITS:
            words = f"{value[:60]} has more than {_PRICE_DIGITS} decimals"
            self.fault(key, "too_precise", words)
        return found

    def moment(self, key: str) -> datetime | None:
        """Return a UTC time of whole seconds, or None after a fault."""
        value = self._get(key)
        if value is _MISSING:
            return None
        try:
            found = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            found = None
        wish = "write it like 2026-05-04T10:00:00Z"
        if found is None:
            self.fault(key, "not_a_time", f"{_shown(value)} is not a time; {wish}")
        elif found.tzinfo is None:
            self.fault(key, "no_time_zone", f"{value} has no time zone; {wish}")
        elif found.microsecond:
            self.fault(key, "not_whole", f"{value} has a fraction of a second; {wish}")
        elif not _FIRST_YEAR <= found.year <= _LAST_YEAR:
            self.fault(key, "out_of_range", f"{value} is not within {_FIRST_YEAR} to {_LAST_YEAR}")
        else:
            return found.astimezone(UTC)
        return None

    def object(self, key: str) -> Reader:
        """Return a reader of an object."""
        return Reader(self._get(key), path=self.place(key), faults=self.faults)

    def rows(self, key: str, *, required: bool = True) -> Iterator[Reader]:
        """Yield a reader for every object of a list."""
        if not required and not self.has(key):
            return
        for at, row in enumerate(self._list(key)):
            yield Reader(row, path=self.place(f"{key}.{at}"), faults=self.faults)

    def texts(self, key: str, names: Collection[str], *, what: str) -> tuple[str, ...]:
        """Return a list of texts that are all of ``names``."""
        rows = {str(at): row for at, row in enumerate(self._list(key))}
        inner = Reader(rows, path=self.place(key), faults=self.faults)
        return tuple(inner.known(at, names, what=what) for at in rows)

    def _list(self, key: str) -> list[Any]:
        value = self._get(key)
        if isinstance(value, list):
            return value
        if value is not _MISSING:
            self.fault(key, "not_a_list", f"{_shown(value)} is not a list; write […]")
        return []

    def _get(self, key: str, default: Any = None) -> Any:
        if key in self._object:
            return self._object[key]
        if default is not None:
            return default
        if self._tells_missing:
            self.fault(key, "missing", f"the key {key!r} is missing; add it")
        return _MISSING


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _choices(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:8])
    return f"there are {shown}" if shown else "there is none"


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
            row.fault("name", "repeated", f"the account {name} is listed twice; keep one")
        own[name] = AccountPool(name, (PoolChange(None, _gpus(row, "shared_pool")),))
    accounts: dict[WorkspaceName, AccountName] = {}
    for row in reader.rows("workspaces"):
        workspace = WorkspaceName(row.text("name"))
        if workspace in accounts:
            row.fault("name", "repeated", f"the workspace {workspace} is listed twice; keep one")
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
