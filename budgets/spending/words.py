"""What a rule does to jobs that run and to jobs that come, in sentences for pages and API."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from budgets.spending.model import Action, Cap

_NEW: Final = {
    Action.WARN: "New jobs start as before.",
    Action.DROP_TO_FLOOR: "New jobs start on the committed GPUs only; nothing more is borrowed.",
    Action.HOLD: "New jobs wait, on committed GPUs too.",
    Action.HOLD_AND_DRAIN: "New jobs wait, on committed GPUs too.",
}
_RUNNING: Final = {
    Action.WARN: "Running jobs run on.",
    Action.DROP_TO_FLOOR: "Running burst jobs run on at their price until they end or their GPUs "
    "are reclaimed.",
    Action.HOLD: "Running jobs run to their end at their price.",
}
HOUR: Final = timedelta(hours=1)


def new_jobs_words(cap: Cap) -> str:
    """What jobs meet that are submitted, or wait, after the cap is reached."""
    return _NEW[cap.action]


def running_jobs_words(cap: Cap) -> str:
    """What happens to jobs that run when the cap is reached."""
    if cap.action is not Action.HOLD_AND_DRAIN:
        return _RUNNING[cap.action]
    if not cap.grace:
        return "Running jobs are stopped at once, on committed GPUs too, and wait."
    return (
        f"Running jobs are stopped {_grace(cap.grace)} later, on committed GPUs too, and wait; "
        "those that end before are not touched."
    )


def effect_words(cap: Cap) -> str:
    """Both, for one place."""
    return f"{new_jobs_words(cap)} {running_jobs_words(cap)}"


def _grace(grace: timedelta) -> str:
    if grace % HOUR:
        minutes = grace // timedelta(minutes=1)
        return f"{minutes} minute{'' if minutes == 1 else 's'}"
    hours = grace // HOUR
    return f"{hours} hour{'' if hours == 1 else 's'}"
