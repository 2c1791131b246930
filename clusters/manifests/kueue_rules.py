"""What Kueue's webhooks refuse and its schemas do not: for clusters where no Kueue runs. Pure.

Source: Kueue pkg/webhooks, pkg/controller/jobframework/validation.go, pkg/controller/jobs/job,
v0.19.2. Left out: that an assigned amount is a multiple of its count, which only the portal writes,
and topology requests, which are read where they are counted.
"""

from __future__ import annotations

from typing import Final

from clusters.documents import labels
from clusters.jobs.described import Described
from clusters.jobs.kind import JobKind
from clusters.manifests import cel
from clusters.manifests.wish import Guard, Guarded, Served

_KUEUE: Final = "kueue.x-k8s.io"
_GROUPS: Final = "object.spec.?resourceGroups.orValue([])"
_BOTH: Final = ("object", "oldObject")
_TRUE: Final = "['1', 't', 'T', 'true', 'TRUE', 'True']"
_LIMITS: Final = ("nominalQuota", "borrowingLimit", "lendingLimit")


def _invalid(holds: str, message: str) -> Guard:
    return Guard(holds, message, reason="Invalid")


def job_rules(kind: JobKind) -> list[Guard]:
    """Marks of a job; in the words of the variables of its policy."""
    queue, seconds = cel.label(labels.QUEUE), cel.label(labels.MAX_EXECUTION)
    elastic, was = (f"{cel.annotation(labels.ELASTIC, of=of)} == 'true'" for of in _BOTH)
    found = [
        _invalid(
            f"object == null || {queue}.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$')",
            f"{labels.QUEUE} names a LocalQueue: lower-case letters, digits, '-' and '.'.",
        ),
        _invalid(
            f"object == null || {seconds} == '' || {seconds}.matches('^0*[1-9][0-9]{{0,9}}$')",
            f"{labels.MAX_EXECUTION} is a whole number of seconds above 0.",
        ),
        _invalid(
            f"!({cel.IS_UPDATE} && (variables.ran || !variables.waits)) || "
            f"{seconds} == {cel.label(labels.MAX_EXECUTION, of='oldObject')}",
            f"{labels.MAX_EXECUTION} stays as it is while the job runs.",
        ),
        _invalid(
            f"!({cel.IS_UPDATE}) || ({elastic}) == ({was})",
            f"{labels.ELASTIC} is set when a job is created, or never.",
        ),
    ]
    return found if isinstance(kind, Described) else [*found, *_batch_rules()]


def priority_rule() -> Guard:
    """The class of a job that queues: who changes it decides who is stopped for whom.

    Kueue refuses the same, of the kinds that its Configuration names.
    """
    priority, had = (cel.label(labels.PRIORITY_CLASS, of=of) for of in _BOTH)
    return _invalid(
        f"!({cel.IS_UPDATE} && variables.queued) || !({had} != '' && {priority} == '') && "
        f"!(!variables.waits && {had} == '' && {priority} != '')",
        f"{labels.PRIORITY_CLASS} is not taken off, and not put on while the job runs.",
    )


def _batch_rules() -> list[Guard]:
    """Partial admission, and completions that follow it: batch/v1 Jobs alone."""
    fewest, before = (cel.annotation(labels.MIN_PARALLELISM, of=of) for of in _BOTH)
    follows = cel.annotation(labels.COMPLETIONS_FOLLOW)
    is_number = f"{fewest}.matches('^[0-9]{{1,9}}$')"
    is_between = f"{is_number} && int({fewest}) > 0 && int({fewest}) < {width('object')}"
    parallelism, then = (f"{of}.spec.?parallelism.orValue(1)" for of in _BOTH)
    return [
        _invalid(
            f"object == null || {fewest} == '' || (oldObject != null && {fewest} == {before}) || "
            f"({is_between} && {cel.annotation(labels.ELASTIC)} != 'true')",
            f"{labels.MIN_PARALLELISM} is a whole number from 1 to one less than the pods of the "
            "job, and an elastic job has none.",
        ),
        _invalid(
            f"object == null || oldObject == null || {before} == '' || variables.waited || "
            f"{parallelism} == {then}",
            "A Job that may be admitted with fewer pods keeps their number while it runs.",
        ),
        _invalid(
            f"object == null || !({follows} in {_TRUE}) || "
            "(object.spec.?completionMode.orValue('NonIndexed') == 'Indexed' && "
            f"{parallelism} == object.spec.?completions.orValue(1))",
            f"{labels.COMPLETIONS_FOLLOW} is for Indexed Jobs with as many completions as pods.",
        ),
    ]


def width(of: str) -> str:
    """Pods of a batch/v1 Job that run side by side."""
    parallelism = f"{of}.spec.?parallelism.orValue(1)"
    return f"[{parallelism}, {of}.spec.?completions.orValue({parallelism})].min()"


