"""The protocol through which everything else talks to a cluster, and the values that it takes.

Documents are plain dicts. Every method raises a `ClusterError` of the family that fits, and nothing
else, for whatever goes wrong on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from clusters.kube.resources import Document, Resource
from clusters.kube.stream import WatchStream
from clusters.kube.transport import Call

FIELD_MANAGER = "gpu-budget-portal"
PAGE_SIZE = 500


class PatchType(StrEnum):
    """How a patch's body is meant; the values are its content types."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    # JSON is YAML, and the older content type is known to every server.
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource: by namespace, labels and fields; empty is all."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str | int | None]:
        return {"labelSelector": self.labels, "fieldSelector": self.fields}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write. `force` counts for server-side apply only."""

    field_manager: str = FIELD_MANAGER
    force: bool = False
    dry_run: bool = False
    subresource: str = ""

    @property
    def query(self) -> dict[str, str | int | None]:
        return {
            "fieldManager": self.field_manager,
            "dryRun": "All" if self.dry_run else None,
            "force": "true" if self.force else None,
        }


WRITE = WriteOptions()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete; uid and resource_version are preconditions (409 when they no longer hold)."""

    propagation: Propagation = Propagation.BACKGROUND
    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    dry_run: bool = False

    @property
    def body(self) -> Document:
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        kept = {key: value for key, value in preconditions.items() if value}
        return {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": str(self.propagation),
            **({"preconditions": kept} if kept else {}),
            **({} if self.grace_period_s is None else {"gracePeriodSeconds": self.grace_period_s}),
            **({"dryRun": ["All"]} if self.dry_run else {}),
        }


DELETE = DeleteOptions()


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How to watch: from where, for how long, and how long a silence may last (seconds)."""

    resource_version: str = ""
    timeout_s: int = 240
    idle_timeout_s: float = 250.0
    bookmarks: bool = True


WATCH = WatchOptions()


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A whole list, all pages of it, and the resourceVersion to watch from."""

    items: list[Document]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What one small request told: version, round trip, and the server's clock (None if untold)."""

    version: str
    latency_s: float
    server_time: datetime | None


class KubeClient(Protocol):
    """One cluster, as the portal's code sees it."""

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, subresource: str = ""
    ) -> Document: ...

    def list(
        self, resource: Resource, selection: Selection = EVERYTHING, *, page_size: int = PAGE_SIZE
    ) -> ObjectList: ...

    def create(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document: ...

    def replace(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document: ...

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        options: WriteOptions = WRITE,
    ) -> Document: ...

    def apply(
        self, resource: Resource, document: Document, *, options: WriteOptions = WRITE
    ) -> Document: ...

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        options: DeleteOptions = DELETE,
    ) -> Document: ...

    def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        options: WatchOptions = WATCH,
    ) -> WatchStream: ...

    def request(self, call: Call) -> Any: ...

    def probe(self, *, timeout_s: float = 3.0) -> Probe: ...

    @property
    def last_contact(self) -> float: ...

    def close(self) -> None: ...
