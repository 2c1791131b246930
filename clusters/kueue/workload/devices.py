"""Devices that pods claim, or ask for by the name of a DeviceClass, counted as resources. Pure.

A claim is counted where its ResourceClaimTemplate says how many devices of which class it asks for
and ``resources.deviceClassMappings`` says as what; whatever else it says is refused, in Kueue's
words. ``constraints`` and ``config`` of a template are no matter of quota.

Source: Kueue pkg/dra, pkg/controller/core/workload_controller.go, v0.19.2.
Deviations: what a template selects by CEL is refused, as nobody here looks at devices, and so is a
class that counts by sources; without any mapping no template is read, so that the refusal names the
template in place of the class, and a device that is asked for by its name counts as that; the
Requeued condition is left alone; a template that comes is news at once, and is not waited for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.documents.keys import identity_of
from clusters.kueue.amounts import (
    UNLIMITED,
    ZERO,
    Amount,
    Requests,
    add,
    amount_of,
    parse_decimal,
    whole,
)
from clusters.kueue.configuration import Configuration

Document = Mapping[str, Any]

CLAIMS_MOST: Final = 256
"""Claims of one pod set that are read."""
REQUESTS_MOST: Final = 32
"""Requests of one template; no API server takes more."""
IS_OFF: Final = (
    "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
)
UNREAD: Final = "the portal may not read ResourceClaimTemplates"
NAMED_CLAIM: Final = "KueueDRAIntegration feature does not support use of resource claims"
_EXACT: Final = "ExactCount"
_BY_TEMPLATE: Final = "resourceClaimTemplateName"
_BY_CLAIM: Final = "resourceClaimName"
# What an object without a creation time counts as.
_NEVER: Final = ""


@dataclass(frozen=True, slots=True, order=True)
class ClaimProblem:
    """Why the devices of a pod set cannot be counted; the least of a workload's is told.

    Attributes:
        rank: what is looked at first in all pod sets has the lowest.
        text: the message of its condition.
    """

    rank: int
    text: str


_ALL_SETS, _OF_TEMPLATE, _OF_NAME = range(3)
INITS: Final = "initContainers"
_NOT_WHOLE: Final = "extended resource quantity must be an integer"
_TOO_MANY: Final = "total extended resource quantity overflows int64"


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the claims of one pod come to.

    Attributes:
        amounts: devices by resource.
        templates: names of the templates that it was read from, or is missing.
    """

    amounts: Requests = field(default_factory=dict)
    templates: tuple[str, ...] = ()
    problem: ClaimProblem | None = None


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """What a ResourceClaimTemplate asks for.

    Attributes:
        requests: DeviceClass and number of each of its requests.
        fault: where the first request that nobody can count stands, and why; empty for none.
        selects: where the first request stands that selects devices; empty for none.
    """

    requests: tuple[tuple[str, int], ...] = ()
    fault: tuple[str, str] = ("", "")
    selects: str = ""


@dataclass(frozen=True, slots=True)
class NamedClass:
    """A DeviceClass whose devices are asked for by a resource name.

    Attributes:
        created: when, as its document says.
    """

    name: str
    resource: str
    created: str


@dataclass(frozen=True, slots=True)
class NamedDevices:
    """Resource names that stand for devices of a DeviceClass.

    Attributes:
        counts_as: the resource that they count as, by that name.
        refused: DeviceClass of those that count by sources, by that name.
    """

    counts_as: Mapping[str, str]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NamedCount:
    """Devices that one pod asks for by a resource name.

    Attributes:
        amounts: devices by the resource that they count as.
        replaced: the names that they are asked for by.
    """

    amounts: Requests
    replaced: frozenset[str]
    problem: ClaimProblem | None = None


