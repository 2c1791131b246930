"""What can go wrong with a cluster, in three families.

*KubeconfigRejected*: a person can put it right; every fault is told at once, as with
:class:`budgets.errors.Rejected`, which forms and services raise.
*Retryable*: trying again later can succeed; the only family that tasks may retry on their own.
*Terminal*: the cluster understood and said no; recorded as a condition, not retried.

The classes carry what the API server told (reason, message, status code, the fields concerned) and
never a credential: neither request headers nor request bodies reach them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One field that a cluster or the portal objects to: its path, why, and a short reason word."""

    field: str
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an API server answered instead of doing what was asked.

    `code` is the HTTP status, 0 when there was no answer; `target` names what was asked for, as
    "PATCH clusterqueues/team-a".
    """

    message: str
    reason: str = ""
    code: int = 0
    target: str = ""
    fields: tuple[FieldFault, ...] = field(default=())


class ClusterError(Exception):
    """Base of everything that this package raises on purpose.

    Attributes:
        default_reason: Where the answer names none; the class's own name, if empty.
    """

    default_reason = ""

    def __init__(self, refusal: Refusal | str) -> None:
        self.refusal = Refusal(refusal) if isinstance(refusal, str) else refusal
        super().__init__(self.refusal.message)

    @property
    def reason(self) -> str:
        """One CamelCase word, fit for a condition."""
        return self.refusal.reason or self.default_reason or type(self).__name__

    @property
    def message(self) -> str:
        return self.refusal.message

    @property
    def status_code(self) -> int:
        """HTTP status of the answer, 0 when there was none."""
        return self.refusal.code

    @property
    def target(self) -> str:
        return self.refusal.target

    @property
    def fields(self) -> tuple[FieldFault, ...]:
        return self.refusal.fields

    def __str__(self) -> str:
        return f"{self.target}: {self.message}" if self.target else self.message

    def __reduce__(self) -> tuple[type[ClusterError], tuple[Refusal]]:
        # Celery pickles or re-creates exceptions from their arguments.
        return type(self), (self.refusal,)


class KubeconfigRejected(ClusterError):
    """A pasted kubeconfig holds what the portal refuses to use; `fields` lists every fault."""


class Retryable(ClusterError):
    """Trying again later can succeed."""


class Conflict(Retryable):
    """409: the object changed meanwhile, or a precondition no longer holds; read it again."""


class AlreadyExists(Retryable):
    """409: somebody else created it first; read it and decide."""


class Unreachable(Retryable):
    """No answer: refused, reset, broken TLS, unknown host, closed half-way.

    After a write the cluster may or may not have done it.
    """


class Untrusted(Unreachable):
    """The server's certificate is not one that the kubeconfig's CA vouches for, or not for it."""

    default_reason = "CertificateNotTrusted"


class TimedOut(Unreachable):
    """No answer in time. After a write the cluster may or may not have done it."""

    default_reason = "Timeout"


class Gone(Retryable):
    """410: this resourceVersion or continue token is too old; list again."""

    default_reason = "Expired"


class Throttled(Retryable):
    """429: the API server asks to slow down."""

    default_reason = "TooManyRequests"


class ServerFault(Retryable):
    """5xx, or an answer that makes no sense."""

    default_reason = "InternalError"


class AnswerTooLarge(ServerFault):
    """An answer of more bytes than anybody has use for."""

    default_reason = "AnswerTooLarge"


class LeaseLost(Retryable):
    """The writer's lease is not certain any more: nothing may be written under it."""


class Terminal(ClusterError):
    """The cluster understood and said no."""


class CredentialUnusable(Terminal):
    """What opens the cluster cannot be read on this server; the cluster was not asked."""


class Unauthenticated(Terminal):
    """401: the credential is unknown or has expired."""

    default_reason = "Unauthorized"


class Forbidden(Terminal):
    """403: the identity may not do this."""


class AdmissionDenied(Forbidden):
    """403 or 422 by an admission webhook or policy, not for want of rights."""


class NotFound(Terminal):
    """404: no such object, namespace or resource."""


class Invalid(Terminal):
    """400, 405, 413, 415 or 422: the object or the request is not acceptable; see `fields`."""


class ApplyConflict(Terminal):
    """409 on server-side apply: other managers own fields with other values, those of `fields`.

    Trying again does not help; force, or leave the fields to their owners.
    """

    default_reason = "FieldManagerConflict"


def collected(errors: Sequence[Exception]) -> ExceptionGroup[Exception]:
    """Several clusters' or objects' errors as one to raise, after all of them had their turn."""
    return ExceptionGroup(f"{len(errors)} of the writes failed", list(errors))
