"""Asks a cluster what it is: versions, rights, and whether a Kueue controller lives there.

The proof of a live controller is a throwaway ClusterQueue: only a controller writes its Active
condition. Leases and webhook configurations outlive a controller, so they are signs, no proof.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from budgets.texts import UnreadableText, read_yaml
from clusters.documents.conditions import condition
from clusters.documents.kueue_versions import line_of_crds
from clusters.errors import AnswerTooLarge, ClusterError, Forbidden, NotFound, ServerFault
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, is_allowed
from clusters.kube.resources import Resource
from clusters.kube.transport import Call
from clusters.manifests.names import KUEUE_NAMESPACE
from clusters.manifests.rbac import Right
from clusters.manifests.rights import (
    KUEUE_CONFIG_MAP,
    KUEUE_DEPLOYMENT,
    KUEUE_LEASE,
    KUEUE_WEBHOOKS,
)

PROOF_S = 5.0
_STEP_S = 0.05
SCHEMAS_LIMIT = 8 * 1024 * 1024
"""Bytes of the published schemas of one version of an API; those of Kueue 0.19 have 600,000."""
NEEDED_KINDS = (
    r.RESOURCE_FLAVOR,
    r.COHORT,
    r.CLUSTER_QUEUE,
    r.LOCAL_QUEUE,
    r.WORKLOAD,
    r.ADMISSION_CHECK,
    r.MULTIKUEUE_CONFIG,
    r.MULTIKUEUE_CLUSTER,
)


@dataclass(frozen=True, slots=True)
class KueueProof:
    """Whether a controller lives: True, False, or None where it could not be found out."""

    is_alive: bool | None
    words: str


@dataclass(frozen=True, slots=True)
class ServedKinds:
    """What the cluster serves of Kueue's API group."""

    versions: tuple[str, ...]
    missing: tuple[str, ...]


def served_kinds(client: KubeClient) -> ServedKinds:
    """Versions of Kueue's API, and the kinds that the portal needs and does not find.

    Raises:
        ClusterError: the cluster does not tell.
    """
    needed = tuple(resource.plural for resource in NEEDED_KINDS)
    try:
        group = client.request(Call("GET", f"/apis/{r.KUEUE_GROUP}"))
        listed = client.request(Call("GET", f"/apis/{r.KUEUE_GROUP}/{r.KUEUE_VERSION}"))
    except NotFound:
        return ServedKinds((), needed)
    versions = tuple(str(entry["version"]) for entry in group.get("versions") or [])
    found = {str(entry["name"]) for entry in listed.get("resources") or []}
    return ServedKinds(versions, tuple(name for name in needed if name not in found))


def serves(client: KubeClient, resource: Resource) -> bool:
    """Whether a cluster serves a kind at the version that the portal reads it at.

    Raises:
        ClusterError: the cluster does not tell.
    """
    try:
        found = client.request(Call("GET", f"/apis/{resource.api_version}"))
    except NotFound:
        return False
    return any(entry.get("name") == resource.plural for entry in found.get("resources") or [])


def kueue_version(client: KubeClient) -> str:
    """Version of the controller by its image; empty where that cannot be seen."""
    path = f"/apis/apps/v1/namespaces/{KUEUE_NAMESPACE}/deployments/{KUEUE_DEPLOYMENT}"
    try:
        found = client.request(Call("GET", path))
    except (NotFound, Forbidden):
        return ""
    pod = found["spec"]["template"]["spec"]
    tags = [container["image"].rpartition(":")[2] for container in pod["containers"]]
    return next((tag for tag in tags if tag.startswith("v")), "")


def kueue_line_of_crds(client: KubeClient) -> str:
    """The minor version that Kueue's CRDs are of; empty where their schemas are not published.

    Raises:
        ClusterError: the cluster does not tell.
    """
    path = f"/openapi/v3/apis/{r.KUEUE_GROUP}/{r.KUEUE_VERSION}"
    try:
        found = client.request(Call("GET", path, limit=SCHEMAS_LIMIT))
    except (NotFound, Forbidden, AnswerTooLarge):
        return ""
    components = found.get("components")
    schemas = components.get("schemas") if isinstance(components, Mapping) else None
    return line_of_crds(schemas) if isinstance(schemas, Mapping) else ""


