"""FOCUS 1.2 and 1.4: rows of the Cost and Usage dataset, and a strict checker of such files.

Pure. Source: spec money, section 2.
"""

from __future__ import annotations

from budgets.exports.focus.columns import Version, focus_table
from budgets.exports.focus.mapping import focus_rows
from budgets.exports.focus.source import Commitment, FocusInput, FocusNames, WorkloadShare
