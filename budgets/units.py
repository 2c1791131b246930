"""Exact quantities of the ledger: GPU-seconds, periods and money.

Pure: no clock, no I/O, no float. A device count and a GPU-second are ``int``, an exact amount is
a ``Fraction``, and an amount somebody pays is a :class:`Money` of the currency's own digits.
Times are UTC, aware and whole seconds; whatever is not raises instead of being guessed at.

Source: spec money, sections 1.7 and 3; ISO 4217 for the minor units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, NewType
from zoneinfo import ZoneInfo

AccountName = NewType("AccountName", str)
WorkspaceName = NewType("WorkspaceName", str)
FlavorName = NewType("FlavorName", str)
ClusterName = NewType("ClusterName", str)
WorkloadUid = NewType("WorkloadUid", str)
GpuSeconds = NewType("GpuSeconds", int)

HOUR_S = 3600
HOUR = timedelta(hours=1)
MOST_COUNTED_GPUS = 2**31 - 1
"""What a column of devices holds; nobody has more, and whoever asks for more waits for ever."""
FIXED_MONTH_H = 730
YEARS: Final = range(2000, 2200)
"""Of which there can be books; earlier and later ones only come by mistake."""
BOOKS_BEGIN: Final = datetime(YEARS[0], 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)

# ISO 4217: the active codes by the digits of their minor unit.
_CODES = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: (
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD "
        "CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP "
        "GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK "
        "LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO "
        "NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS "
        "SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST "
        "XAD XCD XCG YER ZAR ZMW ZWG"
    ),
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS = {code: digits for digits, codes in _CODES.items() for code in codes.split()}


class UnitsError(ValueError):
    """A quantity that the ledger cannot count with."""


class CurrencyMismatch(UnitsError):
    """Two amounts of different currencies met; convert them first."""


def utc(moment: datetime) -> datetime:
    """Return ``moment`` in UTC.

    Raises:
        UnitsError: ``moment`` is naive or has a fraction of a second.
    """
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise UnitsError(f"{moment.isoformat()} has no time zone; give UTC, such as …Z")
    if moment.microsecond:
        raise UnitsError(f"{moment.isoformat()} has a fraction of a second; give whole seconds")
    return moment.astimezone(UTC)


def to_seconds(moment: datetime) -> int:
    """Return the whole seconds from 1970 to ``moment``; raises UnitsError as :func:`utc`."""
    if moment.tzinfo is not UTC or moment.microsecond:
        moment = utc(moment)
    passed = moment - _EPOCH
    return passed.days * 86400 + passed.seconds


def from_seconds(seconds: int) -> datetime:
    """Return the UTC time that many whole seconds after 1970."""
    return _EPOCH + timedelta(seconds=seconds)


def time_text(moment: datetime) -> str:
    """Return ISO 8601 in UTC with ``Z``; the moment has to be aware."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def year_fault(moment: date) -> str:
    """Return what is wrong with the year of a day or a moment, empty for one of :data:`YEARS`."""
    if moment.year in YEARS:
        return ""
    return f"The year {moment.year:04} is out of range. Give one from {YEARS[0]} to {YEARS[-1]}."


def utc_hour(moment: datetime) -> datetime:
    """Return the start of the UTC hour that holds ``moment``."""
    return utc(moment).replace(minute=0, second=0)


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """The half-open time [start, end), UTC, whole seconds, never empty.

    Raises:
        UnitsError: A bound is naive or not whole, or ``end`` is not after ``start``.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", utc(self.start))
        object.__setattr__(self, "end", utc(self.end))
        if self.end <= self.start:
            raise UnitsError(
                f"the period ends {self.end.isoformat()}, not after {self.start.isoformat()}"
            )

    @property
    def seconds(self) -> int:
        """Length in whole seconds, at least 1."""
        return (self.end - self.start) // _SECOND

    def __contains__(self, moment: datetime) -> bool:
        return self.start <= utc(moment) < self.end

    def overlap(self, other: Period) -> Period | None:
        """Return what both have in common, or None."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Period(start, end) if start < end else None

    def utc_hours(self) -> Iterator[tuple[datetime, Period]]:
        """Yield (start of the whole UTC hour, the part of it in this period), in order."""
        start = self.start
        while start < self.end:
            hour = utc_hour(start)
            end = min(hour + timedelta(hours=1), self.end)
            yield hour, Period(start, end)
            start = end


