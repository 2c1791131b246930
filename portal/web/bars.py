"""The budget bar: numbers in, drawing out. No template, no database.

One bar is one flavor of one budget, always to the same rules: the committed track is solid up
to C, the burst track hatched from C to B, use is filled over both, GPUs lent out are striped at
the far end of the committed track, waiting demand is a thin outline beyond the use, a tick marks
the ceiling. Positions are percentages of the bar's width, so that hatches keep their angle at
any width and the page needs no inline style.
"""

from __future__ import annotations

from dataclasses import dataclass

from budgets.plan import Room
from clusters.selectors import BudgetBar


@dataclass(frozen=True, slots=True)
class BarSegment:
    """One rectangle: ``meaning`` is its class in the stylesheet, ``x`` and ``width`` percent."""

    meaning: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Bar:
    """What the template draws.

    Attributes:
        tracks: What is promised, drawn first.
        fills: What happens, drawn over it.
        tick: Position of the ceiling in percent; empty without one.
        cap: Position of a limit below the ceiling, such as a hold; empty without one.
        facts: (meaning, words) in the order of the legend under the bar.
        text: The same facts as one sentence.
        key: Begins the ids of its parts, so that they move where the bar is drawn anew.
    """

    flavor: str
    flavor_name: str
    tracks: tuple[BarSegment, ...]
    fills: tuple[BarSegment, ...]
    tick: str
    cap: str
    facts: tuple[tuple[str, str], ...]
    text: str
    key: str = ""


def draw(numbers: BudgetBar) -> Bar:
    """Draw one bar; its scale ends at the largest of ceiling, use, and use plus waiting."""
    committed, ceiling = numbers.committed, max(numbers.ceiling, numbers.committed)
    burst_end = committed + numbers.burst
    used = numbers.committed_used + numbers.burst
    pending_from = burst_end if numbers.burst else numbers.committed_used
    promised = max(ceiling, burst_end)
    # A long queue does not squeeze the budget: it is drawn as long as all the rest at most.
    pending_end = min(pending_from + numbers.pending, 2 * promised or numbers.pending)
    scale = max(promised, pending_end, 1)
    over = max(0, burst_end - ceiling)
    facts = _facts(numbers, ceiling, over)
    words = ", ".join(words for _, words in facts)
    return Bar(
        flavor=numbers.flavor,
        flavor_name=numbers.flavor_name,
        tracks=_segments(scale, ("committed", 0, committed), ("burst", committed, ceiling)),
        fills=_segments(
            scale,
            ("lent", max(0, committed - numbers.lent), committed),
            ("committed-used", 0, numbers.committed_used),
            ("burst-used", committed, burst_end - over),
            ("over", burst_end - over, burst_end),
            ("pending", pending_from, pending_end),
        ),
        tick=percent(ceiling, scale) if ceiling else "",
        cap="" if numbers.cap is None else percent(numbers.cap, scale),
        facts=facts,
        text=f"{numbers.flavor_name}: {used:,} GPUs in use; {words}.",
    )


UNDER = {"envelope": "the account's envelope", "fleet": "the fleet"}


def draw_room(room: Room, name: str) -> Bar:
    """Draw what a budget takes of a limit: others first, then its own, an outline as it was.

    Args:
        room: Of one flavor.
        name: The flavor's name.
    """
    end = room.others + room.after
    scale = max(room.limit, end, room.others + room.before, 1)
    own = room.after - min(room.after, room.excess)
    was = "" if room.before == room.after else f", {room.before:,} now"
    facts = [
        ("committed", f"{room.after:,} here{was}"),
        ("others", f"{room.others:,} promised to others"),
    ]
    if room.excess:
        facts.append(("trouble", f"{room.excess:,} more than the limit of {room.limit:,}"))
    else:
        facts.append(("left", f"{room.limit - end:,} of {room.limit:,} left"))
    words = ", ".join(words for _, words in facts)
    return Bar(
        flavor=room.flavor,
        flavor_name=name,
        tracks=(BarSegment("committed", "0.00", percent(room.limit, scale)),),
        fills=tuple(
            BarSegment(meaning, percent(start, scale), percent(width, scale))
            for meaning, start, width in (
                ("others", 0, room.others),
                ("committed-used", room.others, own),
                ("over", room.others + own, room.after - own),
                ("was", room.others, room.before),
            )
        ),
        tick=percent(room.limit, scale) if room.limit else "",
        cap="",
        facts=tuple(facts),
        text=f"{name} committed in {UNDER[room.kind]}: {words}.",
        key=f"{room.kind}-{room.flavor}",
    )


def _facts(numbers: BudgetBar, ceiling: int, over: int) -> tuple[tuple[str, str], ...]:
    facts = []
    room, burst = ceiling - numbers.committed, numbers.burst - over
    if numbers.committed or not room:
        facts.append(
            ("committed", f"{numbers.committed_used:,} of {numbers.committed:,} committed")
        )
    if room or burst:
        facts.append(("burst", f"{burst:,} of {room:,} burst"))
    if numbers.lent:
        facts.append(("lent", f"{numbers.lent:,} lent"))
    if numbers.pending:
        facts.append(("pending", f"{numbers.pending:,} waiting"))
    if numbers.cap is not None:
        facts.append(("cap", f"capped at {numbers.cap:,}"))
    if over:
        used = numbers.committed_used + numbers.burst
        facts.append(
            (
                "trouble",
                f"{used:,} in use, {over:,} above the burst limit of {ceiling:,}: they finish, and "
                "nothing new starts",
            )
        )
    return tuple(facts)


def _segments(scale: int, *parts: tuple[str, int, int]) -> tuple[BarSegment, ...]:
    """Of meanings with their begin and end; what has no width is left out."""
    return tuple(
        BarSegment(meaning, percent(start, scale), percent(end - start, scale))
        for meaning, start, end in parts
        if end > start
    )


def percent(part: int, scale: int) -> str:
    """Percent with two decimals, computed in whole numbers."""
    hundredths = part * 10_000 // scale
    return f"{hundredths // 100}.{hundredths % 100:02d}"
