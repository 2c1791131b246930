"""Seals over what is written beside the hour facts: the audit log, prices, adjustments, numbers.

A seal names every row that is fixed and that no seal before it has, with a digest over all of
them that covers the seal before. Rows of one table are sealed by their keys, never by their time:
a row that a longer transaction writes late is of the next seal. A day's work and each close end
with one; the block of a closed month has it, so that the head of the month covers it.

Closed months are signed with a key that the database does not hold. Who can write to the database
can work a whole chain of digests out anew, but no signature over its head. ``PORTAL_LEDGER_KEYS``
lists keys, newest first: the first signs, all verify. A key is the seed of an Ed25519 key (RFC
8032), 32 bytes in base64; ``public:`` before it says that it is the public one, of a key that signs
no more or of a place that only verifies.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any
from zlib import crc32

import structlog
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models, transaction
from django.db.models import Q

from budgets.models import (
    Adjustment,
    Approval,
    AuditEntry,
    BillingPeriod,
    Correction,
    ExchangeRate,
    Proposal,
    RateCard,
    RatePrice,
    RateTier,
    Seal,
    SpotPrice,
    Statement,
    StatementLine,
)
from budgets.services.billing.guards import lock_billing

PUBLIC = "public:"
UNSIGNED = "it has no signature"


def sign(told: bytes) -> str:
    """The signature of what a month or a seal tells, in base64; empty where no key signs.

    Raises:
        ImproperlyConfigured: a key is none.
    """
    for key in ledger_keys():
        if isinstance(key, Ed25519PrivateKey):
            return base64.b64encode(key.sign(told)).decode()
    return ""


def signature_problem(told: bytes, row: BillingPeriod | Seal) -> str:
    """What is wrong with the signature of what a row tells; empty where there are no keys.

    Raises:
        ImproperlyConfigured: a key is none.
    """
    if not settings.PORTAL_LEDGER_KEYS:
        return ""
    if not row.signature:
        return UNSIGNED
    try:
        signature = base64.b64decode(row.signature, validate=True)
    except ValueError:
        signature = b""
    is_signed = any(_is_by(key, signature, told) for key in ledger_keys())
    return "" if is_signed else "none of the keys made its signature"


def told_of_month(period: BillingPeriod) -> bytes:
    """What the signature of a closed month is about."""
    return _told("ledger", period.close_number, period.name, period.zone, period.head)


def told_of_seal(seal: Seal) -> bytes:
    """What the signature of a seal is about."""
    return _told("seal", seal.number, seal.digest)


def _told(kind: str, *parts: object) -> bytes:
    return "|".join(map(str, (kind, settings.PORTAL_INSTALLATION, *parts))).encode()


def _is_by(key: Ed25519PrivateKey | Ed25519PublicKey, signature: bytes, told: bytes) -> bool:
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    try:
        public.verify(signature, told)
    except InvalidSignature:
        return False
    return True


def ledger_keys() -> Iterator[Ed25519PrivateKey | Ed25519PublicKey]:
    """The keys that are set, newest first.

    Raises:
        ImproperlyConfigured: one of them is none; with the way out.
    """
    return map(_key, settings.PORTAL_LEDGER_KEYS)


@cache
def _key(text: str) -> Ed25519PrivateKey | Ed25519PublicKey:
    is_public = text.startswith(PUBLIC)
    try:
        raw = base64.b64decode(text.removeprefix(PUBLIC), validate=True)
        if is_public:
            return Ed25519PublicKey.from_public_bytes(raw)
        return Ed25519PrivateKey.from_private_bytes(raw)
    except ValueError:
        raise ImproperlyConfigured(
            "PORTAL_LEDGER_KEYS holds something that is not an Ed25519 key; make one with "
            "python -c 'import base64, secrets; "
            "print(base64.b64encode(secrets.token_bytes(32)).decode())'"
        ) from None


log = structlog.stdlib.get_logger(__name__)
MARK = 4
CHUNK = 5_000
LATE = 100_000
"""A row is sealed at the latest when so many keys were given after its own."""


_ALL = Q()


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows of one table that change no more.

    Attributes:
        name: For people.
        model: The table.
        fixed: Which rows.
        parts: Tables whose rows are part of one of these, and the path from them to it.
        changing: Columns of a fixed row that go on changing.
    """

    name: str
    model: type[models.Model]
    fixed: Q = _ALL
    parts: tuple[tuple[type[models.Model], str], ...] = ()
    changing: frozenset[str] = frozenset()

    def rows(self) -> models.QuerySet[Any]:
        return self.model._base_manager.filter(self.fixed).order_by("pk")

    def columns(self) -> list[list[str]]:
        """Of the table, then of each part; keys first."""
        shapes = (self.model, *(part for part, _ in self.parts))
        return [
            [row.attname for row in shape._meta.concrete_fields if row.name not in self.changing]
            for shape in shapes
        ]


