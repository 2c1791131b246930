"""From what is stored of a cluster to what a client needs: the one place where that is decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from clusters.kube.kubeconfig import (
    Connection,
    KubeconfigFacts,
    connection_of,
    facts_of,
    fingerprint,
)
from clusters.kube.own_account import own_connection, own_user
from clusters.models import Cluster
from clusters.vault import OWN_ACCOUNT, is_own_account, seal, unseal

ENDS_SOON = timedelta(days=14)
"""So long before a credential ends people are told to renew it."""


@dataclass(frozen=True, slots=True)
class Credential:
    """How the portal signs in to a cluster, and what may be shown of that.

    Attributes:
        kubeconfig: With one context and its data in place; empty for the portal's own service
            account, of which nothing is stored.
    """

    connection: Connection
    facts: KubeconfigFacts
    kubeconfig: str = field(default="", repr=False)

    def stored(self) -> bytes:
        """For the database.

        Raises:
            ImproperlyConfigured: there is something to seal, and no usable key is set.
        """
        return seal(self.kubeconfig) if self.kubeconfig else OWN_ACCOUNT


def credential_in(kubeconfig: str) -> Credential:
    """The credential of a kubeconfig with one context.

    Raises:
        KubeconfigRejected: it is not usable.
    """
    return Credential(connection_of(kubeconfig), facts_of(kubeconfig), kubeconfig)


def own_credential() -> Credential:
    """That of the portal itself, in the cluster that it runs in.

    Raises:
        OwnAccountUnusable: it does not run in one that it may sign in to, or a file is not right.
    """
    connection = own_connection()
    facts = KubeconfigFacts(
        context=own_user(),
        server=connection.server,
        ca_fingerprint=fingerprint(connection.ca_pem),
        user_kind=Cluster.OWN_ACCOUNT,
        ends=None,
    )
    return Credential(connection, facts)


def connection_to(stored: bytes | memoryview) -> Connection:
    """What a client needs for a registered cluster.

    Args:
        stored: Its sealed kubeconfig, or the mark of the portal's own service account.

    Raises:
        CredentialUnusable: no key opens it, or a file of the service account is not right.
        KubeconfigRejected: what is stored is not usable (any more).
    """
    return own_connection() if is_own_account(stored) else connection_of(unseal(stored))
