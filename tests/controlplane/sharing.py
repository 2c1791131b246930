"""Which shared control planes run when: tests are sorted by those that they use, few run at a time.

A control plane at rest still takes some percent of a core and hundreds of megabytes. So all tests
of one come after each other, and it ends with the last of them, not with the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

# In the order in which they are used; what many tests use together stands side by side.
ORDER: Final = ("portal_plane", "kueue_cluster", "bare_fleet", "kueue_fleet", "bare_cluster")
# Fixtures that ask for one of them by name only when they run.
ASKS_FOR: Final = {"contract_kubeconfig": "bare_cluster"}


class Item(Protocol):
    """A pytest item, as far as it is looked at here."""

    fixturenames: Sequence[str]
    module: Any


class Sharing:
    """Who still needs what; one for a session."""

    def __init__(self) -> None:
        self._users: dict[str, list[Item]] = {}
        self._stops: dict[str, Callable[[], None]] = {}

    def plan(self, tests: Sequence[Item]) -> list[Item]:
        """The tests in the order in which they shall run; stable within those of one plane."""
        self._users = {name: [test for test in tests if name in planes_of(test)] for name in ORDER}
        return sorted(tests, key=_rank)

    def begun(self, name: str, stop: Callable[[], None]) -> None:
        """A shared plane runs, and ends by calling ``stop``."""
        self._stops[name] = stop

    def over(self, test: Item, following: Item | None) -> None:
        """A test is over with its fixtures: end what none of the following needs.

        Fixtures of its module are still there while the following test is of the same module.
        """
        for name in planes_of(test):
            self._users[name] = [user for user in self._users[name] if user is not test]
        module = getattr(following, "module", None)
        for name in [name for name in self._stops if not self._users.get(name)]:
            if getattr(test, "module", None) is not module or following is None:
                self._stops.pop(name)()


def planes_of(test: Item) -> set[str]:
    """Names of the shared planes that a test uses."""
    fixtures = getattr(test, "fixturenames", ())
    return {ASKS_FOR.get(name, name) for name in fixtures} & set(ORDER)


def _rank(test: Item) -> float:
    """Tests without a shared plane come first, those of two come between those of each."""
    places = [ORDER.index(name) for name in planes_of(test)]
    return sum(places) / len(places) if places else -1
