"""The counters of a search for domains, and how a choice of domains is filled.

Numbers of pods and slices only; ``placement`` says what is searched for.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go, KEP-2724, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from typing import Any, Final

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.nodes import Exclusions
from clusters.kueue.topology.tree import Domain
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
    excluded: Exclusions = field(default_factory=Exclusions)

    @property
    def slices(self) -> int:
        """Full slices."""
        return self.count // self.size

    @property
    def takes_least_free(self) -> bool:
        """Whether the fullest domains are filled first, else those that fit best."""
        return self.is_unconstrained and self.gates.tas_profile_mixed

    def roll_up(self, domain: Domain, level: int) -> None:
        """Count what fits a domain by what fits the domains of the lowest level below it."""
        if domain.children:
            self._sum_up(domain, level)
        if level == self.slice_level:
            domain.slices = domain.pods // self.size
            domain.slices_led = domain.pods_led // self.size

    def _sum_up(self, domain: Domain, level: int) -> None:
        pods = slices = leaders = affinity = 0
        inner = self.sizes.get(level + 1, 1)
        # With a leader a domain holds what it holds without, less the smallest loss among the
        # children that take one.
        losses: list[tuple[int, int]] = []
        for child in domain.children:
            self.roll_up(child, level + 1)
            fits = child.pods // inner * inner
            pods += fits
            slices += child.slices
            leaders = max(leaders, child.leaders)
            affinity += child.affinity
            if not self.leaders or child.leaders:
                led = child.pods_led // inner * inner
                losses.append((fits - led, child.slices - child.slices_led))
        domain.pods, domain.slices = pods, slices
        domain.leaders, domain.affinity = leaders, affinity
        domain.pods_led = pods - min(loss for loss, _ in losses) if losses else 0
        domain.slices_led = slices - min(loss for _, loss in losses) if losses else 0

    def sorted(self, domains: Iterable[Domain]) -> list[Domain]:
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

    def sorted_led(self, domains: Iterable[Domain]) -> list[Domain]:
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
        self, domains: Sequence[Domain], needed: int, *, leaders: int, unit: str
    ) -> Domain:
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
        self, domains: list[Domain], *, count: int, leaders: int, unit: str
    ) -> list[Domain]:
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
        self, domains: list[Domain], *, count: int, leaders: int, size: int, unit: str
    ) -> list[Domain]:
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
            domain.leaders = min(domain.leaders, leaders)
            _note(domain, taken, size=size, unit=unit)
            found.append(domain)
            if is_enough:
                return found
            left -= taken
            leaders -= domain.leaders
        return []


def _note(domain: Domain, taken: int, *, size: int, unit: str) -> None:
    domain.pods = taken * size
    if unit == "slices":
        domain.slices = taken


_COUNTERS: Final[Mapping[tuple[str, bool], Callable[[Any], int]]] = {
    (unit, has_leader): attrgetter(f"{unit}_led" if has_leader else unit)
    for unit in ("slices", "pods")
    for has_leader in (False, True)
}
