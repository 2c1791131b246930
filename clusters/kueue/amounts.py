"""Whole amounts of resources, and the unlimited one.

An :class:`Amount` counts thousandths for ``cpu``, whole units for everything else. One value,
``UNLIMITED``, stands for "no bound" and absorbs additions, so amounts are added and subtracted by
the functions of this module alone: a bare ``+`` or a bare number where an amount is due is a fault
of types. While the program runs an amount is an ``int``, for speed. No floats, no I/O.

Source: Kueue pkg/resources/amount.go, requests.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:

    class Amount:
        """So much of a resource; amounts are compared, and know no arithmetic of their own."""

        def __lt__(self, other: Amount) -> bool: ...
        def __le__(self, other: Amount) -> bool: ...
        def __gt__(self, other: Amount) -> bool: ...
        def __ge__(self, other: Amount) -> bool: ...
        def __bool__(self) -> bool: ...

else:
    Amount = int

_LARGEST: Final = 2**63 - 1
_LOWEST: Final = -(2**63)
# Characters of a quantity, and digits before its point; whoever wrote more meant something else.
_LONGEST: Final = 1000
_CPU: Final = "cpu"
_BINARY_RESOURCES: Final = frozenset({"memory", "ephemeral-storage", "storage"})
_BINARY_STEPS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL_STEPS: Final = ("", "k", "M", "G", "T", "P", "E")
_FACTORS: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{step: Decimal(1000**power) for power, step in enumerate(DECIMAL_STEPS) if step},
    **{step: Decimal(1024**power) for power, step in enumerate(_BINARY_STEPS) if step},
}


class FlavorResource(NamedTuple):
    """The key of every quota and usage figure: one resource of one flavor."""

    flavor: str
    resource: str


Requests: TypeAlias = Mapping[str, Amount]
Usage: TypeAlias = Mapping[FlavorResource, Amount]
_Key = TypeVar("_Key")


def amount_of(number: int) -> Amount:
    """A number as an amount, cut at the largest and the lowest."""
    return min(_LARGEST, max(_LOWEST, number))  # type: ignore[return-value]


def whole(amount: Amount) -> int:
    """An amount as a number, for shares, sums of what cannot be unlimited, and documents."""
    return amount  # type: ignore[return-value]


def wholes(amounts: Mapping[_Key, Amount]) -> Mapping[_Key, int]:
    """Amounts as numbers, all of them."""
    return amounts  # type: ignore[return-value]


ZERO: Final = amount_of(0)
UNLIMITED: Final = amount_of(_LARGEST)


def add(amount: Amount, other: Amount) -> Amount:
    """Sum that stays unlimited once it is, and never leaves the range of 64 bits."""
    if amount == UNLIMITED or other == UNLIMITED:
        return UNLIMITED
    total: int = amount + other  # type: ignore[operator]
    return total if _LOWEST <= total <= _LARGEST else amount_of(total)  # type: ignore[return-value]


def subtract(amount: Amount, other: Amount) -> Amount:
    """Difference with the same bounds; unlimited minus unlimited is 0."""
    if other == UNLIMITED:
        return ZERO if amount == UNLIMITED else amount_of(_LOWEST)
    if amount == UNLIMITED:
        return UNLIMITED
    rest: int = amount - other  # type: ignore[operator]
    return rest if _LOWEST <= rest <= _LARGEST else amount_of(rest)  # type: ignore[return-value]


def multiply(amount: Amount, count: int) -> Amount:
    """Product, cut at the largest amount."""
    return amount_of(whole(amount) * count)


def split(amount: Amount, parts: int) -> Amount:
    """What each of so many equal parts has, rounded down; ``parts`` is at least 1."""
    return amount_of(whole(amount) // parts)


@lru_cache(maxsize=4096)
def parse_decimal(text: str) -> Decimal:
    """Exact value of a Kubernetes quantity, as ``"8"``, ``"250m"``, ``"1.5Gi"``, ``"1e3"``.

    Raises:
        ValueError: the text is no quantity, or one beyond all that can be counted.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"not a quantity: {text[:20]!r} … of {len(text)} characters")
    for length in (2, 1, 0):
        suffix = text[len(text) - length :] if length else ""
        number = text[: len(text) - length] if length else text
        if suffix not in _FACTORS or not number or number[-1] not in "0123456789.":
            continue
        try:
            value = Decimal(number)
        except InvalidOperation:
            break
        if value.is_finite() and value.adjusted() <= _LONGEST:
            return value * _FACTORS[suffix]
    raise ValueError(f"not a quantity: {text!r}")


@lru_cache(maxsize=4096)
def parse_amount(text: str, resource: str) -> Amount:
    """Amount of a resource in a quantity, finer fractions rounded away from zero.

    Returns:
        Thousandths for ``cpu``, else units; ``UNLIMITED`` for anything at or beyond the largest
        64-bit number.

    Raises:
        ValueError: the text is no quantity.
    """
    value = parse_decimal(text)
    scaled = value * 1000 if resource == _CPU else value
    return amount_of(int(scaled.to_integral_value(rounding=ROUND_UP)))


def count_of(text: str, resource: str) -> int:
    """An amount in a quantity as a number, as :func:`parse_amount` reads it.

    Raises:
        ValueError: the text is no quantity.
    """
    return whole(parse_amount(text, resource))


@lru_cache(maxsize=4096)
def format_amount(amount: Amount, resource: str) -> str:
    """Canonical quantity text of an amount, as Kubernetes prints it.

    ``cpu`` in thousandths, memory-like resources with binary suffixes from 1024 on, others decimal.
    """
    number = whole(amount)
    if resource == _CPU:
        if number % 1000:
            return f"{number}m"
        return with_suffix(number // 1000, 1000, DECIMAL_STEPS)
    binary = resource in _BINARY_RESOURCES or resource.startswith("hugepages-")
    if binary and abs(number) >= 1024:
        return with_suffix(number, 1024, _BINARY_STEPS)
    return with_suffix(number, 1000, DECIMAL_STEPS)


def with_suffix(amount: int, base: int, steps: tuple[str, ...]) -> str:
    """An amount in the largest step, each ``base`` of the one before, in which it is whole."""
    step = 0
    while amount and amount % base == 0 and step < len(steps) - 1:
        amount //= base
        step += 1
    return f"{amount}{steps[step]}"


@lru_cache(maxsize=1024)
def visiting_rank(resource: str) -> int:
    """Rank by which resources of a pod set are visited: the 64-bit FNV-1a hash of the name."""
    value = 0xCBF29CE484222325
    for byte in resource.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def add_usage(total: dict[_Key, Amount], extra: Mapping[_Key, Amount]) -> None:
    """Add ``extra`` to ``total`` in place."""
    for key, amount in extra.items():
        total[key] = add(total.get(key, ZERO), amount)
