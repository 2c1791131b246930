"""Validation and defaults of the built-in kinds, as far as the portal's documents meet them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Cause, Document
from clusters.devcluster.registry import ServedKind
from clusters.devcluster.schema import LABEL, SUBDOMAIN
from clusters.documents import labels

QUALIFIED = re.compile(
    rf"^({LABEL}(\.{LABEL})*/)?([A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?)$"
)
LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character"
)
_RBAC = "rbac.authorization.k8s.io"
_JOB_DEFAULTS = {
    "parallelism": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}


def metadata_faults(kind: ServedKind, old: Document | None, new: Document) -> Iterator[Cause]:
    """Faults of a name, of labels, and of finalizers that come too late."""
    metadata = new["metadata"]
    name = metadata.get("name") or ""
    if not name:
        yield problems.required("metadata.name", "name or generateName is required")
    elif kind.kind == "Namespace" and not (re.match(f"^{LABEL}$", name) and len(name) <= 63):
        yield problems.invalid("metadata.name", name, _LABEL_TEXT)
    elif kind.group != _RBAC and not (re.match(SUBDOMAIN, name) and len(name) <= 253):
        yield problems.invalid("metadata.name", name, _SUBDOMAIN_TEXT)
    for key, value in (metadata.get("labels") or {}).items():
        if not QUALIFIED.match(key):
            yield problems.invalid("metadata.labels", key, "name part must be a qualified name")
        elif not isinstance(value, str) or not LABEL_VALUE.match(value):
            text = "a valid label must be at most 63 chars"
            yield problems.invalid("metadata.labels", value, text)
    if old is not None and "deletionTimestamp" in old["metadata"]:
        known = old["metadata"].get("finalizers") or []
        late = [entry for entry in metadata.get("finalizers") or [] if entry not in known]
        if late:
            text = f"no new finalizers can be added if the object is being deleted, found: {late}"
            yield problems.forbidden_field("metadata.finalizers", text)


def with_defaults(kind: ServedKind, document: Document) -> Document:
    """What a real API server fills in on creation of a Job, Namespace or Pod."""
    if kind.kind == "Job":
        return _job_with_defaults(document)
    if kind.kind == "Namespace":
        own = {labels.NAMESPACE_NAME: document["metadata"]["name"]}
        metadata = document["metadata"]
        metadata = metadata | {"labels": (metadata.get("labels") or {}) | own}
        spec = {"finalizers": ["kubernetes"]}
        return document | {"metadata": metadata, "spec": spec, "status": {"phase": "Active"}}
    if kind.kind == "Secret":
        return _secret_with_data(document)
    if kind.kind == "Pod":
        return document | {"status": {"phase": "Pending"}}
    return document


def _secret_with_data(document: Document) -> Document:
    plain = document.get("stringData") or {}
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
    kept = {key: value for key, value in document.items() if key != "stringData"}
    if encoded or "data" in kept:
        kept["data"] = (kept.get("data") or {}) | encoded
    return {"type": "Opaque"} | kept


def _job_with_defaults(document: Document) -> Document:
    uid, name = document["metadata"]["uid"], document["metadata"]["name"]
    spec = document.get("spec") or {}
    if not {"parallelism", "completions"} & spec.keys():
        spec = spec | {"completions": 1}
    spec = _JOB_DEFAULTS | spec
    if spec["completionMode"] == "Indexed":
        spec.setdefault("completions", spec["parallelism"])
    if not spec.get("manualSelector"):
        spec["selector"] = {"matchLabels": {labels.CONTROLLER_UID: uid}}
        template = spec.get("template") or {}
        metadata = template.get("metadata") or {}
        generated = dict(zip(labels.GENERATED_LABELS, (uid, uid, name, name), strict=True))
        metadata = metadata | {"labels": (metadata.get("labels") or {}) | generated}
        spec["template"] = template | {"metadata": metadata}
    return document | {"spec": spec}


def rule_faults(kind: ServedKind, old: Document | None, new: Document) -> Iterator[Cause]:
    """Faults that only the kind's own rules find; `old` is None on creation."""
    if kind.kind == "Job":
        yield from _job_faults(old, new)
    is_fixed = kind.kind in ("Secret", "ConfigMap") and (old or {}).get("immutable")
    if old is not None and is_fixed and old.get("data") != new.get("data"):
        yield problems.forbidden_field("data", "field is immutable when `immutable` is set")


def creation_faults(kind: ServedKind, document: Document) -> Iterator[Cause]:
    """Faults of a document as it was sent, before anything is filled in."""
    spec = document.get("spec") or {}
    if kind.kind == "Job" and spec.get("selector") and not spec.get("manualSelector"):
        yield problems.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _job_faults(old: Document | None, new: Document) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    if not pod.get("containers"):
        yield problems.required("spec.template.spec.containers")
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        text = 'valid values: "OnFailure", "Never"'
        yield problems.required("spec.template.spec.restartPolicy", text)
    for key in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        value = spec.get(key)
        if isinstance(value, int) and value < 0:
            yield problems.invalid(f"spec.{key}", value, "must be greater than or equal to 0")
    if old is not None:
        yield from _job_change_faults(old, new)


def _job_change_faults(old: Document, new: Document) -> Iterator[Cause]:
    before, after = old["spec"], new["spec"]
    for key in ("selector", "completionMode", "managedBy"):
        if before.get(key) != after.get(key):
            yield problems.invalid(f"spec.{key}", after.get(key), "field is immutable")
    if before.get("completions") != after.get("completions") and (
        before.get("completionMode") != "Indexed"
        or after.get("completions") != after["parallelism"]
    ):
        yield problems.invalid("spec.completions", after.get("completions"), "field is immutable")
    if before["template"] != after["template"] and not _may_change_template(old, new):
        yield problems.invalid("spec.template.spec", after["template"], "field is immutable")
    started = (old.get("status") or {}).get("startTime")
    starts = (new.get("status") or {}).get("startTime")
    if started and starts != started and not after.get("suspend"):
        text = "field is immutable for unsuspended job once set"
        yield problems.invalid("status.startTime", starts, text)


def _may_change_template(old: Document, new: Document) -> bool:
    """A suspended Job that has not started may change its scheduling directives and requests."""
    if not old["spec"].get("suspend") or (old.get("status") or {}).get("startTime"):
        return False
    before, after = old["spec"]["template"], new["spec"]["template"]
    return bool(_without_directives(before) == _without_directives(after))


def _without_directives(template: Document) -> Any:
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if key not in ("labels", "annotations")
    }
    directives = ("nodeSelector", "tolerations", "affinity", "schedulingGates", "containers")
    pod = template.get("spec") or {}
    spec = {key: value for key, value in pod.items() if key not in directives}
    containers = [
        {key: value for key, value in container.items() if key != "resources"}
        for container in pod.get("containers") or []
    ]
    return metadata, spec, containers
