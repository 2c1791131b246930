"""The hash chain over closed periods: every fact and every statement line, row by row.

What is written beside them is in seals (:mod:`budgets.services.billing.seals`); the newest one is
the last block of a month.

A block is what one workspace, account or statement has in one table and period. Its digest covers
the digest of the block before it, so that no block can be changed, added or taken away unseen;
a checksum of every row, four bytes, names the row that was.

Source: spec money, section 1.4; spec features, section 5.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any
from zlib import crc32

from django.db.models import Q

from budgets.amounts import COVER, HELD, STORED
from budgets.models import (
    AccountUsage,
    AuditEntry,
    BillingPeriod,
    BillingTerms,
    LedgerBlock,
    NumberSeries,
    Seal,
    Statement,
    StatementLine,
    UsageRecord,
    WorkloadUsage,
)
from budgets.selectors.billing.documents import accounts_of
from budgets.selectors.fleet.places import facts_in
from budgets.services.billing.seals import (
    UNSIGNED,
    BrokenSeal,
    signature_problem,
    told_of_month,
    verify_seals,
)
from budgets.units import time_text

MARK = 4
CHUNK = 20_000


Row = tuple[str, tuple[Any, ...]]
"""All of a row's content as text, and the row as it was read, from which it is named."""


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """The first place where the ledger is not what was closed."""

    period: str
    table: str
    key: str
    row: str
    problem: str

    def __str__(self) -> str:
        where = f"{self.table} {self.key}" + (f", {self.row}" if self.row else "")
        return f"{self.period}: {where}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification looked at, and the first broken row; None: all is as it was closed.

    ``sealed``: rows in seals; ``newest``: number of the month that was closed last, 0 for none.
    """

    periods: int
    blocks: int
    rows: int
    broken: BrokenRow | None
    sealed: int = 0
    newest: int = 0


@dataclass(frozen=True, slots=True)
class Anchor:
    """Number and head of a closed month, or number and digest of a seal, as told elsewhere."""

    number: int
    head: str


def write_chain(period: BillingPeriod) -> str:
    """Write the blocks of a period that is about to be closed; returns the new head.

    One ordered query per table; memory holds one block's marks and a chunk of rows.
    """
    before = (
        BillingPeriod.objects.filter(close_number__isnull=False).order_by("-close_number").first()
    )
    head = before.head if before else ""
    blocks: list[LedgerBlock] = []
    for number, (table, key, rows) in enumerate(_blocks(period), start=1):
        count, marks, body = _digest(rows)
        digest = _chained(head, table, key, body)
        blocks.append(
            LedgerBlock(
                period=period,
                number=number,
                table=table,
                key=key,
                rows=count,
                marks=marks,
                previous=head,
                digest=digest,
            )
        )
        head = digest
    LedgerBlock.objects.bulk_create(blocks, batch_size=500)
    # An empty period has a head of its own too, or nobody could tell it from one never closed.
    return _chained(head, "period", f"{period.name} {period.zone}", b"")


def verify_chain(
    *, name: str | None = None, anchor: Anchor | None = None, seal: Anchor | None = None
) -> Verified:
    """Work every closed period's digests out again in the order of closing, then the seals'.

    Where keys are set, the month that was closed last is signed, and no signature is wrong; the
    audit log and the accounts' closed edges know of no month that is missing after it.

    Args:
        name: Only months of this name, such as ``2026-10``, and seals from theirs on; the links
            before them are trusted.
        anchor: A closed month as somebody elsewhere knows it: it has to be there, with that head.
        seal: Likewise a seal, with its digest.

    Returns:
        Counts up to the first broken row, and that row.
    """
    periods = blocks = rows = 0
    head, since = "", 1
    closed = list(
        BillingPeriod.objects.filter(close_number__isnull=False)
        .select_related("seal")
        .order_by("close_number")
    )
    for expected, period in enumerate(closed, start=1):
        try:
            if period.close_number != expected:
                raise _Broken("period", str(expected), "", "a closed period is missing")
            problem = signature_problem(told_of_month(period), period)
            # What was closed before there was a key is covered by the heads that are signed later.
            if problem and (problem != UNSIGNED or period is closed[-1]):
                raise _Broken("period", period.name, "", problem)
            if anchor is not None and anchor.number == expected and anchor.head != period.head:
                raise _Broken("period", period.name, "", "its head is not the one that was told")
            if name is None or period.name == name:
                periods += 1
                for count in _verified_blocks(period, head):
                    blocks, rows = blocks + 1, rows + count
                if name is not None and hasattr(period, "seal"):
                    since = period.seal.number
        except _Broken as broken:
            return Verified(periods, blocks, rows, BrokenRow(str(period), *broken.args))
        head = period.head
    found, sealed = _cut_off(len(closed), anchor) or _number_hole() or _odd_void(), 0
    if found is None:
        found, sealed = _sealed(since, seal)
    return Verified(periods, blocks, rows, found, sealed, len(closed))


def _sealed(since: int, anchor: Anchor | None) -> tuple[BrokenRow | None, int]:
    """The first row that is not as it was sealed, and how many are sealed."""
    if anchor is not None and not Seal.objects.filter(number=anchor.number, digest=anchor.head):
        words = "the seal that was told is not there"
        return BrokenRow("ledger", "seal", str(anchor.number), "", words), 0
    try:
        return None, verify_seals(since=since)
    except BrokenSeal as broken:
        table, key, problem = broken.args
        return BrokenRow("ledger", table, key, "", problem), 0


def _cut_off(number: int, anchor: Anchor | None) -> BrokenRow | None:
    """A month that was closed and is not there any more, after the ``number`` that are."""
    closed = AuditEntry.objects.filter(action="period.close").order_by("pk").last()
    told = int(closed.after["number"]) if closed is not None else 0
    if anchor is not None:
        told = max(told, anchor.number)
    if told > number:
        months = f"closed months {number + 1} to {told} are"
        if told == number + 1:
            months = f"closed month {told} is"
        words = f"{months} missing: removed, or closed after the backup that this database is from"
        return BrokenRow("ledger", "period", str(told), "", words)
    edge = BillingTerms.objects.order_by("-closed_until").exclude(closed_until=None).first()
    if (
        edge is not None
        and not BillingPeriod.objects.filter(
            close_number__isnull=False, end__gte=edge.closed_until
        ).exists()
    ):
        words = f"{edge.account.slug} is closed until {edge.closed_until:%Y-%m-%d}, no month is"
        return BrokenRow("ledger", "terms", edge.account.slug, "", words)
    return None


class _Broken(Exception):
    """Table, key, row and problem of a :class:`BrokenRow`."""


def _verified_blocks(period: BillingPeriod, head: str) -> Iterator[int]:
    """Yield the number of rows of each block, in turn, as long as they are as they were closed."""
    stored = LedgerBlock.objects.filter(period=period).order_by("number").iterator(chunk_size=200)
    gone = "every row of it is missing"
    for table, key, rows in _blocks(period):
        block = next(stored, None)
        if block is None or (block.table, block.key) != (table, key):
            # Rows without a block, or a block without rows, whichever comes first.
            is_known = LedgerBlock.objects.filter(period=period, table=table, key=key).exists()
            if block is not None and is_known:
                raise _Broken(block.table, block.key, "", gone)
            raise _Broken(table, key, "", "rows were added after the close")
        found = list(rows)
        count, marks, body = _digest(found)
        _compare(block, found, marks)
        if block.previous != head:
            raise _Broken(table, key, "", "the link to the block before is broken")
        if block.digest != _chained(head, table, key, body):
            raise _Broken(table, key, "", "a row was changed")
        head = block.digest
        yield count
    if (block := next(stored, None)) is not None:
        raise _Broken(block.table, block.key, "", gone)
    if _chained(head, "period", f"{period.name} {period.zone}", b"") != period.head:
        raise _Broken("period", period.name, "", "its head is not that of its blocks")


def _compare(block: LedgerBlock, rows: list[Row], marks: bytes) -> None:
    """Name the first row whose mark is not the one that was closed."""
    stored = bytes(block.marks)
    if stored == marks:
        return
    old = [stored[at : at + MARK] for at in range(0, len(stored), MARK)]
    new = [marks[at : at + MARK] for at in range(0, len(marks), MARK)]
    at = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    row = _name(rows[at]) if at < len(rows) else f"after {_name(rows[-1])}"
    if len(new) < len(old):
        words = "a row before it is missing" if at < len(rows) else "the last row is missing"
    elif len(new) > len(old):
        words = "the row was added after the close"
    else:
        words = "the row was changed after the close"
    raise _Broken(block.table, block.key, row, words)


def _number_hole() -> BrokenRow | None:
    """The first hole in a series of statement numbers; numbers are given without any."""
    last: dict[str, int] = {}
    numbers = Statement.objects.exclude(number="").order_by("number")
    for number in numbers.values_list("number", flat=True):
        series, _, text = number.rpartition("-")
        expected = last.get(series, 0) + 1
        if int(text) != expected:
            words = f"number {series}-{expected:06d} is missing"
            return BrokenRow(series, "statement", number, "", words)
        last[series] = expected
    for row in NumberSeries.objects.exclude(last=0).order_by("prefix"):
        if last.get(row.prefix, 0) < row.last:
            number = f"{row.prefix}-{row.last:06d}"
            return BrokenRow(row.prefix, "statement", number, "", "the newest number is missing")
    return None


def _odd_void() -> BrokenRow | None:
    """The first document that is void without a credit note, or has one and is not void."""
    is_void = Q(state=Statement.State.VOID)
    odd = Statement.objects.exclude(number="").filter(
        (is_void & Q(credit_note=None)) | (~is_void & Q(credit_note__isnull=False))
    )
    if (row := odd.order_by("number").first()) is None:
        return None
    words = "it is void without a credit note, or has one and is not void"
    return BrokenRow("ledger", "statement", row.number, "", words)


def _digest(rows: Iterable[Row]) -> tuple[int, bytes, bytes]:
    """Count, marks and digest of the rows of a block.

    The digest guards the block, the marks only name a row: a checksum is enough for them.
    """
    contents = [content.encode() for content, _ in rows]
    marks = b"".join(crc32(content).to_bytes(MARK, "big") for content in contents)
    return len(contents), marks, hashlib.sha256(b"\n".join(contents)).digest()


def _chained(previous: str, table: str, key: str, body: bytes) -> str:
    return hashlib.sha256(f"{previous}|{table}|{key}|".encode() + body).hexdigest()


def _blocks(period: BillingPeriod) -> Iterator[tuple[str, str, Iterator[Row]]]:
    """(table, key, rows) of a period in the order of the chain: of keys, never of a collation."""
    accounts = list(accounts_of(period.zone).order_by().values_list("pk", flat=True))
    tables: list[tuple[str, Any, str, tuple[str, ...], tuple[str, ...]]] = [
        ("usage", UsageRecord, "workspace", ("flavor__slug",), STORED),
        ("account", AccountUsage, "account", ("flavor__slug",), COVER),
        ("workload", WorkloadUsage, "workspace", ("flavor", "cluster", "uid"), HELD),
    ]
    for table, model, owner, names, amounts in tables:
        is_account = owner == "account"
        own = {"account__in" if is_account else "workspace__account__in": accounts}
        facts = facts_in(model.objects.filter(**own), period)
        key = "account__slug" if is_account else "workspace__namespace"
        found = facts.order_by(f"{owner}_id", "hour", "start", "pk").values_list(
            key, "hour", "start", *names, *amounts
        )
        rows = found.iterator(chunk_size=CHUNK)
        for name, group in groupby(rows, key=itemgetter(0)):
            yield table, name, map(_fact_row, group)
    yield from _statements(period)
    for seal in Seal.objects.filter(period=period):
        yield "seal", str(seal.number), iter([(seal.digest, ("seal", seal.number))])


def _fact_row(row: tuple[Any, ...]) -> Row:
    """``row``: key, hour, start, names, amounts."""
    seconds = int(row[1].timestamp()), int(row[2].timestamp())
    return "|".join(map(str, (*seconds, *row[3:]))), row


def _statements(period: BillingPeriod) -> Iterator[tuple[str, str, Iterator[Row]]]:
    """Content of the period's documents, never their state: that goes on after the close."""
    documents = Statement.objects.filter(period=period).select_related("account").order_by("pk")
    for row in documents:
        who = row.account.slug if row.account else "(platform)"
        is_note = row.kind == Statement.Kind.CREDIT_NOTE
        yield "statement", f"{who} {row.number}" if is_note else who, _statement_rows(row)


