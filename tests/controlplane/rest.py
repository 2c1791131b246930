"""A small JSON client for setting clusters up: no models, pooled HTTPS, errors as exceptions.

Paths are the API server's own (``/api/v1/namespaces/NAME``). It is not the product's client: that
one lives in ``clusters/kube/`` and is what tests of the product have to use.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import urllib3
import yaml

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

Document = dict[str, Any]

_RETRY_FOR_S = 10.0
_RETRY_PAUSE_S = 0.1


class ApiError(RuntimeError):
    """The API server answered with an error; ``status`` is the HTTP status, ``reason`` its word."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        self.status = status
        self.reason = ""
        message = body.decode(errors="replace")
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        if isinstance(answer, dict):
            self.reason = str(answer.get("reason", ""))
            message = str(answer.get("message", message))
        super().__init__(f"{method} {path}: {status} {message}")


class Rest:
    """JSON requests to one API server with the identity of a kubeconfig."""

    def __init__(
        self,
        server: str,
        *,
        authority: Path,
        certificate: Path | None = None,
        key: Path | None = None,
        token: str = "",
        user: str = "",
    ) -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        if user:
            self._headers["Impersonate-User"] = user
        self._pool = urllib3.PoolManager(
            maxsize=16,
            ca_certs=str(authority),
            cert_file=str(certificate) if certificate else None,
            key_file=str(key) if key else None,
            retries=False,
            timeout=urllib3.Timeout(connect=5, read=30),
        )

    def close(self) -> None:
        self._pool.clear()

    def get(self, path: str) -> Document:
        return self._send("GET", path)

    def discovered(self, group: str) -> dict[str, set[str]]:
        """Return the plurals that discovery shows in each version of an API group."""
        request = {**self._headers, "Accept": DISCOVERY}
        answer = self._pool.request("GET", f"{self.server}/apis", headers=request)
        return {
            version["version"]: {resource["resource"] for resource in version["resources"]}
            for item in json.loads(answer.data)["items"]
            if item["metadata"]["name"] == group
            for version in item["versions"]
        }

    def items(self, path: str) -> list[Document]:
        """Return the items of a list, all in one answer."""
        found: list[Document] = self.get(path)["items"]
        return found

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def create(self, path: str, body: Document) -> Document:
        return self._send("POST", path, body)

    def ensure(self, path: str, body: Document) -> None:
        """Create an object in a collection; one that exists stays as it is."""
        try:
            self.create(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def replace(self, path: str, body: Document) -> Document:
        return self._send("PUT", path, body)

    def merge(self, path: str, body: Document) -> Document:
        return self._send("PATCH", path, body, content_type=MERGE)

    def apply(self, path: str, body: Document, *, field_manager: str = "controlplane") -> Document:
        """Server-side apply one object, taking its fields over from others."""
        target = f"{path}?fieldManager={field_manager}&force=true"
        return self._send("PATCH", target, body, content_type=APPLY)

    def delete(self, path: str, *, propagation: str = "Background") -> None:
        """Delete an object or a collection; what is not there is no error."""
        try:
            self._send("DELETE", path, {"propagationPolicy": propagation})
        except ApiError as error:
            if error.status != 404:
                raise

    def is_ready(self) -> bool:
        """Say whether the API server answers /readyz with 200 now."""
        try:
            answer = self._pool.request(
                "GET", f"{self.server}/readyz", headers=self._headers, timeout=2
            )
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def _send(
        self, method: str, path: str, body: Document | None = None, content_type: str = JSON
    ) -> Document:
        headers = {**self._headers, "Accept": JSON, "Content-Type": content_type}
        payload = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + _RETRY_FOR_S
        while True:
            answer = self._pool.request(method, self.server + path, body=payload, headers=headers)
            # A CRD that was just changed is refused for a moment: "storage is (re)initializing".
            if answer.status != 429 or time.monotonic() > deadline:
                break
            time.sleep(_RETRY_PAUSE_S)
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, answer.data)
        parsed: Document = json.loads(answer.data)
        return parsed


def kubeconfig(server: str, *, authority_base64: str, user: Document, name: str) -> str:
    """Return a kubeconfig's text with one cluster, one user and one context, all data inline."""
    cluster = {"server": server, "certificate-authority-data": authority_base64}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )
