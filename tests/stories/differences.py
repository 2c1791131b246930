"""What differs between two snapshots, and which of it a story names as meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.stories.story import Deviation


@dataclass(frozen=True, slots=True)
class Difference:
    """One field; None stands for a field that is not there."""

    path: str
    recorded: Any
    seen: Any

    def __str__(self) -> str:
        return f"{self.path}\n    recorded: {self.recorded!r}\n    seen:     {self.seen!r}"


def differences(recorded: Any, seen: Any, *, path: str) -> Iterator[Difference]:
    """Every field that is not the same; lists of lines are compared as sets."""
    if isinstance(recorded, Mapping) and isinstance(seen, Mapping):
        for key in sorted({*recorded, *seen}):
            yield from differences(recorded.get(key), seen.get(key), path=f"{path}/{key}")
        return
    if _are_lines(recorded) and _are_lines(seen):
        for line in sorted({*recorded} ^ {*seen}):
            there = line in recorded
            yield Difference(f"{path}/{line}", line if there else None, None if there else line)
        return
    if recorded != seen:
        yield Difference(path, recorded, seen)


def unexplained(
    found: Iterable[Difference], deviations: Sequence[Deviation]
) -> tuple[list[Difference], list[Deviation]]:
    """Differences that no deviation names with both outcomes, and the deviations that were met."""
    rest: list[Difference] = []
    met: list[Deviation] = []
    for difference in found:
        named = [each for each in deviations if _is_named(difference, each)]
        met += [each for each in named if each not in met]
        if not named:
            rest.append(difference)
    return rest, met


def _is_named(difference: Difference, deviation: Deviation) -> bool:
    return (
        fnmatchcase(difference.path, deviation.at)
        and deviation.kueue == difference.recorded
        and deviation.portal == difference.seen
    )


def _are_lines(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
