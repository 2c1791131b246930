"""The portal's worker with a task that takes its time, for ``celery -A tests.faults.slow_worker``.

With ``BREAKS`` its consumer ends of an error when it loses its broker.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery.signals import worker_ready

from portal.celery import app

__all__ = ["app"]


@app.task(name="tests.slow")  # type: ignore[untyped-decorator]  # celery has no types
def slow(mark: str, seconds: float) -> None:
    """Leave a file behind, then work until it is over or the worker is told to stop, as a shift."""
    from clusters.tasks import STOPPING

    Path(mark).touch()
    STOPPING.wait(seconds)


@worker_ready.connect  # type: ignore[untyped-decorator]  # celery has no types
def break_later(sender: Any, **kwargs: Any) -> None:
    if os.environ.get("BREAKS"):
        sender.on_connection_error_after_connected = _broken


def _broken(error: Exception) -> None:
    raise AttributeError("of a test")
