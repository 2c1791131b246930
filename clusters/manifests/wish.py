"""What the admission policies of a cluster are made from: values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clusters.documents.resources import Resource
from clusters.manifests import names
from clusters.manifests.rbac import Post

WRITES: Final = ("CREATE", "UPDATE")
ALL: Final = (*WRITES, "DELETE")


def account_user(account: str) -> str:
    """Name under which an API server knows a service account, NAMESPACE/NAME."""
    return f"system:serviceaccount:{account.replace('/', ':', 1)}"


def account_of(user: str) -> tuple[str, str]:
    """Namespace and name of the service account that an API server knows as a user.

    Raises:
        ValueError: the user is no service account.
    """
    before, _, account = user.partition("system:serviceaccount:")
    namespace, _, name = account.partition(":")
    if before or not namespace or not name:
        raise ValueError(f"{user!r} is not the user of a service account")
    return namespace, name


def _kueue_account(name: str) -> str:
    return account_user(f"{names.KUEUE_NAMESPACE}/{name}")


@dataclass(frozen=True, slots=True)
class PolicyWish:
    """What the policies of one cluster have to know.

    Attributes:
        post: The cluster's place in the fleet.
        allows_local_jobs: Jobs may be submitted on this worker, outside the split.
        gpu_resources: Device resource names that count as GPUs, besides those of known makers.
        operators: Users by which controllers of kinds of jobs are known there: they make the parts
            of jobs that queue as a whole.
        denies_elsewhere: Pods with GPUs are refused in namespaces that are no workspace.
        exempt_namespaces: Where they are not.
        portal_user: Name under which the API server knows the *portal* identity.
        multikueue_user: Likewise for *multikueue*.
        kueue_user: Likewise for Kueue's controller.
    """

    post: Post
    allows_local_jobs: bool = False
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    operators: tuple[str, ...] = ()
    denies_elsewhere: bool = False
    exempt_namespaces: tuple[str, ...] = ()
    portal_user: str = _kueue_account(names.PORTAL_ACCOUNT)
    multikueue_user: str = _kueue_account(names.MULTIKUEUE_ACCOUNT)
    kueue_user: str = _kueue_account(names.KUEUE_ACCOUNT)

    @property
    def starters(self) -> tuple[str, ...]:
        """Who starts jobs and lets pods go: whoever decides, and operators with their parts."""
        decides = self.portal_user if self.post.is_portal_mode else self.kueue_user
        return (decides, *self.operators)

    @property
    def takes_jobs(self) -> bool:
        """Whether people submit jobs here."""
        return self.post.takes_jobs or self.allows_local_jobs


class Served(NamedTuple):
    """Resources of one API group, as a policy names them."""

    group: str
    version: str
    plurals: tuple[str, ...]

    @classmethod
    def of(cls, resource: Resource) -> Served:
        """One kind."""
        return cls(resource.group, resource.version, (resource.plural,))


@dataclass(frozen=True, slots=True)
class Guard:
    """One expression and its sentence.

    Attributes:
        holds: CEL; true when the request may pass.
        message: What happened, why, and what to do.
        reason: Of the answer: Forbidden where it is a matter of who asks, Invalid of what.
    """

    holds: str
    message: str
    reason: str = "Forbidden"


@dataclass(frozen=True, slots=True)
class Guarded:
    """One policy: its guards, what they are asked about, and the variables that they share."""

    on: Sequence[Served]
    guards: Sequence[Guard]
    variables: Mapping[str, str] = field(default_factory=dict)
    operations: Sequence[str] = WRITES
