"""What somebody asks for: a draft of a revision, the three-field form, and its own faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from budgets.errors import Fault, reject_any
from budgets.plan.words import Line, Spill

MOST_GPUS = 1_000_000
"""Above any fleet; keeps a slip of the finger out of the database's integers."""


@dataclass(frozen=True, slots=True)
class RevisionDraft:
    """A revision as somebody wants it, before any check.

    Attributes:
        lines: One per flavor, in the order in which the form shows them.
        preference: Flavor slugs in the order in which jobs try them.
        spill: What a job meets when its first flavor has no floor left.
        valid_from: UTC; None means at once.
        valid_until: UTC, exclusive; None means until something newer begins.
        reason: Why, in the author's words.
    """

    lines: tuple[Line, ...]
    preference: tuple[str, ...] = ()
    spill: Spill = Spill.NEXT_FLAVOR_FIRST
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What is accepted of a request.

    Attributes:
        lines: One per flavor that is accepted; none for those of the request.
        valid_until: UTC, an end that is no later than the request's; None keeps the request's.
    """

    lines: tuple[Line, ...] = ()
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class FlavorTerms:
    """What a check has to know of a flavor.

    Attributes:
        slug: Flavor slug.
        node_gpus: GPUs of one node, at least 1.
        factor: Promises may reach capacity times this, at least 1.
        is_archived: Takes no new promise.
        name: What people call it; empty is its slug.
    """

    slug: str
    node_gpus: int = 8
    factor: Fraction = Fraction(1)
    is_archived: bool = False
    name: str = ""


def name_of(flavor: str, flavors: Mapping[str, FlavorTerms]) -> str:
    """What people call a flavor; its slug where it is not known."""
    terms = flavors.get(flavor)
    return terms.name or flavor if terms is not None else flavor


def short_form_lines(
    *, home_flavor: str, committed: int, ceiling: int, preferred: str | None
) -> tuple[Line, ...]:
    """Turn the form's three fields into lines.

    Args:
        home_flavor: Flavor of the floor.
        committed: GPUs of the floor.
        ceiling: "burst up to": floor and burst together.
        preferred: Flavor that the burst runs on; None or the home flavor keeps one line.

    Returns:
        One line ``committed/ceiling`` on the home flavor, or the floor on the home flavor and
        the burst on the preferred one, so that the ceilings add up to ``ceiling``. A ceiling
        below the floor is kept on the home line, where the check names it.

    Source:
        ARCHITECTURE, "What a budget becomes".
    """
    if preferred in (None, "", home_flavor) or ceiling < committed:
        return (Line(home_flavor, committed, ceiling, committed),)
    assert preferred is not None
    return (
        Line(home_flavor, committed, committed, committed),
        Line(preferred, 0, ceiling - committed, 0),
    )


def check_draft(
    draft: RevisionDraft, *, flavors: Mapping[str, FlavorTerms], now: datetime
) -> tuple[Fault, ...]:
    """Find what is wrong with a draft on its own, all at once.

    Args:
        draft: The draft; ``valid_from`` in the past is judged by the caller, who knows the role.
        flavors: Known flavors by slug.
        now: UTC, aware.

    Returns:
        Faults with the field ``lines.N.committed`` and so on; empty when the draft is coherent.
    """
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, line in enumerate(draft.lines):
        faults += _line_faults(line, field=f"lines.{index}", flavors=flavors)
        if line.flavor in seen:
            name = name_of(line.flavor, flavors)
            words = f"{name} has two lines; put both amounts on one line."
            faults.append(Fault(f"lines.{index}.flavor", "flavor_twice", words))
        seen.add(line.flavor)
    faults += _preference_faults(draft.preference, seen, flavors)
    faults += _window_faults(draft, now)
    return tuple(faults)


def part_of(
    whole: RevisionDraft, part: Part, *, flavors: Mapping[str, FlavorTerms]
) -> RevisionDraft:
    """A request as it is accepted: with no more GPUs than it asks for, and no later end.

    Args:
        whole: The request.
        part: What is accepted of it; its lines are otherwise checked as those of any draft.
        flavors: Known flavors by slug.

    Returns:
        The draft of what is accepted; equal to ``whole`` where that is everything.

    Raises:
        Rejected: The part is more than the request, or nothing of it.
    """
    faults = []
    asked = {line.flavor: line for line in whole.lines}
    lines = part.lines or whole.lines
    for index, line in enumerate(lines):
        most, flavor = asked.get(line.flavor), name_of(line.flavor, flavors)
        if most is None:
            words = f"The request does not ask for {flavor}. Leave it out."
            faults.append(Fault(f"lines.{index}.flavor", "not_asked", words))
            continue
        for name in ("committed", "ceiling"):
            if getattr(line, name) > getattr(most, name):
                words = (
                    f"The request asks for {getattr(most, name)} {flavor} here; accept as many or "
                    "fewer."
                )
                faults.append(Fault(f"lines.{index}.{name}", "more_than_asked", words))
    if not any(line.ceiling for line in lines) and any(line.ceiling for line in whole.lines):
        words = "This accepts none of the GPUs. Decline the request instead."
        faults.append(Fault("", "nothing_accepted", words))
    until = part.valid_until or whole.valid_until
    if until is not None and whole.valid_until is not None and until > whole.valid_until:
        words = "The request ends earlier. Choose its end or an earlier time."
        faults.append(Fault("valid_until", "more_than_asked", words))
    reject_any(faults)
    kept = tuple(line for line in lines if line.ceiling or not asked[line.flavor].ceiling)
    accepted = {line.flavor for line in kept}
    preference = tuple(flavor for flavor in whole.preference if flavor in accepted)
    return replace(whole, lines=kept, preference=preference, valid_until=until)


def _line_faults(line: Line, *, field: str, flavors: Mapping[str, FlavorTerms]) -> list[Fault]:
    faults: list[Fault] = []
    terms = flavors.get(line.flavor)
    if terms is None:
        words = f"There is no flavor {line.flavor!r}."
        faults.append(Fault(f"{field}.flavor", "unknown_flavor", words))
    elif terms.is_archived:
        name = name_of(line.flavor, flavors)
        words = f"{name} is archived and can no longer be promised. Choose another flavor."
        faults.append(Fault(f"{field}.flavor", "archived_flavor", words))
    amounts = {"committed": line.committed, "ceiling": line.ceiling, "lendable": line.lendable}
    broken = {name: gpus for name, gpus in amounts.items() if not is_whole_gpus(gpus)}
    for name, gpus in broken.items():
        words = f"{gpus} is not a number of whole GPUs between 0 and {MOST_GPUS:,}."
        faults.append(Fault(f"{field}.{name}", "not_whole_gpus", words))
    if broken:
        return faults
    if line.ceiling < line.committed:
        words = (
            f"The burst limit of {line.ceiling} is below the {line.committed} committed GPUs. It "
            "counts the committed GPUs, too: enter at least as many."
        )
        faults.append(Fault(f"{field}.ceiling", "ceiling_below_committed", words))
    if line.lendable > line.committed:
        words = (
            f"Only committed GPUs can be lent: {line.lendable} to lend are more than the "
            f"{line.committed} committed."
        )
        faults.append(Fault(f"{field}.lendable", "lendable_above_committed", words))
    return faults


def is_whole_gpus(gpus: object) -> bool:
    """Whether it is a number of GPUs that can be promised: whole, 0 to :data:`MOST_GPUS`."""
    return isinstance(gpus, int) and not isinstance(gpus, bool) and 0 <= gpus <= MOST_GPUS


def _preference_faults(
    preference: tuple[str, ...], lines: set[str], flavors: Mapping[str, FlavorTerms]
) -> list[Fault]:
    faults = [
        Fault(
            f"preference.{index}",
            "preference_without_line",
            f"{name_of(flavor, flavors)} is preferred but has no line. Add a line, or take it out "
            "of the preference.",
        )
        for index, flavor in enumerate(preference)
        if flavor not in lines
    ]
    if len(set(preference)) != len(preference):
        words = "The preference names a flavor twice; name each flavor once."
        faults.append(Fault("preference", "preference_twice", words))
    return faults


def _window_faults(draft: RevisionDraft, now: datetime) -> list[Fault]:
    faults: list[Fault] = []
    for name, instant in (("valid_from", draft.valid_from), ("valid_until", draft.valid_until)):
        if instant is not None and instant.tzinfo is None:
            words = "The time has no time zone; give one, such as Z for UTC."
            faults.append(Fault(name, "naive_time", words))
        elif instant is not None and instant.microsecond:
            words = "A budget begins and ends at a whole second. Leave the fraction out."
            faults.append(Fault(name, "not_whole_seconds", words))
    if faults:
        return faults
    start = draft.valid_from or now
    if draft.valid_until is not None and draft.valid_until <= max(start, now):
        words = "The end has to be after the start; choose a later end, or leave it empty."
        faults.append(Fault("valid_until", "empty_window", words))
    return faults
