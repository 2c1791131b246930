"""Reads Workload documents; equal pod sets share one shape, so many alike workloads stay small.

Source: Kueue pkg/workload/workload.go, v0.19.2.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from clusters.documents import labels
from clusters.documents.conditions import conditions_of
from clusters.kueue.amounts import parse_amount
from clusters.kueue.configuration import Configuration
from clusters.kueue.workload.devices import ClaimProblem, Devices
from clusters.kueue.workload.matching import parse_node_rules, parse_tolerations
from clusters.kueue.workload.placement import parse_placement
from clusters.kueue.workload.requests import PodSurroundings, pod_requests
from clusters.kueue.workload.topology_request import parse_topology_request
from clusters.kueue.workload.workloads import (
    UNKNOWN_TIME,
    PodAdditions,
    PodSet,
    PodSetHold,
    PodShape,
    Reservation,
    Workload,
)

_POD_FIELDS: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "tolerations",
)
_CLAIMS: Final = "resourceClaims"
_CONTAINER_FIELDS: Final = ("name", "resources", "restartPolicy")
SHAPE_MOST: Final = 32 * 1024
"""Characters of what decides where the pods of a pod set run, and of what they ask for."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NO_CONDITION: Final[Mapping[str, Any]] = {}


def parse_time(text: str | None) -> datetime | None:
    """Timestamp of an API document, UTC; ``None`` for a missing one.

    Raises:
        ValueError: the text is no RFC 3339 time.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # at either end of the calendar, where UTC has another year
        return moment.replace(tzinfo=UTC)


class WorkloadParser:
    """Turns Workload documents into ``Workload`` values and shares equal shapes."""

    def __init__(self, configuration: Configuration, devices: Devices | None = None) -> None:
        self._devices = devices or Devices(configuration)
        self._requeues_by_eviction = configuration.requeues_by_eviction
        self._gates = configuration.gates
        # Weak, as a shift lives long and shapes come and go with the workloads that have them.
        self._shapes: WeakValueDictionary[tuple[str, int, str], PodShape] = WeakValueDictionary()

    def forget_shapes(self) -> None:
        """Drop shared shapes, after something outside of the pod templates changed."""
        self._shapes.clear()

    def parse(self, document: Mapping[str, Any], *, surroundings: PodSurroundings) -> Workload:
        """Read one Workload document.

        Raises:
            KeyError: a required field is missing.
            ValueError: a quantity or time is malformed.
        """
        metadata, spec = document["metadata"], document.get("spec") or {}
        status = document.get("status") or {}
        conditions = {item["type"]: item for item in conditions_of(document)}
        created_at = parse_time(metadata.get("creationTimestamp")) or _LONG_AGO
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        pod_sets = self._pod_sets(spec, surroundings, namespace)
        annotations = metadata.get("annotations") or {}
        replaces = annotations.get(labels.SLICE_OF, "")
        reclaimable = self._reclaimable(status)
        priority = int(spec.get("priority") or 0)
        requeued = conditions.get("Requeued", _NO_CONDITION)
        return Workload(
            key=f"{namespace}/{name}",
            namespace=sys.intern(namespace),
            name=name,
            uid=metadata.get("uid", ""),
            job_uid=(metadata.get("labels") or {}).get(labels.JOB_UID, ""),
            queue_name=sys.intern(spec.get("queueName") or ""),
            priority=priority,
            created_at=created_at,
            queued_at=self._queued_at(conditions, created_at),
            pod_sets=pod_sets,
            shape_hash=sys.intern(_shape_hash(pod_sets, priority, reclaimable)),
            is_active=spec.get("active", True) is not False,
            is_finished=_is_true(conditions, "Finished"),
            is_evicted=_is_true(conditions, "Evicted"),
            is_pods_ready=_is_true(conditions, "PodsReady"),
            # Kueue says so of claims that it did not count: they are looked at anew here.
            is_requeue_blocked=requeued.get("status") == "False"
            and requeued.get("reason") != "Inadmissible",
            requeue_at=parse_time((status.get("requeueState") or {}).get("requeueAt")),
            reclaimable=reclaimable,
            reservation=_reservation(status, conditions),
            check_states={
                item["name"]: item.get("state", "Pending")
                for item in status.get("admissionChecks") or ()
            },
            gated_by=annotations.get(labels.GATED_BY, ""),
            refused=annotations.get(labels.REFUSED, ""),
            replaces=sys.intern(replaces),
            unhealthy_nodes=tuple(item["name"] for item in status.get("unhealthyNodes") or ()),
            additions=_additions(status),
            is_single_pod=_is_single_pod(metadata),
            is_elastic=annotations.get(labels.ELASTIC) == "true",
            owner=_owner(metadata, annotations),
        )

    def reshape(self, workload: Workload, *, surroundings: PodSurroundings) -> Workload:
        """The same workload with requests worked out again in other surroundings."""
        pod_sets = tuple(
            replace(item, shape=self._shape_again(item, index, surroundings, workload.namespace))
            for index, item in enumerate(workload.pod_sets)
        )
        shape_hash = _shape_hash(pod_sets, workload.priority, workload.reclaimable)
        return replace(workload, pod_sets=pod_sets, shape_hash=shape_hash)

    def _reclaimable(self, status: Mapping[str, Any]) -> dict[str, int]:
        if not self._gates.reclaimable_pods:
            return {}
        return {item["name"]: int(item["count"]) for item in status.get("reclaimablePods") or ()}

    def _queued_at(self, conditions: Mapping[str, Any], created_at: datetime) -> datetime:
        evicted = conditions.get("Evicted", _NO_CONDITION)
        if evicted.get("status") == "True":
            reason = evicted.get("reason")
            by_timeout = reason == "PodsReadyTimeout" and self._requeues_by_eviction
            if by_timeout or reason == "AdmissionCheck":
                return parse_time(evicted.get("lastTransitionTime")) or created_at
        preempted = conditions.get("Preempted", _NO_CONDITION)
        was_reclaimed = (
            preempted.get("status") == "True"
            and preempted.get("reason") == "InCohortReclaimWhileBorrowing"
        )
        if was_reclaimed and not self._gates.priority_sorting_within_cohort:
            since = parse_time(preempted.get("lastTransitionTime"))
            return since + timedelta(milliseconds=1) if since is not None else created_at
        return created_at

    def _pod_sets(
        self, spec: Mapping[str, Any], surroundings: PodSurroundings, namespace: str
    ) -> tuple[PodSet, ...]:
        result = []
        for index, item in enumerate(spec.get("podSets") or ()):
            kept, name = _relevant(item), sys.intern(item.get("name") or "main")
            if _CLAIMS in kept["spec"]:
                self._count_claims(kept, namespace, name, index)
            source = msgspec.json.encode(kept, order="deterministic").decode()
            count = item.get("count")
            result.append(
                PodSet(
                    name=name,
                    count=1 if count is None else int(count),
                    min_count=item.get("minCount"),
                    shape=self._shape(source, index, surroundings),
                )
            )
        return tuple(result)

    def _count_claims(self, kept: dict[str, Any], namespace: str, name: str, index: int) -> None:
        """Write into what is kept of a pod set what its claims come to.

        So shapes are told apart by what was claimed, and no template makes others known anew.
        """
        path = f"spec.podSets[{index}].template.spec"
        claims = kept["spec"][_CLAIMS]
        found = self._devices.claimed(claims, namespace=namespace, pod_set=name, path=path)
        kept["claimed"], kept["templates"] = found.amounts, found.templates
        kept["problem"] = found.problem and [found.problem.rank, found.problem.text]

    def _shape_again(
        self, pod_set: PodSet, index: int, surroundings: PodSurroundings, namespace: str
    ) -> PodShape:
        source = pod_set.shape.source
        if pod_set.shape.templates:
            kept = msgspec.json.decode(source)
            self._count_claims(kept, namespace, pod_set.name, index)
            source = msgspec.json.encode(kept, order="deterministic").decode()
        return self._shape(source, index, surroundings)

    def _shape(self, source: str, index: int, surroundings: PodSurroundings) -> PodShape:
        place = (surroundings.scope, index, source)
        known = self._shapes.get(place)
        if known is None:
            known = self._shapes[place] = _build_shape(source, index, surroundings)
        return known


def _relevant(pod_set: Mapping[str, Any]) -> dict[str, Any]:
    """What decisions read of a pod set: not its images, commands or environment."""
    spec = (pod_set.get("template") or {}).get("spec") or {}
    kept: dict[str, Any] = {name: spec[name] for name in _POD_FIELDS if spec.get(name)}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            kept[name] = [
                {field: item[field] for field in _CONTAINER_FIELDS if item.get(field)}
                for item in spec[name]
            ]
    return {"spec": kept, "topologyRequest": pod_set.get("topologyRequest") or {}}


def _build_shape(source: str, index: int, surroundings: PodSurroundings) -> PodShape:
    path = f"spec.podSets[{index}].template"
    if len(source) > SHAPE_MOST:
        raise ValueError(
            f"{path}: requests, tolerations and affinity have {len(source):,} characters, and"
            f" {SHAPE_MOST:,} are read at most"
        )
    document = msgspec.json.decode(source)
    pod_spec, topology = document["spec"], document["topologyRequest"]
    claimed, claims = document.get("claimed"), pod_spec.get(_CLAIMS)
    requests = pod_requests(pod_spec, surroundings=surroundings, path=path, claimed=claimed)
    rules = parse_node_rules(pod_spec)
    told_apart_by = repr((sorted(requests.amounts.items()), rules, sorted(topology.items())))
    if claims:
        told_apart_by += repr(claims)
    problem = document.get("problem")
    return PodShape(
        source=source,
        fingerprint=hashlib.sha256(told_apart_by.encode()).hexdigest(),
        requests=requests,
        rules=rules,
        topology=parse_topology_request(topology),
        templates=tuple(document.get("templates") or ()),
        problem=ClaimProblem(*problem) if problem else requests.claim_problem,
    )


def _additions(status: Mapping[str, Any]) -> dict[str, PodAdditions]:
    """What checks that are ready add to pods, by pod set."""
    found: dict[str, PodAdditions] = {}
    for check in status.get("admissionChecks") or ():
        for item in check.get("podSetUpdates") or () if check.get("state") == "Ready" else ():
            before = found.get(item["name"], PodAdditions())
            found[item["name"]] = PodAdditions(
                selector={**before.selector, **(item.get("nodeSelector") or {})},
                tolerations=(*before.tolerations, *parse_tolerations(item.get("tolerations"))),
            )
    return found


def _owner(metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Kind of the job: as an annotation tells, else of who controls it, else of its first owner."""
    told = annotations.get(labels.OWNER_GVK)
    if told:
        return sys.intern(told)
    owners = metadata.get("ownerReferences") or ()
    if not owners:
        return ""
    owner = next((item for item in owners if item.get("controller")), owners[0])
    return sys.intern(f"{owner.get('apiVersion')}, Kind={owner['kind']}")


