"""Pure: when a waiting job is likely to start, from run times that were recorded.

``runs`` knows how long jobs of a kind run, ``start`` plays the queue forward, ``calibration`` moves
ranges to where past ones of the same cluster would have held. No Django, no clock,
no I/O; draws come from a seed that is passed in. Source: spec/features.md section 3, "ETA".
"""

from __future__ import annotations

from clusters.forecasting.calibration import (
    NEWEST,
    Correction,
    Outcome,
    corrected,
    correction_from,
)
from clusters.forecasting.runs import Run, RunTimes, kind_of, runs_by_kind
from clusters.forecasting.start import (
    Ahead,
    Confidence,
    HeldGpus,
    StartForecast,
    StartQuestion,
    forecast_start,
)
