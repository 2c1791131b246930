"""Service accounts of test clusters: their tokens and the rights that a test gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.waiting import eventually

from .rest import Rest

_RBAC = "rbac.authorization.k8s.io"


def grant(
    rest: Rest, service_account: str, *, namespace: str, rules: Sequence[Mapping[str, Any]]
) -> None:
    """Give a service account rules on the whole cluster, in a ClusterRole of its own."""
    name = f"{namespace}:{service_account}"
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    role = {"rules": [dict(rule) for rule in rules]}
    binding = {"roleRef": reference, "subjects": [subject]}
    for kind, plural, body in (
        ("ClusterRole", "clusterroles", role),
        ("ClusterRoleBinding", "clusterrolebindings", binding),
    ):
        document = {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": {"name": name}, **body}
        rest.apply(f"/apis/{_RBAC}/v1/{plural}/{name}", document)
    told = next((rule for rule in rules if rule.get("resources")), None)
    if told is not None:
        resource, _, part = str(told["resources"][0]).partition("/")
        right = {"verb": told["verbs"][0], "group": told["apiGroups"][0], "resource": resource}
        right |= {"subresource": part} if part else {}
        right |= {"name": told["resourceNames"][0]} if told.get("resourceNames") else {}
        _await_right(rest, f"system:serviceaccount:{namespace}:{service_account}", right)


def grant_everything(rest: Rest, user: str) -> None:
    """Give a user by name every right."""
    name = f"everything:{user}"
    document = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": _RBAC, "name": user}],
    }
    rest.apply(f"/apis/{_RBAC}/v1/clusterrolebindings/{name}", document)
    _await_right(rest, user, {"verb": "*", "group": "*", "resource": "*"})


def _await_right(rest: Rest, user: str, right: Mapping[str, str]) -> None:
    """Until the API server goes by a binding, which it hears of a moment after it stored it."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": dict(right)},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    eventually(lambda: rest.create(path, review)["status"]["allowed"], seconds=20)


def mint_token(rest: Rest, service_account: str, *, namespace: str, lifetime_s: int) -> str:
    """Return a fresh token of a service account, which is made if need be.

    Args:
        rest: with the right to create service accounts and tokens.
        service_account: its name.
        namespace: where it lives; it has to exist.
        lifetime_s: seconds until the token ends, at least 600.
    """
    collection = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    rest.ensure(collection, {"metadata": {"name": service_account}})
    answer = rest.create(
        f"{collection}/{service_account}/token", {"spec": {"expirationSeconds": lifetime_s}}
    )
    token: str = answer["status"]["token"]
    return token
