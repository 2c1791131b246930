"""What the admission policies hold against whoever would take GPUs past the budget. Pure.

A guard is one CEL expression, true when a request may pass, and the sentence for when it may not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from clusters.documents import labels
from clusters.documents import resources as r
from clusters.documents.queues import FLEET_QUEUE
from clusters.jobs.described import Described, PodSetsAt
from clusters.jobs.kind import JobKind
from clusters.jobs.table import KINDS, suspendable
from clusters.manifests import cel
from clusters.manifests.kueue_rules import job_rules, priority_rule, width
from clusters.manifests.wish import ALL, Guard, Guarded, PolicyWish, Served

PREFIXES: Final = (
    "nvidia.com/",
    "amd.com/",
    "gpu.intel.com/",
    "habana.ai/",
    # Kubernetes' own names for devices of a class, which a claim is made for.
    "deviceclass.resource.kubernetes.io/",
)
"""What device names begin with; whatever else a flavor is named counts besides."""
_TEMPLATE: Final = (PodSetsAt("", counts=()),)
_SETS: Final = (
    Served("apps", "v1", ("deployments", "replicasets", "statefulsets", "daemonsets")),
    Served("", "v1", ("replicationcontrollers",)),
)
_RUNS_THERE: Final = (
    "Submit jobs of this workspace on the manager cluster, which sends them to a worker. This "
    "worker takes none directly."
)
_CLAIMS: Final = (
    "Devices of a resource claim are not counted against a budget. Ask for GPUs by their name in "
    "resources.limits."
)
_SAME_CLAIMS: Final = (
    "Devices are counted by the claims that a job is submitted with, so they cannot be changed: "
    "submit another job."
)
_IS_NEW: Final = "object != null && oldObject == null"
_RUNS: Final = "object != null && variables.ran && !variables.waits && variables.counts"
_SAME_RUNNER: Final = (
    "The managedBy of a job says which controller runs it. It is set when the job is created, and "
    "cannot be changed afterwards."
)
_LEFT_ALONE: Final = (
    "Jobs of this workspace run on this cluster, and no other cluster takes them: leave out "
    f"spec.{{}}, which is {labels.MULTIKUEUE}."
)

_OWN_QUEUE: Final = (
    f"Jobs that go to a worker are submitted to queue {FLEET_QUEUE}. To run this one on this "
    f"cluster, leave out spec.{{}}, which is {labels.MULTIKUEUE}."
)


def is_child(wish: PolicyWish) -> str:
    """Whether a controller makes a part of a job that queues as a whole."""
    kinds = [(kind.resource.group, kind.resource.kind) for kind in suspendable() if kind != _JOB]
    return f"{cel.by_controller(wish.operators)} && {cel.owned_by(kinds)}"


def queued_kind(wish: PolicyWish, kind: JobKind) -> Guarded:
    """A kind that is suspended until its quota is there."""
    resource, name = kind.resource, kind.resource.kind
    variables = {
        "it": "object == null ? oldObject : object",
        **_asking(wish, places_of(kind), of="variables.it.spec"),
        "queued": f"{cel.label(labels.QUEUE, of='variables.it')} != ''",
        "waits": _suspended("object", kind),
        "waited": f"oldObject != null && {_suspended('oldObject', kind)}",
        "ran": f"oldObject != null && !{_suspended('oldObject', kind)}",
        "counts": "variables.asks || variables.queued || (oldObject != null && "
        f"{cel.label(labels.QUEUE, of='oldObject')} != '')",
        "trusted": f"{cel.by((*wish.starters, wish.multikueue_user))}",
    }
    suspend = suspend_path(kind)
    guards = [
        *_not_here(wish, kind),
        Guard(
            f"!({_IS_NEW} && variables.counts) || (variables.waits && variables.queued) || "
            f"({is_child(wish)})",
            f"This {name} asks for GPUs, so it waits for its quota: create it with spec.{suspend}: "
            f"true and the label {labels.QUEUE}, and it is started when the budget has room.",
        ),
        Guard(
            "object == null || !(variables.waited && !variables.waits && variables.counts) || "
            f"{cel.by(wish.starters)}",
            f"This {name} waits for its quota; it is started when the budget has room.",
        ),
        Guard(
            f"!({_RUNS}) || variables.trusted || ({_same_pods(kind)})",
            f"This {name} runs with the quota of its pods, so they cannot be changed: suspend it "
            "first, or submit another.",
        ),
        Guard(
            f"!({_RUNS}) || variables.trusted || ({_same(labels.QUEUE, labels.PREBUILT)} && "
            f"{_same(labels.PREBUILT, what=cel.annotation)})",
            f"This {name} runs, so its queue and its Workload cannot be changed.",
        ),
        *_without_claims(wish, "object == null || !variables.claims"),
        *_same_claims(wish, kind),
        Guard(
            "object != null || !(variables.ran && variables.counts) || "
            "(request.?options.?propagationPolicy.orValue('') != 'Orphan' && "
            "!request.?options.?orphanDependents.orValue(false))",
            f"Pods of this {name} would go on without its quota: delete it with its pods.",
        ),
        priority_rule(),
        *_same_runner(wish, kind),
        *_added_pods(wish, kind),
        *(job_rules(kind) if wish.post.is_portal_mode else ()),
    ]
    return Guarded([Served.of(resource)], guards, variables, operations=ALL)


def _not_here(wish: PolicyWish, kind: JobKind) -> Iterator[Guard]:
    """What a cluster takes none of, whatever it asks for; told before all else."""
    resource, name = kind.resource, kind.resource.kind
    if not wish.takes_jobs:
        had = f"oldObject != null && {cel.label(labels.QUEUE, of='oldObject')} != ''"
        comes = f"object != null && ({_IS_NEW} && variables.counts || variables.queued && !({had}))"
        holds = f"!({comes}) || {cel.by((wish.multikueue_user,))} || ({is_child(wish)})"
        yield Guard(holds, _RUNS_THERE)
    if (wish.post.is_single or wish.post.has_own_queue) and kind.managed_by:
        manager = cel.field("object.spec", kind.managed_by)
        left = f"{manager}.orValue('') == '{labels.MULTIKUEUE}'"
        if not wish.post.is_single:
            left += f" && {cel.label(labels.QUEUE)} != '{FLEET_QUEUE}'"
        words = _LEFT_ALONE if wish.post.is_single else _OWN_QUEUE
        holds = f"!({_IS_NEW} && variables.counts && {left})"
        yield Guard(holds, words.format(kind.managed_by))
    if wish.post.is_portal_mode and (resource.group, name) not in KINDS:
        words = f"This cluster queues no {name} with GPUs. Submit a RayCluster or a RayJob instead."
        yield Guard(f"!({_IS_NEW} && variables.asks)", words)


def _same_runner(wish: PolicyWish, kind: JobKind) -> Iterator[Guard]:
    """A controller that is told to look away leaves pods as they are, suspended or not."""
    if not kind.managed_by:
        return
    runner, before = (cel.field(f"{of}.spec", kind.managed_by) for of in ("object", "oldObject"))
    counted = f"(variables.asks || {cel.label(labels.QUEUE, of='oldObject')} != '')"
    holds = f"variables.trusted || {runner}.orValue('') == {before}.orValue('')"
    if wish.post.is_manager:  # Kueue's webhook takes over there what still waits
        taken = f"{before}.orValue('') == '' && {runner}.orValue('') == '{labels.MULTIKUEUE}'"
        holds += f" || (variables.waited && variables.waits && {taken})"
    yield Guard(f"!({cel.IS_UPDATE} && {counted}) || {holds}", _SAME_RUNNER)


def _added_pods(wish: PolicyWish, kind: JobKind) -> Iterator[Guard]:
    if isinstance(kind, Described) and kind.added:
        holds = f"object == null || !{_asks(wish, cel.containers(kind.added, of='object.spec'))}"
        words = f"What the controller of a {kind.resource.kind} adds to its pods cannot ask for "
        yield Guard(holds, words + "GPUs.")


def pods(wish: PolicyWish) -> Guarded:
    """Where every GPU is asked for in the end."""
    owners = [(kind.resource.group, kind.resource.kind) for kind in suspendable()]
    owners += [(kind.group, kind.kind) for kind in wish.post.kinds]
    trusted = cel.by((*wish.starters, wish.multikueue_user, wish.portal_user))
    variables = {
        **_asking(wish, None, of="[object.spec]"),
        "trusted": f"{trusted} || {cel.by_controller(wish.operators)}",
        "of_job": f"{cel.by_controller(wish.operators)} && {cel.owned_by(dict.fromkeys(owners))}",
    }
    message = (
        "Pods with GPUs run as part of a Job here, so that they count against the budget. A pod "
        f"without a Job needs the label {labels.QUEUE}"
    )
    # Kueue's webhook gates such pods; where no Kueue is their owner does.
    gate = f" and the scheduling gate {labels.ADMISSION_GATE}"
    message += f"{gate if wish.post.is_portal_mode else ''}."
    gates = (
        f"oldObject.spec.?schedulingGates.orValue([]).all(g, !g.name.startsWith('{labels.PREFIX}')"
        " || object.spec.?schedulingGates.orValue([]).exists(n, n.name == g.name))"
    )
    is_new = "oldObject == null"
    found = [
        Guard(
            f"!({is_new} && variables.asks) || {cel.is_gated('object.spec')} || variables.of_job",
            message,
        ),
        *_without_claims(wish, f"!({is_new} && variables.claims)"),
        Guard(
            f"{is_new} || {gates} || {cel.by(wish.starters)}",
            "This pod waits for its quota; its scheduling gate is taken off when the budget has "
            "room.",
        ),
        Guard(
            f"{is_new} || !variables.asks || variables.trusted || "
            "(object.metadata.?labels == oldObject.metadata.?labels && "
            "object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)",
            "Labels and owners of a pod with GPUs say which job's quota it uses, so they cannot be "
            "changed.",
        ),
    ]
    if not wish.takes_jobs:
        queued = f"{cel.label(labels.QUEUE)} != '' || {cel.is_gated('object.spec')}"
        found.append(Guard(f"!({is_new} && ({queued})) || variables.trusted", _RUNS_THERE))
    return Guarded([Served.of(r.POD)], found, variables)


def sets(wish: PolicyWish) -> Guarded:
    """Deployments and what else makes pods for ever: their pods queue one by one."""
    return _makers(wish, _TEMPLATE, on=_SETS)


def leader_worker_sets(wish: PolicyWish) -> Guarded:
    """LeaderWorkerSets, whose pods wait behind the gate of their templates."""
    places = tuple(
        PodSetsAt("leaderWorkerTemplate", template=f"{role}Template", counts=())
        for role in ("leader", "worker")
    )
    served = Served(labels.SET_GROUP, "v1", ("leaderworkersets",))
    return _makers(wish, places, on=(served,))


def cron_jobs(wish: PolicyWish) -> Guarded:
    """CronJobs: what they make are Jobs like any other, and queue as these do."""
    places = (PodSetsAt("jobTemplate", template="spec.template", counts=()),)
    variables = _asking(wish, places, of="object.spec")
    found = _without_claims(wish)
    if not wish.takes_jobs:
        found.append(Guard("!variables.asks", _RUNS_THERE))
    elif not wish.post.is_portal_mode:
        queue = f"object.spec.jobTemplate.?metadata.?labels[?'{labels.QUEUE}'].hasValue()"
        message = (
            "Jobs with GPUs of a CronJob name their queue: put the label "
            f"{labels.QUEUE} in spec.jobTemplate.metadata."
        )
        found.append(Guard(f"!variables.asks || {queue}", message))
    return Guarded([Served("batch", "v1", ("cronjobs",))], found, variables)


def elsewhere(wish: PolicyWish) -> Guarded:
    """Pods with GPUs where no budget is."""
    guard = Guard(
        "!variables.asks" if wish.post.counts_claims else "!variables.asks && !variables.claims",
        "Only workspaces of the GPU budget portal can ask for GPUs on this cluster, and this "
        "namespace is not one.",
    )
    variables = _asking(wish, None, of="[object.spec]")
    return Guarded([Served.of(r.POD)], (guard,), variables, operations=("CREATE",))


def places_of(kind: JobKind) -> Sequence[PodSetsAt]:
    """Where the pod templates of a kind stand; none where only its own controller knows."""
    return kind.pod_sets_at if isinstance(kind, Described) else _TEMPLATE


def suspend_path(kind: JobKind) -> str:
    """Field of ``spec`` that stops a kind."""
    return kind.suspend if isinstance(kind, Described) else "suspend"


_JOB: Final = KINDS[r.JOB.group, r.JOB.kind]


def _makers(wish: PolicyWish, places: Sequence[PodSetsAt], *, on: Sequence[Served]) -> Guarded:
    """Whoever makes pods without being suspended: they are gated, each for itself."""
    variables = _asking(wish, places, of="object.spec")
    is_part = cel.by_controller(wish.operators)
    found = _without_claims(wish)
    if not wish.takes_jobs:
        holds = f"!variables.asks || {is_part} || {cel.by((wish.multikueue_user,))}"
        return Guarded(on, [*found, Guard(holds, _RUNS_THERE)], variables)
    if wish.post.is_portal_mode:
        gated = f"variables.specs.all(s, s.size() == 0 || {cel.is_gated('s')})"
        message = (
            "Pods with GPUs that do not belong to a Job queue one by one: put the scheduling gate "
            f"{labels.ADMISSION_GATE} and the label {labels.QUEUE} in the pod template."
        )
        found.append(Guard(f"!variables.asks || {is_part} || {gated}", message))
    else:
        queue = f"metadata.?labels[?'{labels.QUEUE}'].hasValue()"
        message = f"Pods with GPUs that do not belong to a Job need a queue: set {labels.QUEUE}."
        named = f"object.{queue} || object.spec.?template.?{queue}"
        found.append(Guard(f"!variables.asks || {is_part} || {named}", message))
    return Guarded(on, found, variables)


def _without_claims(wish: PolicyWish, holds: str = "!variables.claims") -> list[Guard]:
    """Where devices of claims do not count nobody claims any; elsewhere who claims asks."""
    return [] if wish.post.counts_claims else [Guard(holds, _CLAIMS)]


def _same_claims(wish: PolicyWish, kind: JobKind) -> Iterator[Guard]:
    """A claim of another template, or of more devices, would run with the quota of the first.

    Of a Job the API server itself lets nobody change them.
    """
    if wish.post.counts_claims and isinstance(kind, Described) and kind.pod_sets_at:
        before, after = (
            cel.claims_of(cel.pod_specs(kind.pod_sets_at, of=f"{of}.spec"))
            for of in ("oldObject", "object")
        )
        yield Guard(f"!({cel.IS_UPDATE}) || {before} == {after}", _SAME_CLAIMS)


def _asking(wish: PolicyWish, places: Sequence[PodSetsAt] | None, *, of: str) -> dict[str, str]:
    """Variables: the pod specs, and whether they ask for GPUs, or for devices by claims.

    A kind whose pods only its own controller knows always asks.
    """
    specs = of if places is None else cel.pod_specs(places, of=of)
    if wish.post.counts_claims:
        asks = f"{_asks(wish, 'variables.specs')} || {cel.claims('variables.specs')}"
        return {"specs": specs, "asks": asks} if specs else {"asks": "true"}
    if not specs:
        return {"asks": "true", "claims": "false"}
    return {
        "specs": specs,
        "asks": _asks(wish, "variables.specs"),
        "claims": cel.claims("variables.specs"),
    }


def _asks(wish: PolicyWish, specs: str) -> str:
    others = tuple(name for name in wish.gpu_resources if not name.startswith(PREFIXES))
    return cel.asks(specs, names=others, prefixes=PREFIXES)


def _suspended(of: str, kind: JobKind) -> str:
    return f"{cel.field(f'{of}.spec', suspend_path(kind))}.orValue(false)"


def _same(*marks: str, what: Callable[..., str] = cel.label) -> str:
    """Whether labels, or annotations, are what they were."""
    return " && ".join(f"{what(mark)} == {what(mark, of='oldObject')}" for mark in marks)


def _same_pods(kind: JobKind) -> str:
    """Whether the pods of a running job stay, and stay as many."""
    if not isinstance(kind, Described):
        gate = f"g.name == '{labels.PREFIX}elastic-job'"
        is_elastic = (
            f"object.spec.template.spec.?schedulingGates.orValue([]).exists(g, {gate}) || "
            f"(object.spec.?managedBy.orValue('') == '{labels.MULTIKUEUE}' && "
            f"{cel.annotation(labels.ELASTIC)} == 'true')"
        )
        return f"{width('object')} <= {width('oldObject')} || {is_elastic}"
    fields = dict.fromkeys(
        (place.at or place.template).partition(".")[0] for place in kind.pod_sets_at
    )
    if fields:
        return " && ".join(f"object.spec.?{name} == oldObject.spec.?{name}" for name in fields)
    stops = suspend_path(kind).partition(".")[0]
    return f"object.spec.all(k, k == '{stops}' || object.spec[?k] == oldObject.spec[?k])"
