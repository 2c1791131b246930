"""Every error of the API in one shape, with everything that is wrong at once."""

from __future__ import annotations

from typing import Any

import structlog
from django.core.exceptions import ObjectDoesNotExist
from django.core.exceptions import ValidationError as ModelValidationError
from django.db import IntegrityError
from django.http import Http404
from rest_framework import exceptions, status, views
from rest_framework.response import Response

from budgets.errors import Fault, NotAllowed, Rejected, StaleVersion
from clusters import errors as cluster_errors

log = structlog.stdlib.get_logger(__name__)


class PreconditionRequired(exceptions.APIException):
    """A write that could overwrite somebody's work came without If-Match."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = (
        "Send If-Match with the ETag that you read, so that no change by somebody else is lost."
    )
    default_code = "precondition_required"


def fault_list(faults: tuple[Fault, ...]) -> list[dict[str, str]]:
    return [{"field": f.field, "code": f.code, "message": f.message} for f in faults]


def problem(status_code: int, code: str, message: str, **more: Any) -> Response:
    return Response({"code": code, "message": message, **more}, status=status_code)


def serializer_faults(detail: Any, path: str = "") -> list[Fault]:
    """DRF's nested error structure as flat faults with dotted paths."""
    if isinstance(detail, dict):
        return [
            fault
            for key, value in detail.items()
            for fault in serializer_faults(
                value, path if key == "non_field_errors" else f"{path}.{key}".lstrip(".")
            )
        ]
    if isinstance(detail, list):
        if all(isinstance(item, exceptions.ErrorDetail) for item in detail):
            return [Fault(path, item.code, str(item)) for item in detail]
        return [
            fault
            for index, value in enumerate(detail)
            for fault in serializer_faults(value, f"{path}.{index}".lstrip("."))
        ]
    return [Fault(path, getattr(detail, "code", "invalid"), str(detail))]


def model_faults(error: ModelValidationError) -> list[Fault]:
    """Django's validation error as faults."""
    fields = error.message_dict if hasattr(error, "error_dict") else {"__all__": error.messages}
    return [
        Fault("" if field == "__all__" else field, "invalid", message)
        for field, messages in fields.items()
        for message in messages
    ]


def cluster_faults(error: cluster_errors.KubeconfigRejected) -> list[Fault]:
    """What somebody has to put right in a kubeconfig or a cluster's object."""
    faults = [Fault(f.field, f.reason or "invalid", f.message) for f in error.fields]
    return faults or [Fault("", error.reason, error.message)]


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler: 422 for what the user can fix, 412 for a stale version."""
    if isinstance(error, exceptions.ValidationError):
        error = Rejected(serializer_faults(error.detail))
    elif isinstance(error, ModelValidationError):
        error = Rejected(model_faults(error))
    elif isinstance(error, cluster_errors.KubeconfigRejected):
        error = Rejected(cluster_faults(error))
    answer = _ours(error)
    if answer is not None:
        return answer
    response = views.exception_handler(error, context)
    if response is not None and isinstance(error, exceptions.APIException):
        response.data = {"code": error.default_code, "message": str(error.detail)}
    return response


def _ours(error: Exception) -> Response | None:
    """The answer to an error that the portal raises on purpose; None for all others."""
    if isinstance(error, Rejected):
        return problem(
            status.HTTP_422_UNPROCESSABLE_ENTITY,
            "rejected",
            "Nothing was saved; everything that is wrong is listed.",
            faults=fault_list(error.faults),
        )
    if isinstance(error, StaleVersion):
        return problem(
            status.HTTP_412_PRECONDITION_FAILED,
            "stale_version",
            str(error),
            current_version=error.current_version,
            changed_by=error.changed_by,
            changed_at=error.changed_at.isoformat().replace("+00:00", "Z"),
        )
    if isinstance(error, NotAllowed):
        return problem(status.HTTP_403_FORBIDDEN, "not_allowed", str(error))
    if isinstance(error, ObjectDoesNotExist | Http404):
        return problem(
            status.HTTP_404_NOT_FOUND,
            "not_found",
            "There is no such object, or you may not see it.",
        )
    if isinstance(error, IntegrityError):
        log.warning("write_conflict", error=error)
        return problem(
            status.HTTP_409_CONFLICT,
            "conflict",
            "Somebody changed the same thing at the same moment. Read it again and decide.",
        )
    if isinstance(error, cluster_errors.Retryable):
        return problem(status.HTTP_503_SERVICE_UNAVAILABLE, "cluster_away", error.message)
    if isinstance(error, cluster_errors.Terminal):
        return problem(status.HTTP_502_BAD_GATEWAY, "cluster_refused", error.message)
    return None
