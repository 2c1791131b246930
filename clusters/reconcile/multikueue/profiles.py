"""Workers that a ClusterProfile stands for: where they are, and who lets the portal in.

A MultiKueueCluster that names a profile is connected with what the profile says of the cluster and
with a credential from the first access provider, in the order of the server's own file, that the
profile lists too. Programs run beside the shift: a slow one keeps only its own worker waiting.

Source: Kueue pkg/controller/admissionchecks/multikueue/multikueuecluster.go, v0.19.2; spec dispatch
1.7; cluster-inventory-api v0.1.3.
Deviations: profiles are looked at every few seconds instead of watched; a proxy is refused; the
CRD may come later than the portal.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from budgets.texts import read_yaml
from clusters.documents.keys import Document, status_of
from clusters.errors import ClusterError, NotFound, Refusal, Retryable, Terminal
from clusters.kube.client import KubeClient
from clusters.kube.exec_plugins import (
    CLUSTER_EXTENSION,
    Credential,
    ExecPlugin,
    parse_providers,
    run_plugin,
)
from clusters.kube.kubeconfig import connection_of
from clusters.kube.resources import Resource
from clusters.kube.shares import Share, Shares
from clusters.manifests.names import KUEUE_NAMESPACE
from clusters.reconcile.runtime.threads import Executor

CLUSTER_PROFILE: Final = Resource(
    "multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile", True
)
RENEW_BEFORE: Final = timedelta(seconds=60)
REASON: Final = "BadClusterProfile"
_OF_CLUSTER: Final = ("server", "certificate-authority-data")


class BadProfile(Terminal):
    """The profile, or the server's providers, do not say how to get in."""

    default_reason = REASON


def profile_of(cluster: Document | None) -> str:
    """Name of the ClusterProfile that a MultiKueueCluster refers to; empty when it names none."""
    source = ((cluster or {}).get("spec") or {}).get("clusterSource") or {}
    return str((source.get("clusterProfileRef") or {}).get("name") or "")