_DECIDED = ~Q(state="proposed")
_TABLES = (
    _Table("audit entry", AuditEntry),
    _Table("rate card", RateCard, _DECIDED, ((RatePrice, "card"), (RateTier, "price_row__card"))),
    _Table("spot price", SpotPrice),
    _Table("exchange rate", ExchangeRate),
    _Table("adjustment", Adjustment, _DECIDED),
    _Table("approval", Approval),
    _Table("proposal", Proposal, ~Q(state="waiting")),
    _Table("correction", Correction),
    _Table(
        "statement",
        Statement,
        ~Q(number=""),
        ((StatementLine, "statement"),),
        frozenset({"state", "reason", "approval"}),
    ),
)


class BrokenSeal(Exception):
    """Table, row and problem of the first place that is not as it was sealed."""


def make_seal(period: BillingPeriod | None = None) -> Seal | None:
    """Seal all that is fixed and in no seal yet.

    Args:
        period: The month that is closed by it; it gets a seal even when there is nothing new.

    Returns:
        The seal; None when there is nothing to seal.

    Raises:
        BrokenSeal: The newest one lost its signature: nothing is signed on top of it.
    """
    with transaction.atomic():
        lock_billing()
        seals = list(Seal.objects.order_by("number").defer("marks"))
        last = seals[-1] if seals else None
        is_first_key = not any(seal.signature for seal in seals)
        if last is not None and not is_first_key and signature_problem(told_of_seal(last), last):
            raise BrokenSeal("seal", str(last.number), UNSIGNED)
        contents: dict[str, Any] = {}
        for table in _TABLES:
            sealed = _Sealed(table, seals)
            keys = list(sealed.open_keys())
            if keys:
                contents[table.name] = {"columns": table.columns(), "rows": _ranges_of(keys)}
        if not contents and period is None:
            return None
        marks, body = _digest(contents)
        seal = Seal(
            number=last.number + 1 if last else 1,
            period=period,
            contents=contents,
            marks=marks,
            previous=last.digest if last else "",
        )
        seal.digest = _chained(seal, body)
        seal.signature = sign(told_of_seal(seal))
        seal.save()
    # Where logs are kept elsewhere, they know of each seal.
    log.info("ledger_sealed", number=seal.number, rows=seal.rows, digest=seal.digest)
    return seal


def verify_seals(*, since: int = 1) -> int:
    """Work seals out again in their order; returns how many rows they have.

    Args:
        since: The first number; the links before it are trusted.

    Raises:
        BrokenSeal: At the first row that is not as it was sealed.
    """
    seals, rows = Seal.objects.order_by("number"), 0
    before = seals.filter(number__lt=since).last()
    newest = seals.last()
    for number, seal in enumerate(seals.filter(number__gte=since), start=since):
        place = "seal", str(number)
        if seal.number != number:
            raise BrokenSeal(*place, "it is missing")
        problem = signature_problem(told_of_seal(seal), seal)
        if problem and (problem != UNSIGNED or seal == newest):
            raise BrokenSeal(*place, problem)
        if seal.previous != (before.digest if before else ""):
            raise BrokenSeal(*place, "the link to the seal before is broken")
        marks, body = _digest(seal.contents, sealed=bytes(seal.marks))
        if seal.digest != _chained(seal, body) or bytes(seal.marks) != marks:
            raise BrokenSeal(*place, "it was changed")
        rows, before = rows + seal.rows, seal
    _check_added()
    _check_told()
    return rows


