"""What in a kubeconfig is refused, why, and what to do instead."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from clusters.errors import FieldFault

Entry = Mapping[str, Any]


def fault(field_name: str, reason: str, message: str) -> FieldFault:
    """One refusal."""
    return FieldFault(field_name, message, reason)


def faults_of(cluster: Entry, user: Entry) -> Iterator[FieldFault]:
    """Everything about a context's cluster and user that is refused."""
    yield from _refused(cluster, _REFUSED_OF_CLUSTER, "cluster")
    yield from _refused(user, _REFUSED_OF_USER, "user")
    yield from _server_faults(str(cluster.get("server") or ""))
    yield from _data_faults(cluster, user)
    has_certificate = user.get("client-certificate-data") and user.get("client-key-data")
    if not (user.get("token") or has_certificate or any(map(user.get, _REFUSED_OF_USER))):
        yield fault(
            "user",
            "NoCredential",
            "The user carries no credential. Put a service account's token, or a client certificate"
            " and key as data, into it.",
        )


_REFUSED_OF_CLUSTER: Mapping[str, str] = {
    "certificate-authority": "It names a CA file, which this server would have to read from its own"
    " disk. Put the certificate in as certificate-authority-data (kubectl config view --raw"
    " --flatten does it).",
    "insecure-skip-tls-verify": "Without checking the certificate anybody on the way could pose as"
    " the cluster and take the credential. Put the cluster's CA in as certificate-authority-data.",
    "proxy-url": "A proxy would see who talks to which cluster and can be anywhere. Register an"
    " address that this server reaches directly.",
}
_REFUSED_OF_USER: Mapping[str, str] = {
    "exec": "It starts a program to log in, and this server runs no program that a pasted file"
    " names. Make a service account for the portal and use its token.",
    "auth-provider": "Auth provider plugins are gone from Kubernetes and would run code here. Make"
    " a service account for the portal and use its token.",
    "client-certificate": "It names a certificate file, which this server would have to read from"
    " its own disk. Put it in as client-certificate-data (kubectl config view --raw --flatten).",
    "client-key": "It names a key file, which this server would have to read from its own disk. Put"
    " it in as client-key-data (kubectl config view --raw --flatten).",
    "tokenFile": "It names a token file, which this server would have to read from its own disk."
    " Put the token itself in as token.",
    "username": "Password login was taken out of Kubernetes. Use a service account's token.",
    "password": "Password login was taken out of Kubernetes. Use a service account's token.",
    "as": "It acts as somebody else (impersonation), which hides who wrote. Give the rights to the"
    " portal's own service account.",
    "as-groups": "It acts as other groups (impersonation), which hides who wrote. Give the rights"
    " to the portal's own service account.",
}


def _refused(entry: Entry, refused: Mapping[str, str], where: str) -> Iterator[FieldFault]:
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
            "Plain HTTP would send the credential readable for everybody on the way. Use the"
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
    except (binascii.Error, UnicodeDecodeError):
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
