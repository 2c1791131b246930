"""What one pod of a pod set asks for: containers, overhead, limits, exclusions, transformations.

Source: Kubernetes pod resource rules; Kueue pkg/workload/resources.go and pkg/resources,
v0.19.2.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.kueue.amounts import (
    ZERO,
    Amount,
    Requests,
    add,
    add_usage,
    parse_amount,
    parse_decimal,
)
from clusters.kueue.configuration import Configuration
from clusters.kueue.workload.devices import (
    INITS,
    ClaimProblem,
    Devices,
    NamedDevices,
    count_named,
)

_RequestMap = dict[str, Amount]
Document = Mapping[str, Any]

LIMIT_EXCEEDED: Final = "requests must not exceed its limits"
ABOVE_RANGE: Final = "requests must not be above the limitRange max"
BELOW_RANGE: Final = "requests must not be below the limitRange min"


@dataclass(frozen=True, slots=True)
class LimitRules:
    """Container or pod rule of the LimitRanges of a namespace, the tightest of all of them."""

    default: Mapping[str, str] = field(default_factory=dict)
    default_request: Mapping[str, str] = field(default_factory=dict)
    highest: Mapping[str, str] = field(default_factory=dict)
    lowest: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodSurroundings:
    """What outside of a pod template changes its requests.

    Attributes:
        configuration: exclusions and transformations.
        bounds: LimitRange rules by type (``Container``, ``Pod``).
        overheads: pod overhead by RuntimeClass name.
        scope: namespace that has LimitRanges of its own, empty where there are none.
        named_devices: resource names that stand for devices, ``None`` where none does.
    """

    configuration: Configuration
    bounds: Mapping[str, LimitRules] = field(default_factory=dict)
    overheads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    scope: str = ""
    named_devices: NamedDevices | None = None


class SurroundingsByNamespace:
    """LimitRanges and RuntimeClasses of a cluster, and what they mean in each namespace."""

    def __init__(self, configuration: Configuration, devices: Devices | None = None) -> None:
        self._configuration = configuration
        self._devices = devices or Devices(configuration)
        self._limit_ranges: dict[str, dict[str, Document]] = {}
        self._overheads: dict[str, dict[str, str]] = {}
        self._known: dict[str, PodSurroundings] = {}

    def adopt(self, other: SurroundingsByNamespace) -> None:
        """Become a copy of another one."""
        self._limit_ranges = {name: dict(item) for name, item in other._limit_ranges.items()}
        self._overheads = dict(other._overheads)
        self._known.clear()

    def set_limit_range(self, key: str, document: Document | None) -> bool:
        """Note a LimitRange, ``None`` for a deleted one; returns whether that changes anything."""
        namespace, _, name = key.partition("/")
        known = self._limit_ranges.setdefault(namespace, {})
        before = known.pop(name, None)
        if document is not None:
            known[name] = document
        if (before or {}).get("spec") == (document or {}).get("spec"):
            return False
        self._known.clear()
        return True

    def set_overhead(self, name: str, overhead: Mapping[str, str] | None) -> bool:
        """Note a RuntimeClass's overhead; returns whether that changes anything."""
        before = self._overheads.pop(name, {})
        if overhead:
            self._overheads[name] = dict(overhead)
        if before == (overhead or {}):
            return False
        self._known.clear()
        return True

    def forget(self) -> None:
        """What a resource name stands for has changed."""
        self._known.clear()

    def of(self, namespace: str) -> PodSurroundings:
        """What changes requests in a namespace."""
        scope = namespace if self._limit_ranges.get(namespace) else ""
        known = self._known.get(scope)
        if known is None:
            known = self._known[scope] = PodSurroundings(
                configuration=self._configuration,
                bounds=parse_bounds(self._limit_ranges.get(scope, {}).values()),
                overheads=dict(self._overheads),
                scope=scope,
                named_devices=self._devices.named(),
            )
        return known


