"""What a rehearsal was given, how it waits, and what it tells."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

POLL_S = 0.1
EMBEDDED = "embedded"
"""Instead of a kubeconfig: a cluster of the rehearsal's own."""


class StepFailed(Exception):
    """What did not happen, in a sentence."""


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
            facts.append(f"{type(error).__name__}: {error}")
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
                mark = "ok  " if row["ok"] else "FAIL"
                print(f"{mark} {name:10} {row['seconds']:8.2f} s  {'; '.join(facts)}", flush=True)

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


def wait_until(
    what: str, seconds: float, ready: Callable[[], Any], alive: Callable[[], str] = lambda: ""
) -> Any:
    """Polls until ``ready`` returns something true, and returns that.

    Raises:
        StepFailed: the time is up, or ``alive`` told why it cannot come.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = ready()
        if value:
            return value
        if trouble := alive():
            raise StepFailed(f"{what}: {trouble}")
        if time.monotonic() > deadline:
            raise StepFailed(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(POLL_S)
