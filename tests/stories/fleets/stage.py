"""What a player needs of a column: clusters, time, and ways to break and mend things."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from clusters.kube.client import KubeClient
from tests.stories.fleets.observer import Entry
from tests.stories.pods import Pods

T = TypeVar("T")
WITHIN_S = 90.0
_POLL_S = 0.1
Why = str | Callable[[], str]


class Stage(Protocol):
    """One column, with shifts or a Kueue at work.

    Attributes:
        clients: Administrators' clients by cluster; nothing cuts them.
        pods: How pods are played.
        origin: Value of the origin label.
        is_kueue: A real Kueue decides here.
    """

    clients: Mapping[str, KubeClient]
    pods: Pods
    origin: str
    is_kueue: bool

    def cut(self, worker: str) -> None:
        """Take the manager's connection to a worker away."""

    def restore(self, worker: str) -> None:
        """Give it back."""

    def restart(self, cluster: str) -> None:
        """Whoever dispatches there dies and begins anew."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""

    def until(self, check: Callable[[], Any], *, why: Why) -> Any:
        """What the check returns once that is true; AssertionError when it never is."""

    def monotonic(self) -> float:
        """Seconds, of the stage's own clock."""

    def now(self) -> datetime:
        """Time of day, of the stage's own clock."""

    def history_of(self, namespace: str) -> list[Entry]:
        """Every state of the story's objects."""


class RealTime:
    """Time as the wall has it."""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def monotonic(self) -> float:
        return time.monotonic()

    def until(self, check: Callable[[], T], *, why: Why) -> T:
        ends = time.monotonic() + WITHIN_S
        while not (found := check()):
            if time.monotonic() > ends:
                raise AssertionError(why() if callable(why) else why)
            time.sleep(_POLL_S)
        return found
