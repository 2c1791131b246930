"""Which stopPolicy a queue gets when several things ask for one: the single rule of precedence.

A person's hold, an archived workspace and a spend rule each have a reason of their own, kept where
it belongs. None overwrites another: the strongest that is asked for now is applied, and when it
goes the next strongest is.
"""

from __future__ import annotations

from typing import Final

from budgets.plan.words import StopPolicy

_STRENGTH: Final = (StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN)


def strongest_stop(*asked: StopPolicy) -> StopPolicy:
    """The strongest of what is asked for; NONE when nobody asks for anything."""
    return max(asked, key=_STRENGTH.index, default=StopPolicy.NONE)
