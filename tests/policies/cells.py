"""What people try, a cell each: words for the table, and the requests that make it up.

A cell gets a ground and a name that nobody else uses. It prepares what has to be there, asks once,
and says what came of it: the refusal, or a few words on what is there now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from clusters.documents import labels
from clusters.documents import resources as r
from clusters.documents.resources import Resource
from clusters.jobs.paths import put
from clusters.kube.resources import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, NAMESPACE, WORKLOAD
from clusters.manifests.guards import suspend_path
from tests.controlplane.rest import Rest
from tests.policies import objects as o
from tests.policies.ground import OPERATOR, STRANGER, Answer, Ground, ask, resource_of, state_of

Tried = Answer | str
Try = Callable[[Ground, str], Tried]


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    Attributes:
        kind: Where a row is tried with each of several.
        refusal: The sentence of the policy that is meant, where it is known before it is tried.
    """

    section: str
    words: str
    run: Try
    kind: str = ""
    refusal: str = ""


def _made(document: o.Document, ground: Ground, *, by: str = "") -> Tried:
    """Create it; the state that it is in then."""
    client = ground.people[by] if by else None
    stored: list[o.Document] = []
    answer = ask(lambda: stored.append(ground.create(document, by=client)))
    return answer if answer.is_refused else state_of(stored[0])


def _below(document: o.Document, kind: str, ground: Ground) -> o.Document:
    """The same with an owner that exists and waits: the API server collects what has none."""
    above = o.job(kind, f"{document['metadata']['name']}-owner", suspended=True)
    uid = ground.create(above)["metadata"]["uid"]
    document["metadata"]["ownerReferences"] = [o.owner(kind, above["metadata"]["name"], uid)]
    if ground.kueue_starts:
        time.sleep(1)  # Kueue reads owners from its cache, and refuses what it has not seen there.
    return document


def _pod(**how: object) -> Try:
    return lambda g, n: _made(o.pod(n, **how), g)  # type: ignore[arg-type]


def _owned(kind: str, by: str = "") -> Try:
    def run(ground: Ground, name: str) -> Tried:
        return _made(_below(o.pod(name), kind, ground), ground, by=by)

    return run


def _ephemeral(ground: Ground, name: str) -> Tried:
    """The API server itself knows no resources there."""
    pod = o.pod(name, "")
    ground.create(pod)
    more = {"name": "more", "image": "it:1", "resources": {"limits": {o.GPU: "1"}}}
    body = {"spec": {"ephemeralContainers": [more]}}
    return ask(lambda: ground.merge(pod, body, subresource="ephemeralcontainers"))


def _ungated(ground: Ground, name: str) -> Tried:
    pod = o.pod(name, queue="closed", gated=True)
    ground.create(pod)
    return ask(lambda: ground.merge(pod, {"spec": {"schedulingGates": None}}))


def _relabelled(ground: Ground, name: str) -> Tried:
    pod = o.pod(name, queue="default", gated=True)
    ground.free(pod)
    return ask(lambda: ground.merge(pod, {"metadata": {"labels": {labels.QUEUE: None}}}))


def _disowned(ground: Ground, name: str) -> Tried:
    pod = _below(o.pod(name), "RayCluster", ground)
    ground.create(pod, by=ground.people[OPERATOR])
    return ask(lambda: ground.merge(pod, {"metadata": {"ownerReferences": None}}))


def _annotated_pod(ground: Ground, name: str) -> Tried:
    pod = o.pod(name, queue="default", gated=True)
    ground.free(pod)
    return ask(lambda: ground.merge(pod, {"metadata": {"annotations": {"note": "mine"}}}))


CLAIM = [{"name": "gpu", "resourceClaimName": "mine"}]
CLAIMED = (
    "Devices of a resource claim are not counted against a budget. Ask for GPUs by their name in "
    "resources.limits."
)