class Devices:
    """ResourceClaimTemplates and DeviceClasses of a cluster, and what they come to."""

    def __init__(self, configuration: Configuration) -> None:
        self._gates, self._classes = configuration.gates, configuration.device_classes
        self._counts_named = configuration.counts_named_devices
        self._reads = configuration.reads_templates
        self._templates: dict[str, ClaimTemplate] = {}
        self._named: dict[str, NamedClass] = {}

    def adopt(self, other: Devices) -> None:
        """Become a copy of another one."""
        self._templates, self._named = dict(other._templates), dict(other._named)

    def has_template(self, key: str) -> bool:
        """Whether there is a template, NAMESPACE/NAME."""
        return key in self._templates

    def set_template(self, key: str, template: ClaimTemplate | None) -> bool:
        """Note a template, ``None`` for one that is gone; returns whether that changes anything."""
        before = self._templates.pop(key, None)
        if template is not None:
            self._templates[key] = template
        return before != template

    def set_class(self, name: str, found: NamedClass | None) -> bool:
        """Note a DeviceClass, ``None`` for one without a resource name, or one that is gone.

        Returns whether that changes what any name counts as.
        """
        if not self._counts_named:
            return False
        before = self._chosen()
        self._named.pop(name, None)
        if found is not None:
            self._named[name] = found
        return before != self._chosen()

    def named(self) -> NamedDevices | None:
        """What stands for devices of a class; ``None`` where no name does."""
        chosen = self._chosen()
        if not chosen:
            return None
        return NamedDevices(
            {name: self._classes.resources.get(found, name) for name, found in chosen.items()},
            {name: found for name, found in chosen.items() if found in self._classes.sourced},
        )

    def _chosen(self) -> dict[str, str]:
        """DeviceClass by the resource name that its devices are asked for by.

        Of several that have one name, the scheduler of Kubernetes takes devices of the newest.
        """
        chosen: dict[str, NamedClass] = {}
        for found in sorted(self._named.values(), key=lambda item: item.name):
            known = chosen.get(found.resource)
            if known is None or found.created > known.created:
                chosen[found.resource] = found
        return {resource: found.name for resource, found in chosen.items()}

    def claimed(
        self, claims: Sequence[Document], *, namespace: str, pod_set: str, path: str
    ) -> Claimed:
        """Count what one pod claims.

        Args:
            claims: ``resourceClaims`` of its spec.
            namespace: Of the workload.
            pod_set: Its name.
            path: Of its pod spec, as ``spec.podSets[0].template.spec``.

        Raises:
            ValueError: there are more than anybody reads.
        """
        if len(claims) > CLAIMS_MOST:
            raise ValueError(
                f"{path}: {len(claims):,} resource claims, and {CLAIMS_MOST} are read at most"
            )
        is_named = any(item.get(_BY_CLAIM) is not None for item in claims)
        asked = [
            (f"{path}.resourceClaims[{index}]", str(item[_BY_TEMPLATE]))
            for index, item in enumerate(claims)
            if item.get(_BY_TEMPLATE) is not None
        ]
        if not self._gates.kueue_dra_integration:
            refuses = self._gates.kueue_dra_reject_workloads_when_dra_disabled
            is_refused = refuses and (is_named or bool(asked))
            return Claimed(problem=ClaimProblem(_ALL_SETS, IS_OFF) if is_refused else None)
        if is_named:
            return Claimed(problem=ClaimProblem(_ALL_SETS, NAMED_CLAIM))
        templates = tuple(name for _, name in asked)
        total: dict[str, Amount] = {}
        for at, name in asked:
            template = self._templates.get(f"{namespace}/{name}")
            refusal = self._refusal(template, name, at=at, pod_set=pod_set)
            if template is None or refusal:
                return Claimed({}, templates, ClaimProblem(_OF_TEMPLATE, refusal))
            for device_class, count in template.requests:
                resource = self._classes.resources[device_class]
                total[resource] = add(total.get(resource, ZERO), amount_of(count))
        return Claimed(total, templates)

    def _refusal(self, template: ClaimTemplate | None, name: str, *, at: str, pod_set: str) -> str:
        """Why a template cannot be counted; empty when it can."""
        if not self._classes.resources:
            return _unmapped(f"of ResourceClaimTemplate {name}", at=at, pod_set=pod_set)
        if template is None:
            missing = UNREAD
            if self._reads:
                missing = f'ResourceClaimTemplate.resource.k8s.io "{name}" not found'
            where = f"ResourceClaimTemplate {name} in podset {pod_set}"
            return f"{at}: Internal error: failed to get claim spec for {where}: {missing}"
        place, detail = template.fault
        if place:
            return f"{at}.{place}: ResourceClaimTemplate {name}: {detail}"
        for device_class, _ in template.requests:
            if device_class not in self._classes.resources:
                return _unmapped(device_class, at=at, pod_set=pod_set)
            if device_class in self._classes.sourced:
                return (
                    f"{at}.{_BY_TEMPLATE}: Invalid value: {json.dumps(name)}: DeviceClass "
                    f"{device_class} counts by sources of its devices, which are not followed"
                )
        if template.selects:
            return (
                f"{at}.{template.selects}: Invalid value: null: ResourceClaimTemplate {name}: "
                "devices that are selected by CEL are not counted"
            )
        return ""


