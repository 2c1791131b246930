"""How a nomination is written so that Kueue can take it away again. Pure.

Kueue clears ``status.nominatedClusterNames`` in the server-side apply that sets ``clusterName``. An
apply removes a field only where nobody else owns it, and the two exclude each other: a field that
is still ours blocks the admission for ever, while the job runs. Three ways lead out of that:

* M1, merge patches on both sides: Kueue's gate ``WorkloadRequestUseMergePatch``;
* M2, our own field manager, and an admission policy that empties the field;
* M4, our merge patch, and a second one that hands the field over in ``metadata.managedFields``.

Source: spec dispatch 3.4, each tried on Kueue 0.19.2; KEP-555 for managed fields.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.documents.keys import Document, bound
from clusters.kube.client import FIELD_MANAGER
from clusters.kueue.multikueue.dispatchers import DISPATCHERS
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import NominationWay
from clusters.reconcile import workload_status as status

GATE: Final = "WorkloadRequestUseMergePatch"
POLICY: Final = "clear-nominated-cluster-names"
"""Name of the policy as Kueue ships it; installers put prefixes before it."""
KUEUE_MANAGER: Final = "kueue-admission"
_FIELD: Final = "f:nominatedClusterNames"


Way = NominationWay.Way


@dataclass(frozen=True, slots=True)
class WayInForce:
    """The way in force, and why it is that one, in a sentence for people."""

    way: Way
    why: str


@dataclass(frozen=True, slots=True)
class WayFacts:
    """What the choice of a way hangs on.

    Attributes:
        settings: Of the manager's Kueue.
        has_gate: Its Configuration or command line switches the gate on.
        policy: Name of the policy that is bound there; empty without one.
        may_see_policies: The portal may list policies and bindings.
        may_patch_status: The portal may patch ``workloads/status``.
        may_patch: The portal may patch ``workloads``.
    """

    settings: DispatchSettings
    has_gate: bool
    policy: str
    may_see_policies: bool
    may_patch_status: bool
    may_patch: bool


def choose(facts: WayFacts) -> WayInForce:
    """The first possible way of M1, M2, M4."""
    if not facts.settings.in_force.is_ours:
        ours = " or ".join(name for name, item in DISPATCHERS.items() if item.is_ours)
        return WayInForce(
            Way.NONE,
            f"Kueue's dispatcher is {facts.settings.words}: set multiKueue.dispatcherName to "
            f"{ours} in Kueue's Configuration to let the portal nominate.",
        )
    if not facts.may_patch_status:
        return WayInForce(
            Way.NONE, "The portal may not patch workloads/status: apply the generated rights."
        )
    if facts.has_gate:
        return WayInForce(Way.MERGE_PATCH, f"Kueue's feature gate {GATE} is on.")
    if facts.policy:
        return WayInForce(Way.POLICY, f"The policy {facts.policy} is bound and empties the field.")
    unseen = "" if facts.may_see_policies else " (the portal may not look for it)"
    if facts.may_patch:
        return WayInForce(
            Way.HAND_OVER,
            f"The gate {GATE} is off and no policy {POLICY} is bound{unseen}: each nomination is "
            "handed over to Kueue in a second request.",
        )
    return WayInForce(
        Way.NONE,
        f"The gate {GATE} is off, no policy {POLICY} is bound{unseen}, and the portal may not "
        "patch workloads: a nomination would block Kueue for ever. Apply the generated rights, or "
        "Kueue's policy.",
    )


def bound_policy(policies: Iterable[Document], bindings: Iterable[Document]) -> str:
    """Name of a bound policy that empties the field; empty when there is none."""
    bound = {str((item.get("spec") or {}).get("policyName") or "") for item in bindings}
    for policy in policies:
        name = str(policy["metadata"]["name"])
        if name in bound and (name.endswith(POLICY) or _empties(policy)):
            return name
    return ""


def _empties(policy: Document) -> bool:
    mutations = (policy.get("spec") or {}).get("mutations") or ()
    texts = [str((item.get("jsonPatch") or {}).get("expression") or "") for item in mutations]
    return any("/status/nominatedClusterNames" in text for text in texts)


def has_gate(configuration: Mapping[str, Any], arguments: Sequence[str] = ()) -> bool:
    """Whether Kueue writes merge patches; gates in the arguments of its container win."""
    for argument in arguments:
        name, _, given = argument.partition("=")
        if name == "--feature-gates":
            gates = dict(item.partition("=")[::2] for item in given.split(","))
            if GATE in gates:
                return gates[GATE].strip().lower() == "true"
    return (configuration.get("featureGates") or {}).get(GATE) is True


def nomination(local: Document, names: Sequence[str]) -> dict[str, Any]:
    """The merge patch of M1 and M4, bound to the state that was read."""
    return status.guarded(local, nominatedClusterNames=list(names) or None)


def intent(local: Document, names: Sequence[str]) -> dict[str, Any]:
    """What M2 applies, bound to the state that was read; only our own field."""
    metadata = local["metadata"]
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "status": {"nominatedClusterNames": list(names)},
    }


def handed_over(local: Document) -> dict[str, Any] | None:
    """The merge patch, on the main resource, that makes the field Kueue's alone.

    Returns:
        None when no field is ours, or when Kueue does not apply here, so that nothing is in its
        way.
    """
    entries = [copy.deepcopy(dict(entry)) for entry in _entries(local)]
    kueues = next((entry for entry in entries if _is_kueues(entry)), None)
    ours = [entry for entry in entries if _is_ours(entry) and _FIELD in _status(entry)]
    if kueues is None or not ours:
        return None
    for entry in ours:
        _status(kueues)[_FIELD] = _status(entry).pop(_FIELD)
    left = [entry for entry in entries if entry not in ours or _status(entry)]
    patch = bound(local)
    patch["metadata"]["managedFields"] = left
    return patch


def _entries(local: Document) -> Sequence[Mapping[str, Any]]:
    return local["metadata"].get("managedFields") or ()


def _is_kueues(entry: Mapping[str, Any]) -> bool:
    found = entry.get("manager"), entry.get("operation"), entry.get("subresource")
    return found == (KUEUE_MANAGER, "Apply", "status")


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == FIELD_MANAGER and entry.get("subresource") == "status"


def _status(entry: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (entry.get("fieldsV1") or {}).get("f:status") or {}
    return found
