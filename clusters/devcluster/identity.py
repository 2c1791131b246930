"""From an address to what it means, and whether a write is meant for the object that is there.

Object, and its state: identity, preconditions, and the part that an address may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from clusters.devcluster import problems
from clusters.devcluster.problems import Document, Failure
from clusters.devcluster.registry import BY_ADDRESS, KINDS, ServedKind

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


VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3+devcluster", "platform": "embedded"}


def route_of(path: str) -> Address:
    """Takes a path apart.

    Raises:
        Failure: 404 for what no cluster of this kind serves.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise _missing()
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        raise _missing()
    kind = BY_ADDRESS.get((group, version, rest[0]))
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if kind is None or (namespace and not kind.namespaced) or not _serves(kind, subresource):
        raise _missing()
    if name and kind.namespaced and not namespace:
        raise _missing()
    return Address(kind, namespace, name, subresource)


def _serves(kind: ServedKind, subresource: str) -> bool:
    return (
        not subresource
        or (subresource == "status" and kind.has_status)
        or (subresource == "token" and kind.kind == "ServiceAccount")
        or (subresource == "finalize" and kind.kind == "Namespace")
    )


def _missing() -> Failure:
    return Failure(404, "NotFound", "the server could not find the requested resource")


def discovery(path: str) -> dict[str, object] | None:
    """The answer to a discovery address; None for another address."""
    if path.count("/") > 3:
        return None
    groups: dict[str, list[str]] = {}
    for kind in KINDS:
        if kind.version not in groups.setdefault(kind.group, []):
            groups[kind.group].append(kind.version)
    match path.strip("/").split("/"):
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": groups[""]}
        case ["apis"]:
            listed = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["api", version] if version in groups[""]:
            return _resources("", version)
        case ["apis", group, version] if version in groups.get(group, ()):
            return _resources(group, version)
    return None


def _group(name: str, versions: list[str]) -> dict[str, object]:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _resources(group: str, version: str) -> dict[str, object]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed: list[dict[str, object]] = []
    for kind in KINDS:
        if (kind.group, kind.version) != (group, version):
            continue
        names = {"name": kind.plural, "singularName": kind.kind.lower(), "kind": kind.kind}
        entry = {**names, "namespaced": kind.namespaced, "verbs": verbs}
        listed.append(entry)
        if kind.has_status:
            name = f"{kind.plural}/status"
            listed.append(entry | {"name": name, "verbs": ["get", "patch", "update"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }
