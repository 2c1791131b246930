"""What looks for domains, under what conditions, and that none were found. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from clusters.kueue.topology.nodes import Amounts
from clusters.kueue.workload.matching import Toleration
from clusters.kueue.workload.placement import Placement
from clusters.kueue.workload.topology_request import TopologyRequest
from clusters.kueue.workload.workloads import PodShape

Assumed: TypeAlias = dict[str, dict[str, int]]


class NoPlacement(Exception):
    """No domains were found; the text is the reason."""


@dataclass(frozen=True, slots=True)
class PodSetNeed:
    """Pods that look for domains of a flavor.

    Attributes:
        name: of the pod set.
        count: pods.
        requests: of one pod, without the pod itself.
        request: what the pod set asks of the topology.
        is_implied: it asks for nothing but its queue has only flavors with a topology.
        selector, tolerations: what admission checks added to the pods.
        previous: where the pods of the workload run whose place it takes.
    """

    name: str
    shape: PodShape
    count: int
    requests: Amounts
    request: TopologyRequest
    flavor: str
    is_implied: bool = False
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    previous: Placement | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what conditions domains are searched.

    Attributes:
        assumed: what other pod sets of the workload take, by domain.
        is_empty: as if no placed pods were there.
        owner: UID of the workload, empty when it has none.
        within: the domain that the result must lie in, as its values; empty for any.
    """

    assumed: Assumed = field(default_factory=dict)
    is_empty: bool = False
    owner: str = ""
    within: str = ""
