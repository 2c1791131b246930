"""Whole amounts of resources, and the unlimited one.

Every amount is an ``int``: thousandths for ``cpu``, whole units for everything else. One value,
``UNLIMITED``, stands for "no bound" and absorbs additions. No floats, no I/O.

Source: Kueue pkg/resources/amount.go, requests.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, TypeVar

UNLIMITED: Final = 2**63 - 1
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


Requests: TypeAlias = Mapping[str, int]
Usage: TypeAlias = Mapping[FlavorResource, int]
_Key = TypeVar("_Key")


def add(amount: int, other: int) -> int:
    """Sum that stays unlimited once it is, and never leaves the range of 64 bits."""
    if amount == UNLIMITED or other == UNLIMITED:
        return UNLIMITED
    total = amount + other
    return total if _LOWEST <= total <= UNLIMITED else _cut(total)


def subtract(amount: int, other: int) -> int:
    """Difference with the same bounds; unlimited minus unlimited is 0."""
    if other == UNLIMITED:
        return 0 if amount == UNLIMITED else _LOWEST
    if amount == UNLIMITED:
        return UNLIMITED
    rest = amount - other
    return rest if _LOWEST <= rest <= UNLIMITED else _cut(rest)


def multiply(amount: int, count: int) -> int:
    """Product, cut at the largest amount."""
    return _cut(amount * count)


def _cut(amount: int) -> int:
    return min(UNLIMITED, max(_LOWEST, amount))


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
def parse_amount(text: str, resource: str) -> int:
    """Amount of a resource in a quantity, finer fractions rounded away from zero.

    Returns:
        Thousandths for ``cpu``, else units; ``UNLIMITED`` for anything at or beyond the largest
        64-bit number.

    Raises:
        ValueError: the text is no quantity.
    """
    value = parse_decimal(text)
    scaled = value * 1000 if resource == _CPU else value
    return min(UNLIMITED, int(scaled.to_integral_value(rounding=ROUND_UP)))


@lru_cache(maxsize=4096)
def format_amount(amount: int, resource: str) -> str:
    """Canonical quantity text of an amount, as Kubernetes prints it.

    ``cpu`` in thousandths, memory-like resources with binary suffixes from 1024 on, others decimal.
    """
    if resource == _CPU:
        if amount % 1000:
            return f"{amount}m"
        return with_suffix(amount // 1000, 1000, DECIMAL_STEPS)
    binary = resource in _BINARY_RESOURCES or resource.startswith("hugepages-")
    if binary and abs(amount) >= 1024:
        return with_suffix(amount, 1024, _BINARY_STEPS)
    return with_suffix(amount, 1000, DECIMAL_STEPS)


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


def add_usage(total: dict[_Key, int], extra: Mapping[_Key, int]) -> None:
    """Add ``extra`` to ``total`` in place."""
    for key, amount in extra.items():
        total[key] = add(total.get(key, 0), amount)