def count_named(
    texts: Mapping[str, Sequence[Mapping[str, str]]], *, names: NamedDevices, path: str
) -> NamedCount:
    """Count the devices that one pod asks for by resource names.

    Args:
        texts: requests as they are written, of each of the ``initContainers`` and ``containers``.
        names: what stands for devices.
        path: of the pod spec, as ``spec.podSets[0].template.spec``.

    Raises:
        ValueError: a quantity is malformed.
    """
    amounts: dict[str, Amount] = {}
    replaced: set[str] = set()
    problems: list[str] = []
    asked = {name for items in texts.values() for requests in items for name in requests}
    for resource in sorted(asked & names.counts_as.keys()):
        total, found = _named_total(resource, texts, names=names, path=path)
        problems += found
        if total and not found:
            replaced.add(resource)
            counted = names.counts_as[resource]
            amounts[counted] = add(amounts.get(counted, ZERO), amount_of(total))
    if not problems:
        return NamedCount(amounts, frozenset(replaced))
    text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return NamedCount({}, frozenset(), ClaimProblem(_OF_NAME, text))


def _named_total(
    resource: str,
    texts: Mapping[str, Sequence[Mapping[str, str]]],
    *,
    names: NamedDevices,
    path: str,
) -> tuple[int, list[str]]:
    """The containers of a pod together, or its largest init container; and what is wrong."""
    first, problems = "", []
    totals = dict.fromkeys(texts, 0)
    for kind, items in texts.items():
        for index, requests in enumerate(items):
            at, text = f"{path}.{kind}[{index}]", requests.get(resource, "0")
            count = parse_decimal(text)
            if count <= 0:
                continue
            first = first or at
            if count != int(count) or count > whole(UNLIMITED):
                problems.append(_invalid(at, resource, text, _NOT_WHOLE))
            joined = totals[kind] + int(count)
            totals[kind] = max(totals[kind], int(count)) if kind == INITS else joined
    total = max(totals.values())
    if first and resource in names.refused:
        words = (
            f"extended resource {resource} resolves to DeviceClass {names.refused[resource]} with "
            "sources configured, which are not followed"
        )
        return 0, [f"{first}: Invalid value: {json.dumps(resource)}: {words}"]
    if total > whole(UNLIMITED) and not problems:
        problems.append(_invalid(first, resource, str(total), _TOO_MANY))
    return total, problems


def _invalid(at: str, resource: str, text: str, detail: str) -> str:
    return f"{at}.resources.requests.{resource}: Invalid value: {json.dumps(text)}: {detail}"


