"""Exports: rows → CSV, XLSX, Parquet, JSON Lines and FOCUS files, with the same figures in each.

Pure: no Django, no clock; files are written to what the caller opened. Source: issue 6, section 3;
spec money, section 2.
"""

from __future__ import annotations

from budgets.exports.about import About
from budgets.exports.table import CellKind, Column, Row, Table, defused, pick
from budgets.exports.writers import FORMATS
