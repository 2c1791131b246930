"""Answers that say no, shaped as Kubernetes API servers shape them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clusters.documents.resources import Resource

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field's fault: its path, the reason word and the sentence (Status.details.causes)."""

    field: str
    reason: str
    message: str

    @property
    def document(self) -> Document:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def invalid(field: str, value: Any, message: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {message}")


def required(field: str, message: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {message}".removesuffix(": "))


def unsupported(field: str, value: Any, allowed: Sequence[Any]) -> Cause:
    listed = ", ".join(_shown(entry) for entry in allowed)
    message = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return Cause(field, "FieldValueNotSupported", message)


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_many(field: str, count: int, limit: int) -> Cause:
    message = f"Too many: {count}: must have at most {limit} items"
    return Cause(field, "FieldValueTooMany", message)


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def forbidden_field(field: str, message: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {message}")


def encoded(value: Any) -> bytes:
    """JSON as API servers write it: without blanks, and every character as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _shown(value: Any) -> str:
    return encoded(value).decode()


class Failure(Exception):
    """A request that is answered with a failure Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Document | None = None,
        causes: Sequence[Cause] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        listed = [cause.document for cause in causes]
        self.details = {**(details or {}), **({"causes": listed} if causes else {})}

    @property
    def status(self) -> Document:
        told = {"message": self.message, "reason": self.reason, "code": self.code}
        return status_document("Failure", details=self.details, **told)


def status_document(status: str, **told: object) -> Document:
    """A Status: what API servers answer when there is no object to give."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, **told}


def details_of(of: Resource, name: str) -> Document:
    """What an answer is about."""
    return {"name": name, **({"group": of.group} if of.group else {}), "kind": of.plural}


def not_found(of: Resource, name: str) -> Failure:
    message = f'{of.group_resource} "{name}" not found'
    return Failure(404, "NotFound", message, details=details_of(of, name))


def already_exists(of: Resource, name: str) -> Failure:
    message = f'{of.group_resource} "{name}" already exists'
    return Failure(409, "AlreadyExists", message, details=details_of(of, name))


def conflict(of: Resource, name: str, why: str) -> Failure:
    message = f'Operation cannot be fulfilled on {of.group_resource} "{name}": {why}'
    return Failure(409, "Conflict", message, details=details_of(of, name))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def invalid_object(of: Resource, name: str, causes: Sequence[Cause]) -> Failure:
    kind = f"{of.kind}.{of.group}" if of.group else of.kind
    details = details_of(of, name) | {"kind": of.kind}
    message = f'{kind} "{name}" is invalid: {_listed(causes)}'
    return Failure(422, "Invalid", message, details=details, causes=causes)


def denied_by_webhook(webhook: str, causes: Sequence[Cause]) -> Failure:
    text = f'admission webhook "{webhook}" denied the request: {_listed(causes)}'
    return Failure(403, "Forbidden", text)


def _listed(causes: Sequence[Cause]) -> str:
    lines = [f"{cause.field}: {cause.message}" for cause in causes]
    return lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def expired(version: int, oldest: int) -> Failure:
    return Failure(410, "Expired", f"too old resource version: {version} ({oldest})")