@dataclass(frozen=True, slots=True)
class PodRequests:
    """Requests of one pod, and why they cannot be admitted, if so.

    Attributes:
        amounts: what counts as quota.
        of_pod: what the pod takes from its node.
        claim_problem: why devices that it asks for by name cannot be counted.
    """

    amounts: Requests
    limit_problems: tuple[str, ...] = ()
    range_problems: tuple[str, ...] = ()
    of_pod: Requests = field(default_factory=dict)
    claim_problem: ClaimProblem | None = None


def pod_requests(
    spec: Document,
    *,
    surroundings: PodSurroundings,
    path: str,
    claimed: Requests | None = None,
) -> PodRequests:
    """Work out the requests of one pod, by the pod spec of its template.

    Messages name the path of the pod set, as ``spec.podSets[0].template``.

    Args:
        spec: the pod spec.
        surroundings: of its namespace.
        path: of the pod template.
        claimed: devices that its claims come to, by resource; they count as they are.

    Raises:
        ValueError: a quantity is malformed.
    """
    container_bounds = surroundings.bounds.get("Container", LimitRules())
    containers = [_filled(item, container_bounds) for item in spec.get("containers") or ()]
    inits = [_filled(item, container_bounds) for item in spec.get("initContainers") or ()]
    total = _containers_total(containers, inits)
    total.update(_filled({"resources": spec.get("resources")}, LimitRules()).requests)
    overhead = spec.get("overhead")
    if overhead is None:
        overhead = surroundings.overheads.get(spec.get("runtimeClassName") or "", {})
    add_usage(total, _amounts(overhead))
    placed = [
        (f"{path}.spec.{kind}[{index}]", item)
        for kind, items in (("initContainers", inits), ("containers", containers))
        for index, item in enumerate(items)
    ]
    ranges = [(where, item.requests, container_bounds) for where, item in placed]
    ranges.append((f"{path}.spec", total, surroundings.bounds.get("Pod", LimitRules())))
    amounts = _accounted(total, surroundings.configuration)
    problem = None
    if surroundings.named_devices is not None:
        problem = _count_named(amounts, spec, surroundings=surroundings, path=f"{path}.spec")
    if claimed:
        add_usage(amounts, claimed)
    return PodRequests(
        amounts=amounts,
        limit_problems=tuple(
            _problem(where, names, LIMIT_EXCEEDED)
            for where, item in placed
            if (
                names := [n for n, most in item.limits.items() if item.requests.get(n, ZERO) > most]
            )
        ),
        range_problems=tuple(text for each in ranges for text in _range_problems(*each)),
        of_pod=total,
        claim_problem=problem,
    )


def _count_named(
    amounts: _RequestMap, spec: Document, *, surroundings: PodSurroundings, path: str
) -> ClaimProblem | None:
    """Let devices that are asked for by a name count as those of their class; or say why not."""
    assert surroundings.named_devices is not None
    bounds = surroundings.bounds.get("Container", LimitRules())
    texts = {
        kind: [_requested(item, bounds) for item in spec.get(kind) or ()]
        for kind in (INITS, "containers")
    }
    found = count_named(texts, names=surroundings.named_devices, path=path)
    for name in found.replaced:
        amounts.pop(name, None)
    add_usage(amounts, found.amounts)
    return found.problem


def parse_bounds(documents: Iterable[Document]) -> dict[str, LimitRules]:
    """Combine the LimitRanges of one namespace, by type: smallest maxima, largest minima."""
    merged: dict[str, LimitRules] = {}
    for document in documents:
        for item in (document.get("spec") or {}).get("limits") or ():
            before = merged.get(item.get("type", ""), LimitRules())
            merged[item.get("type", "")] = LimitRules(
                default={**(item.get("default") or {}), **before.default},
                default_request={**(item.get("defaultRequest") or {}), **before.default_request},
                highest=_tightest(before.highest, item.get("max") or {}, largest=False),
                lowest=_tightest(before.lowest, item.get("min") or {}, largest=True),
            )
    return merged


