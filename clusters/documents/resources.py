"""How an API server addresses a kind of objects.

A `Resource` is all that is needed to build an address; documents themselves stay plain dicts, since
typed models cost more than the request that carries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as an API server serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    def __hash__(self) -> int:
        # A key of every cache: the hash of one string is worked out once, that of five is not.
        return hash(self.plural)

    @property
    def api_version(self) -> str:
        """What a document says in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """Kind.version.group, as Kueue's Configuration names kinds."""
        return ".".join(part for part in (self.kind, self.version, self.group) if part)

    @property
    def group_resource(self) -> str:
        """PLURAL.GROUP, as API servers name it in messages; the plural alone for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @staticmethod
    def guessed(kind: str, version: str, group: str, *, namespaced: bool = True) -> Resource:
        """A kind, its plural built as Kubernetes' own clients do without asking."""
        name = kind.lower()
        if name.endswith("s"):
            plural = f"{name}es"
        else:
            plural = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
        return Resource(group, version, plural, kind, namespaced)

    def may_be(
        self, document: Mapping[str, Any], name: str, *, namespace: str | None = None
    ) -> bool:
        """Whether nothing that a document says of itself speaks against this object."""
        metadata = document.get("metadata")
        told = metadata if isinstance(metadata, dict) else {}
        return (
            document.get("kind") in (None, self.kind)
            and told.get("name") in (None, name)
            and told.get("namespace") in (None, "", namespace)
        )

    def path(
        self, name: str | None = None, *, namespace: str | None = None, subresource: str = ""
    ) -> str:
        """Address of the collection, or of one object, or of its subresource.

        Raises:
            ValueError: a namespace for a cluster-scoped kind, or none to name a namespaced object.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} is not namespaced")
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


POD = Resource("", "v1", "pods", "Pod", True)
JOB = Resource("batch", "v1", "jobs", "Job", True)
