"""From an address to what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from clusters.devcluster.problems import Problem
from clusters.devcluster.registry import BY_ADDRESS, KINDS, Kind
from clusters.devcluster.writes import Target

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+devcluster",
    "platform": "embedded",
}


@dataclass(frozen=True, slots=True)
class Route:
    """A resource's address, taken apart."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def target(self) -> Target:
        return Target(self.kind, self.namespace, self.name, self.subresource)

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


def route_of(path: str) -> Route:
    """Takes a path apart.

    Raises:
        Problem: 404 for what no cluster of this kind serves.
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
    return Route(kind, namespace, name, subresource)


def _serves(kind: Kind, subresource: str) -> bool:
    return (
        not subresource
        or (subresource == "status" and kind.has_status)
        or (subresource == "token" and kind.name == "ServiceAccount")
        or (subresource == "finalize" and kind.name == "Namespace")
    )


def _missing() -> Problem:
    return Problem(404, "NotFound", "the server could not find the requested resource")


def discovery(path: str) -> dict[str, object] | None:
    """The answer to a discovery address; None for another address."""
    groups: dict[str, list[str]] = {}
    for kind in KINDS:
        if kind.group and kind.version not in groups.setdefault(kind.group, []):
            groups[kind.group].append(kind.version)
    parts = path.strip("/").split("/")
    if path == "/version":
        return dict(VERSION)
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        listed = [_group(name, versions) for name, versions in groups.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
    if parts == ["api", "v1"]:
        return _resources("", "v1")
    if parts[0] == "apis" and len(parts) == 3 and parts[2] in groups.get(parts[1], []):
        return _resources(parts[1], parts[2])
    return None


def _group(name: str, versions: list[str]) -> dict[str, object]:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _resources(group: str, version: str) -> dict[str, object]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed = []
    for kind in KINDS:
        if (kind.group, kind.version) != (group, version):
            continue
        entry = {"name": kind.plural, "singularName": kind.name.lower(), "kind": kind.name}
        listed.append(entry | {"namespaced": kind.namespaced, "verbs": verbs})
        if kind.has_status:
            status = entry | {"name": f"{kind.plural}/status"}
            listed.append(
                status | {"namespaced": kind.namespaced, "verbs": ["get", "patch", "update"]}
            )
    name = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": name,
        "resources": listed,
    }
