"""From an address to what it means."""

from __future__ import annotations

from urllib.parse import unquote

from clusters.devcluster.identity import Address
from clusters.devcluster.problems import Failure
from clusters.devcluster.registry import BY_ADDRESS, KINDS, ServedKind

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
