"""History from before the portal watched: recorded like anything that was seen, then interpreted.

Nothing is written past the events: intervals, hour facts and charges follow from them as always,
so a history that was filled in rebuilds to the same bytes as one that was watched.
"""

from __future__ import annotations

from clusters.services.back_fill.csv_rows import COLUMNS, read_runs
from clusters.services.back_fill.importing import BackFill, Brought, import_objects, import_runs
