"""Which cluster answers: the UID of its namespace kube-system tells one cluster from another.

A copied kubeconfig, another context, another address of the same API server and a backup restored
elsewhere all show the same UID. One that was never asked is known by its server and authority.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q

from clusters.errors import Forbidden, NotFound, Refusal, Terminal
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.transport import SMALL_ANSWER
from clusters.models import Cluster, ClusterHealth
from clusters.reconcile.context import is_writable

UID_LIMIT = 64


class OtherCluster(Terminal):
    """Another cluster answers than the one that is registered, or one that is registered twice."""


def uid_of(client: KubeClient) -> str:
    """The UID of the cluster that answers; empty where it does not tell.

    Raises:
        ClusterError: it does not answer.
    """
    try:
        answer = client.get(r.NAMESPACE, "kube-system", limit=SMALL_ANSWER)
        found = answer["metadata"].get("uid")
    except (Forbidden, NotFound):
        return ""
    return found if isinstance(found, str) and len(found) <= UID_LIMIT else ""


def holder_of(
    *, uid: str = "", server: str = "", authority: str = "", other_than: str
) -> Cluster | None:
    """The registered cluster that this one is, by its UID or by its server and authority.

    Args:
        uid: Of the cluster; empty where it is not known.
        server: Address of its API server.
        authority: Fingerprint of the authority that its certificate is checked against; empty for
            the system's own.
        other_than: Slug that may have them.
    """
    alike = Q()
    if uid:
        alike |= Q(uid=uid)
    if server:
        alike |= Q(server=server, ca_fingerprint=authority)
    found = Cluster.objects.registered().without_secrets().exclude(slug=other_than)
    return found.filter(alike).first() if alike else None


def confirm(slug: str, client: KubeClient) -> None:
    """See that a registered cluster is still the one that answers; the first answer is kept.

    Raises:
        OtherCluster: another cluster answers, or another registration has this one.
        ClusterError: it does not answer.
    """
    confirm_uid(slug, uid_of(client))


def confirm_uid(slug: str, found: str) -> None:
    """The same, of the UID that a cluster has told; empty where it told none.

    Raises:
        OtherCluster: as :func:`confirm`.
    """
    known = Cluster.objects.registered().filter(slug=slug).values_list("uid", flat=True).first()
    if not found or known is None or found == known:
        return
    if known:
        raise OtherCluster(Refusal(_words(found, known, slug)))
    try:
        with transaction.atomic():
            Cluster.objects.filter(slug=slug, uid="").update(uid=found)
    except IntegrityError:
        raise OtherCluster(Refusal(_words(found, known, slug))) from None


def require_same(slug: str, known: str, found: str) -> None:
    """The same, of the UID that is known, without the database.

    Raises:
        OtherCluster: as :func:`confirm`.
    """
    if known and found not in ("", known):
        raise OtherCluster(Refusal(_elsewhere(f"A cluster with UID {found}", known, slug)))


def switches_now() -> dict[str, bool]:
    """Whether each registered cluster may be written to. One query.

    Its switch is on, no decision is waited for, and the last look did not find another cluster.
    """
    others = ClusterHealth.objects.filter(cluster=OuterRef("pk"), reason=OtherCluster.__name__)
    rows = Cluster.objects.registered().annotate(is_another=Exists(others))
    return {
        slug: is_writable(writes_enabled=is_enabled, blocked_reason=blocked) and not is_another
        for slug, is_enabled, blocked, is_another in rows.values_list(
            "slug", "writes_enabled", "blocked_reason", "is_another"
        )
    }


def _words(found: str, known: str, slug: str) -> str:
    other = holder_of(uid=found, other_than=slug)
    which = f"The cluster {other.name} ({other.slug})" if other else f"A cluster with UID {found}"
    if not known:
        return f"{which} is the same cluster. De-register one of the two as lost."
    return _elsewhere(which, known, slug)


def _elsewhere(which: str, known: str, slug: str) -> str:
    return (
        f"{which} answers at the address of {slug}, which has UID {known}. Give {slug} a "
        "kubeconfig that leads to it; if it was rebuilt, de-register it as lost and register it "
        "again."
    )