def missing_rights(client: KubeClient, asked: Sequence[Right]) -> tuple[Right, ...]:
    """The rights that the client's identity does not have, asked one by one.

    Raises:
        ClusterError: the cluster does not tell.
    """
    with ThreadPoolExecutor(6, thread_name_prefix="rights") as pool:
        allowed = list(pool.map(lambda access: is_allowed(client, access.attributes), asked))
    return tuple(access for access, yes in zip(asked, allowed, strict=True) if not yes)


def prove_kueue(client: KubeClient, *, installation: str) -> KueueProof:
    """Make a throwaway ClusterQueue, see whether somebody serves it, and take it away again."""
    name = f"gpu-budget-probe-{secrets.token_hex(4)}"
    document = {
        "metadata": {
            "name": name,
            "labels": {"gpu-budget-portal.dev/probe": installation[:63]},
        },
        "spec": {"queueingStrategy": "BestEffortFIFO", "stopPolicy": "Hold"},
    }
    try:
        client.create(r.CLUSTER_QUEUE, document)
    except Forbidden as error:
        return KueueProof(None, f"The check was not allowed: {error.message}")
    except ServerFault as error:
        return KueueProof(
            None,
            f"Kueue's webhooks are set up but do not answer ({error.reason}): it is installed, "
            "and down.",
        )
    except ClusterError as error:
        return KueueProof(None, f"The check could not be made: {error.message}")
    try:
        return _watch_probe(client, name)
    finally:
        _remove_probe(client, name)


def _watch_probe(client: KubeClient, name: str) -> KueueProof:
    seconds = float(getattr(settings, "KUEUE_PROOF_SECONDS", PROOF_S))
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            found = client.get(r.CLUSTER_QUEUE, name)
        except ClusterError as error:
            return KueueProof(None, f"The check was interrupted: {error.message}")
        manager = _active_by(found)
        if manager and not manager.startswith("gpu-budget"):
            return KueueProof(True, f"A controller ({manager}) serves ClusterQueues here.")
        time.sleep(_STEP_S)
    return KueueProof(False, f"Nobody served a new ClusterQueue within {seconds:g} s.")


def _active_by(document: Mapping[str, Any]) -> str:
    """Field manager that wrote the Active condition; empty while there is none."""
    if not condition(document, "Active"):
        return ""
    entries = document["metadata"].get("managedFields") or []
    writers = [entry for entry in entries if entry.get("subresource") == "status"]
    return str(writers[-1].get("manager") or "unknown") if writers else "unknown"


def _remove_probe(client: KubeClient, name: str) -> None:
    # Its name tells what it is, it holds nothing, and the next preflight shows it.
    with suppress(ClusterError):
        client.delete(r.CLUSTER_QUEUE, name)


def signs_of_kueue(client: KubeClient) -> tuple[str, ...]:
    """What a Kueue left behind, alive or not; only what the portal may look at."""
    signs = []
    for resource, name, namespace in (
        (r.LEASE, KUEUE_LEASE, KUEUE_NAMESPACE),
        (r.MUTATING_WEBHOOK, KUEUE_WEBHOOKS[0], None),
        (r.VALIDATING_WEBHOOK, KUEUE_WEBHOOKS[1], None),
    ):
        try:
            client.get(resource, name, namespace=namespace)
        except (NotFound, Forbidden):
            continue
        signs.append(f"{resource.kind} {name}")
    return tuple(signs)


def configuration_of(client: KubeClient) -> dict[str, Any] | None:
    """Kueue's Configuration from its ConfigMap; None where it cannot be read."""
    try:
        found = client.get(r.CONFIG_MAP, KUEUE_CONFIG_MAP, namespace=KUEUE_NAMESPACE)
    except (NotFound, Forbidden):
        return None
    for text in (found.get("data") or {}).values():
        try:
            document = read_yaml(text)
        except UnreadableText:
            continue
        if isinstance(document, dict) and document.get("kind") == "Configuration":
            return document
    return None
