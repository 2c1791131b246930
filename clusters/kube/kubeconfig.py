"""Reads a kubeconfig that somebody pasted, and refuses what could harm the server that reads it.

A kubeconfig can start programs, read files, send traffic through proxies and switch off TLS
checks. On a desk that is a convenience; on a server that takes pasted text it is a way in. Each
refusal says why, and what to do instead; all of them are told at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from budgets.texts import UnreadableText, read_yaml
from clusters.errors import FieldFault, KubeconfigRejected, Refusal
from clusters.kube.kubeconfig_checks import Entry, decoded, fault, faults_of

SIZE_LIMIT = 256 * 1024


@dataclass(frozen=True, slots=True)
class Connection:
    """What is needed to talk to one API server; nothing secret shows in its repr."""

    server: str
    ca_pem: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    client_certificate_pem: str = field(default="", repr=False)
    client_key_pem: str = field(default="", repr=False)
    tls_server_name: str = ""


@dataclass(frozen=True, slots=True)
class KubeconfigFacts:
    """What may be shown of a kubeconfig: nothing of it opens a door."""

    context: str
    server: str
    ca_fingerprint: str
    user_kind: str
    user_name: str
    namespace: str
    certificate_ends: datetime | None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A pasted kubeconfig that parsed: its contexts, and the entries that they refer to."""

    contexts: Mapping[str, Entry] = field(repr=False)
    clusters: Mapping[str, Entry] = field(repr=False)
    users: Mapping[str, Entry] = field(repr=False)
    current: str

    @property
    def names(self) -> tuple[str, ...]:
        """The contexts to choose from, in the file's order."""
        return tuple(self.contexts)


def parse(text: str) -> Kubeconfig:
    """Reads the text; says nothing yet about whether a context of it may be used.

    Raises:
        KubeconfigRejected: not YAML, not a kubeconfig, without a context, or over 256 KiB.
    """
    if len(text) > SIZE_LIMIT:
        raise _refused("", "TooLong", "A kubeconfig of over 256 KiB is not one.")
    try:
        document = read_yaml(text)
    except UnreadableText as error:
        raise _refused("", "NotYaml", f"{error} Paste the file as it is.") from None
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise _refused("", "NotAKubeconfig", "This is YAML, but not a kubeconfig.")
    config = Kubeconfig(
        contexts=_named(document, "contexts", "context"),
        clusters=_named(document, "clusters", "cluster"),
        users=_named(document, "users", "user"),
        current=str(document.get("current-context") or ""),
    )
    if not config.contexts:
        words = "It names no context. Export one with its cluster and user."
        raise _refused("contexts", "NoContext", words)
    return config


def choose(text: str, *, context: str = "") -> str:
    """The minimal kubeconfig of one context, with data in place and nothing that is not needed.

    Args:
        text: the pasted kubeconfig.
        context: which one; may be left out when there is one, or a current one.

    Raises:
        KubeconfigRejected: with every fault of the chosen context at once.
    """
    config = parse(text)
    name = _chosen(config, context)
    cluster, user = _entries(config, name)
    faults = list(faults_of(cluster, user))
    if faults:
        raise _rejected(faults)
    kept_cluster = _only(cluster, "server", "certificate-authority-data", "tls-server-name")
    kept_user = _only(user, "token", "client-certificate-data", "client-key-data")
    kept = {"cluster": name, "user": name} | _only(config.contexts[name], "namespace")
    minimal = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": kept_cluster}],
        "users": [{"name": name, "user": kept_user}],
        "contexts": [{"name": name, "context": kept}],
    }
    return yaml.safe_dump(minimal, sort_keys=False)


def connection_of(text: str, *, context: str = "") -> Connection:
    """What a client needs, from a kubeconfig that passes every check of `choose`.

    Raises:
        KubeconfigRejected: as `choose`.
    """
    config = parse(choose(text, context=context))
    cluster, user = _entries(config, config.current)
    return Connection(
        server=str(cluster["server"]),
        ca_pem=decoded(cluster.get("certificate-authority-data")),
        token=str(user.get("token") or ""),
        client_certificate_pem=decoded(user.get("client-certificate-data")),
        client_key_pem=decoded(user.get("client-key-data")),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
    )


def facts_of(text: str, *, context: str = "") -> KubeconfigFacts:
    """What may be shown of the chosen context.

    Raises:
        KubeconfigRejected: as `choose`.
    """
    connection = connection_of(text, context=context)
    config = parse(text)
    name = _chosen(config, context)
    certificate = (
        x509.load_pem_x509_certificate(connection.client_certificate_pem.encode())
        if connection.client_certificate_pem
        else None
    )
    return KubeconfigFacts(
        context=name,
        server=connection.server,
        ca_fingerprint=_fingerprint(connection.ca_pem),
        user_kind="client certificate" if certificate else "bearer token",
        user_name=_common_name(certificate) if certificate else "",
        namespace=str(config.contexts[name].get("namespace") or ""),
        certificate_ends=certificate.not_valid_after_utc if certificate else None,
    )


def _chosen(config: Kubeconfig, context: str) -> str:
    name = context or config.current or (config.names[0] if len(config.names) == 1 else "")
    if not name:
        words = "It has several contexts: choose one."
        raise _refused("current-context", "ChooseContext", words)
    if name not in config.contexts:
        raise _refused("current-context", "NoContext", f"It has no context {name!r}.")
    return name


def _entries(config: Kubeconfig, name: str) -> tuple[Entry, Entry]:
    entry = config.contexts[name]
    cluster, user = (str(entry.get(key) or "") for key in ("cluster", "user"))
    faults = []
    if cluster not in config.clusters:
        message = f"Context {name!r} names a cluster that is not there."
        faults.append(fault("clusters", "NoCluster", message))
    if user not in config.users:
        message = f"Context {name!r} names a user that is not there."
        faults.append(fault("users", "NoUser", message))
    if faults:
        raise _rejected(faults)
    return config.clusters[cluster], config.users[user]


def _fingerprint(pem: str) -> str:
    """SHA-256 of the first CA certificate, in pairs; empty when the system's roots are used."""
    if not pem:
        return ""
    first = x509.load_pem_x509_certificates(pem.encode())[0]
    digest = hashlib.sha256(first.public_bytes(Encoding.DER)).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _named(document: Entry, key: str, inner: str) -> dict[str, Entry]:
    """A kubeconfig's list of {name, inner} as a mapping; of one name the first wins."""
    found: dict[str, Entry] = {}
    entries = document.get(key)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get(inner) or {}, dict):
            found.setdefault(str(entry.get("name") or ""), entry.get(inner) or {})
    return found


def _only(entry: Entry, *keys: str) -> dict[str, Any]:
    return {key: entry[key] for key in keys if entry.get(key)}


def _refused(field_name: str, reason: str, message: str) -> KubeconfigRejected:
    return _rejected([fault(field_name, reason, message)])


def _rejected(faults: list[FieldFault]) -> KubeconfigRejected:
    message = " ".join(fault.message for fault in faults)
    return KubeconfigRejected(Refusal(message, reason="KubeconfigRejected", fields=tuple(faults)))
