"""The rights and policies that an admin of a cluster applies there, as one YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import yaml

from budgets.models import User
from clusters.documents.resources import Resource
from clusters.manifests import names
from clusters.manifests.names import Document
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import bound_roles, role_documents
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.manifests.wish import account_of
from clusters.models import Cluster
from clusters.selectors.fleet import cluster_for
from clusters.selectors.places import policy_wish


def generated_rights(user: User, slug: str) -> str:
    """Roles of every identity on a registered cluster, and its admission policies, as YAML.

    Raises:
        Cluster.DoesNotExist: it is not there, or not for this user.
    """
    return rights_yaml(cluster_for(user, slug))


def rights_yaml(cluster: Cluster, *, workers: Sequence[str] = ()) -> str:
    """The same for a cluster that may not be registered yet.

    Args:
        cluster: Its role, its mode, and whether jobs may be submitted there directly.
        workers: Slugs of workers to come, besides the registered ones (manager only).
    """
    return "\n".join(_explained(rights_documents(cluster, workers=workers)))


def rights_documents(
    cluster: Cluster,
    *,
    workers: Sequence[str] = (),
    kinds: Sequence[Resource] | None = None,
) -> tuple[Document, ...]:
    """Documents of :func:`rights_yaml`, in the order of application.

    Args:
        cluster: As there.
        workers: As there.
        kinds: Kinds of jobs besides batch/v1 Job; None for those that the manager names, or a
            single cluster's own Configuration.
    """
    wish = policy_wish(cluster)
    post = replace(
        wish.post,
        workers=tuple(dict.fromkeys((*wish.post.workers, *workers))),
        kinds=wish.post.kinds if kinds is None else tuple(kinds),
    )
    rules, name = portal_rules(post), "gpu-budget-portal"
    if cluster.is_own:
        # Beside the rights that the chart gives, for what came later: kinds of jobs, workers.
        namespace, account = account_of(wish.portal_user)
        documents = bound_roles(rules, account=account, namespace=namespace, name=name)
    else:
        documents = role_documents(rules, account=names.PORTAL_ACCOUNT, name=name)
    if cluster.is_worker:
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