class _Sealed:
    """Keys that are sealed, of one table."""

    def __init__(self, table: _Table, seals: Iterable[Seal]) -> None:
        self._table = table
        self._ranges = [span for seal in seals for span in _ranges(seal.contents, table.name)]
        self._last = max((last for _, last in self._ranges), default=0)

    def open_keys(self) -> Iterator[int]:
        """Keys of fixed rows that no seal has, in their order."""
        floor = self._last - LATE
        late = {
            key for first, last in self._ranges for key in range(max(first, floor + 1), last + 1)
        }
        keys = self._table.rows().filter(pk__gt=floor).values_list("pk", flat=True)
        return (key for key in keys.iterator(chunk_size=CHUNK) if key not in late)

    def added_before(self) -> int:
        """The key before which there are more rows than were sealed; 0: before none."""
        edge = self._last - LATE
        sealed = sum(min(last, edge) - first + 1 for first, last in self._ranges if first <= edge)
        return edge if edge > 0 and self._table.rows().filter(pk__lte=edge).count() > sealed else 0


def _digest(contents: dict[str, Any], sealed: bytes | None = None) -> tuple[bytes, bytes]:
    """Marks of the rows that a seal names, and the digest over them.

    Args:
        contents: As of :class:`Seal`.
        sealed: The marks as they were; a row that is not as it was is named by them.
    """
    whole, marks = hashlib.sha256(), bytearray()
    for table in _TABLES:
        if table.name not in contents:
            continue
        stored = contents[table.name]
        whole.update(f"{table.name}|{json.dumps(stored, sort_keys=True)}\n".encode())
        rows = _rows(table, stored["rows"], stored["columns"])
        for key in (key for first, last in stored["rows"] for key in range(first, last + 1)):
            found = next((row for row in rows if row[0] >= key), None)
            if found is None or found[0] != key:
                raise BrokenSeal(table.name, str(key), "it is missing")
            content = found[1].encode()
            whole.update(content)
            marks += crc32(content).to_bytes(MARK, "big")
            if sealed is not None and sealed[len(marks) - MARK : len(marks)] != marks[-MARK:]:
                raise BrokenSeal(table.name, str(key), "it was changed after it was sealed")
    return bytes(marks), whole.digest()


def _rows(
    table: _Table, ranges: list[list[int]], columns: list[list[str]]
) -> Iterator[tuple[int, str]]:
    """Key and content of the rows from the first to the last range, parts and all."""
    span = ranges[0][0], ranges[-1][1]
    found = table.rows().filter(pk__range=span).values_list("pk", *columns[0])
    rows = found.iterator(chunk_size=CHUNK)
    while chunk := list(islice(rows, CHUNK)):
        parts: dict[int, list[Any]] = {row[0]: [] for row in chunk}
        for (model, path), names in zip(table.parts, columns[1:], strict=True):
            of_chunk = model._base_manager.filter(**{f"{path}__in": list(parts)})
            for part in of_chunk.order_by("pk").values_list(path, *names):
                parts[part[0]].append(part[1:])
        for row in chunk:
            content = [row[1:], parts[row[0]]]
            yield row[0], json.dumps(content, default=str, sort_keys=True)


def _chained(seal: Seal, body: bytes) -> str:
    head = f"{seal.previous}|{seal.number}|{seal.period_id or ''}|"
    return hashlib.sha256(head.encode() + body).hexdigest()


def _ranges(contents: dict[str, Any], name: str) -> list[tuple[int, int]]:
    return [(first, last) for first, last in contents.get(name, {}).get("rows", ())]


def _ranges_of(keys: Iterable[int]) -> list[list[int]]:
    """Keys in their order as ranges, first and last of each."""
    ranges: list[list[int]] = []
    for key in keys:
        if ranges and ranges[-1][1] == key - 1:
            ranges[-1][1] = key
        else:
            ranges.append([key, key])
    return ranges


def _check_added() -> None:
    """No row was put among those that were sealed long ago."""
    seals = list(Seal.objects.defer("marks"))
    for table in _TABLES:
        if edge := _Sealed(table, seals).added_before():
            raise BrokenSeal(table.name, f"up to {edge}", "a row was added after they were sealed")


def _check_told() -> None:
    """Cards and adjustments have their entries in the audit log, those that no seal has too."""
    for table, word in ((RateCard, "rate_card"), (Adjustment, "adjustment")):
        entries = AuditEntry.objects.filter(subject__startswith=f"{word}:")
        told = set(entries.values_list("subject", flat=True))
        rows = table.objects.order_by("pk").values_list("pk", "state")
        for subject in sorted(told - {f"{word}:{key}" for key, _ in rows}):
            raise BrokenSeal("audit entry", subject, "its row is missing")
        for key, state in rows:
            if state != "proposed" and f"{word}:{key}" not in told:
                raise BrokenSeal(word.replace("_", " "), str(key), "the audit log lost its entry")
