"""Where the policies are tried: one API server, workspaces under policies, people who act there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from clusters.documents import labels
from clusters.documents.resources import Resource
from clusters.jobs.paths import put, values
from clusters.manifests.guards import suspend_path
from clusters.manifests.wish import PolicyWish
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.rest import ApiError, Rest
from tests.policies.objects import GATE, KINDS, Document
from tests.waiting import eventually

OPERATOR = "system:serviceaccount:jobs-system:operator"
STRANGER = "system:serviceaccount:jobs-system:stranger"
BY_KUEUE = "(Kueue)"
"""At the end of what Kueue's own webhooks answered."""
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_DENIED = re.compile(r"Policy '([^']+)' with binding '[^']+' denied request: (.*)", re.S)
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.S)
_FLAVOR, _OPEN, _CLOSED = "gpu", "default", "closed"


@dataclass(frozen=True)
class Answer:
    """What an API server said to one request.

    Attributes:
        policy: That refused it; empty where none did.
        text: The sentence of a refusal; empty when it was let through.
    """

    text: str = ""
    policy: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.text)


class People:
    """Clients by the name that the API server hears; their rights allow them everything."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane, self._known = plane, dict[str, Rest]()

    def __getitem__(self, user: str) -> Rest:
        if user not in self._known:
            self._known[user] = self._plane.rest_as(user)
        return self._known[user]

    def close(self) -> None:
        for client in self._known.values():
            client.close()


@dataclass(frozen=True)
class Ground:
    """One workspace under one set of policies.

    Attributes:
        plane: The cluster.
        people: Who acts.
        wish: What its policies were made from.
        namespace: The workspace.
        kueue_starts: Kinds that a real Kueue starts here by itself.
    """

    plane: ControlPlane
    people: People
    wish: PolicyWish
    namespace: str
    kueue_starts: frozenset[str] = frozenset()

    @property
    def tenant(self) -> Rest:
        return self.people["alice"]

    @property
    def portal(self) -> Rest:
        return self.people[self.wish.portal_user]

    @property
    def starter(self) -> Rest:
        """Whoever decides here."""
        return self.people[self.wish.starters[0]]

    def path(self, resource: Resource, name: str | None = None, subresource: str = "") -> str:
        return resource.path(name, namespace=self.namespace, subresource=subresource)

    def create(self, document: Document, *, by: Rest | None = None) -> Document:
        """Somebody, the tenant unless said, creates an object in the workspace."""
        resource = resource_of(document)
        return (by or self.tenant).create(self.path(resource), document)

    def merge(
        self, document: Document, change: Document, *, by: Rest | None = None, subresource: str = ""
    ) -> Document:
        """Somebody changes one with a merge patch."""
        resource, name = resource_of(document), document["metadata"]["name"]
        return (by or self.tenant).merge(self.path(resource, name, subresource), change)

    def running(self, document: Document) -> Document:
        """A job that waited and was started by whoever decides here."""
        self.create(document)
        if document["kind"] in self.kueue_starts:
            return eventually(lambda: self._started(document), seconds=20)
        change: Document = {"spec": {}}
        put(change["spec"], suspend_path(KINDS[document["kind"]]), False)
        return self._follow(document, change)

    def free(self, pod: Document) -> Document:
        """A pod that waited and was let go by whoever decides here."""
        self.create(pod)
        if "Pod" in self.kueue_starts:
            return eventually(lambda: self._ungated(pod), seconds=20)
        return self._follow(pod, {"spec": {"schedulingGates": None}})

    def get(self, document: Document) -> Document:
        return self.plane.rest.get(self.path(resource_of(document), document["metadata"]["name"]))

    def _started(self, document: Document) -> Document | None:
        found = self.get(document)
        return found if state_of(found) == "runs" else None

    def _ungated(self, pod: Document) -> Document | None:
        found = self.get(pod)
        return None if found["spec"].get("schedulingGates") else found

    def _follow(self, document: Document, change: Document) -> Document:
        return self.merge(document, change, by=self.starter)


def state_of(found: Document) -> str:
    """What became of one that was let through, as it was stored."""
    if found["kind"] == "Pod":
        gates = found["spec"].get("schedulingGates") or ()
        return "waits behind its gate" if GATE in gates else "runs"
    waits = next(values(found["spec"], suspend_path(KINDS[found["kind"]])), False)
    return "waits, suspended" if waits else "runs"


def resource_of(document: Document) -> Resource:
    """Where an object is served; by the builders' own names."""
    kind, version = document["kind"], document["apiVersion"]
    group, _, version = version.rpartition("/")
    return Resource.guessed(kind, version, group)


def ask(request: Callable[[], Any]) -> Answer:
    """One request, and what was said to it."""
    try:
        request()
    except ApiError as error:
        return read(str(error))
    return Answer()


def read(text: str) -> Answer:
    """A refusal in the words of whoever refused."""
    found = _DENIED.search(text)
    if found:
        return Answer(found[2].strip(), found[1])
    found = _WEBHOOK.search(text)
    if found:
        return Answer(f"{found[2].strip()} {BY_KUEUE}")
    said = text.partition(": ")[2]
    return Answer(f"{said} (API server)")


def policy_path(document: Mapping[str, Any]) -> str:
    """Address of a policy or a binding."""
    kind = document["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{_ADMISSION}/{plural}/{document['metadata']['name']}"


def apply_policies(plane: ControlPlane, documents: Iterable[Mapping[str, Any]]) -> None:
    """Apply them side by side; policies before bindings is not needed."""

    def apply(document: Mapping[str, Any]) -> None:
        plane.rest.apply(policy_path(document), dict(document))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(apply, documents))


def make_workspace(plane: ControlPlane, name: str, *, installation: str, queues: bool) -> None:
    """A namespace with this installation's label, and in it an open and a closed queue."""
    marks = {labels.INSTALLATION: installation} if installation else {}
    plane.rest.ensure("/api/v1/namespaces", {"metadata": {"name": name, "labels": marks}})
    if not queues:
        return
    for queue in (_OPEN, _CLOSED):
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}/localqueues"
        plane.rest.ensure(path, _kueue("LocalQueue", queue, {"clusterQueue": queue}))


def queues_for(plane: ControlPlane) -> None:
    """A ClusterQueue with room for everything, and one that lets nothing in."""
    collection = "/apis/kueue.x-k8s.io/v1beta2"
    plane.rest.ensure(f"{collection}/resourceflavors", _kueue("ResourceFlavor", _FLAVOR, {}))
    covered = ["nvidia.com/gpu", "cpu", "memory", "pods"]
    plenty = [{"name": name, "nominalQuota": "1000"} for name in covered]
    group = {"coveredResources": covered, "flavors": [{"name": _FLAVOR, "resources": plenty}]}
    for queue, policy in ((_OPEN, "None"), (_CLOSED, "Hold")):
        spec = {"namespaceSelector": {}, "stopPolicy": policy, "resourceGroups": [group]}
        plane.rest.ensure(f"{collection}/clusterqueues", _kueue("ClusterQueue", queue, spec))


def _kueue(kind: str, name: str, spec: Document) -> Document:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
