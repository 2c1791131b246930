"""What a write addresses, and whether it is meant for the object (and its state) that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Document
from clusters.devcluster.registry import ServedKind

# What only the server itself sets.
KEPT_METADATA = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


@dataclass(frozen=True, slots=True)
class Address:
    """What a request addresses."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self, verb: str) -> Mapping[str, str]:
        """The request as authorization sees it."""
        return {
            "verb": verb,
            "group": self.kind.group,
            "resource": self.kind.plural,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True)
class Intent:
    """How a request writes: as which manager, for real or dry, with force."""

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False


def typed_document(target: Address, body: Any) -> Document:
    """The body as a document of the addressed kind, place and name; 400 when it is another."""
    kind = target.kind
    if not isinstance(body, dict):
        raise problems.bad_request("the body is not an object")
    for key, want in (("apiVersion", kind.api_version), ("kind", kind.kind)):
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
    return body | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def check_identity(
    target: Address, live: Document, wanted: Document, *, is_deletion: bool = False
) -> None:
    """Refuses, with 409, what is meant for another object or for another state of it.

    Args:
        target: What is addressed.
        live: What is there.
        wanted: ``uid`` and ``resourceVersion``, of a document's metadata or as preconditions.
        is_deletion: Deletions are refused in words of their own.
    """
    for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked, actual = wanted.get(key), live["metadata"][key]
        if not asked or asked == actual:
            continue
        text = f"{label} in precondition: {asked}, {label} in object meta: {actual}"
        is_modified = key == "resourceVersion" and not is_deletion
        why = problems.MODIFIED if is_modified else f"Precondition failed: {text}"
        raise problems.conflict(target.kind, target.name, why)


def within_reach(target: Address, live: Document, document: Document) -> Document:
    """The document, with everything that this address cannot change as it is live."""
    sent = {key: value for key, value in document["metadata"].items() if key not in KEPT_METADATA}
    if target.subresource == "status":
        managed = {key: sent[key] for key in ("managedFields",) if sent.get(key)}
        metadata = live["metadata"] | managed
        return _with_part_of(live, document, "status") | {"metadata": metadata}
    kept = {key: live["metadata"][key] for key in KEPT_METADATA if key in live["metadata"]}
    version = live["metadata"]["resourceVersion"]
    place = {"namespace": target.namespace} if target.kind.namespaced else {}
    metadata = sent | kept | {"name": target.name, "resourceVersion": version} | place
    new = _with_part_of(document, live, "status") if target.kind.has_status else document
    return new | {"metadata": metadata}


def _with_part_of(document: Document, other: Document, part: str) -> Document:
    """The document, one part of it as another has it, or has it not."""
    rest = {key: value for key, value in document.items() if key != part}
    return rest | ({part: other[part]} if part in other else {})


def out_of_reach(target: Address) -> tuple[str, ...]:
    """Top-level fields that the address cannot change."""
    if target.subresource == "status":
        return ("spec",)
    return ("status",) if target.kind.has_status else ()
