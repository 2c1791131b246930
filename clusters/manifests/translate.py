"""QuotaPlan → the documents that it becomes on one cluster, in the order of application.

Only fields that the portal means are in a document: each of them is owned by server-side apply, and
what is left out stays with whoever wrote it. Source: ARCHITECTURE, "What a budget becomes"; Kueue
apis/kueue/v1beta2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from budgets.plan import (
    HOST_FLAVOR,
    USUAL_WEIGHT,
    CohortPlan,
    FlavorPromise,
    QueuePlan,
    QueueQuota,
    QuotaPlan,
    TopologyPromise,
)
from clusters.documents import labels
from clusters.documents.queues import FLEET_QUEUE, dispatched_queue
from clusters.manifests import names
from clusters.manifests.names import Document, Ownership

UNLIMITED: Final = "9223372036854775807"
# Nothing of the host is lent: it is unlimited for everybody, and sums stay small.
_OF_HOST: Final = {"nominalQuota": UNLIMITED, "borrowingLimit": "0", "lendingLimit": "0"}


@dataclass(frozen=True, slots=True)
class Site:
    """What rendering needs to know of a cluster besides its plan.

    Attributes:
        installation: Id of the portal's installation.
        generation: The cluster's own counter; objects that belong to no promise carry it.
        has_multikueue: A manager: workers are connected, and its queues wait for the check.
        checks_spend: Queues of budgets with a hard spend rule wait for the portal's own check.
        has_fleet_queue: Jobs for workers are submitted to ``fleet``, so copies of them are, too.
    """

    installation: str
    generation: int = 1
    has_multikueue: bool = False
    checks_spend: bool = True
    has_fleet_queue: bool = False


def render(
    plan: QuotaPlan, *, site: Site, dispatched: QuotaPlan | None = None
) -> tuple[Document, ...]:
    """Translate a plan into documents.

    Args:
        plan: Everything that one cluster carries.
        site: Where they go.
        dispatched: On a manager that runs jobs itself, the queues of jobs that go to workers; its
            Cohorts and flavors are those of the plan.

    Returns:
        Documents in kind order, Cohorts parents first, else by name; the same input gives the
        same output, byte for byte. O(objects).

    Raises:
        KeyError: A quota names a flavor that the plan does not have.
    """
    resources = {flavor.name: flavor.resource for flavor in plan.flavors}
    scribe = _Scribe(plan, site, resources)
    sender = None
    if dispatched is not None:
        scribe = _Scribe(plan, replace(site, has_multikueue=False), resources)
        sender = _Scribe(dispatched, site, resources)
    documents = [scribe.namespace(queue) for queue in plan.queues]
    documents += map(scribe.topology, plan.topologies)
    documents += [scribe.host_flavor(), *map(scribe.flavor, plan.flavors)]
    documents += [scribe.cohort(cohort) for cohort in _parents_first(plan.cohorts)]
    if site.has_multikueue:
        documents += (sender or scribe).multikueue()
    documents += scribe.spend_check()
    documents += [scribe.cluster_queue(queue, queue.name) for queue in plan.queues]
    if sender is not None and dispatched is not None:
        documents += [
            sender.cluster_queue(queue, dispatched_queue(queue.name)) for queue in dispatched.queues
        ]
    documents += [scribe.local_queue(queue) for queue in plan.queues]
    if site.has_fleet_queue:
        behind = dispatched_queue if sender is not None else str
        documents += [scribe.fleet_queue(queue, behind(queue.name)) for queue in plan.queues]
    return tuple(documents)


def secret_document(worker: str, kubeconfig_base64: str, *, owner: Ownership) -> Document:
    """The Secret through which the manager's Kueue reaches a worker. Never stored, never shown."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": names.metadata(
            names.secret_name(worker), owner, namespace=names.KUEUE_NAMESPACE
        ),
        "data": {names.KUBECONFIG_KEY: kubeconfig_base64},
    }


def cluster_owner(slug: str, site: Site) -> Ownership:
    """Ownership of what belongs to a cluster and to no promise."""
    return Ownership(site.installation, f"cluster:{slug}", site.generation)


