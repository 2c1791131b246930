"""The service account that this server runs as in a cluster: what kubelet mounts of it.

kubelet writes a new token long before the old one ends, so its file is read with each request, and
nothing of it is stored. No path and no address is anybody's input: they come from settings and from
what kubelet puts into the environment of every pod.

Source: Kubernetes "Configure Service Accounts for Pods", projected volumes; the claim ``sub`` of
service account tokens.
"""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Final

from django.conf import settings

from clusters.errors import CredentialUnusable, Refusal
from clusters.kube.kubeconfig import Connection, faults_of, told_by

TOKEN: Final = "token"  # noqa: S105  a file's name
AUTHORITY: Final = "ca.crt"
MOST: Final = 256 * 1024
"""Bytes of either file; a token has some 1,200."""
NAME_MOST: Final = 200
_ACCOUNT: Final = "system:serviceaccount:"
_MOUNT: Final = (
    "The chart mounts it with ownCluster.enabled: true; elsewhere, mount a projected volume there, "
    "with the service account's token and the ConfigMap kube-root-ca.crt."
)
_WRONG: Final = {
    "cluster.certificate-authority-data": f"{AUTHORITY} is not a certificate in PEM.",
    "user.token": f"{TOKEN} is not one word of plain characters.",
}
"""In place of words about a kubeconfig."""


class OwnAccountUnusable(CredentialUnusable):
    """What this server's own service account would sign in with is not there, or not right."""

    default_reason = "OwnAccountNotReadable"


def is_in_a_cluster() -> bool:
    """Whether an admin of this server said where its own service account is."""
    return bool(settings.PORTAL_OWN_CLUSTER_FOLDER)


def own_connection() -> Connection:
    """What a client of the cluster that this server runs in needs; nothing is sent.

    The token is read to see that it is one, and again with each request.

    Raises:
        OwnAccountUnusable: a file cannot be read or is not what it should be; it is named, with
            the way out.
    """
    if not is_in_a_cluster():
        raise _unusable(
            "PORTAL_OWN_CLUSTER_FOLDER is not set, so the portal does not know where its own "
            f"service account is. Set it to the folder with {TOKEN} and {AUTHORITY}."
        )
    folder = Path(settings.PORTAL_OWN_CLUSTER_FOLDER)
    token, authority = read_token(folder / TOKEN), _read(folder / AUTHORITY)
    connection = Connection(_server(), ca_pem=authority, token_file=folder / TOKEN)
    # The rules for a kubeconfig that was pasted hold for these, too.
    data = base64.b64encode(authority.encode()).decode()
    cluster = {"server": connection.server, "certificate-authority-data": data}
    faults = faults_of(cluster, {"token": token})
    found = [_WRONG.get(fault.field, fault.message) for fault in faults]
    if found:
        raise _unusable(f"What is in {folder} cannot be used. {' '.join(found)}")
    return connection


def own_user() -> str:
    """Under which name an API server knows this server, by what its token says of itself.

    Raises:
        OwnAccountUnusable: the token cannot be read, or is not one of a service account.
    """
    path = Path(settings.PORTAL_OWN_CLUSTER_FOLDER) / TOKEN
    for said in told_by(read_token(path)):
        name = said.get("sub")
        if isinstance(name, str) and name.startswith(_ACCOUNT) and len(name) <= NAME_MOST:
            return name
    raise _unusable(f"{path} is not the token of a service account. {_MOUNT}")


def read_token(path: Path) -> str:
    """The token as it is now.

    Raises:
        OwnAccountUnusable: it cannot be read, or the file is empty.
    """
    return _read(path).strip()


def _server() -> str:
    """``https://HOST:PORT`` of the API server, as a setting or kubelet tells it."""
    if settings.PORTAL_OWN_CLUSTER_ADDRESS:
        return str(settings.PORTAL_OWN_CLUSTER_ADDRESS)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise _unusable(
            "KUBERNETES_SERVICE_HOST is not set, so this process does not run in a pod. Set "
            "PORTAL_OWN_CLUSTER_ADDRESS, or unset PORTAL_OWN_CLUSTER_FOLDER."
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _read(path: Path) -> str:
    """A plain file of bounded length; a pipe or a device would keep the reader for ever."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, "rb") as file:
            is_plain = stat.S_ISREG(os.fstat(opened).st_mode)
            found = file.read(MOST + 1) if is_plain else b""
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}. {_MOUNT}") from error
    if not is_plain:
        raise _unusable(f"{path} is not a file. {_MOUNT}")
    if len(found) > MOST:
        raise _unusable(f"{path} has more than {MOST // 1024} KiB. {_MOUNT}")
    if not found.strip():
        raise _unusable(f"{path} is empty. {_MOUNT}")
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise _unusable(f"{path} is not text. {_MOUNT}") from error


def _unusable(message: str) -> OwnAccountUnusable:
    return OwnAccountUnusable(Refusal(message))
