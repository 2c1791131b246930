"""Reads a kubeconfig that somebody pasted, and refuses what could harm the server that reads it.

A kubeconfig can start programs, read files, send traffic through proxies and switch off TLS
checks. On a desk that is a convenience; on a server that takes pasted text it is a way in. Each
refusal says why, and what to do instead; all of them are told at once.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from budgets.texts import UnreadableText, read_json, read_yaml
from clusters.errors import FieldFault, KubeconfigRejected, Refusal

SIZE_LIMIT = 256 * 1024


@dataclass(frozen=True, slots=True)
class Connection:
    """What is needed to talk to one API server; nothing secret shows in its repr.

    Attributes:
        token_file: Read with each request, in place of a token; others write it anew.
    """

    server: str
    ca_pem: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    client_certificate_pem: str = field(default="", repr=False)
    client_key_pem: str = field(default="", repr=False)
    tls_server_name: str = ""
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class KubeconfigFacts:
    """What may be shown of a kubeconfig: nothing of it opens a door.

    Attributes:
        ends: When its client certificate or its token says that it ends; None: it does not say.
    """

    context: str
    server: str
    ca_fingerprint: str
    user_kind: str
    ends: datetime | None


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
        raise _refused("", "TooLong", "A kubeconfig can have at most 256 KiB; this is larger.")
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
    return _minimal(name, kept_cluster, kept_user, _only(config.contexts[name], "namespace"))


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


def with_token(connection: Connection, token: str, *, name: str) -> str:
    """A kubeconfig of the same cluster for somebody else, with one context.

    Args:
        connection: To the cluster.
        token: Theirs.
        name: Of the cluster, the user and the context.
    """
    authority = base64.b64encode(connection.ca_pem.encode()).decode()
    cluster = {
        "server": connection.server,
        "certificate-authority-data": authority,
        "tls-server-name": connection.tls_server_name,
    }
    return _minimal(name, _only(cluster, *cluster), {"token": token}, {})


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
        ca_fingerprint=fingerprint(connection.ca_pem),
        user_kind="client certificate" if certificate else "bearer token",
        ends=certificate.not_valid_after_utc if certificate else _token_ends(connection.token),
    )


def told_by(token: str) -> list[dict[str, Any]]:
    """What a token tells of itself: the JSON objects among its first two parts.

    A JSON Web Token (RFC 7519) has its header and its claims there. Nothing of it is verified: it
    is shown to people, and the cluster decides.
    """
    found = []
    for part in token.split(".", 2)[:2]:
        with suppress(ValueError):
            said = read_json(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            found += [said] if isinstance(said, dict) else []
    return found


def _token_ends(token: str) -> datetime | None:
    """What the claim ``exp`` of a JSON Web Token says; None: it is none, or does not say."""
    try:
        _, claims = told_by(token)
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


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


def _minimal(name: str, cluster: Entry, user: Entry, context: Entry) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
    }
    return yaml.safe_dump(document, sort_keys=False)


def fingerprint(pem: str) -> str:
    """SHA-256 of the first CA certificate, in pairs; empty when the system's roots are used."""
    if not pem:
        return ""
    first = x509.load_pem_x509_certificates(pem.encode())[0]
    digest = hashlib.sha256(first.public_bytes(Encoding.DER)).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


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


Entry = Mapping[str, Any]


def fault(field_name: str, reason: str, message: str) -> FieldFault:
    """One refusal."""
    return FieldFault(field_name, message, reason)


def faults_of(cluster: Entry, user: Entry) -> Iterator[FieldFault]:
    """Everything about a context's cluster and user that is refused."""
    yield from _not_allowed(cluster, _REFUSED_OF_CLUSTER, "cluster")
    yield from _not_allowed(user, _REFUSED_OF_USER, "user")
    yield from _server_faults(str(cluster.get("server") or ""))
    yield from _data_faults(cluster, user)
    has_certificate = user.get("client-certificate-data") and user.get("client-key-data")
    if not (user.get("token") or has_certificate or any(map(user.get, _REFUSED_OF_USER))):
        yield fault(
            "user",
            "NoCredential",
            "The user has no credential. Put in a service account's token, or a client "
            "certificate and key as data.",
        )


