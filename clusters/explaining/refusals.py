"""Why a flavor cannot be used at all, read from the engine's texts.

The texts are those of Kueue's condition messages, which ``flavor_assigner`` in
``clusters.kueue.assignment`` writes word for word; one that is not known is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from budgets.plan import MAINTENANCE_TAINT
from clusters.explaining.names import Names
from clusters.explaining.stops import Stop, closed_flavor, moment
from clusters.kueue.assignment.outcome import FlavorAttempt, FlavorMode

_MAINTENANCE: Final = dict(MAINTENANCE_TAINT)["key"]

_TAINT = re.compile(r"untolerated taint \{(?P<key>\S*) ?(?P<value>\S*) (?P<effect>\S+) <nil>\}")
_AFFINITY = "doesn't match node affinity"
_TOPOLOGY = "does not support TopologyAwareScheduling"
_MISSING_FLAVOR = re.compile(r"flavor \S+ not found")
_NO_QUOTA = re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")
_NOT_ENOUGH = re.compile(r"insufficient (?:unused )?quota")


def is_refused(attempt: FlavorAttempt) -> bool:
    """Whether the flavor was skipped for another reason than its quota."""
    is_hopeless = attempt.mode is FlavorMode.NO_FIT and not attempt.missing
    return is_hopeless and bool(_first_reason(attempt))


def is_closed(attempt: FlavorAttempt) -> bool:
    """Whether the flavor was skipped because it is under maintenance."""
    return is_refused(attempt) and _MAINTENANCE in _first_reason(attempt)


def refusal_words(attempt: FlavorAttempt, names: Names, stops: Iterable[Stop] = ()) -> str:
    """``its taint gpu=spot is not tolerated``; the first reason decides."""
    reason = _first_reason(attempt)
    if is_closed(attempt):
        window = closed_flavor(stops, attempt.flavor)
        until = f" until {moment(window.until)}" if window and window.until else ""
        return f"it is closed for maintenance{until}"
    if found := _TAINT.search(reason):
        value = f"={found['value']}" if found["value"] else ""
        return f"the job does not tolerate its taint {found['key']}{value} ({found['effect']})"
    if _AFFINITY in reason:
        return "the job's node selector or affinity does not match its nodes"
    if _TOPOLOGY in reason:
        return "it has no topology, which the job asks for"
    if _MISSING_FLAVOR.search(reason):
        return "it does not exist on the cluster"
    return names.message(reason)


def _first_reason(attempt: FlavorAttempt) -> str:
    return next((text for text in attempt.reasons if not _NOT_ENOUGH.search(text)), "")


def unavailable_resource(message: str) -> str:
    """The resource for which the budget has no quota at all; empty when it is not that."""
    found = _NO_QUOTA.search(message)
    return found["resource"] if found else ""