def month_period(year: int, month: int, *, zone: ZoneInfo) -> Period:
    """Return the month from local midnight to local midnight.

    Args:
        year: 1970 to 9998.
        month: 1 to 12.
        zone: The organisation's zone; a month with a clock change has 743 or 745 hours of 744.

    Raises:
        UnitsError: The zone's offset is not of whole seconds at the month's edge.
    """
    following = (year + month // 12, month % 12 + 1)
    return Period(
        datetime(year, month, 1, tzinfo=zone).astimezone(UTC),
        datetime(*following, 1, tzinfo=zone).astimezone(UTC),
    )


def currency_digits(currency: str) -> int:
    """Return the number of digits of the currency's minor unit, 0 to 4.

    Raises:
        UnitsError: ``currency`` is no active ISO 4217 code.
    """
    if currency not in _DIGITS:
        raise UnitsError(f"{currency!r} is not an ISO 4217 currency code, such as EUR")
    return _DIGITS[currency]


@dataclass(frozen=True, slots=True)
class Money:
    """An amount somebody pays: Decimal with exactly the currency's digits.

    Raises:
        UnitsError: The amount is no finite Decimal, has more digits than the currency, or the
            currency is unknown.
    """

    amount: Decimal
    currency: str

    def __post_init__(self) -> None:
        digits = currency_digits(self.currency)
        if not isinstance(self.amount, Decimal) or not self.amount.is_finite():
            raise UnitsError(f"{self.amount!r} is not a finite Decimal")
        rounded = quantise(Fraction(self.amount), digits=digits)
        if rounded != self.amount:
            raise UnitsError(f"{self.amount} has more than the {digits} digits of {self.currency}")
        object.__setattr__(self, "amount", rounded)

    @classmethod
    def rounded(cls, exact: Fraction, *, currency: str) -> Money:
        """Return ``exact`` rounded once, half to even, to the currency's digits."""
        return cls(quantise(exact, digits=currency_digits(currency)), currency)

    @classmethod
    def zero(cls, currency: str) -> Money:
        """Return nothing, in that currency."""
        return cls(Decimal(0), currency)

    def __add__(self, other: Money) -> Money:
        if self.currency != other.currency:
            raise CurrencyMismatch(f"cannot add {other.currency} to {self.currency}")
        return Money.rounded(Fraction(self.amount) + Fraction(other.amount), currency=self.currency)

    def __sub__(self, other: Money) -> Money:
        return self + -other

    def __neg__(self) -> Money:
        return Money(self.amount.copy_negate(), self.currency)

    def __str__(self) -> str:
        return f"{self.amount:f}"


def quantise(exact: Fraction, *, digits: int) -> Decimal:
    """Return ``exact`` with ``digits`` decimals, half to even, never as minus zero.

    Independent of the decimal context, so no precision setting can change an invoice.
    """
    whole = round(exact * 10**digits)
    return Decimal(f"{whole}E-{digits}")


def gpu_hours(gpu_seconds: int, *, places: int = 4, mark: str = "") -> str:
    """Return GPU-seconds as text of GPU-hours, rounded half up in whole numbers.

    Args:
        gpu_seconds: Whole.
        places: Decimals, 1 at least.
        mark: Between thousands.
    """
    scale = 10**places
    count = (abs(gpu_seconds) * scale + HOUR_S // 2) // HOUR_S
    sign = "-" if gpu_seconds < 0 and count else ""
    return f"{sign}{count // scale:{mark}}.{count % scale:0{places}d}"


def whole_shares(numerators: Sequence[int], *, denominator: int, total: int) -> tuple[int, ...]:
    """Make shares whole so that they still add up: each its floor or one more.

    Args:
        numerators: Of the exact shares, ≥ 0; their order breaks ties between equal remainders,
            first wins.
        denominator: Of all of them.
        total: What the shares add up to.

    Raises:
        UnitsError: A share is negative or the shares do not add up to ``total``.
    """
    if sum(numerators) != total * denominator or min(numerators, default=0) < 0:
        raise UnitsError(f"shares {list(numerators)} / {denominator} do not add up to {total}")
    parts = [divmod(numerator, denominator) for numerator in numerators]
    whole = [part[0] for part in parts]
    missing = total - sum(whole)
    if missing:
        by_remainder = sorted(range(len(parts)), key=lambda at: -parts[at][1])
        for at in by_remainder[:missing]:
            whole[at] += 1
    assert sum(whole) == total, (numerators, denominator, whole, total)
    return tuple(whole)


def apportion(total: int, *, weights: Sequence[int]) -> tuple[int, ...]:
    """Split ``total`` in proportion to ``weights``, whole, by largest remainder.

    Raises:
        UnitsError: There is something to split and no weight is above zero.
    """
    weight = sum(weights)
    if not weight:
        if total:
            raise UnitsError(f"{total} cannot be split: no weight is above zero")
        return (0,) * len(weights)
    return whole_shares([total * part for part in weights], denominator=weight, total=total)
