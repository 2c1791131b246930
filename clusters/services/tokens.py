"""Stored credentials: tokens of the *multikueue* identity, and the keys that seal all of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import Q
from django.utils import timezone

from budgets.errors import Rejected
from budgets.models import User
from budgets.services.audit import audit
from budgets.services.guards import by_admin, require_admin
from budgets.services.second_factor import broken_second_factors, reseal_second_factors
from clusters.credentials import connection_to
from clusters.errors import ClusterError, NotFound, Refusal, ServerFault, collected
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.kube.kubeconfig import with_token
from clusters.kube.shares import IN_TASKS
from clusters.kube.transport import SMALL_ANSWER
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT
from clusters.models import Cluster
from clusters.reconcile.identity import require_same, uid_of
from clusters.services.generations import raise_manager_generation
from clusters.vault import SealBroken, is_readable, reseal, seal

log = structlog.stdlib.get_logger(__name__)

TOKEN_LIFE = timedelta(hours=24)
ROTATE_BEFORE = timedelta(hours=8)
AT_ONCE = 8


def rotate_multikueue_token(actor: User | None, *, cluster: Cluster, reason: str = "") -> datetime:
    """Mint a new token on a worker, store it sealed, and have the manager take it.

    Returns:
        When it ends, UTC.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: the worker does not give one.
    """
    require_admin(actor)
    if not cluster.is_worker:
        raise Rejected.because("cluster", "not_a_worker", "Only workers have such a token.")
    try:
        ends = mint(cluster)
    except ClusterError as error:
        raise Rejected.because("cluster", "no_token", advice(error)) from error
    audit(
        actor,
        "cluster.rotate_token",
        cluster,
        cluster=cluster.slug,
        reason=reason,
        after={"ends": ends.isoformat()},
    )
    return ends


def rotate_due_tokens() -> list[str]:
    """Mint for every active worker whose token is missing or ends soon; one never stops the rest.

    Returns:
        Slugs of the workers that have a new one.

    Raises:
        ExceptionGroup: some could not be rotated; the others were.
    """
    due = (
        Cluster.objects.active()
        .workers()
        .filter(
            Q(multikueue_token_expires_at__isnull=True)
            | Q(multikueue_token_expires_at__lt=timezone.now() + ROTATE_BEFORE)
        )
    )
    rotated: list[str] = []
    errors: list[Exception] = []
    # Beside one another: one that answers a byte at a time keeps no other waiting.
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tokens") as pool:
        asked = {pool.submit(_new_token, worker): worker for worker in due.order_by("slug")}
        for answer in as_completed(asked):
            worker = asked[answer]
            try:
                _keep(worker, *answer.result())
            except Exception as error:  # whatever one worker's answer does, the next gets its token
                reason = getattr(error, "reason", type(error).__name__)
                log.warning("token_not_rotated", cluster=worker.slug, reason=reason)
                errors.append(error)
            else:
                rotated.append(worker.slug)
    if errors:
        raise collected(errors)
    return sorted(rotated)


@by_admin
def reseal_credentials(actor: User | None) -> tuple[int, int]:
    """Seal everything that is stored sealed with the newest key; all of it or nothing.

    Returns:
        Of how many clusters and how many people. After it, older keys can be taken away.

    Raises:
        SealBroken: some cannot be opened with any key; it names their clusters and people.
    """
    count, broken = 0, []
    for cluster in Cluster.objects.select_for_update().order_by("pk"):
        if not cluster.kubeconfig_sealed:
            continue
        try:
            cluster.kubeconfig_sealed = reseal(cluster.kubeconfig_sealed)
            if cluster.multikueue_kubeconfig_sealed:
                cluster.multikueue_kubeconfig_sealed = reseal(cluster.multikueue_kubeconfig_sealed)
        except SealBroken:
            broken.append(cluster.slug)
            continue
        cluster.save(update_fields=["kubeconfig_sealed", "multikueue_kubeconfig_sealed"])
        count += 1
    people = reseal_second_factors()
    broken_people = broken_second_factors()
    if broken or broken_people:
        raise SealBroken(f"Nothing was changed. {words_of_broken(broken, broken_people)}")
    after = {"count": count, "second_factors": people}
    audit(actor, "credentials.reseal", "clusters", after=after)
    return count, people


def broken_credentials() -> list[str]:
    """Slugs of registered clusters with a credential that no key opens. One query."""
    sealed = Cluster.objects.registered().order_by("slug")
    found = sealed.values_list("slug", "kubeconfig_sealed", "multikueue_kubeconfig_sealed")
    return [slug for slug, *each in found if not all(is_readable(one) for one in each if one)]


def words_of_broken(slugs: Sequence[str], people: Sequence[str]) -> str:
    """What is wrong with what no key opens, and the way out.

    Args:
        slugs: Of clusters, by their credentials.
        people: By user name, by their second factors.
    """
    words = []
    if slugs:
        words.append(
            f"The keys in PORTAL_CREDENTIAL_KEYS do not open the credentials of {', '.join(slugs)}."
            " Add the key that sealed them, or renew each kubeconfig on its cluster's page."
        )
    if people:
        words.append(
            "The keys in PORTAL_CREDENTIAL_KEYS do not open the second factors of "
            f"{', '.join(people)}. Add the key that sealed them, or remove each second factor on "
            "its person's page."
        )
    return " ".join(words)


def mint(worker: Cluster) -> datetime:
    """Mint and store; raises the manager's generation, so that its Secret follows.

    Raises:
        ClusterError: the worker refused, or is another cluster; NotFound when the service account
            is missing there.
    """
    return _keep(worker, *_new_token(worker))


def _new_token(worker: Cluster) -> tuple[bytes, datetime]:
    """A sealed kubeconfig with a new token, and its end; touches no database."""
    to, share = connection_to(worker.kubeconfig_sealed), IN_TASKS.of(worker.slug)
    with KubeClient.from_connection(to, share=share) as client:
        require_same(worker.slug, worker.uid, uid_of(client))
        token, ends = _read_token(_request_token(client))
    # The same cluster, reached with a token instead of the portal's own credential.
    return seal(with_token(to, token, name=worker.slug)), ends


def _keep(worker: Cluster, sealed: bytes, ends: datetime) -> datetime:
    worker.multikueue_kubeconfig_sealed = sealed
    worker.multikueue_token_expires_at = ends
    worker.save(update_fields=["multikueue_kubeconfig_sealed", "multikueue_token_expires_at"])
    raise_manager_generation()
    log.info("token_rotated", cluster=worker.slug, ends=ends.isoformat())
    return ends


def advice(error: ClusterError) -> str:
    """What an admin can do about a token that is not given."""
    return (
        f"No token for the service account {MULTIKUEUE_ACCOUNT} in {KUEUE_NAMESPACE}: "
        f"{error.message}. Apply the generated rights to this worker."
    )


def _read_token(answer: dict[str, Any]) -> tuple[str, datetime]:
    """Token and end of a TokenRequest's answer; raises ServerFault for any other one."""
    words = "the answer is not a token with the time of its end"
    try:
        token, ends = answer["status"]["token"], answer["status"]["expirationTimestamp"]
        found = datetime.fromisoformat(ends)
    except (KeyError, TypeError, ValueError) as error:
        raise ServerFault(Refusal(words)) from error
    if not isinstance(token, str) or not token or found.tzinfo is None:
        raise ServerFault(Refusal(words))
    return token, found


def _request_token(client: KubeClient) -> dict[str, Any]:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": MULTIKUEUE_ACCOUNT, "namespace": KUEUE_NAMESPACE},
        "spec": {"expirationSeconds": int(TOKEN_LIFE.total_seconds())},
    }
    options = WriteOptions(subresource="token", limit=SMALL_ANSWER)
    try:
        return client.create(r.SERVICE_ACCOUNT, body, options=options)
    except NotFound:
        # Where the portal may, it makes the account; its rights stay an admin's to give.
        account = {"metadata": {"name": MULTIKUEUE_ACCOUNT, "namespace": KUEUE_NAMESPACE}}
        client.create(r.SERVICE_ACCOUNT, account)
        return client.create(r.SERVICE_ACCOUNT, body, options=options)
