"""Command lines of the Kubernetes programs: small, quiet, quick to start, on loopback only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .processes import LOOPBACK

CONTROLLERS = (
    "job",
    "namespace",
    "serviceaccount",
    "serviceaccount-token",
    "garbagecollector",
    "ttl-after-finished",
)
# What else makes pods; for the tests of the policies, which ask each of them.
POD_MAKERS = (
    "deployment",
    "replicaset",
    "statefulset",
    "daemonset",
    "replicationcontroller",
    "cronjob",
)
_CLIENT_OF_ITS_OWN = ("--leader-elect=false", "--kube-api-qps=300", "--kube-api-burst=500")


def etcd(folder: Path, *, port: int) -> list[str]:
    """Return etcd's arguments: one member, its data below ``folder``, no syncing to disk."""
    url = f"http://{LOOPBACK}:{port}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://{LOOPBACK}:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def kube_apiserver(folder: Path, *, port: int, etcd_port: int) -> list[str]:
    """Return the API server's arguments; its certificates and keys lie in ``folder``."""
    return [
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--service-account-key-file={folder / 'service-accounts.key'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--enable-priority-and-fairness=false",
        "--disable-admission-plugins=TaintNodesByCondition",
        "--profiling=false",
    ]


def kube_controller_manager(
    folder: Path, *, kubeconfig: Path, more: Sequence[str] = ()
) -> list[str]:
    """Return the arguments for the controllers of Jobs, namespaces, service accounts, garbage."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join((*CONTROLLERS, *more))}",
        *_CLIENT_OF_ITS_OWN,
        # Nothing is served: neither port nor certificate is needed.
        "--secure-port=0",
        # Each controller under its own account: policies ask who makes pods.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        "--concurrent-gc-syncs=5",
    ]


def kube_scheduler(*, kubeconfig: Path) -> list[str]:
    """Return the scheduler's arguments, nothing served either."""
    return [f"--kubeconfig={kubeconfig}", *_CLIENT_OF_ITS_OWN, "--secure-port=0"]