def _tightest(
    before: Mapping[str, str], extra: Mapping[str, str], *, largest: bool
) -> dict[str, str]:
    result = dict(before)
    for name, text in extra.items():
        value = str(text)
        if name in result:
            pick = max if largest else min
            value = pick((result[name], value), key=lambda item: parse_amount(item, name))
        result[name] = value
    return result


@dataclass(frozen=True, slots=True)
class _Container:
    limits: _RequestMap
    requests: _RequestMap
    is_sidecar: bool


def _requested(container: Document, bounds: LimitRules) -> dict[str, str]:
    """Requests of a container as they are written, and as limits and LimitRanges fill them in."""
    resources = container.get("resources") or {}
    limits = {**bounds.default, **(resources.get("limits") or {})}
    found = {**limits, **bounds.default_request, **(resources.get("requests") or {})}
    return {name: str(value) for name, value in found.items()}


def _filled(container: Document, bounds: LimitRules) -> _Container:
    resources = container.get("resources") or {}
    limits = {**bounds.default, **(resources.get("limits") or {})}
    requests = {**limits, **bounds.default_request, **(resources.get("requests") or {})}
    is_sidecar = container.get("restartPolicy") == "Always"
    return _Container(_amounts(limits), _amounts(requests), is_sidecar)


def _amounts(quantities: Mapping[str, Any]) -> _RequestMap:
    return {name: parse_amount(str(value), name) for name, value in quantities.items()}


def _containers_total(containers: list[_Container], inits: list[_Container]) -> _RequestMap:
    """Sum of what runs together, and at least what each init container needs when it runs."""
    total: _RequestMap = {}
    for container in containers:
        add_usage(total, container.requests)
    sidecars: _RequestMap = {}
    peak: _RequestMap = {}
    for init in inits:
        if init.is_sidecar:
            add_usage(total, init.requests)
            add_usage(sidecars, init.requests)
        needed = dict(sidecars)
        if not init.is_sidecar:
            add_usage(needed, init.requests)
        for name, amount in needed.items():
            peak[name] = max(peak.get(name, ZERO), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, ZERO), amount)
    return total


def _accounted(total: _RequestMap, configuration: Configuration) -> _RequestMap:
    kept = {
        name: amount
        for name, amount in total.items()
        if not name.startswith(configuration.excluded_prefixes)
    }
    if not configuration.transformations:
        return {name: max(ZERO, amount) for name, amount in kept.items()}
    result: _RequestMap = {}
    for name, amount in kept.items():
        rule = configuration.transformations.get(name)
        if rule is None or rule.keeps_input:
            result[name] = add(result.get(name, ZERO), amount)
        if rule is None:
            continue
        inputs = parse_decimal(_plain(amount, name))
        if rule.multiply_by:
            inputs *= parse_decimal(_plain(kept.get(rule.multiply_by, ZERO), rule.multiply_by))
        for output, factor in rule.outputs.items():
            made = parse_amount(format(parse_decimal(factor) * inputs, "f"), output)
            result[output] = add(result.get(output, ZERO), made)
    return {name: max(ZERO, amount) for name, amount in result.items()}


def _plain(amount: Amount, resource: str) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


def _range_problems(where: str, requests: Requests, bounds: LimitRules) -> Iterable[str]:
    for detail, limits, is_beyond in (
        (ABOVE_RANGE, bounds.highest, operator.gt),
        (BELOW_RANGE, bounds.lowest, operator.lt),
    ):
        names = [
            name
            for name, text in limits.items()
            if name in requests and is_beyond(requests[name], parse_amount(text, name))
        ]
        if names:
            yield _problem(where, names, detail)


def _problem(where: str, names: list[str], detail: str) -> str:
    listed = ",".join(f'"{name}"' for name in sorted(names))
    return f"{where}: Invalid value: [{listed}]: {detail}"