def workload_rules() -> Guarded:
    """Workloads and their status."""
    reserved = (
        "{of}.?status.?conditions.orValue([])"
        ".exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
    )
    variables = {
        "sets": "object.spec.?podSets.orValue([])",
        "elastic": f"{cel.annotation(labels.ELASTIC)} == 'true'",
        "admission": "object.?status.?admission.orValue({})",
        "admitted": "oldObject == null ? {} : oldObject.?status.?admission.orValue({})",
        "reserves": reserved.format(of="object"),
        "reserved": f"oldObject != null && {reserved.format(of='oldObject')}",
    }
    fewest = "variables.sets.filter(p, has(p.minCount)).size()"
    assigned = "variables.admission.?podSetAssignments.orValue([])"
    known = "variables.sets.exists(p, p.name == {of}.name)"
    before = "variables.admitted.?podSetAssignments.orValue([])"
    checks = "object.?status.?admissionChecks.orValue([])"
    reclaimed = "object.?status.?reclaimablePods.orValue([])"
    was_told = "oldObject != null && oldObject.?status.?reclaimablePods.orValue([])"
    pods = "[c.?resources.?requests, c.?resources.?limits].exists(m, 'pods' in m.orValue({}))"
    containers = (
        "[p.template.spec.?containers, p.template.spec.?initContainers]"
        f".exists(l, l.orValue([]).exists(c, {pods}))"
    )
    kept = "o.name == p.name && o.template == p.template && p.count <= o.count"
    parts = ("name", "flavors", "resourceUsage", "count")
    same = " && ".join(f"a.?{part} == b.?{part}" for part in parts)
    found = (
        _invalid(f"{fewest} <= 1", "At most one pod set has minCount."),
        _invalid(
            f"{fewest} == 0 || !variables.elastic",
            "Partial admission and elastic jobs do not go together.",
        ),
        _invalid(
            f"!variables.sets.exists(p, {containers})", "The resource name pods is Kueue's own."
        ),
        _invalid(
            "!variables.reserves || variables.admission.size() > 0 || "
            "(variables.reserved && variables.admitted.size() == 0)",
            "A Workload that reserves quota says where, in status.admission.",
        ),
        _invalid(
            f"!variables.reserves || {assigned}.all(a, {known.format(of='a')})",
            "status.admission speaks of pod sets that the Workload does not have.",
        ),
        _invalid(
            "!variables.reserved || variables.admitted.size() == 0 || "
            "variables.admission.size() == 0 || "
            "(variables.admission.?clusterQueue == variables.admitted.?clusterQueue && "
            f"{assigned}.all(a, {before}.exists(b, {same})))",
            "status.admission is set or taken away as a whole, and never changed.",
        ),
        _invalid(
            "!variables.reserved || (variables.sets.size() == oldObject.spec.podSets.size() && "
            f"variables.sets.all(p, oldObject.spec.podSets.exists(o, {kept})))",
            "Pod sets of a Workload that reserves quota stay as they are.",
        ),
        _invalid(
            f"{reclaimed}.all(n, variables.sets.exists(p, p.name == n.name && n.count <= p.count) "
            f"|| (variables.elastic && {was_told}.exists(o, o == n)))",
            "No more pods are given back than a pod set has.",
        ),
        _invalid(
            f"{checks}.all(k, k.?podSetUpdates.orValue([]).all(u, {known.format(of='u')}))",
            "A check speaks of pod sets that the Workload does not have.",
        ),
    )
    return Guarded([Served(_KUEUE, "v1beta2", ("workloads", "workloads/status"))], found, variables)


def configuration_rules() -> Guarded:
    """ClusterQueues and Cohorts."""
    every = f"{_GROUPS}.all(g, g.flavors.all(f, f.resources.all(q, {{rule}})))"
    positive = " && ".join(
        f"(!has(q.{limit}) || !quantity(string(q.{limit})).isLessThan(quantity('0')))"
        for limit in _LIMITS
    )
    lends = (
        "!has(q.lendingLimit) || "
        "quantity(string(q.lendingLimit)).compareTo(quantity(string(q.nominalQuota))) <= 0"
    )
    parent = "object.spec.?cohortName.orValue(object.spec.?parentName.orValue(''))"
    flavor = f"{_GROUPS}.exists(g, g.flavors.exists(x, x.name == n))"
    checks = "object.spec.?admissionChecksStrategy.?admissionChecks.orValue([])"
    weight = "object.spec.?fairSharing.?weight"
    found = (
        _invalid(
            f"{_GROUPS}.all(g, g.coveredResources.all(r, "
            f"{_GROUPS}.filter(h, r in h.coveredResources).size() == 1))",
            "A resource is covered by one resource group.",
        ),
        _invalid(
            f"{_GROUPS}.all(g, g.flavors.all(f, "
            f"{_GROUPS}.filter(h, h.flavors.exists(x, x.name == f.name)).size() == 1))",
            "A flavor is in one resource group.",
        ),
        _invalid(
            f"{_GROUPS}.all(g, g.flavors.all(f, f.resources.map(q, q.name) == g.coveredResources))",
            "Each flavor has the covered resources of its group, in their order.",
        ),
        _invalid(every.format(rule=positive), "No quota and no limit is below 0."),
        _invalid(
            f"object.kind != 'ClusterQueue' || {every.format(rule=lends)}",
            "No more than the nominal quota is lent.",
        ),
        _invalid(
            f"{parent} != '' || "
            + every.format(rule="!has(q.borrowingLimit) && !has(q.lendingLimit)"),
            "Limits of borrowing and lending are for what has a cohort above it.",
        ),
        _invalid(
            f"{checks}.all(k, k.?onFlavors.orValue([]).all(n, {flavor}))",
            "A check is for flavors that the ClusterQueue does not have.",
        ),
        _invalid(
            f"!{weight}.hasValue() || {_is_positive(f'{weight}.value()')}",
            "The weight of fair sharing is not below 0.",
        ),
    )
    return Guarded([Served(_KUEUE, "v1beta2", ("clusterqueues", "cohorts"))], found)


def _is_positive(amount: str) -> str:
    return f"!quantity(string({amount})).isLessThan(quantity('0'))"
