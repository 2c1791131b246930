"""Who a token stands for, and what is denied to whom.

An embedded cluster allows everything to everybody who is known, except what its deny list names.
Tokens of service accounts are signed, not stored, so that they survive a restart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.devcluster.problems import Document, Failure

ADMIN = "devcluster-admin"


@dataclass(frozen=True, slots=True)
class Denial:
    """Verbs on resources (PLURAL or PLURAL/SUBRESOURCE) denied to a user; empty means any."""

    user: str = ""
    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def covers(self, user: str, attributes: Mapping[str, str]) -> bool:
        resource = attributes.get("resource", "")
        if attributes.get("subresource"):
            resource = f"{resource}/{attributes['subresource']}"
        asked = (attributes.get("verb", ""), attributes.get("group", ""), resource)
        limits = (self.verbs, self.groups, self.resources, self.namespaces)
        pairs = zip(limits, (*asked, attributes.get("namespace", "")), strict=True)
        is_user = not self.user or self.user == user
        return is_user and all(not listed or value in listed for listed, value in pairs)


class Access:
    """Authentication and authorisation of one cluster."""

    def __init__(self, secret: str, denials: Sequence[Denial] = ()) -> None:
        self._secret = secret.encode()
        self.denials = list(denials)

    @property
    def admin_token(self) -> str:
        """The token of the cluster's own kubeconfig."""
        return self._signed({"sub": ADMIN, "exp": 0})

    def mint(self, namespace: str, service_account: str, seconds: int) -> tuple[str, int]:
        """A token for a service account, and its end in epoch seconds."""
        ends = int(time.time()) + seconds
        user = f"system:serviceaccount:{namespace}:{service_account}"
        return self._signed({"sub": user, "exp": ends}), ends

    def user_of(self, header: str) -> str:
        """The user that an Authorization header stands for.

        Raises:
            Failure: 401.
        """
        scheme, _, token = header.partition(" ")
        body, _, signature = token.strip().rpartition(".")
        if scheme.lower() != "bearer" or not hmac.compare_digest(signature, self._seal(body)):
            raise Failure(401, "Unauthorized", "Unauthorized")
        try:
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            raise Failure(401, "Unauthorized", "Unauthorized") from None
        if claims["exp"] and claims["exp"] < time.time():
            raise Failure(401, "Unauthorized", "Unauthorized")
        return str(claims["sub"])

    def is_allowed(self, user: str, attributes: Mapping[str, str]) -> bool:
        return not any(denial.covers(user, attributes) for denial in self.denials)

    def check(self, user: str, attributes: Mapping[str, str]) -> None:
        """Refuses what the deny list names.

        Raises:
            Failure: 403.
        """
        if self.is_allowed(user, attributes):
            return
        resource, group = attributes.get("resource", ""), attributes.get("group", "")
        namespace = attributes.get("namespace")
        scope = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        full = f"{resource}.{group}" if group else resource
        text = (
            f'{full} is forbidden: User "{user}" cannot {attributes.get("verb")} resource'
            f' "{resource}" in API group "{group}"{scope}'
        )
        details = {"kind": resource} | ({"group": group} if group else {})
        raise Failure(403, "Forbidden", text, details=details)

    def review(self, user: str, body: Any) -> Document:
        """The answer to a SelfSubjectAccessReview."""
        spec = body.get("spec") if isinstance(body, dict) else None
        attributes = (spec or {}).get("resourceAttributes") or {}
        allowed = self.is_allowed(user, {str(k): str(v) for k, v in attributes.items()})
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": spec or {},
            "status": {"allowed": allowed, **({} if allowed else {"denied": True})},
        }

    def _signed(self, claims: Mapping[str, Any]) -> str:
        body = base64.urlsafe_b64encode(json.dumps(claims, sort_keys=True).encode()).decode()
        body = body.rstrip("=")
        return f"{body}.{self._seal(body)}"

    def _seal(self, body: str) -> str:
        return hmac.new(self._secret, body.encode(), hashlib.sha256).hexdigest()