def _unmapped(device_class: str, *, at: str, pod_set: str) -> str:
    words = f"DeviceClass {device_class} is not mapped in DRA configuration for podset {pod_set}"
    return f"{at}.{_BY_TEMPLATE}: Not found: {json.dumps(words)}"


def parse_claim_template(document: Document) -> ClaimTemplate:
    """Read a ResourceClaimTemplate, as far as quota depends on it.

    What an API server fills in counts as filled in: one device, and no more mode than that.

    Raises:
        ValueError: a count is no number of devices.
    """
    devices = ((document.get("spec") or {}).get("spec") or {}).get("devices") or {}
    requests = devices.get("requests") or ()
    if len(requests) > REQUESTS_MOST:
        found = f"more than {REQUESTS_MOST} requests are not read"
        return ClaimTemplate(fault=("devices.requests: Too many", found))
    counted: list[tuple[str, int]] = []
    selects = ""
    for index, request in enumerate(requests):
        place = f"devices.requests[{index}]"
        fault = _fault(request, place)
        if fault is not None:
            return ClaimTemplate(fault=fault)
        exactly = request["exactly"]
        if exactly.get("selectors") and not selects:
            selects = f"{place}.exactly.selectors"
        if exactly.get("deviceClassName"):
            counted.append((str(exactly["deviceClassName"]), _count(exactly, place)))
    return ClaimTemplate(tuple(counted), selects=selects)


def _fault(request: Document, place: str) -> tuple[str, str] | None:
    """Where a request says what Kueue does not count, and its words for that."""
    if request.get("firstAvailable") is not None:
        return f"{place}: Invalid value: null", "FirstAvailable device selection is not supported"
    exactly = request.get("exactly")
    if exactly is None:
        return f"{place}: Invalid value: null", "Exactly must be set if FirstAvailable is nil"
    if exactly.get("adminAccess") is True:
        return (
            f"{place}.exactly.adminAccess: Invalid value: null",
            "AdminAccess is not supported",
        )
    mode = exactly.get("allocationMode") or _EXACT
    if mode == _EXACT:
        return None
    told = f"{place}.exactly.allocationMode: Invalid value: {json.dumps(mode)}"
    if mode == "All":
        return told, "AllocationMode 'All' is not supported"
    return told, f"unsupported allocation mode: {mode}"


def _count(exactly: Document, place: str) -> int:
    given = exactly.get("count") or 1
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ValueError(f"{place}.exactly.count: {str(given)[:40]!r} is no number of devices")
    return min(given, whole(UNLIMITED))


def template_facts(document: dict[str, Any]) -> dict[str, Any]:
    """What of a ResourceClaimTemplate is counted, under its identity; not what it selects by."""
    devices = ((document.get("spec") or {}).get("spec") or {}).get("devices") or {}
    # One more than are read tells that there are more.
    requests = list(devices.get("requests") or ())[: REQUESTS_MOST + 1]
    return {
        "metadata": identity_of(document),
        "spec": {"spec": {"devices": {"requests": [_request_facts(item) for item in requests]}}},
    }


def _request_facts(request: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if request.get("firstAvailable") is not None:
        found["firstAvailable"] = []
    exactly = request.get("exactly")
    if exactly is not None:
        kept = ("deviceClassName", "allocationMode", "count", "adminAccess")
        found["exactly"] = {name: exactly[name] for name in kept if name in exactly}
        if exactly.get("selectors"):
            found["exactly"]["selectors"] = [{}]
    return found


def parse_device_class(document: Document) -> tuple[str, NamedClass | None]:
    """Name of a DeviceClass, and what it is where its devices have a resource name."""
    metadata, name = document["metadata"], document["metadata"]["name"]
    resource = (document.get("spec") or {}).get("extendedResourceName")
    if not resource:
        return name, None
    created = str(metadata.get("creationTimestamp") or _NEVER)
    return name, NamedClass(name, str(resource), created)
