"""In which order domains are taken, and how a choice of domains is filled.

Numbers of pods and slices only; ``placer`` says what is searched for.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go, KEP-2724, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from typing import Any, Final

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.counts import Counted, Cut
from clusters.kueue.workload.topology_request import SliceLayer


@dataclass(slots=True)
class Search:
    """What is placed, and by which rules domains are compared.

    Attributes:
        count: pods; those beyond the last full slice are not placed.
        size: pods of an outermost slice.
        level, slice_level: indexes of the level that is searched first, and of that of a slice.
        sizes: pods of inner slices by index of their level.
        layers: of slices, when there are inner ones.
        leaders: 1 when one pod of another pod set goes with the others.
        is_required: nothing but one domain of ``level`` will do.
        is_unconstrained: any domains will do.
    """

    gates: Gates
    count: int
    size: int
    level: int
    slice_level: int
    sizes: Mapping[int, int]
    layers: Sequence[SliceLayer] = ()
    leaders: int = 0
    is_required: bool = False
    is_unconstrained: bool = False
    _before: list[tuple[Counted, int, int, int, int]] = field(
        default_factory=list, init=False, compare=False
    )

    @property
    def slices(self) -> int:
        """Full slices."""
        return self.count // self.size

    @property
    def takes_least_free(self) -> bool:
        """Whether the fullest domains are filled first, else those that fit best."""
        return self.is_unconstrained and self.gates.tas_profile_mixed

    @property
    def cut(self) -> Cut:
        """How the pods are cut into slices."""
        inner = tuple(sorted(self.sizes.items()))
        return Cut(self.size, self.slice_level, inner, has_leader=self.leaders > 0)

    def keep(self, domain: Counted) -> None:
        """Note the counters of a domain before they say what is placed there."""
        kept = (domain, domain.pods, domain.slices, domain.slices_led, domain.leaders)
        self._before.append(kept)

    def restore(self) -> None:
        """Give domains the counters back that they had before."""
        for domain, *counters in reversed(self._before):
            domain.pods, domain.slices, domain.slices_led, domain.leaders = counters
        self._before.clear()

    def sorted(self, domains: Iterable[Counted]) -> list[Counted]:
        """Domains in the order in which they are filled."""
        sign, by_affinity = self._signs
        return sorted(
            domains,
            key=lambda item: (
                by_affinity * item.affinity,
                sign * item.slices,
                item.pods,
                item.values,
            ),
        )

    def sorted_led(self, domains: Iterable[Counted]) -> list[Counted]:
        """The same where a leader has to be placed as well."""
        sign, by_affinity = self._signs
        return sorted(
            domains,
            key=lambda item: (
                -item.leaders,
                by_affinity * item.affinity,
                sign * item.slices_led,
                item.pods_led,
                item.values,
            ),
        )

    @property
    def _signs(self) -> tuple[int, int]:
        by_affinity = -1 if self.gates.tas_respect_node_affinity_preferred else 0
        return (1 if self.takes_least_free else -1), by_affinity

    def best_fit(
        self, domains: Sequence[Counted], needed: int, *, leaders: int, unit: str
    ) -> Counted:
        """The first of the smallest domains that hold what is needed, else the first of all.

        Domains come in order; ``unit`` is ``slices`` or ``pods``.
        """
        if self.gates.tas_respect_node_affinity_preferred:
            best = domains[0].affinity
            domains = list(takewhile(lambda item: item.affinity == best, domains))
        fits = _COUNTERS[unit, leaders > 0]
        able = [item for item in domains if item.leaders >= leaders and fits(item) >= needed]
        return min(able, key=fits) if able else domains[0]

    def led_first(
        self, domains: list[Counted], *, count: int, leaders: int, unit: str
    ) -> list[Counted]:
        """Put the first domain in front that takes the leader and leaves enough to the others."""
        if not leaders or len(domains) < 2:
            return domains
        fits, led = _COUNTERS[unit, False], _COUNTERS[unit, True]
        spare = sum(fits(item) for item in domains) - count
        for index, item in enumerate(domains):
            if item.leaders >= leaders and fits(item) - led(item) <= spare:
                return [item, *domains[:index], *domains[index + 1 :]]
        return domains

    def fill(
        self, domains: list[Counted], *, count: int, leaders: int, size: int, unit: str
    ) -> list[Counted]:
        """Share ``count`` pods out among domains, in order, and note on each what it got.

        They go in whole ``slices`` of ``size`` pods, or one by one where ``unit`` is ``pods``.

        Returns:
            Domains that were looked at; empty when they do not suffice.
        """
        size = size if unit == "slices" else 1
        left, found = count // size, []
        domains = self.led_first(domains, count=left, leaders=leaders, unit=unit)
        for index, domain in enumerate(domains):
            fits = _COUNTERS[unit, leaders > 0]
            is_enough = fits(domain) >= left and domain.leaders >= leaders
            if is_enough and not self.takes_least_free:
                domain = self.best_fit(domains[index:], left, leaders=leaders, unit=unit)
                is_enough = fits(domain) >= left and domain.leaders >= leaders
            taken = min(left, fits(domain))
            self.keep(domain)
            domain.leaders = min(domain.leaders, leaders)
            _note(domain, taken, size=size, unit=unit)
            found.append(domain)
            if is_enough:
                return found
            left -= taken
            leaders -= domain.leaders
        return []


def _note(domain: Counted, taken: int, *, size: int, unit: str) -> None:
    domain.pods = taken * size
    if unit == "slices":
        domain.slices = taken


_COUNTERS: Final[Mapping[tuple[str, bool], Callable[[Any], int]]] = {
    (unit, has_leader): attrgetter(f"{unit}_led" if has_leader else unit)
    for unit in ("slices", "pods")
    for has_leader in (False, True)
}
