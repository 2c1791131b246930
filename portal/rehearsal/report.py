"""What a rehearsal was given, how it waits, and what it tells."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

POLL_S = 0.1
WORDS = 400
"""So many characters are told of what a cluster says."""
EMBEDDED = "embedded"
"""Instead of a kubeconfig: a cluster of the rehearsal's own."""


class StepFailed(Exception):
    """What did not happen, in a sentence, and what is known of why.

    Attributes:
        told: A sentence each.
    """

    def __init__(self, message: str, told: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.told = tuple(told)


def plain(text: str) -> str:
    """Words of a cluster in one line: bounded, a space for each control character."""
    return "".join(c if c.isprintable() else " " for c in text[:WORDS])


@dataclass(frozen=True)
class Options:
    """What ``manage.py rehearse`` was given."""

    cluster: str | None
    manager: str | None
    worker: list[str] | None
    user: str | None
    mode: str | None
    worker_mode: str | None
    gpus: int
    resource: str
    node_label: list[str]
    image: str
    run: list[str] | None
    run_seconds: int
    timeout: float
    json: bool

    @property
    def is_embedded(self) -> bool:
        return self.manager is None and self.cluster in (None, EMBEDDED)

    @property
    def is_single(self) -> bool:
        return self.cluster is not None


@dataclass
class Report:
    """Steps with their seconds; printed as they happen, or as one JSON document at the end."""

    as_json: bool
    steps: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Times one step; what is appended to the yielded list is shown beside it."""
        begun = time.monotonic()
        facts: list[str] = []
        trouble: Exception | None = None
        try:
            yield facts
        except Exception as error:
            trouble = error
            self.failed = self.failed or name
            facts[:0] = _lines(error)
            raise
        finally:
            row = {
                "step": name,
                "ok": trouble is None,
                "seconds": round(time.monotonic() - begun, 3),
                "facts": facts,
            }
            self.steps.append(row)
            if not self.as_json:
                mark, between = ("ok  ", "; ") if row["ok"] else ("FAIL", "\n     ")
                told = between.join(facts)
                print(f"{mark} {name:10} {row['seconds']:8.2f} s  {told}", flush=True)

    def finish(self) -> int:
        if self.as_json:
            ok = not self.failed
            document = {"ok": ok, "failed": self.failed, "steps": self.steps, "notes": self.notes}
            print(json.dumps(document, indent=1))
        else:
            for note in self.notes:
                print(note)
            print(
                f"The step that failed: {self.failed}" if self.failed else "Every step succeeded."
            )
        return 1 if self.failed else 0


def _lines(error: Exception) -> list[str]:
    if isinstance(error, StepFailed):
        return [str(error), *error.told]
    return [plain(f"{type(error).__name__}: {error}")]


def wait_until(
    what: str,
    seconds: float,
    ready: Callable[[], Any],
    hopeless: Callable[[], str],
    told: Callable[[], Iterable[str]],
) -> Any:
    """Polls until ``ready`` returns something true, and returns that.

    Args:
        what: What is not so yet, as a clause.
        seconds: The longest wait.
        ready: Asked each time.
        hopeless: Asked each time; why it cannot come, empty while it may.
        told: Asked when it failed; what is known of why.

    Raises:
        StepFailed: the time is up, or it is hopeless.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = ready()
        if value:
            return value
        if trouble := hopeless():
            raise StepFailed(f"{what}: {trouble}", told())
        if time.monotonic() > deadline:
            raise StepFailed(f"{what} after {seconds:.0f} s", told())
        time.sleep(POLL_S)