def _is_single_pod(metadata: Mapping[str, Any]) -> bool:
    owners = metadata.get("ownerReferences") or ()
    annotations = metadata.get("annotations") or {}
    if len(owners) != 1 or annotations.get(labels.IS_GROUP_WORKLOAD) == "true":
        return False
    owner: Mapping[str, Any] = next(iter(owners))
    return owner.get("kind") == "Pod" and owner.get("apiVersion") == "v1"


def _is_true(conditions: Mapping[str, Any], name: str) -> bool:
    return bool(conditions.get(name, _NO_CONDITION).get("status") == "True")


def _reservation(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> Reservation | None:
    admission = status.get("admission")
    if not admission or not _is_true(conditions, "QuotaReserved"):
        return None
    reserved_at = parse_time(conditions["QuotaReserved"].get("lastTransitionTime"))
    return Reservation(
        cluster_queue=admission["clusterQueue"],
        pod_sets=tuple(
            PodSetHold(
                name=item.get("name", "main"),
                flavors=dict(item.get("flavors") or {}),
                amounts={
                    resource: parse_amount(str(text), resource)
                    for resource, text in (item.get("resourceUsage") or {}).items()
                },
                count=int(item.get("count") or 0),
                placement=parse_placement(item.get("topologyAssignment")),
                delayed=item.get("delayedTopologyRequest") or "",
            )
            for item in admission.get("podSetAssignments") or ()
        ),
        reserved_at=reserved_at or UNKNOWN_TIME,
        is_admitted=_is_true(conditions, "Admitted"),
    )


def _shape_hash(pod_sets: tuple[PodSet, ...], priority: int, reclaimable: Mapping[str, int]) -> str:
    parts = [str(priority)]
    for item in pod_sets:
        parts.append(f"{item.name}/{item.count}/{reclaimable.get(item.name, 0)}/{item.min_count}")
        parts.append(item.shape.fingerprint)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
