"""Asks a manager which way of nominating is possible there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.errors import ClusterError, Forbidden, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, is_allowed
from clusters.kube.resources import Document, Resource
from clusters.kube.transport import Call
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.manifests.names import KUEUE_NAMESPACE
from clusters.manifests.rights import KUEUE_DEPLOYMENT
from clusters.reconcile.external.ways import WayFacts, WayInForce, bound_policy, choose, has_gate


def probe(
    client: KubeClient, settings: DispatchSettings, configuration: Mapping[str, Any]
) -> WayInForce:
    """The way that is in force on a manager, by what the portal can see there now.

    Raises:
        ClusterError: the manager does not tell.
    """
    policies = _all(client, r.MUTATING_POLICY)
    bindings = _all(client, r.MUTATING_POLICY_BINDING)
    return choose(
        WayFacts(
            settings=settings,
            has_gate=has_gate(configuration, _arguments(client)),
            policy=bound_policy(policies or (), bindings or ()),
            may_see_policies=policies is not None and bindings is not None,
            may_patch_status=_may_patch(client, "status"),
            may_patch=_may_patch(client, ""),
        )
    )


def _may_patch(client: KubeClient, subresource: str) -> bool:
    attributes = {"verb": "patch", "group": r.KUEUE_GROUP, "resource": "workloads"}
    if subresource:
        attributes["subresource"] = subresource
    return is_allowed(client, attributes)


def _all(client: KubeClient, resource: Resource) -> list[Document] | None:
    """Everything of a kind; None where that may not be seen, nothing where it is not served."""
    try:
        return client.list(resource).items
    except NotFound:
        return []
    except Forbidden:
        return None


def _arguments(client: KubeClient) -> list[str]:
    path = f"/apis/apps/v1/namespaces/{KUEUE_NAMESPACE}/deployments/{KUEUE_DEPLOYMENT}"
    try:
        found = client.request(Call("GET", path))
    except ClusterError:
        return []  # an optional right, and Kueue may be installed under another name
    containers = found["spec"]["template"]["spec"]["containers"]
    return [text for item in containers for text in item.get("args") or ()]