def read_providers(path: str) -> tuple[ExecPlugin, ...]:
    """The access providers of the server's file; none without a file.

    Raises:
        BadProfile: the file cannot be read, or something in it is not usable.
    """
    if not path:
        return ()
    try:
        return parse_providers(read_yaml(Path(path).read_text()) or {})
    except (OSError, ValueError) as error:
        raise BadProfile(f"PORTAL_ACCESS_PROVIDERS {path}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Access:
    """How to get into one cluster: who to ask, and what to tell it."""

    plugin: ExecPlugin
    cluster: Mapping[str, Any]


@dataclass(slots=True)
class _Known:
    """What is known of one profile."""

    access: _Access
    asked: Future[Credential] | None = None
    client: KubeClient | None = None
    expires_at: datetime | None = None


class Profiles:
    """Clients of workers by the name of their ClusterProfile. One thread asks.

    Args:
        client: The manager.
        providers: Reads the server's access providers; raises ``BadProfile``.
        now: Clock.
        run: Runs a plugin.
        shares: What each cluster may take of this process's memory; None for no limit.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        providers: Callable[[], Sequence[ExecPlugin]],
        now: Callable[[], datetime],
        run: Callable[[ExecPlugin, Mapping[str, Any]], Credential] = run_plugin,
        shares: Shares | None = None,
    ) -> None:
        self._shares = shares
        self._client, self._providers, self._now, self._run = client, providers, now, run
        self._known: dict[str, _Known] = {}
        self._open: list[KubeClient] = []
        self._pool: Executor | None = None

    def client_for(self, name: str) -> KubeClient:
        """The client for a profile as it is now; another one once its credential was renewed.

        Raises:
            BadProfile: no such profile, no provider for it, or it is not usable.
            Retryable: the plugin works on it, or has failed.
            ClusterError: the manager does not say.
        """
        access = self._access(name)
        known = self._known.get(name)
        if known is None or known.access != access:
            known = self._known[name] = _Known(access)
        if known.asked is not None and known.asked.done():
            self._take(name, known)
        if known.asked is None and self._is_due(known):
            known.asked = self._ask(access)
        if known.client is None or self._is_over(known):
            raise Retryable(
                Refusal(f"access provider {access.plugin.name} was asked for a credential", REASON)
            )
        return known.client

    def close(self) -> None:
        """Close every client that was handed out, and wait for no plugin."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._open:
            client.close()
        self._open.clear()
        self._known.clear()

    def _take(self, name: str, known: _Known) -> None:
        asked, known.asked = known.asked, None
        assert asked is not None
        try:
            credential = asked.result()
        except ClusterError:
            if known.client is None or self._is_over(known):
                raise
            return  # the one in hand is still good; it is asked again
        share = self._shares.of(f"profile {name}") if self._shares is not None else None
        known.client = _client(known.access, credential, share)
        known.expires_at = credential.expires_at
        self._open.append(known.client)

    def _ask(self, access: _Access) -> Future[Credential]:
        if self._pool is None:
            self._pool = Executor(4, name="access-plugin")
        return self._pool.submit(self._run, access.plugin, access.cluster)

    def _is_due(self, known: _Known) -> bool:
        if known.client is None:
            return True
        return known.expires_at is not None and self._now() >= known.expires_at - RENEW_BEFORE

    def _is_over(self, known: _Known) -> bool:
        return known.expires_at is not None and self._now() >= known.expires_at

    def _access(self, name: str) -> _Access:
        try:
            profile = self._client.get(CLUSTER_PROFILE, name, namespace=KUEUE_NAMESPACE)
        except NotFound as error:
            raise BadProfile(
                f"no ClusterProfile {name} in namespace {KUEUE_NAMESPACE} of the manager"
            ) from error
        providers = self._providers()
        if not providers:
            raise BadProfile("no access provider configured: PORTAL_ACCESS_PROVIDERS names no file")
        listed = _listed(profile)
        plugin = next((item for item in providers if item.name in listed), None)
        if plugin is None:
            raise BadProfile(
                f"ClusterProfile {name} lists no access provider that this server has "
                f"(it lists {', '.join(sorted(listed)) or 'none'})"
            )
        cluster = listed[plugin.name]
        if cluster.get("proxy-url"):
            raise BadProfile(f"ClusterProfile {name} wants a proxy, which is not used")
        if not plugin.may_go_to(str(cluster.get("server") or "")):
            raise BadProfile(
                f"ClusterProfile {name} names the server {cluster.get('server') or '(none)'}, to"
                f" which credentials of access provider {plugin.name} do not go: its servers are"
                " listed in PORTAL_ACCESS_PROVIDERS"
            )
        told = {field: str(cluster.get(field) or "") for field in _OF_CLUSTER}
        extensions = {item.get("name"): item for item in cluster.get("extensions") or ()}
        config = (extensions.get(CLUSTER_EXTENSION) or {}).get("extension")
        return _Access(plugin, told | ({"config": config} if config is not None else {}))


def _listed(profile: Document) -> dict[str, Mapping[str, Any]]:
    """What a profile says of its cluster, by provider; the older field yields to the newer."""
    status = status_of(profile)
    return {
        str(item.get("name")): item.get("cluster") or {}
        for field in ("credentialProviders", "accessProviders")
        for item in status.get(field) or ()
    }


def _client(access: _Access, credential: Credential, share: Share | None) -> KubeClient:
    """Through the checks that every kubeconfig goes through."""

    def data(pem: str) -> str:
        return base64.b64encode(pem.encode()).decode()

    cluster = {field: access.cluster[field] for field in _OF_CLUSTER}
    user = {
        "token": credential.token,
        "client-certificate-data": data(credential.certificate_pem),
        "client-key-data": data(credential.key_pem),
    }
    context = {"cluster": "profile", "user": "profile"}
    lists = {
        f"{what}s": [{"name": "profile", what: {k: v for k, v in fields.items() if v}}]
        for what, fields in (("cluster", cluster), ("user", user), ("context", context))
    }
    text = {"apiVersion": "v1", "kind": "Config", "current-context": "profile", **lists}
    return KubeClient.from_connection(connection_of(yaml.safe_dump(text)), share=share)
