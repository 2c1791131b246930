"""The rights and policies that an admin of a cluster applies there, as one YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from budgets.models import User
from clusters.kueue.multikueue.settings import Framework
from clusters.manifests import names
from clusters.manifests.names import Document
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post, role_documents
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.models import Cluster
from clusters.selectors.fleet import cluster_for
from clusters.selectors.places import policy_wish


def generated_rights(user: User, slug: str) -> str:
    """Roles of every identity on a registered cluster, and its admission policies, as YAML.

    Raises:
        Cluster.DoesNotExist: it is not there, or not for this user.
    """
    cluster = cluster_for(user, slug)
    return rights_yaml(
        role=cluster.role, mode=cluster.mode, allows_local_jobs=cluster.allows_local_jobs
    )


def rights_yaml(
    *, role: str, mode: str, allows_local_jobs: bool = False, workers: Sequence[str] = ()
) -> str:
    """The same for a cluster that is not registered yet.

    Args:
        role: ``manager`` or ``worker``.
        mode: ``kueue`` or ``portal``.
        allows_local_jobs: Jobs may be submitted on this worker directly.
        workers: Slugs of workers to come, besides the registered ones (manager only).
    """
    documents = rights_documents(
        role=role, mode=mode, allows_local_jobs=allows_local_jobs, workers=workers
    )
    return "\n".join(_explained(documents))


def rights_documents(
    *,
    role: str,
    mode: str,
    allows_local_jobs: bool = False,
    workers: Sequence[str] = (),
    kinds: Sequence[Framework] | None = None,
) -> tuple[Document, ...]:
    """Documents of :func:`rights_yaml`, in the order of application.

    Args:
        role: As there.
        mode: As there.
        allows_local_jobs: As there.
        workers: As there.
        kinds: Kinds of jobs besides batch/v1 Job; None for those that the manager names.
    """
    wish = policy_wish(role=role, mode=mode, allows_local_jobs=allows_local_jobs)
    post = Post(
        is_manager=wish.post.is_manager,
        is_portal_mode=wish.post.is_portal_mode,
        installation=wish.post.installation,
        workers=tuple(dict.fromkeys((*wish.post.workers, *workers))),
        lease_namespace=wish.post.lease_namespace,
        kinds=wish.post.kinds if kinds is None else tuple(kinds),
        nominates=wish.post.nominates,
        cures=wish.post.cures,
        has_profiles=wish.post.has_profiles,
    )
    documents = role_documents(
        portal_rules(post), account=names.PORTAL_ACCOUNT, name="gpu-budget-portal"
    )
    if role == Cluster.Role.WORKER:
        documents += role_documents(
            multikueue_rules(post.kinds),
            account=names.MULTIKUEUE_ACCOUNT,
            name="gpu-budget-multikueue",
        )[1:]
    return documents + policy_documents(wish)


def _explained(documents: Iterable[Document]) -> Iterable[str]:
    yield "# Apply with: kubectl apply --server-side -f FILE"
    yield "# The portal writes none of these objects; its preflight checks that they are there."
    for document in documents:
        yield "---"
        yield yaml.safe_dump(document, sort_keys=False).rstrip()
    yield ""
