"""What a pod set asks of the topology, read from its ``topologyRequest``.

Source: Kueue apis/kueue/v1beta2, pkg/workload/workload.go, pkg/util/tas, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class SliceLayer:
    """Pods in groups of ``size`` that each stay within one domain of a level."""

    topology: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """The request of one pod set; fields that were not given are ``None``.

    Attributes:
        required, preferred: labels of levels.
        unconstrained: any domains of the lowest level.
        layers: slices, the outermost first; a size that was not given is 0.
        group: name that pod sets share that are placed together.
        is_explicit: whether the pod set takes part whatever queue it is in.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    layers: tuple[SliceLayer, ...] = ()
    group: str = ""
    is_explicit: bool = False

    @property
    def is_slice_only(self) -> bool:
        """Whether nothing is asked for but slices."""
        return bool(self.layers) and self.required is None and self.preferred is None

    @property
    def slice_size(self) -> int:
        """Pods of an outermost slice; 1 without slices."""
        return self.layers[0].size if self.layers else 1

    def level(self, levels: Sequence[str]) -> str | None:
        """Label of the level that is searched first, ``None`` when none is asked for.

        Args:
            levels: labels of the topology, from coarse to fine.
        """
        if self.required is not None:
            return self.required
        if self.preferred is not None:
            return self.preferred
        if self.is_slice_only:
            return levels[0]
        return levels[-1] if self.unconstrained else None

    def slice_level(self, levels: Sequence[str]) -> str:
        """Label of the level that holds a whole slice."""
        return self.layers[0].topology if self.layers else levels[-1]

    def is_within(self, levels: Sequence[str]) -> bool:
        """Whether a topology has every level that the request names."""
        named = {layer.topology for layer in self.layers}
        return self.level(levels) in levels and named.issubset(levels)


NO_REQUEST: Final = TopologyRequest()


def parse_topology_request(section: Mapping[str, Any]) -> TopologyRequest:
    """Read a ``topologyRequest``; a missing one is an empty mapping."""
    if not section:
        return NO_REQUEST
    layers = tuple(_layers(section))
    named = ("required", "preferred", "unconstrained", "podSetSliceSize")
    return TopologyRequest(
        required=section.get("required"),
        preferred=section.get("preferred"),
        unconstrained=section.get("unconstrained"),
        layers=layers,
        group=section.get("podSetGroupName") or "",
        is_explicit=bool(layers) or any(section.get(name) is not None for name in named),
    )


def _layers(section: Mapping[str, Any]) -> Iterator[SliceLayer]:
    listed = section.get("podsetSliceRequiredTopologyConstraints") or ()
    for item in listed:
        yield SliceLayer(item["topology"], int(item.get("size") or 0))
    alone = section.get("podSetSliceRequiredTopology")
    if not listed and alone is not None:
        yield SliceLayer(alone, int(section.get("podSetSliceSize") or 0))
