"""The one way in which shifts write to a cluster.

Before each write: the switch of the cluster, then the fence. Tests hang faults on the hook, which
is called before and after every single request that changes something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from clusters.documents.keys import Document
from clusters.errors import NotFound
from clusters.kube.client import DeleteOptions, KubeClient, WriteOptions
from clusters.kube.resources import Resource


class Verb(StrEnum):
    """What a write does."""

    CREATE = "create"
    PATCH = "patch"
    APPLY = "apply"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Write:
    """One request.

    Attributes:
        step: What it is for, in one word; for logs and faults.
        body: Document to create, merge patch, or what to apply; None to delete.
        uid: Precondition of a deletion.
        version: The same, where nothing but the very state that was seen may be deleted.
        decided: It carries out a decision that the engine has assumed.
        manager: Field manager; empty for the portal's own.
        takes_over: Fields of others that an apply wants otherwise become the portal's.
    """

    step: str
    verb: Verb
    resource: Resource
    namespace: str
    name: str
    body: dict[str, Any] | None = None
    subresource: str = ""
    uid: str = ""
    version: str = ""
    is_dry_run: bool = False
    decided: bool = False
    manager: str = ""
    takes_over: bool = True

    @property
    def key(self) -> str:
        """Of the object that is written."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def create(
        cls, step: str, resource: Resource, body: dict[str, Any], *, is_dry_run: bool = False
    ) -> Write:
        """A request to create an object; a dry run only asks what would be stored."""
        return cls(step, Verb.CREATE, resource, *_place(body), body, is_dry_run=is_dry_run)

    @classmethod
    def patch(
        cls,
        step: str,
        resource: Resource,
        document: Document,
        body: dict[str, Any],
        *,
        subresource: str = "",
    ) -> Write:
        """A merge patch of an object that is there."""
        return cls(step, Verb.PATCH, resource, *_place(document), body, subresource)

    @classmethod
    def apply(
        cls, step: str, resource: Resource, body: dict[str, Any], *, takes_over: bool = True
    ) -> Write:
        """A server-side apply of everything that the portal wants of an object."""
        return cls(step, Verb.APPLY, resource, *_place(body), body, takes_over=takes_over)

    @classmethod
    def delete(
        cls, step: str, resource: Resource, document: Document, *, exact: bool = False
    ) -> Write:
        """A deletion of the very object; with ``exact`` only of the very state that was seen."""
        metadata = document["metadata"]
        version = metadata["resourceVersion"] if exact else ""
        uid = metadata["uid"]
        return cls(step, Verb.DELETE, resource, *_place(document), uid=uid, version=version)


def _place(document: Document) -> tuple[str, str]:
    """Namespace, which is empty for cluster-scoped objects, and name."""
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


Hook = Callable[[Moment, str, Write], None]


def no_fault(moment: Moment, cluster: str, write: Write) -> None:
    """The hook that does nothing."""


class WritingStopped(Exception):
    """An admin has switched writing off for this cluster."""


class Writer:
    """Sends writes to one cluster.

    Args:
        client: The cluster.
        cluster: Its name, for logs and faults.
        fence: Raises LeaseLost when this process may not write any more.
        may_write: The cluster's switch.
        hook: Called before and after each request.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        cluster: str,
        fence: Callable[[], None],
        may_write: Callable[[], bool],
        hook: Hook = no_fault,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._fence = fence
        self._may_write = may_write
        self._hook = hook

    def send(self, write: Write) -> dict[str, Any] | None:
        """Send one write.

        Returns:
            The object as the cluster has it now; None after a deletion.

        Raises:
            WritingStopped: the switch is off.
            LeaseLost: the fence is down.
            ClusterError: the cluster's answer.
        """
        if not self._may_write():
            raise WritingStopped(self._cluster)
        self._hook(Moment.BEFORE, self._cluster, write)
        self._fence()
        answer = self._request(write)
        self._hook(Moment.AFTER, self._cluster, write)
        return answer

    def _request(self, write: Write) -> dict[str, Any] | None:
        options = WriteOptions(dry_run=write.is_dry_run, subresource=write.subresource)
        if write.verb is Verb.DELETE:
            self._delete(write)
            return None
        assert write.body is not None
        if write.verb is Verb.CREATE:
            return self._client.create(write.resource, write.body, options=options)
        if write.verb is Verb.APPLY:
            manager = write.manager or options.field_manager
            applying = replace(options, force=write.takes_over, field_manager=manager)
            return self._client.apply(write.resource, write.body, options=applying)
        return self._client.patch(
            write.resource,
            write.name,
            write.body,
            namespace=write.namespace or None,
            options=options,
        )

    def _delete(self, write: Write) -> None:
        try:
            self._client.delete(
                write.resource,
                write.name,
                namespace=write.namespace or None,
                options=DeleteOptions(uid=write.uid, resource_version=write.version),
            )
        except NotFound:
            return  # what was to go is gone
