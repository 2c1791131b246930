"""What goes over a road, and what may be wrong with it. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Passage:
    """One request that had an answer.

    Attributes:
        at: Monotonic second of the answer.
        program, cluster: Whose road it was.
        method, path: Of the request, without its query.
        code: HTTP status.
        is_injected: The road answered by itself.
        words: Of an answer of 400 and more.
    """

    at: float
    program: str
    cluster: str
    method: str
    path: str
    code: int
    is_injected: bool
    words: str = ""

    @property
    def is_write(self) -> bool:
        return self.method in WRITES and "/leases" not in self.path


@dataclass(slots=True)
class Asked:
    """A request as the road reads it."""

    method: str
    path: str
    query: dict[str, list[str]]

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and bool(self.query.get("watch"))

    @property
    def is_lease(self) -> bool:
        return "/leases" in self.path

    @property
    def is_change(self) -> bool:
        """Whether it changes something that matters; Leases and dry runs do not."""
        return self.method in WRITES and not self.is_lease and "dryRun" not in self.query


@dataclass(slots=True)
class Troubles:
    """What is wrong with a road at the moment.

    Attributes:
        is_cut: Every connection is closed at once.
        latency_s: Before each request.
        watch_lag_s: How much later watches tell than they should.
        lost_answers: So many of the next changes are made and their answers are lost.
        expired_watches: So many of the next watches are answered with 410.
        leases_closed_until: Monotonic second until which requests for Leases fail with 503.
        errors: Status codes for the next requests of a kind, ``writes`` or ``reads``.
    """

    is_cut: bool = False
    latency_s: float = 0.0
    watch_lag_s: float = 0.0
    lost_answers: int = 0
    expired_watches: int = 0
    leases_closed_until: float = 0.0
    errors: dict[str, list[int]] = field(default_factory=lambda: {"writes": [], "reads": []})