def pods() -> Iterator[Cell]:
    """Pods, and what they ask for."""
    rows: dict[str, Try] = {
        "a pod with GPUs": _pod(),
        "… in an init container": _pod(place="initContainers"),
        "… in an ephemeral container, added later": _ephemeral,
        "a slice of one, `nvidia.com/mig-1g.5gb`": _pod(device="nvidia.com/mig-1g.5gb"),
        "another maker's, `amd.com/gpu`": _pod(device="amd.com/gpu"),
        "a device by the name of a flavor": _pod(device="example.com/accelerator"),
        "a device of a class, by name": _pod(device="deviceclass.resource.kubernetes.io/gpu"),
        "a device by a resource claim": _pod(device="", resourceClaims=CLAIM),
        "a pod with the label of a queue alone": _pod(queue="closed"),
        "a pod with label and scheduling gate": _pod(queue="closed", gated=True),
        "a pod that says that a Job owns it": _owned("Job"),
        "a pod that says that a RayCluster owns it": _owned("RayCluster"),
        "the same by a controller that nobody registered": _owned("RayCluster", STRANGER),
        "the same by a registered operator": _owned("RayCluster", OPERATOR),
        "taking the scheduling gate off": _ungated,
        "taking the queue's label off a running pod": _relabelled,
        "taking a running pod from its owner": _disowned,
        "an annotation on a running pod": _annotated_pod,
    }
    for words, run in rows.items():
        yield Cell("Pods", words, run)


SETS = (
    Resource("apps", "v1", "deployments", "Deployment", True),
    Resource("apps", "v1", "replicasets", "ReplicaSet", True),
    Resource("apps", "v1", "statefulsets", "StatefulSet", True),
    Resource("apps", "v1", "daemonsets", "DaemonSet", True),
    Resource("", "v1", "replicationcontrollers", "ReplicationController", True),
    o.LEADER_WORKER_SET,
)


def _maker(resource: Resource, **how: object) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        made = o.pod_maker(resource, name, **how)  # type: ignore[arg-type]
        answer = ask(lambda: ground.create(made))
        return answer if answer.is_refused else "its pods wait behind their gates"

    return run


def _turned(resource: Resource, **how: object) -> Try:
    """One without GPUs is made to ask for them."""

    def run(ground: Ground, name: str) -> Tried:
        ground.create(o.pod_maker(resource, name, device=""))
        asking = o.pod_maker(resource, name, **how)  # type: ignore[arg-type]
        change = {"spec": {key: asking["spec"][key] for key in asking["spec"] if key != "selector"}}
        return ask(lambda: ground.merge(asking, change))

    return run


def sets() -> Iterator[Cell]:
    """What makes pods for ever."""
    for each in SETS:
        yield Cell("Sets of pods", "created with GPUs", _maker(each), each.kind)
        yield Cell("Sets of pods", "changed to ask for GPUs", _turned(each), each.kind)
        queued = _maker(each, queue="closed", gated=True)
        yield Cell("Sets of pods", "with label and gate in the template", queued, each.kind)
        claiming = {"device": "", "resourceClaims": CLAIM}
        words = "devices by a resource claim"
        yield Cell("Sets of pods", words, _maker(each, **claiming), each.kind, CLAIMED)
        words = f"changed to ask for {words}"
        yield Cell("Sets of pods", words, _turned(each, **claiming), each.kind, CLAIMED)
    cron = {"queue": "closed", "device": "", "resourceClaims": CLAIM}
    yield Cell("Sets of pods", "a CronJob with GPUs", _cron(queue=""))
    yield Cell("Sets of pods", "a CronJob whose Jobs name a queue", _cron(queue="closed"))
    yield Cell("Sets of pods", "a CronJob changed to ask for GPUs", _cron_turned(queue=""))
    words = "a CronJob with devices by a resource claim"
    yield Cell("Sets of pods", words, _cron(**cron), refusal=CLAIMED)
    words = "a CronJob changed to ask for devices by a resource claim"
    yield Cell("Sets of pods", words, _cron_turned(**cron), refusal=CLAIMED)


def _cron(**how: object) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        answer = ask(lambda: ground.create(o.cron_job(name, **how)))  # type: ignore[arg-type]
        return answer if answer.is_refused else "its Jobs wait, suspended"

    return run


