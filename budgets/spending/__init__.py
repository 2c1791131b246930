"""Spend rules: windows, what a cap counts, what happens when it is reached.

Pure: no Django, no clock, no I/O. GPU-seconds come from the meter and prices from the rate card;
here they become one figure per rule, a date, and an effect on the queue of the budget.

Source: spec features (spend windows, soft and hard caps), spec money 1.7 and 3, spec dispatch 6.
"""

from __future__ import annotations

from budgets.spending.model import (
    HARD_ACTIONS,
    LONGEST,
    NO_EFFECT,
    Action,
    Cap,
    CapMemory,
    CapVerdict,
    Counts,
    QueueEffect,
    Unit,
    Window,
    window_at,
)
from budgets.spending.verdict import (
    Spent,
    amount_of,
    effect_words,
    exhausted_at,
    floor_need,
    judge,
    new_jobs_words,
    running_jobs_words,
    spent_of,
    strongest,
)