@dataclass(frozen=True, slots=True)
class _Scribe:
    """Writes one kind per method."""

    plan: QuotaPlan
    site: Site
    resources: Mapping[str, str]

    def namespace(self, queue: QueuePlan) -> Document:
        metadata = names.metadata(queue.name, self._owner(queue.subject, queue.generation))
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def host_flavor(self) -> Document:
        return self._of_cluster("ResourceFlavor", HOST_FLAVOR, {})

    def flavor(self, flavor: FlavorPromise) -> Document:
        spec: Document = {}
        if flavor.node_labels:
            spec["nodeLabels"] = dict(flavor.node_labels)
        if flavor.node_taints:
            spec["nodeTaints"] = [dict(taint) for taint in flavor.node_taints]
        if flavor.tolerations:
            spec["tolerations"] = [
                {key: int(value) if key == "tolerationSeconds" else value for key, value in pairs}
                for pairs in flavor.tolerations
            ]
        if flavor.topology:
            spec["topologyName"] = flavor.topology
        owner = self._owner(f"flavor:{flavor.name}", flavor.generation)
        return _kueue("ResourceFlavor", flavor.name, owner, spec)

    def topology(self, topology: TopologyPromise) -> Document:
        owner = self._owner(f"topology:{topology.name}", topology.generation)
        spec = {"levels": [{"nodeLabel": level} for level in topology.levels]}
        return _kueue("Topology", topology.name, owner, spec)

    def cohort(self, cohort: CohortPlan) -> Document:
        spec: Document = {}
        if cohort.parent is not None:
            spec["parentName"] = cohort.parent
        groups = self._groups(cohort.quotas, sorted(cohort.quotas.keys() - {HOST_FLAVOR}))
        if HOST_FLAVOR in cohort.quotas:
            groups.append(self._host_group(_numbers(cohort.quotas[HOST_FLAVOR])))
        if groups:
            spec["resourceGroups"] = groups
        spec |= _fair_sharing(cohort)
        owner = self._owner(cohort.subject, cohort.generation)
        return _kueue("Cohort", cohort.name, owner, spec)

    def cluster_queue(self, queue: QueuePlan, name: str) -> Document:
        when_can_borrow = (
            "TryNextFlavor" if queue.try_next_flavor_before_borrowing else "MayStopSearch"
        )
        own = {"key": labels.NAMESPACE_NAME, "operator": "In", "values": [queue.name]}
        spec: Document = {
            "cohortName": queue.cohort,
            "namespaceSelector": {"matchExpressions": [own]},
            "queueingStrategy": "BestEffortFIFO",
            "flavorFungibility": {
                "whenCanBorrow": when_can_borrow,
                "whenCanPreempt": "TryNextFlavor",
            },
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "Never"},
            },
            "resourceGroups": self._queue_groups(queue),
            "stopPolicy": str(queue.stop_policy),
        }
        checks = [names.ADMISSION_CHECK] if self.site.has_multikueue else []
        checks += [names.SPEND_CHECK] if self._checks_spend(queue) else []
        if checks:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": x} for x in checks]}
        spec |= _fair_sharing(queue)
        owner = self._owner(queue.subject, queue.generation)
        return _kueue("ClusterQueue", name, owner, spec)

    def _queue_groups(self, queue: QueuePlan) -> list[Document]:
        """GPUs, and what the host has: of the GPUs' own flavors where these have a topology.

        Kueue places a pod by topology only if one flavor has everything that it asks for.
        """
        groups = self._groups(queue.quotas, queue.flavors)
        placed = {flavor.name for flavor in self.plan.flavors if flavor.topology}
        for group in groups:
            if any(flavor["name"] in placed for flavor in group["flavors"]):
                host = self._host_group(_OF_HOST)
                group["coveredResources"] += host["coveredResources"]
                for flavor in group["flavors"]:
                    flavor["resources"] += host["flavors"][0]["resources"]
                return groups
        return [*groups, self._host_group(_OF_HOST)]

    def local_queue(self, queue: QueuePlan) -> Document:
        owner = self._owner(queue.subject, queue.generation)
        spec = {"clusterQueue": queue.name}
        return _kueue("LocalQueue", names.LOCAL_QUEUE, owner, spec, namespace=queue.name)

    def fleet_queue(self, queue: QueuePlan, cluster_queue: str) -> Document:
        owner = self._owner(queue.subject, queue.generation)
        spec = {"clusterQueue": cluster_queue}
        return _kueue("LocalQueue", FLEET_QUEUE, owner, spec, namespace=queue.name)

    def multikueue(self) -> list[Document]:
        """Clusters, their list, and the check; without workers the check names a list to come."""
        place, documents = self.plan.place, []
        for worker in sorted(place.workers):
            source = {"location": names.secret_name(worker), "locationType": "Secret"}
            connected = {"clusterSource": {"kubeConfig": source}}
            documents.append(self._of_cluster("MultiKueueCluster", worker, connected))
        if place.workers:
            # Their order is the order in which an incremental dispatcher tries them.
            listed = {"clusters": list(place.workers)}
            documents.append(self._of_cluster("MultiKueueConfig", names.MULTIKUEUE_CONFIG, listed))
        reference = {
            "apiGroup": "kueue.x-k8s.io",
            "kind": "MultiKueueConfig",
            "name": names.MULTIKUEUE_CONFIG,
        }
        spec = {"controllerName": labels.MULTIKUEUE, "parameters": reference}
        return [*documents, self._of_cluster("AdmissionCheck", names.ADMISSION_CHECK, spec)]

    def spend_check(self) -> list[Document]:
        """The portal's own check, where a queue waits for it."""
        if not any(map(self._checks_spend, self.plan.queues)):
            return []
        spec = {"controllerName": names.spend_controller(self.site.installation)}
        return [self._of_cluster("AdmissionCheck", names.SPEND_CHECK, spec)]

    def _of_cluster(self, kind: str, name: str, spec: Document) -> Document:
        return _kueue(kind, name, cluster_owner(self.plan.place.name, self.site), spec)

    def _checks_spend(self, queue: QueuePlan) -> bool:
        return self.site.checks_spend and queue.checks_spend

    def _owner(self, subject: str, generation: int) -> Ownership:
        return Ownership(self.site.installation, subject, generation)

    def _groups(self, quotas: Mapping[str, QueueQuota], order: Sequence[str]) -> list[Document]:
        """One group per GPU resource name, in the order in which resources first appear."""
        by_resource: dict[str, list[str]] = {}
        for flavor in order:
            by_resource.setdefault(self.resources[flavor], []).append(flavor)
        groups = []
        for resource, flavors in by_resource.items():
            listed = [
                {"name": flavor, "resources": [{"name": resource, **_numbers(quotas[flavor])}]}
                for flavor in flavors
            ]
            groups.append({"coveredResources": [resource], "flavors": listed})
        return groups

    def _host_group(self, numbers: Mapping[str, str]) -> Document:
        covered = list(self.plan.place.host_resources)
        resources = [{"name": resource, **numbers} for resource in covered]
        return {
            "coveredResources": covered,
            "flavors": [{"name": HOST_FLAVOR, "resources": resources}],
        }


