"""Kubernetes quantities as exact decimals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_PARTS = re.compile(r"^([+-]?[0-9.]+)([A-Za-z]*)([+-]?[0-9.]*)$")
_SUFFIX: Mapping[str, Decimal] = {
    "": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip


def amount(value: Any) -> Decimal:
    """The exact value of a quantity that the schema accepted.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _PARTS.match(str(value))
    if not match:
        raise ValueError(f"not a quantity: {value!r}")
    number, suffix, exponent = match.groups()
    if suffix in ("e", "E") and exponent:
        return Decimal(f"{number}E{exponent}")
    return Decimal(number) * _SUFFIX[suffix]