_REFUSED_OF_CLUSTER: Mapping[str, str] = {
    "certificate-authority": "It names a CA file, which this server would have to read from its "
    "own disk. Put the certificate itself in as certificate-authority-data (kubectl config view "
    "--raw --flatten does it).",
    "insecure-skip-tls-verify": "Without checking the certificate anybody on the way could pose as"
    " the cluster and take the credential. Put the cluster's CA in as certificate-authority-data.",
    "proxy-url": "A proxy would see who talks to which cluster and can be anywhere. Register an"
    " address that this server reaches directly.",
}
_REFUSED_OF_USER: Mapping[str, str] = {
    "exec": "It starts a program to log in, and this server runs no program that a pasted file"
    " names. Make a service account for the portal and use its token.",
    "auth-provider": "Kubernetes no longer has auth provider plugins, and they would run code "
    "here. Make a service account for the portal and use its token.",
    "client-certificate": "It names a certificate file, which this server would have to read from "
    "its own disk. Put it in as client-certificate-data (kubectl config view --raw --flatten).",
    "client-key": "It names a key file, which this server would have to read from its own disk. Put"
    " it in as client-key-data (kubectl config view --raw --flatten).",
    "tokenFile": "It names a token file, which this server would have to read from its own disk."
    " Put the token itself in as token.",
    "username": "Kubernetes no longer supports passwords. Use a service account's token.",
    "password": "Kubernetes no longer supports passwords. Use a service account's token.",
    "as": "It acts as somebody else (impersonation), which hides who wrote. Give the rights to the"
    " portal's own service account.",
    "as-groups": "It acts as other groups (impersonation), which hides who wrote. Give the rights"
    " to the portal's own service account.",
}


def _not_allowed(entry: Entry, refused: Mapping[str, str], where: str) -> Iterator[FieldFault]:
    for key, why in refused.items():
        if entry.get(key):
            yield fault(f"{where}.{key}", "NotAllowed", why)


def _server_faults(server: str) -> Iterator[FieldFault]:
    field_name = "cluster.server"
    try:
        parts = urlsplit(server)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("https", "http") or not host:
        message = "The server's address is missing or not https://HOST:PORT."
        yield fault(field_name, "NoServer", message)
        return
    if parts.username or parts.password:
        message = "The address carries a user or password. Use a token instead."
        yield fault(field_name, "NotAllowed", message)
    if parts.query or parts.fragment:
        yield fault(field_name, "NotAllowed", "The address carries a query. Give only the address.")
    if parts.scheme == "http" and not _is_loopback(host):
        yield fault(
            field_name,
            "PlainHttp",
            "Plain HTTP would send the credential so that everybody on the way can read it. Use the"
            " cluster's https address with its CA.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _data_faults(cluster: Entry, user: Entry) -> Iterator[FieldFault]:
    certificate, key = "client-certificate-data", "client-key-data"
    for where, entry, name, is_right, what in (
        ("cluster", cluster, "certificate-authority-data", _is_certificate, "certificate"),
        ("user", user, certificate, _is_certificate, "certificate"),
        ("user", user, key, _is_key, "key without a password"),
    ):
        if entry.get(name) and not is_right(decoded(entry[name])):
            message = f"This is not a base64-encoded PEM {what}."
            yield fault(f"{where}.{name}", "BadData", message)
    if bool(user.get(certificate)) != bool(user.get(key)):
        yield fault("user", "BadData", "A client certificate and its key only work together.")
    token = user.get("token")
    if token and (not isinstance(token, str) or not token.isascii() or len(token.split()) != 1):
        yield fault("user.token", "BadData", "The token is not one word of plain characters.")


def decoded(encoded: object) -> str:
    """The text behind base64 data, empty when it is none."""
    try:
        return base64.b64decode(str(encoded or ""), validate=False).decode()
    except ValueError:  # of base64, of UTF-8, or letters beyond ASCII
        return ""


def _is_certificate(pem: str) -> bool:
    try:
        return bool(x509.load_pem_x509_certificates(pem.encode()))
    except ValueError:
        return False


def _is_key(pem: str) -> bool:
    try:
        load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        return False
    return True
