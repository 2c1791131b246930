"""Tests are sorted by the control planes that they share; each ends with its last test."""

from __future__ import annotations

from dataclasses import dataclass

from tests.controlplane.sharing import Sharing


@dataclass(frozen=True, eq=False)
class One:
    """As much of a test as is looked at."""

    name: str
    fixturenames: tuple[str, ...]
    module: str


def played(*tests: One) -> list[str]:
    """What happens when these run: names of tests, and of planes with a sign where they end."""
    sharing, happened, running = Sharing(), [], set()
    ordered = sharing.plan(tests)
    for test, following in zip(ordered, [*ordered[1:], None], strict=True):
        for plane in {*test.fixturenames} - running - {"db"}:
            running.add(plane)
            sharing.begun(plane, lambda plane=plane: happened.append(f"-{plane}"))
        happened.append(test.name)
        sharing.over(test, following)
    return happened


def test_tests_of_a_plane_come_together_and_it_ends_with_the_last_of_them():
    found = played(
        One("a", ("kueue_fleet",), "m"),
        One("b", ("bare_fleet",), "n"),
        One("c", ("db",), "o"),
        One("d", ("bare_cluster",), "p"),
        One("e", ("kueue_fleet", "bare_cluster"), "q"),
        One("f", ("kueue_fleet",), "r"),
    )
    assert found == [
        "c", "b", "-bare_fleet", "a", "f", "e", "-kueue_fleet", "d", "-bare_cluster",
    ]  # fmt: skip


def test_a_plane_outlives_the_fixtures_of_the_module_that_used_it():
    found = played(
        One("a", ("bare_fleet",), "m"),
        One("b", ("kueue_fleet",), "m"),
        One("c", ("kueue_fleet",), "n"),
    )
    assert found == ["a", "b", "-bare_fleet", "c", "-kueue_fleet"]
