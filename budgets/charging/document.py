"""Charges, corrections and adjustments → the lines of one statement.

Pure: no Django, no clock, no I/O. Each line is rounded once, half to even; what the rounded lines
of a workspace miss of its exact sum stands on a rounding line of its own; the payable of an
account is the sum of its workspaces' payables.

Source: spec money, sections 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from budgets.charging.model import Charges, LinePart
from budgets.charging.rows import RowKind
from budgets.units import Money


@dataclass(frozen=True, slots=True)
class Item:
    """A line before it is rounded.

    Attributes:
        workspace: Namespace; empty for what is the whole account's.
        flavor: Flavor slug or empty.
        kind: What it is for.
        exact: In the statement's currency.
        gpu_seconds: Quantity; 0 without one.
        class_of: Of a correction, the kind that it corrects.
        text: In words, where kind and flavor do not say it.
        adjustment: Key of the approved adjustment.
        parts: GPU-seconds by rate, prices in the rate card's currency.
        amount: Given where it is not ``exact`` rounded: the sum of lines rounded elsewhere.
    """

    workspace: str
    flavor: str
    kind: RowKind
    exact: Fraction
    gpu_seconds: int = 0
    class_of: RowKind | None = None
    text: str = ""
    adjustment: int | None = None
    parts: tuple[LinePart, ...] = ()
    amount: Money | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """Lines with their rounded amounts; payable = Σ amounts."""

    currency: str
    lines: tuple[tuple[Item, Money], ...]
    payable: Money


def assemble(items: Iterable[Item], *, currency: str) -> Document:
    """Round every item once and add the rounding lines.

    Args:
        items: In any order; exact amounts in ``currency``.
        currency: ISO 4217 code of the statement.

    Returns:
        Lines by workspace (the account's own last), flavor and kind; payable their exact sum.
    """
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.workspace, []).append(item)
    lines: list[tuple[Item, Money]] = []
    for workspace in sorted(groups, key=lambda name: (not name, name)):
        lines += _group(workspace, sorted(groups[workspace], key=_place), currency)
    payable = sum((amount for _, amount in lines), Money.zero(currency))
    return Document(currency, tuple(lines), payable)


def _group(workspace: str, items: Sequence[Item], currency: str) -> Iterable[tuple[Item, Money]]:
    exact = Fraction(0)
    rounded = Money.zero(currency)
    for item in items:
        amount = item.amount or Money.rounded(item.exact, currency=currency)
        exact += item.exact
        rounded += amount
        yield item, amount
    rest = Money.rounded(exact, currency=currency) - rounded
    if rest.amount:
        # The exact sum is on the lines already: this one only moves cents.
        yield Item(workspace, "", RowKind.ROUNDING, Fraction(0)), rest


def _place(item: Item) -> tuple[int, str, str, str, int]:
    order = list(RowKind).index(item.kind)
    return order, item.flavor, item.class_of or "", item.text, item.adjustment or 0


def items_of(charges: Charges, *, rate: Fraction = Fraction(1), corrects: str = "") -> list[Item]:
    """Turn charged lines into items.

    Args:
        charges: Of a period, or differences of a closed one.
        rate: What one unit of their currency is worth in the statement's.
        corrects: Name of the closed period; then they are correction items of an open one.
    """
    return [
        Item(
            workspace=line.workspace,
            flavor=line.flavor,
            kind=RowKind.CORRECTION if corrects else line.kind,
            exact=line.exact * rate,
            gpu_seconds=line.gpu_seconds,
            class_of=line.kind if corrects else None,
            text=f"of {corrects}" if corrects else "",
            parts=line.parts,
        )
        for line in charges.lines
    ]


def funding_item(
    kind: RowKind, credits: Iterable[tuple[Fraction, Money]], *, text: str, currency: str
) -> list[Item]:
    """What the platform carries of one account's credits; nothing without any.

    Its amount is the negative sum of the rounded credit lines, so that the books balance to the
    cent; the rounding line of the platform's statement leads to the exact sum.

    Args:
        kind: ``LENDING_FUNDING`` or ``PREEMPTION_FUNDING``.
        credits: Each exact and rounded, below zero.
        text: Whose credits.
        currency: Of the credits.
    """
    rows = list(credits)
    if not rows:
        return []
    exact = sum((exact for exact, _ in rows), Fraction(0))
    rounded = sum((amount for _, amount in rows), Money.zero(currency))
    return [Item("", "", kind, -exact, text=text, amount=-rounded)]
