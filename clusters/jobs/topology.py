"""What the pods of a job ask of the topology, from annotations to a pod set's ``topologyRequest``.

What cannot be read becomes what the API server, or the engine, refuses; it is never left out.

Source: Kueue pkg/controller/jobframework/tas.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from budgets.texts import read_json
from clusters.documents.labels import PREFIX
from clusters.jobs import counting

_REQUIRED: Final = f"{PREFIX}podset-required-topology"
_PREFERRED: Final = f"{PREFIX}podset-preferred-topology"
_UNCONSTRAINED: Final = f"{PREFIX}podset-unconstrained-topology"
_SLICE: Final = f"{PREFIX}podset-slice-required-topology"
_SLICE_SIZE: Final = f"{PREFIX}podset-slice-size"
_LAYERS: Final = f"{PREFIX}podset-slice-required-topology-constraints"
_GROUP: Final = f"{PREFIX}podset-group-name"
_LAYERS_LONGEST: Final = 4096
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})


def topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """The request that the annotations of a pod template make, empty when they make none."""
    found: dict[str, Any] = {}
    if _REQUIRED in annotations:
        found["required"] = annotations[_REQUIRED]
    elif _PREFERRED in annotations:
        found["preferred"] = annotations[_PREFERRED]
    elif _UNCONSTRAINED in annotations:
        found["unconstrained"] = annotations[_UNCONSTRAINED] in _TRUE
    if _LAYERS in annotations:
        found["podsetSliceRequiredTopologyConstraints"] = _layers(annotations[_LAYERS])
    elif _SLICE in annotations and _SLICE_SIZE in annotations:
        found["podSetSliceRequiredTopology"] = annotations[_SLICE]
        found["podSetSliceSize"] = counting.count(annotations[_SLICE_SIZE], 0)
    if _GROUP in annotations and (_REQUIRED in annotations or _PREFERRED in annotations):
        found["podSetGroupName"] = annotations[_GROUP]
    return found


def asking(
    pod_set: Mapping[str, Any], *, ranks: Mapping[str, Any], is_placed: bool = False
) -> dict[str, Any]:
    """A pod set with the request that its template makes, unless it has one.

    Args:
        pod_set: As its job has it.
        ranks: Fields of the request that say which labels number its pods.
        is_placed: Its pods may be placed though their template asks for nothing.
    """
    annotations = (pod_set["template"].get("metadata") or {}).get("annotations") or {}
    request = topology_request(annotations)
    if request or (is_placed and ranks):
        return {"topologyRequest": {**request, **ranks}, **pod_set}
    return dict(pod_set)


def _layers(text: str) -> list[Any]:
    unreadable = [{"topology": "", "size": 0}]
    if len(text) > _LAYERS_LONGEST:
        return unreadable
    try:
        layers = read_json(text)
    except ValueError:
        return unreadable
    return layers if isinstance(layers, list) and layers else unreadable
