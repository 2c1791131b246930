"""From what the HTTP layer reports to documents that can be stored, and to the portal's own errors.

Kubernetes checks names and labels, not messages: what a failed process printed last can come, NUL
and all, into the condition of a Workload. PostgreSQL has no NUL, and one such message must not
hold up what every other workload of the cluster did.

Of an answer that says no only the Status document is read; request headers and bodies, which may
hold tokens and Secrets, never get into a message.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

import urllib3.exceptions as http_errors

from budgets.texts import read_json, storable
from clusters.errors import (
    AdmissionDenied,
    AlreadyExists,
    ApplyConflict,
    ClusterError,
    Conflict,
    FieldFault,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Refusal,
    ServerFault,
    Terminal,
    Throttled,
    TimedOut,
    Unauthenticated,
    Unreachable,
    Untrusted,
)
from clusters.kube.shares import MIB, weigh

MESSAGE_LIMIT = 4000
STATUS_MOST = 32 * MIB
"""Bytes of memory that the Status of a refusal may take; it quotes an object or two at most."""
_FAMILY: Mapping[int, type[ClusterError]] = {
    400: Invalid, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 405: Invalid,
    408: TimedOut, 409: Conflict, 410: Gone, 413: Invalid, 415: Invalid, 422: Invalid,
    429: Throttled, 504: TimedOut,
}  # fmt: skip
_CREDENTIAL = re.compile(
    r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{8,}|\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)
_DENIED = ("admission webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")


def without_credentials(text: str) -> str:
    """The text with anything that looks like a bearer token blotted out, and of bounded length."""
    return _CREDENTIAL.sub(lambda match: (match[1] or "") + "[hidden]", text)[:MESSAGE_LIMIT]


def error_of_answer(code: int, body: bytes, *, target: str = "") -> ClusterError:
    """The error for an answer with a status of 400 or more; the body may be anything."""
    return error_of_status(_status_document(body), code=code, target=target)


def error_of_status(status: Mapping[str, Any], *, code: int = 0, target: str = "") -> ClusterError:
    """The error for a Status document, as in an answer's body or in a watch's ERROR event."""
    code = code or _whole(status.get("code")) or 500
    details: Any = status.get("details")
    details = details if isinstance(details, dict) else {}
    causes: Any = details.get("causes")
    causes = causes if isinstance(causes, list) else []
    refusal = Refusal(
        message=without_credentials(str(status.get("message") or f"HTTP status {code}")),
        reason=str(status.get("reason") or ""),
        code=code,
        target=target,
        fields=tuple(_fault(cause) for cause in causes if isinstance(cause, dict)),
    )
    return _family(refusal)(refusal)


def error_of_transport(error: Exception, *, target: str = "") -> ClusterError:
    """The error for a request that got no (whole) answer."""
    if isinstance(error, http_errors.MaxRetryError) and error.reason is not None:
        error = error.reason
    family: type[ClusterError] = Unreachable
    if isinstance(error, http_errors.NewConnectionError):
        pass  # urllib3 counts it among its timeouts
    elif isinstance(error, http_errors.TimeoutError | TimeoutError):
        family = TimedOut
    elif isinstance(error, http_errors.SSLError | ssl.SSLCertVerificationError):
        family = Untrusted if "CERTIFICATE_VERIFY_FAILED" in str(error) else Unreachable
    message = _transport_sentence(error)
    return family(Refusal(message, target=target))


def _transport_sentence(error: Exception) -> str:
    """What happened, in words; where it is not known, urllib3's without its objects and classes."""
    text = re.sub(r"<[^>]*>: ?|<[^>]*>", "", str(error)).strip()
    text = without_credentials(re.sub(r"^\w+\(host=.*?\): ", "", text))
    for kinds, part, sentence in _SENTENCES:
        if isinstance(error, kinds) and part in text:
            return sentence
    return text or "The connection failed; the cause is not known."


_NO_WHOLE_ANSWER = "The server closed the connection before its answer was complete."
_SENTENCES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (
        http_errors.NameResolutionError,
        "",
        "No address is known for the server's name. Check the address in the kubeconfig and the "
        "name servers of this machine.",
    ),
    (
        (http_errors.NewConnectionError, ConnectionRefusedError),
        "refused",
        "Nothing listens at the server's address and port (connection refused).",
    ),
    (
        (http_errors.NewConnectionError, OSError),
        "unreachable",
        "There is no route to the server's address.",
    ),
    (
        http_errors.ConnectTimeoutError,
        "",
        "The server did not take the connection in time. Check the address and the firewalls.",
    ),
    (http_errors.ReadTimeoutError, "", "The server did not answer in time."),
    (
        (http_errors.SSLError, ssl.SSLCertVerificationError),
        "CERTIFICATE_VERIFY_FAILED",
        "The kubeconfig's certificate authority did not sign the server's certificate for this "
        "address.",
    ),
    (
        (http_errors.SSLError, ssl.SSLError),
        "WRONG_VERSION_NUMBER",
        "The server does not speak TLS at this port. Check that the address is that of the API "
        "server.",
    ),
    ((http_errors.ProtocolError, ConnectionResetError), "", _NO_WHOLE_ANSWER),
)


def _family(refusal: Refusal) -> type[ClusterError]:
    code, reason = refusal.code, refusal.reason
    if code == 409 and any(fault.reason == "FieldManagerConflict" for fault in refusal.fields):
        return ApplyConflict
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code in (400, 403, 422) and any(word in refusal.message for word in _DENIED):
        return AdmissionDenied
    if code == 500 and "field not declared in schema" in refusal.message:
        return Invalid
    if reason in ("Expired", "Gone"):
        return Gone
    return _FAMILY.get(code, ServerFault if code >= 500 or code < 400 else Terminal)


def _status_document(body: bytes) -> Mapping[str, Any]:
    """The Status of a body; its first words where it is none, or would take too much memory."""
    try:
        document = read_json(body) if weigh(body) <= STATUS_MOST else None
    except ValueError:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return document
    return {"message": storable(body[:300].decode("utf-8", "replace").strip())}


def _fault(cause: Mapping[str, Any]) -> FieldFault:
    return FieldFault(
        str(cause.get("field") or ""),
        without_credentials(str(cause.get("message") or "")),
        str(cause.get("reason") or ""),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
