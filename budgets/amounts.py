"""The amounts of usage: what every hour fact says of a workspace and flavor, each declared once.

Tables of facts and totals, pages, charts, CSV, exports and the API take their columns from here,
so that a column more is a row more of :data:`AMOUNTS`. One that is a sum of others (``of``) is
that row and nothing else; one that is stored needs its column in
:class:`budgets.models.UsageAmounts`, a migration, and a value from :mod:`budgets.metering`.

Pure. Source: spec money, section 1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

UNIT: Final = "GPU-seconds"


class AmountGroup(IntEnum):
    """What amounts are about; tables for people show them group by group."""

    FLOOR = 1
    ABOVE = 2
    WAITING = 3


@dataclass(frozen=True, slots=True)
class Color:
    """How a chart draws a meaning; the browser takes the same from the stylesheet by its name.

    Attributes:
        meaning: Name in the stylesheet.
        fill: Of bars, in the light scheme.
        line: Of lines and patterns.
        pattern: Plotly's sign of it; empty for none.
    """

    meaning: str
    fill: str
    line: str
    pattern: str = ""


COMMITTED: Final = Color("committed", "#0067a8", "#0067a8")
IDLE: Final = Color("idle", "#d4dae0", "#5f6b78", ".")
LENT: Final = Color("lent", "#bfe5d9", "#00795c", "\\")
BURST: Final = Color("burst", "#f6dfbd", "#b36200", "/")
PENDING: Final = Color("pending", "#eddcef", "#8a3f8f")


@dataclass(frozen=True, slots=True)
class Amount:
    """One amount, in GPU-seconds (:data:`UNIT`).

    Attributes:
        name: Column of facts and totals, of CSV and exports, and field of the API.
        words: In a sentence or a legend, by itself.
        column: Header in a table, beside the others of its group.
        help: What it counts, as a sentence.
        group: Where a table for people has it.
        color: In charts.
        is_part: It is one of those of which committed and burst together consist.
        is_held: Jobs held it, so it has a meaning for one cluster and one workload; a floor
            belongs to no cluster.
        of: Names of the stored amounts that it is the sum of; empty when it is stored itself.
    """

    name: str
    words: str
    column: str
    help: str
    group: AmountGroup
    color: Color
    is_part: bool = False
    is_held: bool = False
    of: tuple[str, ...] = ()


AMOUNTS: Final = (
    Amount(
        "committed",
        "committed",
        "Committed",
        "GPU-seconds committed.",
        AmountGroup.FLOOR,
        COMMITTED,
    ),
    Amount(
        "committed_used",
        "committed, used",
        "used",
        "GPU-seconds of the floor that were used.",
        AmountGroup.FLOOR,
        COMMITTED,
        is_part=True,
        is_held=True,
    ),
    Amount(
        "burst",
        "burst",
        "Burst",
        "GPU-seconds above the floor.",
        AmountGroup.ABOVE,
        BURST,
        is_part=True,
        is_held=True,
    ),
    Amount(
        "borrowed",
        "borrowed",
        "borrowed",
        "GPU-seconds of the burst that others' floors covered.",
        AmountGroup.ABOVE,
        BURST,
    ),
    Amount(
        "lent",
        "lent",
        "lent",
        "GPU-seconds of the floor that others used.",
        AmountGroup.FLOOR,
        LENT,
        is_part=True,
    ),
    Amount(
        "idle",
        "idle",
        "idle",
        "GPU-seconds of the floor that nobody used.",
        AmountGroup.FLOOR,
        IDLE,
        is_part=True,
    ),
    Amount(
        "pending",
        "waiting",
        "Waiting",
        "GPU-seconds that workloads waited for.",
        AmountGroup.WAITING,
        PENDING,
    ),
)
BY_NAME: Final[Mapping[str, Amount]] = {amount.name: amount for amount in AMOUNTS}
NAMES: Final = tuple(BY_NAME)
"""In the order of CSV and API."""
STORED: Final = tuple(amount.name for amount in AMOUNTS if not amount.of)
"""Columns of hour facts and totals, in the order in which a closed month's digests have them."""
SUMS: Final = tuple(amount for amount in AMOUNTS if amount.of)
METERED: Final = tuple(name for name in STORED if BY_NAME[name].group is not AmountGroup.WAITING)
"""Those that the meter works out of what was held; what waited is added to them."""
HELD: Final = tuple(name for name in STORED if BY_NAME[name].is_held)
"""Columns of what one workload, or one cluster, used; together they are its use."""
COLUMNS: Final = tuple(sorted(AMOUNTS, key=lambda amount: amount.group))
"""In the order of tables for people and of exports."""
PARTS: Final = tuple(amount for amount in COLUMNS if amount.is_part)
"""What committed and burst together consist of, as charts stack it."""
FLOOR: Final = tuple(name for name in STORED if BY_NAME[name].group is AmountGroup.FLOOR)
COVER: Final = ("burst", "from_pool", "lent", "from_platform", "uncovered")
"""Columns of an account's hour facts: its burst, and what covered it, which adds up to it."""


def completed(stored: Mapping[str, int]) -> dict[str, int | None]:
    """Return all amounts of a row; those that are sums are added up.

    Args:
        stored: GPU-seconds by name. What is not there has no meaning for the row and is None,
            and so is every sum of it.
    """
    found = {name: stored.get(name) for name in STORED}
    for amount in SUMS:
        parts = [stored[name] for name in amount.of if name in stored]
        found[amount.name] = sum(parts) if len(parts) == len(amount.of) else None
    return found