def _numbers(quota: QueueQuota) -> dict[str, str]:
    """Three numbers; None, which is only for a root Cohort, leaves the field out."""
    found = {
        "nominalQuota": quota.nominal,
        "borrowingLimit": quota.borrowing_limit,
        "lendingLimit": quota.lending_limit,
    }
    return {key: str(amount) for key, amount in found.items() if amount is not None}


def _fair_sharing(planned: CohortPlan | QueuePlan) -> Document:
    """The usual weight is left out: who gave another one by hand before keeps it."""
    if planned.fair_weight == USUAL_WEIGHT:
        return {}
    return {"fairSharing": {"weight": f"{planned.fair_weight.normalize():f}"}}


def _parents_first(cohorts: Iterable[CohortPlan]) -> list[CohortPlan]:
    """Cohorts by their depth, then by name."""
    by_name = {cohort.name: cohort for cohort in cohorts}

    def depth(cohort: CohortPlan) -> int:
        steps, seen = 0, {cohort.name}
        parent = cohort.parent
        while parent is not None and parent in by_name and parent not in seen:
            seen.add(parent)
            parent = by_name[parent].parent
            steps += 1
        return steps

    return sorted(by_name.values(), key=lambda cohort: (depth(cohort), cohort.name))


def _kueue(
    kind: str, name: str, owner: Ownership, spec: Document, *, namespace: str = ""
) -> Document:
    metadata = names.metadata(name, owner, namespace=namespace)
    return {"apiVersion": names.KUEUE_API, "kind": kind, "metadata": metadata, "spec": spec}