def _statement_rows(statement: Statement) -> Iterator[Row]:
    rate = f"{statement.exchange_rate:.8f}" if statement.exchange_rate else ""
    yield (
        f"{statement.currency}|{statement.priced_in}|{rate}|{statement.exchange_day or ''}|"
        f"{statement.payable:.4f}",
        ("head",),
    )
    for row in (
        StatementLine.objects.filter(statement=statement)
        .order_by("position")
        .values_list(
            "position",
            "workspace__namespace",
            "flavor",
            "kind",
            "class_of",
            "gpu_seconds",
            "exact_text",
            "adjustment_id",
            "amount",
            "text",
            "parts",
        )
    ):
        *plain, amount, text, parts = row
        content = "|".join(map(str, (*plain, f"{amount:.4f}", json.dumps(parts, sort_keys=True))))
        yield f"{content}|{text}", ("line", row[0])


def _name(row: Row) -> str:
    """A row in words: ``2026-10-01T05:00:00Z h100``, or ``line 3``."""
    raw = row[1]
    if not isinstance(raw[-1], int) or len(raw) < 4:
        return " ".join(map(str, raw))
    start = "" if raw[2] == raw[1] else f" from {time_text(raw[2])}"
    names = (value for value in raw[3:] if isinstance(value, str))
    return f"{time_text(raw[1])}{start} {' '.join(names)}"
