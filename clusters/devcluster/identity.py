"""What a write addresses, and whether it is meant for the object (and its state) that is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Document
from clusters.devcluster.registry import Kind

# What only the server itself sets.
KEPT_METADATA = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request addresses."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """How a request writes: as which manager, for real or dry, with force."""

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False


def typed_document(target: Target, body: Any) -> Document:
    """The body as a document of the addressed kind, place and name; 400 when it is another."""
    kind = target.kind
    if not isinstance(body, dict):
        raise problems.bad_request("the body is not an object")
    for key, want in (("apiVersion", kind.api_version), ("kind", kind.name)):
        if key not in body and kind.is_custom:
            raise problems.bad_request(f"Object '{key}' is missing")
        if body.get(key, want) != want:
            raise problems.bad_request(f"{key} in the body is {body[key]!r}, not {want!r}")
    metadata = body.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    if metadata.get("namespace", target.namespace) != target.namespace:
        raise problems.bad_request("the namespace of the object does not match the request")
    if target.name and metadata.get("name", target.name) != target.name:
        raise problems.bad_request("the name of the object does not match the name on the URL")
    return body | {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def check_identity(target: Target, live: Document, metadata: Document) -> None:
    """Refuses, with 409, a write that was meant for another object or another state of it."""
    subject = target.kind.subject(target.name)
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != live["metadata"]["uid"]:
        actual = live["metadata"]["uid"]
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise problems.conflict(subject, text)
    if version and version != live["metadata"]["resourceVersion"]:
        raise problems.conflict(subject, problems.MODIFIED)


def check_preconditions(target: Target, live: Document, wanted: Document) -> None:
    """Refuses, with 409, a deletion whose preconditions do not hold."""
    subject = target.kind.subject(target.name)
    for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(key) and wanted[key] != live["metadata"][key]:
            text = (
                f"Precondition failed: {label} in precondition: {wanted[key]}, {label} in"
                f" object meta: {live['metadata'][key]}"
            )
            raise problems.conflict(subject, text)


def within_reach(target: Target, live: Document, document: Document) -> Document:
    """The document, with everything that this address cannot change as it is live."""
    metadata = {
        key: value for key, value in document["metadata"].items() if key not in KEPT_METADATA
    }
    if target.subresource == "status":
        managed = metadata.get("managedFields")
        metadata = dict(live["metadata"]) | ({"managedFields": managed} if managed else {})
        reachable = {"status": document["status"]} if "status" in document else {}
        rest = {key: value for key, value in live.items() if key != "status"}
        return _copy(rest | reachable | {"metadata": metadata})
    metadata |= {key: live["metadata"][key] for key in KEPT_METADATA if key in live["metadata"]}
    metadata["name"] = target.name
    metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
    if target.kind.namespaced:
        metadata["namespace"] = target.namespace
    new = document | {"metadata": metadata}
    if target.kind.has_status:
        new.pop("status", None)
        if "status" in live:
            new["status"] = live["status"]
    return _copy(new)


def out_of_reach(target: Target) -> tuple[str, ...]:
    """Top-level fields that the address cannot change."""
    if target.subresource == "status":
        return ("spec",)
    return ("status",) if target.kind.has_status else ()


def _copy(document: Document) -> Document:
    """A copy that shares nothing with committed documents."""
    copied: Document = json.loads(json.dumps(document))
    return copied