def _cron_turned(**how: object) -> Try:
    """One without GPUs is made to ask for them."""

    def run(ground: Ground, name: str) -> Tried:
        ground.create(o.cron_job(name, queue="", device=""))
        asking = o.cron_job(name, **how)  # type: ignore[arg-type]
        answer = ask(lambda: ground.merge(asking, {"spec": asking["spec"]}))
        return answer if answer.is_refused else "its Jobs wait, suspended"

    return run


def _job(kind: str, **how: object) -> Try:
    return lambda g, n: _made(o.job(kind, n, **how), g)  # type: ignore[arg-type]


def _unsuspended(kind: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True)
        ground.create(job)
        change: o.Document = {"spec": {}}
        put(change["spec"], suspend_path(o.KINDS[kind]), False)
        return ask(lambda: ground.merge(job, change))

    return run


def _widened(kind: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, queue="default")
        ground.running(job)
        live = ground.get(job)
        return ask(lambda: ground.merge(job, {"spec": o.wider(live)["spec"]}))

    return run


def _remarked(kind: str, **marks: str | None) -> Try:
    """A running job is moved to another queue, Workload or class."""

    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, queue="default")
        ground.running(job)
        change = {labels.PREFIX + mark.replace("_", "-"): to for mark, to in marks.items()}
        return ask(lambda: ground.merge(job, {"metadata": {"labels": change}}))

    return run


def _annotated(kind: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, queue="default")
        ground.running(job)
        return ask(lambda: ground.merge(job, {"metadata": {"annotations": {labels.PREBUILT: "x"}}}))

    return run


def _noted(kind: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, queue="default")
        ground.running(job)
        return ask(lambda: ground.merge(job, {"metadata": {"annotations": {"note": "mine"}}}))

    return run


def _orphaned(kind: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, queue="default")
        ground.running(job)
        path = ground.path(o.KINDS[kind].resource, name)
        return ask(lambda: ground.tenant.delete(path, propagation="Orphan"))

    return run


def _claiming(kind: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True)
        text = o.template(resourceClaims=CLAIM)
        for spec in o.pod_specs(job):
            spec.update(text["spec"])
        return ask(lambda: ground.create(job))

    return run


def _turned_to_claim(kind: str) -> Try:
    """One that waits without GPUs is made to ask for devices by a claim."""

    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, device="")
        ground.create(job)
        live = ground.get(job)
        for spec in o.pod_specs(live):
            spec["resourceClaims"] = CLAIM
        return ask(lambda: ground.merge(job, {"spec": live["spec"]}))

    return run


MANAGED = (
    "The managedBy of a job says which controller runs it. It is set when the job is created, and "
    "cannot be changed afterwards."
)


def _handed_over(kind: str, *, runs: bool) -> Try:
    """Its controller is told to look away: what it would stop runs on."""

    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True, queue="default" if runs else "closed")
        (ground.running if runs else ground.create)(job)
        change: o.Document = {"spec": {}}
        put(change["spec"], o.KINDS[kind].managed_by, labels.MULTIKUEUE)
        return ask(lambda: ground.merge(job, change))

    return run


def _adding(kind: str) -> Try:
    """KubeRay puts its autoscaler beside the head, with what it is told to ask for."""

    def run(ground: Ground, name: str) -> Tried:
        job = o.job(kind, name, suspended=True)
        asked = {"resources": {"limits": {o.GPU: "8"}}}
        put(job["spec"], o.KINDS[kind].added[0], asked)  # type: ignore[attr-defined]
        return ask(lambda: ground.create(job))

    return run


OPAQUE = ("AppWrapper", "TrainJob")
JOB_TRIES: dict[str, Callable[[str], Try]] = {
    "created running": _job,
    "created running, in no queue": lambda kind: _job(kind, queue=""),
    "created suspended, in a queue": lambda kind: _job(kind, suspended=True),
    "unsuspended by its owner": _unsuspended,
    "more pods while it runs": _widened,
    "`queue-name` switched while it runs": lambda kind: _remarked(kind, queue_name="closed"),
    "`queue-name` taken off while it runs": lambda kind: _remarked(kind, queue_name=None),
    "`prebuilt-workload-name` switched while it runs": _annotated,
    "a priority class put on while it runs": lambda kind: _remarked(kind, priority_class="high"),
    "`managedBy` switched while it waits": lambda kind: _handed_over(kind, runs=False),
    "`managedBy` switched while it runs": lambda kind: _handed_over(kind, runs=True),
    "an annotation while it runs": _noted,
    "deleted without its pods": _orphaned,
    "devices by a resource claim": _claiming,
    "changed to ask for devices by a resource claim": _turned_to_claim,
}
# Open definitions, which check nothing before a policy is asked.
UNCHECKED = ("PyTorchJob", "TFJob")


