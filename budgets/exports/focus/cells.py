"""Rules of one value: null or not, format, enumeration, unit, currency, JSON.

Pure. A value that was fine once in a column is not looked at again, so most values of a large
file cost one look-up.

Source: FOCUS attributes of 1.2 and 1.4; spec money, sections 2.1 and 2.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from budgets.exports.focus import values
from budgets.exports.table import CellKind
from budgets.units import UnitsError, currency_digits

Fault = tuple[str, str]
"""(rule, message)"""
Check = Callable[[str], Fault | None]
"""What checks a value (not null) of a column; None: it is fine."""

NULL_WORDS = frozenset({"null", "none", "n/a", "na", "nan", "nil", "undefined", r"\n", "-"})
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_BASE_UNIT = re.compile(r"[A-Z][A-Za-z]*", re.ASCII)
_GLUED = re.compile(r"[A-Za-z]+?(Years|Months|Days|Hours|Minutes|Seconds)", re.ASCII)
_UNIT = re.compile(r"(?:[1-9]\d* )?([^/ ]+)(?:/(?:[1-9]\d* )?([^/ ]+))?", re.ASCII)
_TIME_BY_LOWER = {unit.lower(): unit for unit in values.TIME_UNITS}
_DATA_BY_LOWER = {unit.lower(): unit for unit in values.DATA_UNITS}


def check_text(text: str) -> Fault | None:
    """Null is null: no empty text and no word that means it."""
    if not text.strip():
        return "null", "an empty text is not a value; leave the field empty for null"
    if text.strip().lower() in NULL_WORDS:
        return "null", "a word for null is a value; leave the field empty for null"
    return None


def check_decimal(text: str) -> Fault | None:
    """A plain decimal."""
    if _DECIMAL.fullmatch(text):
        return None
    return check_text(text) or (
        "numeric_format",
        "write a plain decimal, such as -1234.5: no plus, thousands mark, exponent or symbol",
    )


def check_unsigned(text: str) -> Fault | None:
    """A plain decimal that is not negative."""
    if text.startswith("-") and _DECIMAL.fullmatch(text):
        return "not_negative", "a unit price is never negative; the quantity or cost is"
    return check_decimal(text)


def check_time(text: str) -> Fault | None:
    """A moment in UTC that exists."""
    if not _TIME.fullmatch(text):
        return check_text(text) or (
            "time_format",
            "write UTC to the second, such as 2026-03-01T00:00:00Z",
        )
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return "time_format", "there is no such date or time of day"
    return None


def check_currency(text: str) -> Fault | None:
    """An active ISO 4217 code."""
    try:
        currency_digits(text)
    except UnitsError:
        return "currency", "use an ISO 4217 code of a national currency, such as EUR"
    return None


def check_unit(text: str) -> Fault | None:
    """FOCUS UnitFormat: ``GPU-Hours``, ``GB``, ``GB/Hour``, ``1000 Tokens``."""
    match = _UNIT.fullmatch(text)
    if match is None:
        return "unit_format", "write a unit such as GPU-Hours, GB or Requests/Hour"
    for part in (match[1], match[2]):
        for unit in part.split("-") if part else ():
            fault = _base_unit(unit)
            if fault:
                return "unit_format", fault
    return None


def _base_unit(unit: str) -> str | None:
    if unit in values.TIME_UNITS or unit in values.DATA_UNITS:
        return None
    known = _TIME_BY_LOWER.get(unit.lower()) or _DATA_BY_LOWER.get(unit.lower())
    if known:
        return f"spell the unit {known!r}, not {unit!r}"
    if _GLUED.fullmatch(unit):
        return f"put a hyphen before the unit of time in {unit!r}, such as GPU-Hours"
    if not _BASE_UNIT.fullmatch(unit):
        return f"{unit!r} is not a unit; begin it with a capital letter, such as GPU"
    return None


def check_object(text: str) -> Fault | None:
    """One JSON object, keys unique."""
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        return "json", f"write one JSON object: {error}"
    if not isinstance(document, dict):
        return "json", 'write a JSON object, such as {"key": "value"}'
    return None


def check_flat_object(text: str) -> Fault | None:
    """One JSON object whose values are no objects and no lists."""
    fault = check_object(text)
    if fault:
        return fault
    nested = [k for k, v in json.loads(text).items() if isinstance(v, dict | list)]
    if nested:
        return "json_flat", f"flatten {nested[0]!r}: a value cannot be an object or a list"
    return None


def check_price_details(text: str) -> Fault | None:
    """Flat; keys of FOCUS with their type, all others beginning with ``x_``."""
    fault = check_flat_object(text)
    if fault:
        return fault
    for key, value in json.loads(text).items():
        wanted = values.SKU_PRICE_KEYS.get(key)
        if wanted is None and not key.startswith("x_"):
            return "json_key", f"begin the key {key!r} with x_: FOCUS does not define it"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if wanted is not None and is_number is not (wanted is int):
            return "json_key", f"{key} is a {'number' if wanted is int else 'text'} in FOCUS"
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice")
    return document


def one_of(allowed: Collection[str]) -> Check:
    """Return what checks that a value is one of an enumeration."""
    shown = ", ".join(sorted(allowed))
    return lambda text: None if text in allowed else ("enum", f"use one of: {shown}")


OF_KIND: Mapping[CellKind, Check] = {
    CellKind.TEXT: check_text,
    CellKind.DECIMAL: check_decimal,
    CellKind.AMOUNT: check_decimal,
    CellKind.TIME: check_time,
    CellKind.JSON: check_flat_object,
}
