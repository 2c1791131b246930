"""What-if as JSON: changes that people ask about, and the answer that a forecast becomes.

A change is one of ``{"kind": K, "document": {...}}`` (its new version), ``{"kind": K, "key": str}``
(deleted), ``{"kind": "Raise", "on": "ClusterQueue" | "Cohort", "key": str, "flavor": str,
"amount": int, "resource": str}`` (nominal quota, negative lowers; the resource may be left out
where the flavor has one), or ``{"kind": "Drain"}`` (no quota, and everything stops).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.kueue.amounts import FlavorResource, count_of, wholes
from clusters.kueue.cycle.decisions import Admit, Preempt
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.changes import AnyChange, Drain, ObjectChange, Raise
from clusters.kueue.explanation.what_if import Forecast

KINDS: Final = ("AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor",
                "Workload")  # fmt: skip
MOST_LISTED: Final = 500
_RAISED_KINDS: Final = ("ClusterQueue", "Cohort")


def change_fault(change: Mapping[str, Any]) -> str:
    """Why something is no change that can be asked about; empty when it is one."""
    kind = change.get("kind")
    if kind == "Drain":
        return ""
    if kind == "Raise":
        return _raise_fault(change)
    if kind not in KINDS:
        return f"Kind {kind!r} is not one of {', '.join((*KINDS, 'Raise', 'Drain'))}."
    if "document" not in change:
        return "" if _is_text(change.get("key")) else f"Give the {kind} as document, or its key."
    document = change["document"]
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    if not isinstance(metadata, Mapping) or not _is_text(metadata.get("name")):
        return f"The document of this {kind} has no metadata.name."
    return ""


def _raise_fault(change: Mapping[str, Any]) -> str:
    if change.get("on") not in _RAISED_KINDS:
        return f"Quota is raised on one of {', '.join(_RAISED_KINDS)}, not on {change.get('on')!r}."
    for name in ("key", "flavor"):
        if not _is_text(change.get(name)):
            return f"Raise needs {name}, a name."
    if not isinstance(change.get("resource", ""), str):
        return "Raise takes resource as a name."
    amount = change.get("amount")
    if not isinstance(amount, int) or isinstance(amount, bool) or not amount:
        return f"Raise needs amount, a whole number other than 0, not {amount!r}."
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def read_changes(asked: Iterable[Mapping[str, Any]]) -> list[AnyChange]:
    """Changes as values.

    Raises:
        ValueError: something is none; the message is ``change_fault``'s.
    """
    return [_read(change) for change in asked]


def _read(change: Mapping[str, Any]) -> AnyChange:
    if fault := change_fault(change):
        raise ValueError(fault)
    kind = change["kind"]
    if kind == "Drain":
        return Drain()
    if kind == "Raise":
        return Raise(
            kind=change["on"],
            key=change["key"],
            flavor=change["flavor"],
            resource=change.get("resource", ""),
            amount=change["amount"],
        )
    return ObjectChange(kind, change.get("document"), change.get("key", ""))


def answer_document(engine: Engine, forecast: Forecast) -> dict[str, Any]:
    """A forecast of an engine as JSON.

    Returns:
        ``{"started": [{"key", "clusterQueue", "flavors": {pod set: {resource: flavor}},
        "amounts"}], "preempted": [{"key", "clusterQueue", "preemptor", "reason", "amounts",
        "restarts": bool}], "stopped": as preempted, by a drained queue, "startedCount",
        "preemptedCount", "stoppedCount", "pending": int, "lost", "gained": {queue: amounts},
        "settled": bool}``; amounts are ``{"flavor/resource": int}``, lists hold at most
        ``MOST_LISTED``.
    """
    victims = {item.key for item in forecast.preempted}
    started = [item for key, item in forecast.admitted.items() if key not in victims]
    preempted = [item for item in forecast.preempted if item.preemptor]
    stopped = [item for item in forecast.preempted if not item.preemptor]
    return {
        "started": [_started(item) for item in started[:MOST_LISTED]],
        "startedCount": len(started),
        "preempted": [_gone(item, engine, forecast) for item in preempted[:MOST_LISTED]],
        "preemptedCount": len(preempted),
        "stopped": [_gone(item, engine, forecast) for item in stopped[:MOST_LISTED]],
        "stoppedCount": len(stopped),
        "pending": forecast.waiting,
        "lost": {name: amounts_document(item) for name, item in forecast.lost.items()},
        "gained": {name: amounts_document(item) for name, item in forecast.gained.items()},
        "settled": forecast.is_settled,
    }


def amounts_document(amounts: Mapping[FlavorResource, int]) -> dict[str, int]:
    """Amounts with ``flavor/resource`` for a key; a flavor has no slash."""
    return {f"{pair.flavor}/{pair.resource}": amounts[pair] for pair in sorted(amounts)}


def flavors_of(admission: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Flavor by pod set and resource of a ``status.admission``."""
    return {
        str(item.get("name") or ""): dict(item.get("flavors") or {})
        for item in admission.get("podSetAssignments") or ()
    }


def _started(item: Admit) -> dict[str, Any]:
    amounts: dict[FlavorResource, int] = {}
    for pod_set in item.admission["podSetAssignments"]:
        usage = pod_set.get("resourceUsage") or {}
        for resource, flavor in (pod_set.get("flavors") or {}).items():
            pair = FlavorResource(flavor, resource)
            amounts[pair] = amounts.get(pair, 0) + count_of(usage.get(resource, "0"), resource)
    return {
        "key": item.key,
        "clusterQueue": item.admission["clusterQueue"],
        "flavors": flavors_of(item.admission),
        "amounts": amounts_document(amounts),
    }


def _gone(item: Preempt, engine: Engine, forecast: Forecast) -> dict[str, Any]:
    holding = engine.state.snapshot.holding(item.key)
    return {
        "key": item.key,
        "clusterQueue": item.cluster_queue,
        "preemptor": item.preemptor,
        "reason": item.reason,
        "amounts": amounts_document(wholes(holding.usage) if holding is not None else {}),
        "restarts": item.key in forecast.admitted,
    }
