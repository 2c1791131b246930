"""Plain HTTP to one API server, from its kubeconfig; nothing of the product's client is in it."""

from __future__ import annotations

import base64
import http.client
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml


@dataclass(frozen=True, slots=True)
class Upstream:
    """An API server and how to be known there: by a token, by a client certificate, or both."""

    host: str
    port: int
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, kubeconfig: str) -> Self:
        """From a kubeconfig of one context with everything inline."""
        document = yaml.safe_load(kubeconfig)
        cluster = document["clusters"][0]["cluster"]
        user = document["users"][0]["user"]
        address = urlsplit(cluster["server"])
        tls = _tls(cluster, user) if address.scheme == "https" else None
        return cls(address.hostname or "", address.port or 443, user.get("token", ""), tls)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def connect(self, *, timeout_s: float) -> http.client.HTTPConnection:
        """A connection of its own, not yet open."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=self.tls
        )


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    if "client-certificate-data" in user:
        with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
            pair = [Path(folder, name) for name in ("certificate.pem", "key.pem")]
            for path, key in zip(pair, ("client-certificate-data", "client-key-data"), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[key]))
            context.load_cert_chain(*pair)
    return context
