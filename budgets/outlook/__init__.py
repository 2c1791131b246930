"""How a window is likely to end, from what was used so far: an estimate, never a charge.

Pure: no Django, no clock, no I/O. What is promised is certain and is carried on as it is; what is
used beyond it follows the hours of the week of the weeks before, and the band around it how far
whole days strayed from that. Floats, because nothing here is billed.
"""

from __future__ import annotations

from budgets.outlook.model import HISTORY, LIKELY, Outlook, Series
from budgets.outlook.project import project
