"""Why a job has no Workload: nobody who makes them takes it for a job that queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, controller_of, labels_of
from clusters.explaining import words
from clusters.explaining.conditions import clause
from clusters.explaining.names import Names
from clusters.explaining.objects import queues
from clusters.explaining.objects.found import Objects, Trouble
from clusters.jobs.pods import group_of, is_over, total_of
from clusters.jobs.table import is_below_other_kind
from clusters.jobs.workloads import prebuilt_name, queue_of
from clusters.kueue.workload.matching import parse_selector

_MEANT: Final = re.compile(r"queue-?_?(?:name)?$", re.IGNORECASE)
Rule = Callable[[Objects, Names], Trouble | None]


def _no_job(found: Objects, names: Names) -> Trouble | None:
    if found.job is not None:
        return None
    return Trouble(
        f"{found.where(names)} has no job {found.name} in namespace {found.namespace}",
        "Check its name and its namespace, or submit it again.",
    )


def _ended(found: Objects, names: Names) -> Trouble | None:
    kind, job = found.kind, found.job
    if kind is None or job is None or (outcome := kind.outcome_of(job)) is None:
        return None
    told = clause(outcome.reason, outcome.message) or "it ended"
    return Trouble(
        f"the {found.kind_word} {found.name} has already ended, and asks for nothing: {told}"
    )


def _below(found: Objects, names: Names) -> Trouble | None:
    if found.job is None or not is_below_other_kind(found.job):
        return None
    owner = controller_of(found.job)
    above = f"{owner.get('kind')} {owner.get('name')}"
    return Trouble(
        f"the {found.kind_word} {found.name} belongs to the {above}, which waits for quota in its "
        "place",
        f"Look at the {above} instead.",
    )


def _refused(found: Objects, names: Names) -> Trouble | None:
    kind, job = found.kind, found.job
    if kind is None or job is None:
        return None
    fault = kind.fault(job) or annotations_of(job).get(labels.REFUSED, "")
    if not fault:
        return None
    told = f"the {found.kind_word} {found.name} cannot be counted with: {fault}"
    return Trouble(told, "Submit it again with that put right.")


def _no_framework(found: Objects, names: Names) -> Trouble | None:
    """Kueue watches the kinds alone that its Configuration names."""
    known = _frameworks(found.configuration)
    integration = found.kind.integration if found.kind is not None else ""
    if not found.is_kueue or not known or not integration or integration in known:
        return None
    return Trouble(
        f"Kueue on {found.where(names)} does not look at {found.kind_word}s: "
        f"integrations.frameworks of its Configuration names {words.listed(sorted(known))}, and "
        f"not {integration}",
        f"Ask an admin to add {integration} there and to restart Kueue, then submit the "
        f"{found.kind_word} again.",
    )


def _frameworks(configuration: Mapping[str, Any]) -> frozenset[str]:
    given = configuration.get("integrations")
    named: list[object] = []
    for key in ("frameworks", "externalFrameworks"):
        value = given.get(key) if isinstance(given, Mapping) else None
        named += value if isinstance(value, list) else []
    return frozenset(map(str, named))


def _unmanaged_namespace(found: Objects, names: Names) -> Trouble | None:
    """Kueue leaves namespaces alone that its Configuration does not select."""
    selector, space = found.configuration.get("managedJobsNamespaceSelector"), found.space
    if not found.is_kueue or not isinstance(selector, Mapping) or space is None:
        return None
    if parse_selector(selector).matches(labels_of(space)):
        return None
    return Trouble(
        f"Kueue on {found.where(names)} leaves namespace {found.namespace} alone: "
        "managedJobsNamespaceSelector of its Configuration is "
        f"{queues.selector_words(selector)}",
        "Ask an admin to label the namespace so, or to change the selector.",
    )


def _no_queue_name(found: Objects, names: Names) -> Trouble | None:
    """Nothing says which queue the job is for, in the place where that is read."""
    job = found.job
    if job is None or queue_of(job) or found.configuration.get("manageJobsWithoutQueueName"):
        return None
    there = sorted(item["metadata"]["name"] for item in found.local_queues)
    wanted = labels.DEFAULT_QUEUE if labels.DEFAULT_QUEUE in there else next(iter(there), "")
    is_stopped = found.kind is not None and found.kind.is_stopped(job)
    runs = "" if is_stopped else ", and its pods run without quota"
    text = (
        f"the {found.kind_word} {found.name} has no label {labels.QUEUE}, so {found.scheduler} "
        f"leaves it alone{runs}{_written_elsewhere(job)}"
    )
    label = f"{labels.QUEUE}={wanted or 'QUEUE'}"
    which = f"; namespace {found.namespace} has {words.listed(there)}" if there[1:] else ""
    deed = "Give it the label" if is_stopped else "Delete it and submit it again with the label"
    return Trouble(text, f"{deed} {label}{which}.")


def _written_elsewhere(job: Document) -> str:
    """Where its owner wrote the name of the queue instead, as far as that can be told."""
    if labels.QUEUE in annotations_of(job):
        return f"; {annotations_of(job)[labels.QUEUE]} stands in an annotation, which is not read"
    spec = job.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    metadata = template.get("metadata") if isinstance(template, Mapping) else None
    on_pods = (metadata.get("labels") or {}) if isinstance(metadata, Mapping) else {}
    if labels.QUEUE in on_pods:
        return f"; {on_pods[labels.QUEUE]} stands on the template of its pods, where it is not read"
    meant = sorted(key for key in labels_of(job) if _MEANT.search(key))
    return f"; its label {meant[0]} is another one" if meant else ""


def _no_prebuilt(found: Objects, names: Names) -> Trouble | None:
    name = prebuilt_name(found.job) if found.job is not None else ""
    if not name:
        return None
    return Trouble(
        f"the label {labels.PREBUILT} of the {found.kind_word} {found.name} names the Workload "
        f"{name}, which is not in namespace {found.namespace}",
        f"Make that Workload, or submit the {found.kind_word} without the label.",
    )


def _part_of_a_group(found: Objects, names: Names) -> Trouble | None:
    """A pod group gets its Workload when all of its pods are there."""
    job = found.job
    if job is None or not found.group:
        return None
    total, here = total_of(job), sum(not is_over(pod) for pod in found.group)
    if total and here >= total:
        return None
    asked = f"of the {total} that {labels.POD_GROUP_TOTAL} says" if total else ""
    text = f"the pod group {group_of(job)} has {here} pods {asked}".rstrip()
    if not total:
        text += f", and no annotation {labels.POD_GROUP_TOTAL} that says how many it is to have"
    return Trouble(text, "Make the pods that are missing, or put the number right.")


def _warned(found: Objects, names: Names) -> Trouble | None:
    """What the cluster itself warned of."""
    for event in found.events:
        about = event.get("involvedObject")
        if isinstance(about, Mapping) and about.get("name") == found.name:
            reason, message = (str(event.get(key) or "") for key in ("reason", "message"))
            message = names.message(message)
            told = clause(reason, message) or f"the cluster says {reason}: {message[:300]}"
            return Trouble(f"the {found.kind_word} {found.name} has no Workload: {told}")
    return None


def _not_yet(found: Objects, names: Names) -> Trouble | None:
    """Nothing speaks against a Workload: whoever makes it is not at work, or not there yet."""
    text = (
        f"{found.scheduler} has not made a Workload for the {found.kind_word} {found.name} on "
        f"{found.where(names)}, and nothing on the cluster speaks against it"
    )
    if found.is_kueue:
        return Trouble(text, "Ask an admin whether Kueue's controller runs there.")
    return Trouble(text, "It is made within seconds; the page of the cluster says who works there.")


UNMADE: Final[tuple[Rule, ...]] = (
    queues.no_namespace,
    _no_job,
    _ended,
    _below,
    _refused,
    _no_framework,
    _no_queue_name,
    _unmanaged_namespace,
    _no_prebuilt,
    _part_of_a_group,
    queues.no_local_queue,
    queues.no_cluster_queue,
    queues.stopped_queue,
    _warned,
    _not_yet,
)
"""In the order in which they are asked; the last one always says something."""


def first(rules: Iterable[Rule], found: Objects, names: Names) -> Trouble | None:
    """What the first rule says that says anything."""
    return next((told for rule in rules if (told := rule(found, names)) is not None), None)