def jobs(*kinds: str) -> Iterator[Cell]:
    """Jobs that queue as a whole: created, and changed."""
    for kind in kinds or o.KINDS:
        for words, made in JOB_TRIES.items():
            if words.endswith("resource claim") and kind in OPAQUE:
                continue
            if words.startswith("changed") and kind == "Job":
                continue  # the API server keeps its template, and quotes what it has by its UID
            is_switch = words.startswith("`managedBy`") and kind in UNCHECKED
            expected = MANAGED if is_switch else ""
            yield Cell("Jobs that queue", words, made(kind), kind, expected)
        if "Ray" in kind:
            yield Cell("Jobs that queue", "GPUs for the autoscaler", _adding(kind), kind)


def _child(owner: str, by: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        return _made(_below(o.job("Job", name, queue=""), owner, ground), ground, by=by)

    return run


def _child_started(ground: Ground, name: str) -> Tried:
    """The owner of a JobSet that waits starts its parts by hand."""
    job = _below(o.job("Job", name, queue="", suspended=True), "JobSet", ground)
    ground.create(job, by=ground.people[OPERATOR])
    return ask(lambda: ground.merge(job, {"spec": {"suspend": False}}))


def _large(ground: Ground, name: str) -> Tried:
    """As much as a budget of CEL has to be enough for: compared with itself while it runs."""
    job = o.job("JobSet", name, suspended=True, queue="default")
    (spec,) = o.pod_specs(job)
    words = [{"name": f"V{number}", "value": "x" * 400} for number in range(500)]
    spec["containers"][0]["env"] = words
    first = job["spec"]["replicatedJobs"][0]
    job["spec"]["replicatedJobs"] = [first, {**first, "name": "more"}]
    ground.running(job)
    return ask(lambda: ground.merge(job, {"metadata": {"annotations": {"note": "mine"}}}))


def large() -> Iterator[Cell]:
    """What costs most to look at."""
    yield Cell("Jobs that queue", "an annotation on a running JobSet of 450 kB", _large)


def parts() -> Iterator[Cell]:
    """Jobs below jobs."""
    section = "Parts of jobs"
    for owner in ("JobSet", "MPIJob", "RayJob"):
        words = f"a Job of a {owner}, by its registered operator"
        yield Cell(section, words, _child(owner, OPERATOR))
    for words, by in (
        ("a Job that says that a JobSet owns it", "alice"),
        ("the same by a controller that nobody registered", STRANGER),
    ):
        yield Cell(section, words, _child("JobSet", by))
    yield Cell(section, "a waiting JobSet's Job, unsuspended by its owner", _child_started)


def _written(ground: Ground, name: str) -> Tried:
    return ask(lambda: ground.create(o.workload(name)))


def _status(ground: Ground, name: str) -> Tried:
    made = o.workload(name)
    ground.create(made, by=ground.portal)
    told = {"type": "Admitted", "status": "True", "reason": "Mine", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    change = {"status": {"conditions": [told]}}
    return ask(lambda: ground.merge(made, change, subresource="status"))


def _unwritten(ground: Ground, name: str) -> Tried:
    ground.create(o.workload(name), by=ground.portal)
    return ask(lambda: ground.tenant.delete(ground.path(WORKLOAD, name)))


def _queue(ground: Ground, name: str) -> Tried:
    body = {"metadata": {"name": name}, "spec": {"clusterQueue": "default"}}
    return ask(lambda: ground.tenant.create(ground.path(LOCAL_QUEUE), {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", **body
    }))  # fmt: skip


def _reopened(ground: Ground, name: str) -> Tried:
    path = ground.path(LOCAL_QUEUE, "closed")
    return ask(lambda: ground.tenant.merge(path, {"spec": {"stopPolicy": "None"}}))


def _marked_as_copy(ground: Ground, name: str) -> Tried:
    made = o.workload(name)
    made["metadata"]["labels"] = {labels.ORIGIN: "somebody"}
    return ask(lambda: ground.create(made, by=ground.people[OPERATOR]))


def kueue_objects() -> Iterator[Cell]:
    """What decides who gets GPUs."""
    rows: dict[str, Try] = {
        "a Workload created": _written,
        "its status written": _status,
        "a Workload deleted": _unwritten,
        "a LocalQueue created": _queue,
        "a LocalQueue changed": _reopened,
        "a Workload marked as the manager's copy": _marked_as_copy,
    }
    for words, run in rows.items():
        yield Cell("Workloads and queues", words, run)


def _unlabelled(ground: Ground, name: str) -> Tried:
    return _marked_anew(ground, ground.tenant, ground.namespace, None)


def _patched_elsewhere(ground: Ground, name: str) -> Tried:
    return _marked_anew(ground, ground.portal, "elsewhere", ground.wish.post.installation)


def _marked_anew(ground: Ground, who: Rest, namespace: str, installation: str | None) -> Tried:
    """Somebody says whose workspace a namespace is; where they may, it is undone afterwards."""
    path = NAMESPACE.path(namespace)
    before = ground.plane.rest.get(path)["metadata"].get("labels", {}).get(labels.INSTALLATION)
    marks = [{"metadata": {"labels": {labels.INSTALLATION: to}}} for to in (installation, before)]
    answer = ask(lambda: who.merge(path, marks[0]))
    ground.plane.rest.merge(path, marks[1])
    return answer


def _identity(user: str, namespace: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        client = ground.people[getattr(ground.wish, user)]
        path = r.JOB.path(namespace=namespace)
        return ask(lambda: client.create(path, o.job("Job", name, suspended=True, device="")))

    return run


OURS = "The portal and the manager cluster can write jobs only in workspaces."


def _elsewhere(
    document: Callable[..., o.Document], user: str, change: o.Document | None, subresource: str = ""
) -> Try:
    """What stands in a namespace that is no workspace is changed; deleted where nothing is said."""

    def run(ground: Ground, name: str) -> Tried:
        made = document(f"{name}-{ground.namespace}")
        resource = resource_of(made)
        ground.plane.rest.create(resource.path(namespace="elsewhere"), made)
        client = ground.people[getattr(ground.wish, user)]
        path = resource.path(made["metadata"]["name"], namespace="elsewhere")
        if change is None:
            return ask(lambda: client.delete(path))
        at = f"{path}/{subresource}" if subresource else path
        return ask(lambda: client.merge(at, change))

    return run


def _pod_in(namespace: str) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        path = r.POD.path(namespace=namespace)
        pod = o.pod(f"{name}-{ground.namespace}")
        answer = ask(lambda: ground.tenant.create(path, pod))
        return answer if answer.is_refused else "runs, as the admin lists the namespace"

    return run


def _writes_elsewhere() -> dict[str, Try]:
    """What the rights of both identities would allow in every namespace."""

    def waiting(name: str) -> o.Document:
        return o.job("Job", name, suspended=True, device="", queue="")

    def pod(name: str) -> o.Document:
        return o.pod(name, "")

    rows: dict[str, Try] = {}
    for who, user in (("portal", "portal_user"), ("manager", "multikueue_user")):
        for what, document, change, subresource in (
            ("changes a Job", waiting, {"spec": {"suspend": False}}, ""),
            ("deletes a Job", waiting, None, ""),
            ("writes the status of a Job", waiting, {"status": {"active": 1}}, "status"),
            ("writes the status of a pod", pod, {"status": {"phase": "Failed"}}, "status"),
        ):
            words = f"the {who} {what} of a namespace that is no workspace"
            rows[words] = _elsewhere(document, user, change, subresource)
    return rows


def namespaces() -> Iterator[Cell]:
    """Outside of workspaces, and on their way out."""
    rows: dict[str, Try] = {
        "the workspace's label taken off": _unlabelled,
        "the portal writes a namespace that is not its own": _patched_elsewhere,
        "the portal creates a Job in `elsewhere`": _identity("portal_user", "elsewhere"),
        "the manager creates a Job in `elsewhere`": _identity("multikueue_user", "elsewhere"),
        "the manager creates a Job in `kube-system`": _identity("multikueue_user", "kube-system"),
        **_writes_elsewhere(),
        "a pod with GPUs in `elsewhere`": _pod_in("elsewhere"),
        "a pod with GPUs in a listed namespace": _pod_in("listed"),
    }
    for words, run in rows.items():
        is_ours = words.endswith("of a namespace that is no workspace")
        yield Cell("Other namespaces", words, run, refusal=OURS if is_ours else "")


def through_the_manager() -> Iterator[Cell]:
    """A worker that takes no jobs directly."""
    section = "On a worker that takes no jobs directly"
    rows: dict[str, Try] = {
        "a Job in a queue": _job("Job", suspended=True),
        "a JobSet in a queue": _job("JobSet", suspended=True),
        "a pod in a queue": _pod(queue="closed", gated=True),
        "a Deployment in a queue": _maker(SETS[0], queue="closed", gated=True),
        "a CronJob with GPUs": _cron(queue="closed"),
        "a Job by the manager": lambda g, n: _made(
            o.job("Job", n, suspended=True), g, by=g.wish.multikueue_user
        ),
    }
    for words, run in rows.items():
        yield Cell(section, words, run)


LEFT_ALONE = (
    "Jobs of this workspace run on this cluster, and no other cluster takes them: leave out "
    "spec.managedBy, which is kueue.x-k8s.io/multikueue."
)


def by_themselves() -> Iterator[Cell]:
    """A cluster where jobs are submitted and run, and no manager is."""
    for kind in ("Job", "JobSet", "PyTorchJob"):
        run = _job(kind, suspended=True, managed_by=labels.MULTIKUEUE)
        words = "a job for another cluster"
        yield Cell("On a cluster of its own", words, run, kind, LEFT_ALONE)


def older() -> Iterator[Cell]:
    """An API server that knows no MutatingAdmissionPolicy: nothing is put right, it is refused."""
    section = "Where no policy mutates"
    yield Cell(section, "a Job created running", _job("Job", queue=""))
    yield Cell(section, "a Job created suspended, in a queue", _job("Job", suspended=True))


def _strange_job(labelled: o.Document, annotated: o.Document) -> Try:
    """A Job with marks that nobody can read."""

    def run(ground: Ground, name: str) -> Tried:
        job = o.job("Job", name, suspended=True)
        job["metadata"]["labels"] |= labelled
        job["metadata"]["annotations"] = annotated
        return _made(job, ground)

    return run


def _made_elastic(ground: Ground, name: str) -> Tried:
    job = o.job("Job", name, suspended=True)
    ground.create(job)
    change = {"metadata": {"annotations": {labels.ELASTIC: "true"}}}
    return ask(lambda: ground.merge(job, change))


def _two_minimums(ground: Ground, name: str) -> Tried:
    made = o.workload(name)
    (one,) = made["spec"]["podSets"]
    made["spec"]["podSets"] = [{**one, "minCount": 1}, {**one, "name": "more", "minCount": 1}]
    return ask(lambda: ground.create(made, by=ground.portal))


RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "It", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip


def _reserved_nowhere(ground: Ground, name: str) -> Tried:
    made = o.workload(name)
    ground.create(made, by=ground.portal)
    status = {"status": {"conditions": [RESERVED]}}
    return ask(lambda: ground.merge(made, status, by=ground.portal, subresource="status"))


def _grown_while_reserved(ground: Ground, name: str) -> Tried:
    made = o.workload(name)
    ground.create(made, by=ground.portal)
    admission = {"clusterQueue": "closed", "podSetAssignments": [{"name": "main", "count": 1}]}
    status = {"status": {"conditions": [RESERVED], "admission": admission}}
    ground.merge(made, status, by=ground.portal, subresource="status")
    grown = [{**made["spec"]["podSets"][0], "count": 8}]
    return ask(lambda: ground.merge(made, {"spec": {"podSets": grown}}, by=ground.portal))


def _cluster_queue(*groups: o.Document, **spec: object) -> Try:
    return _configured(CLUSTER_QUEUE, cohortName="all", resourceGroups=list(groups), **spec)


def _configured(resource: Resource, **spec: object) -> Try:
    def run(ground: Ground, name: str) -> Tried:
        made = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        return ask(lambda: ground.portal.create(resource.path(), made))

    return run


def _job_update(
    before: o.Document, after: o.Document, *, annotations: bool = False, **spec: object
) -> Try:
    """A running Job whose marks, or pods, are changed."""

    def run(ground: Ground, name: str) -> Tried:
        job = o.job("Job", name, suspended=True, queue="default")
        job["spec"] |= spec
        marks = job["metadata"].setdefault("annotations" if annotations else "labels", {})
        marks |= before
        ground.running(job)
        return ask(lambda: ground.merge(job, after))

    return run


def _workload(change: Callable[[o.Document], object]) -> Try:
    """A Workload that nobody could work with is created."""

    def run(ground: Ground, name: str) -> Tried:
        made = o.workload(name)
        change(made)
        return ask(lambda: ground.create(made, by=ground.portal))

    return run


def _workload_status(*statuses: o.Document) -> Try:
    """Its status is written, one after the other; the last one is tried."""

    def run(ground: Ground, name: str) -> Tried:
        made = o.workload(name)
        ground.create(made, by=ground.portal)
        write = partial(ground.merge, made, by=ground.portal, subresource="status")
        for status in statuses[:-1]:
            write({"status": status})
        return ask(lambda: write({"status": statuses[-1]}))

    return run


def _partial_and_elastic(made: o.Document) -> None:
    made["metadata"]["annotations"] = {labels.ELASTIC: "true"}
    made["spec"]["podSets"][0]["minCount"] = 1


def _asking_for_pods(made: o.Document) -> None:
    (container, *_) = made["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"pods": "1"}}


def _reserving(**assignment: object) -> o.Document:
    """The status of one that reserves quota."""
    assigned = {"name": "main", "count": 1, **assignment}
    admission = {"clusterQueue": "closed", "podSetAssignments": [assigned]}
    return {"conditions": [RESERVED], "admission": admission}


def _checked(**update: object) -> o.Document:
    told = {"name": "it", "state": "Pending", "message": "", "podSetUpdates": [update],
            "lastTransitionTime": RESERVED["lastTransitionTime"]}  # fmt: skip
    return {"admissionChecks": [told]}


def _group(resource: str, flavor: str, **quota: str) -> o.Document:
    amounts = {"name": resource, "nominalQuota": "1", **quota}
    return {
        "coveredResources": [resource],
        "flavors": [{"name": flavor, "resources": [amounts]}],
    }


def kueue_rules() -> Iterator[Cell]:
    """What Kueue's webhooks refuse; where no Kueue is, a policy does."""
    rows: dict[str, Try] = {
        "a Job in a queue that can have no such name": _strange_job({labels.QUEUE: "A_b"}, {}),
        "a Job that may run for 0 seconds": _strange_job({labels.MAX_EXECUTION: "0"}, {}),
        "a Job of 1 pod that does with 5": _strange_job({}, {labels.MIN_PARALLELISM: "5"}),
        "completions that follow, of a Job without indexes": _strange_job(
            {}, {labels.COMPLETIONS_FOLLOW: "true"}
        ),
        "a Job made elastic later": _made_elastic,
        "a Workload with two minimums": _two_minimums,
        "a Workload that reserves quota nowhere": _reserved_nowhere,
        "more pods in a Workload that reserves quota": _grown_while_reserved,
        "a ClusterQueue with a resource in two groups": _cluster_queue(
            _group("cpu", "a"), _group("cpu", "b")
        ),
        "a ClusterQueue with a flavor in two groups": _cluster_queue(
            _group("cpu", "a"), _group("memory", "a")
        ),
        "a ClusterQueue with less than nothing": _cluster_queue(
            _group("cpu", "a", nominalQuota="-1")
        ),
        "a ClusterQueue that lends more than it has": _cluster_queue(
            _group("cpu", "a", lendingLimit="2")
        ),
    }
    for words, run in rows.items():
        yield Cell("Kueue's own rules", words, run)
    for words, (run, refusal) in _more_rules().items():
        yield Cell("Kueue's own rules", words, run, refusal=refusal)


def _more_rules() -> dict[str, tuple[Try, str]]:
    """Those whose sentence is known."""
    seconds, fewer = {labels.MAX_EXECUTION: "3600"}, {labels.MIN_PARALLELISM: "1"}
    group = _group("cpu", "a")
    (flavor,) = group["flavors"]
    both = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "a", "resources": [
        {"name": "memory", "nominalQuota": "1"}, {"name": "cpu", "nominalQuota": "1"},
    ]}]}  # fmt: skip
    limited = {**flavor, "resources": [{"name": "cpu", "nominalQuota": "1", "borrowingLimit": "1"}]}
    checks = {"admissionChecks": [{"name": "it", "onFlavors": ["b"]}]}
    return {
        "the time that a running Job may take": (
            _job_update(seconds, {"metadata": {"labels": {labels.MAX_EXECUTION: "7200"}}}),
            f"{labels.MAX_EXECUTION} stays as it is while the job runs.",
        ),
        "fewer pods of a running Job that does with fewer": (
            _job_update(fewer, {"spec": {"parallelism": 1}}, annotations=True, parallelism=2),
            "A Job that may be admitted with fewer pods keeps their number while it runs.",
        ),
        "a Workload that does with fewer pods and is elastic": (
            _workload(_partial_and_elastic),
            "Partial admission and elastic jobs do not go together.",
        ),
        "a Workload that asks for `pods`": (
            _workload(_asking_for_pods),
            "The resource name pods is Kueue's own.",
        ),
        "an admission of pod sets that the Workload does not have": (
            _workload_status(_reserving(name="other")),
            "status.admission speaks of pod sets that the Workload does not have.",
        ),
        "an admission that is changed": (
            _workload_status(_reserving(), _reserving(flavors={o.GPU: "gpu"})),
            "status.admission is set or taken away as a whole, and never changed.",
        ),
        "more pods given back than there are": (
            _workload_status({"reclaimablePods": [{"name": "main", "count": 5}]}),
            "No more pods are given back than a pod set has.",
        ),
        "a check about pod sets that the Workload does not have": (
            _workload_status(_checked(name="other")),
            "A check speaks of pod sets that the Workload does not have.",
        ),
        "a ClusterQueue whose flavor has its resources in another order": (
            _cluster_queue(both),
            "Each flavor has the covered resources of its group, in their order.",
        ),
        "a Cohort that borrows with nothing above it": (
            _configured(COHORT, resourceGroups=[{**group, "flavors": [limited]}]),
            "Limits of borrowing and lending are for what has a cohort above it.",
        ),
        "a ClusterQueue with a check on a flavor that it does not have": (
            _cluster_queue(group, admissionChecksStrategy=checks),
            "A check is for flavors that the ClusterQueue does not have.",
        ),
        "a ClusterQueue of a weight below 0": (
            _cluster_queue(group, fairSharing={"weight": "-1"}),
            "The weight of fair sharing is not below 0.",
        ),
    }


def probe_cells() -> list[Cell]:
    """Refused as soon as the policies are in force."""
    return [
        Cell("Probe", "pod", _pod(device="", resourceClaims=CLAIM)),
        Cell("Probe", "job", _job("PyTorchJob", queue="")),
        Cell("Probe", "elsewhere", _pod_in("elsewhere")),
    ]


def every_cell(*kinds: str) -> Iterator[Cell]:
    """The rows of the table; jobs of some kinds, of all unless said."""
    yield from pods()
    yield from sets()
    yield from jobs(*kinds)
    yield from large()
    yield from parts()
    yield from kueue_objects()
    yield from namespaces()
    yield from through_the_manager()
    yield from by_themselves()
    yield from older()
    yield from kueue_rules()
